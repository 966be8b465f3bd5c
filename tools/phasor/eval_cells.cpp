#include "eval_cells.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file.hpp"
#include "ranks.hpp"

namespace phasor::tools {
namespace {

constexpr std::string_view kUnkeyedHeader =
    "model,scaling,factor,context,stride,windows,scored_tokens,nats,standard_error,perplexity,"
    "last_quarter_nats,seconds";
constexpr std::string_view kCellsHeader =
    "model,scaling,factor,context,stride,windows,scored_tokens,nats,standard_error,perplexity,"
    "last_quarter_nats,seconds,offset,angles,precision,model_key,text_key,ids_key,scaling_key";
constexpr std::string_view kPartsHeader =
    "scaling,context,stride,offset,angles,precision,model_key,text_key,ids_key,scaling_key,windows,"
    "seconds,count,mean,squares,tail_count,tail_mean,tail_squares";

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The fields of a row, read one after the other. `good` stays true while they parse.
class Fields {
 public:
  explicit Fields(std::string_view line) : fields_(split(line, ',')) {}

  // from_chars reads "nan" as well, which is how missing numbers are written.
  template <class T>
  Fields& operator>>(T& number) {
    const std::string_view text = next();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    good_ = good_ && error == std::errc() && end == text.data() + text.size();
    return *this;
  }
  Fields& operator>>(std::string& text) {
    text = next();
    return *this;
  }
  Fields& operator>>(core::AngleMode& angles) {
    const std::optional<core::AngleMode> found = core::angle_mode_of(next());
    good_ = good_ && found;
    angles = found.value_or(core::AngleMode::exact);
    return *this;
  }
  Fields& operator>>(EvalKeys& keys) {
    return *this >> keys.precision >> keys.model >> keys.text >> keys.ids;
  }
  Fields& operator>>(models::RunningMean& mean) {
    return *this >> mean.count >> mean.mean >> mean.squares;
  }
  [[nodiscard]] bool whole() const { return good_ && at_ == fields_.size(); }

 private:
  std::string_view next() {
    good_ = good_ && at_ < fields_.size();
    return good_ ? fields_[at_++] : std::string_view();
  }

  std::vector<std::string_view> fields_;
  std::size_t at_ = 0;
  bool good_ = true;
};

// Calls row(Fields) for each row after the header; false: the row does not parse.
template <class Row>
void read_rows(const std::string& path, std::string_view header, const Row& row) {
  // Rank 0 alone may have the file, and writes it.
  std::string text;
  if (is_first_rank() && std::filesystem::exists(path)) text = io::read_text(path).value_or_throw();
  if (ranks() != nullptr) ranks()->broadcast(text);
  if (text.empty()) return;
  std::size_t number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (number == 1 && line == kUnkeyedHeader)
      refuse(ErrorCode::io,
             message(path,
                     " has no columns model_key, text_key and ids_key: its results cannot be "
                     "matched with this model and text; give a new file to --csv"));
    if (number == 1 && line != header)
      refuse(ErrorCode::io, message(path, " is not a CSV file of phasor eval: unknown header"));
    if (number == 1 || line.empty()) continue;
    if (!row(Fields(line)))
      refuse(ErrorCode::io, message(path, ": line ", number,
                                    " is not a row of phasor eval: ", line.substr(0, 60)));
  }
}

std::string keys_text(const EvalId& id) {
  return fmt::format("{},{},{},{},{}", id.keys.precision, id.keys.model, id.keys.text, id.keys.ids,
                     id.scaling_key);
}

[[noreturn]] void refuse_keys(const std::string& path, std::string_view what, std::string_view key,
                              std::string_view there, std::string_view here) {
  refuse(message(path, " holds results ", what, ": ", key, " ", there, " there, ", here,
                 " here; give a new file to --csv"));
}

}  // namespace

std::string EvalLine::label() const {
  std::string text = scaling;
  if (angles != core::AngleMode::exact) text += fmt::format(", {}", core::name_of(angles));
  if (offset != 0) text += fmt::format(", offset {}", offset);
  return text;
}

std::string eval_csv(const std::vector<EvalCell>& cells) {
  std::string text = fmt::format("{}\n", kCellsHeader);
  for (const EvalCell& cell : cells) {
    const models::Perplexity& value = cell.value;
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{:.3f},{},{},{}\n", cell.model, cell.id.line.scaling,
        cell.factor, cell.id.context, cell.id.stride, value.windows, value.scored, value.nats,
        value.standard_error, value.perplexity, value.last_quarter_nats, value.seconds,
        cell.id.line.offset, core::name_of(cell.id.line.angles), keys_text(cell.id));
  }
  return text;
}

std::vector<EvalCell> read_eval_csv(const std::string& path) {
  std::vector<EvalCell> cells;
  read_rows(path, kCellsHeader, [&](Fields fields) {
    EvalCell cell;
    EvalId& id = cell.id;
    models::Perplexity& value = cell.value;
    fields >> cell.model >> id.line.scaling >> cell.factor >> id.context >> id.stride >>
        value.windows >> value.scored >> value.nats >> value.standard_error >> value.perplexity >>
        value.last_quarter_nats >> value.seconds >> id.line.offset >> id.line.angles >> id.keys >>
        id.scaling_key;
    if (!fields.whole()) return false;
    value.context = id.context;
    cells.push_back(std::move(cell));
    return true;
  });
  return cells;
}

std::string eval_parts_csv(const std::vector<EvalPart>& parts) {
  std::string text = fmt::format("{}\n", kPartsHeader);
  for (const EvalPart& part : parts) {
    const auto mean = [](const models::RunningMean& sums) {
      return fmt::format("{},{},{}", sums.count, sums.mean, sums.squares);
    };
    text += fmt::format("{},{},{},{},{},{},{},{:.3f},{},{}\n", part.id.line.scaling,
                        part.id.context, part.id.stride, part.id.line.offset,
                        core::name_of(part.id.line.angles), keys_text(part.id), part.state.windows,
                        part.state.seconds, mean(part.state.all), mean(part.state.last_quarter));
  }
  return text;
}

std::vector<EvalPart> read_eval_parts(const std::string& path) {
  std::vector<EvalPart> parts;
  read_rows(path, kPartsHeader, [&](Fields fields) {
    EvalPart part;
    EvalId& id = part.id;
    fields >> id.line.scaling >> id.context >> id.stride >> id.line.offset >> id.line.angles >>
        id.keys >> id.scaling_key >> part.state.windows >> part.state.seconds >> part.state.all >>
        part.state.last_quarter;
    if (!fields.whole()) return false;
    parts.push_back(std::move(part));
    return true;
  });
  return parts;
}

void check_same_keys(const std::string& path, const EvalKeys& there, const EvalKeys& here) {
  if (there.model != here.model)
    refuse_keys(path, "of another model", "model_key", there.model, here.model);
  // A text that differs only after --max-tokens has the same results.
  if (there.ids != here.ids && there.text != here.text)
    refuse_keys(path, "of another text", "text_key", there.text, here.text);
  if (there.ids != here.ids)
    refuse_keys(path, "of other tokens of this text (another tokenizer or --max-tokens)", "ids_key",
                there.ids, here.ids);
  if (there.precision != here.precision)
    refuse_keys(path, "of another precision (--fast)", "precision", there.precision,
                here.precision);
}

void check_same_scaling(const std::string& path, const EvalId& there, const EvalId& here) {
  if (there.scaling_key != here.scaling_key)
    refuse_keys(
        path,
        fmt::format("of {} with other parameters at context {}", here.line.scaling, here.context),
        "scaling_key", there.scaling_key, here.scaling_key);
}

}  // namespace phasor::tools
