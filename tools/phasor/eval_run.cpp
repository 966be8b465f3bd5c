#include "eval_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "config_source.hpp"
#include "given_command.hpp"
#include "output.hpp"
#include "phasor/config/config.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/content_hash.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"
#include "ranks.hpp"
#include "signals.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

Training training_of(const models::Decoder& decoder) {
  Training training;
  const config::ModelConfig& config = decoder.config();
  training.length = decoder.facts().trained_length;
  training.source = config.max_position_key;
  for (const config::LayerGroup& group : config.groups) {
    if (!group.rope || std::holds_alternative<encodings::DefaultScaling>(group.rope->scaling))
      continue;
    training.own = group.rope->scaling;
    // A scaling that replaces the model's own starts from the length before that one.
    if (const auto original = encodings::original_length(training.own)) {
      training.length = *original;
      training.source = fmt::format("the original length of its own {} scaling",
                                    encodings::name_of(training.own));
    }
  }
  return training;
}

// The lists from a config with longrope, or from a dictionary as in rope_scaling.
std::optional<encodings::LongRopeScaling> read_longrope(const std::string& path) {
  if (path.empty()) return std::nullopt;
  std::string text = read_json_text(path);
  io::Json json;
  try {
    json = io::parse_object(text);
  } catch (const Error&) {
    // parse_config() below says what is wrong.
  }
  if (json.is_object() && json.contains("long_factor") && json["long_factor"].is_array()) {
    json["type"] = "longrope";
    json.erase("rope_type");
    const io::Json spec = {{"head_dim", 2 * json["long_factor"].size()}, {"scaling", json}};
    text = spec.dump();
  }
  const config::ModelConfig config = config::parse_config(text, config_name(path)).value_or_throw();
  for (const config::LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    if (const auto* found = std::get_if<encodings::LongRopeScaling>(&group.rope->scaling))
      return *found;
  }
  refuse(message(config_name(path), ": no longrope scaling found"));
}

// What the frequencies of a cell come down to: within the trained length every scaling with a
// factor is plain RoPE.
encodings::RopeScaling essence(const std::optional<encodings::RopeScaling>& scaling,
                               const Training& training, double factor) {
  if (!scaling) return training.own;
  const bool has_factor = !std::holds_alternative<encodings::LongRopeScaling>(*scaling);
  if (has_factor && factor == 1.0) return encodings::DefaultScaling{};
  return *scaling;
}

std::string label_of(const EvalId& id) {
  return fmt::format("{}, context {}", id.line.label(), id.context);
}

}  // namespace

Evaluation::Evaluation(const EvalFlags& flags, models::Decoder& decoder, EvalText text,
                       std::string model_key)
    : flags_(flags),
      decoder_(decoder),
      ids_(std::move(text.ids)),
      keys_{flags.model.fast ? "fast" : "exact", std::move(model_key), std::move(text.text_key),
            std::move(text.ids_key)},
      training_(training_of(decoder)),
      longrope_(read_longrope(flags.longrope)),
      model_name_(short_name(flags.model.model) + (flags.model.fast ? " (fast)" : "")) {
  if (!flags.csv.empty()) resume();
}

int Evaluation::run() {
  // Ranks cannot stop at the same token: there a signal ends the command.
  std::optional<StopOnSignal> signals;
  if (ranks() == nullptr) signals.emplace();
  try {
    const core::CancellationScope scope(&StopOnSignal::cancellation());
    plan();
    for (const Cell& cell : plan_) compute(cell);
    save();
    return 0;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled || StopOnSignal::signal() == 0) throw;
  }
  progress_.end("stopped");
  if (running_ != nullptr && parts_.back().state.windows == 0) parts_.pop_back();
  keep();
  return StopOnSignal::signal();
}

std::string Evaluation::how_to_continue() const {
  if (flags_.csv.empty()) return "stopped; nothing is kept without --csv FILE";
  std::string text = message("stopped; finished results are in ", flags_.csv);
  if (!parts_.empty())
    text += message(", ", parts_.back().state.windows, " finished windows of ",
                    label_of(parts_.back().id), " in ", parts_path());
  const std::string command = given_command();
  return text + (command.empty() ? "; the same command continues" : "; to continue:\n  " + command);
}

std::vector<EvalCell> Evaluation::cells() const {
  std::vector<EvalCell> asked;
  for (const Cell& cell : plan_) asked.push_back(*find(cell.id));
  return asked;
}

void Evaluation::plan() {
  for (const std::int64_t context : flags_.contexts) {
    for (const EvalLine& line : flags_.lines) {
      Cell cell;
      const std::string& name = line.scaling;
      cell.id = {line, context, flags_.stride == 0 ? context / 2 : flags_.stride, "", keys_};
      cell.scaling =
          models::scaling_for(name, training_.length, context, longrope_).value_or_throw();
      cell.id.scaling_key = scaling_key(cell.scaling);
      if (name == "longrope") {
        cell.factor = longrope_->factor;
      } else if (name != "none") {
        cell.factor =
            std::max(1.0, static_cast<double>(context) / static_cast<double>(training_.length));
      }
      cell.essence = essence(cell.scaling, training_, cell.factor);
      check_positions(cell);
      if (const EvalCell* kept = find(cell.id)) check_same_scaling(flags_.csv, kept->id, cell.id);
      plan_.push_back(std::move(cell));
    }
  }
  save();
}

void Evaluation::check_positions(const Cell& cell) const {
  const EvalLine& line = cell.id.line;
  const std::int64_t limit = decoder_.facts().position_limit;
  if (limit > 0 && cell.id.context > limit)
    refuse(ErrorCode::out_of_range,
           message("--contexts must be at most ", limit,
                   ", the learned positions of the model, got ", cell.id.context));
  if (line.offset > std::numeric_limits<std::int64_t>::max() - cell.id.context)
    refuse(ErrorCode::out_of_range, message("--offset is too large, got ", line.offset));
  const std::int64_t last = line.offset == 0 && line.angles == core::AngleMode::exact
                                ? 0
                                : line.offset + cell.id.context - 1;
  (void)decoder_.sequence(
      {.capacity = 1, .scaling = cell.scaling, .first_position = last, .angles = line.angles});
}

std::string Evaluation::scaling_key(const std::optional<encodings::RopeScaling>& scaling) const {
  io::ContentHash hash;
  for (const config::LayerGroup& group : decoder_.config().groups) {
    if (!group.rope || !scaling) continue;
    encodings::RopeSpec spec = *group.rope;
    spec.scaling = *scaling;
    hash.add(config::plain_spec_json(spec));
  }
  return hash.text();
}

void Evaluation::compute(const Cell& cell) {
  progress_.begin(label_of(cell.id));
  if (find(cell.id)) {
    progress_.end("already in the CSV file");
    return;
  }
  EvalCell made{model_name_, cell.id, cell.factor, {}};
  if (const EvalCell* same = same_numbers(cell)) {
    made.value = same->value;
    made.value.seconds = 0.0;
    progress_.end(fmt::format("the same frequencies as {}", same->id.line.label()));
  } else {
    made.value = score(cell);
    progress_.end(fmt::format("perplexity {:.3f} ({:.4f} +- {:.4f} nats), {} tokens, {:.1f} s",
                              made.value.perplexity, made.value.nats, made.value.standard_error,
                              made.value.scored, made.value.seconds));
  }
  cells_.push_back(std::move(made));
  save();
  if (running_ == nullptr) return;
  running_ = nullptr;
  parts_.pop_back();
  keep();
}

models::Perplexity Evaluation::score(const Cell& cell) {
  begin_part(cell);
  EvalPart& part = parts_.back();
  std::int64_t kept = part.state.windows;
  std::optional<std::chrono::steady_clock::time_point> last_kept;
  bool continues = kept > 0;
  const auto progress = [&](std::int64_t done, std::int64_t all) {
    // The first call of a continued cell has the tokens of the earlier run.
    if (std::exchange(continues, false))
      progress_.begin(label_of(cell.id), static_cast<double>(done));
    progress_.move(static_cast<double>(done), static_cast<double>(all));
    const auto now = std::chrono::steady_clock::now();
    if (part.state.windows > kept && (!last_kept || now - *last_kept >= std::chrono::seconds(2))) {
      keep();
      kept = part.state.windows;
      last_kept = now;
    }
    return true;
  };
  return models::perplexity(decoder_, ids_,
                            {.context = cell.id.context,
                             .stride = cell.id.stride,
                             .scaling = cell.scaling,
                             .first_position = cell.id.line.offset,
                             .angles = cell.id.line.angles,
                             .share = shared_context()},
                            progress, &part.state);
}

void Evaluation::begin_part(const Cell& cell) {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const EvalPart& part) {
    return part.id.same_place(cell.id);
  });
  if (found == parts_.end()) {
    parts_.push_back({cell.id, {}});
  } else {
    check_same_scaling(parts_path(), found->id, cell.id);
    std::rotate(found, found + 1, parts_.end());
    print_err("{}: continues after window {}\n", label_of(cell.id), parts_.back().state.windows);
  }
  running_ = &cell;
}

const EvalCell* Evaluation::find(const EvalId& id) const {
  const auto found = std::find_if(cells_.begin(), cells_.end(),
                                  [&](const EvalCell& cell) { return cell.id.same_place(id); });
  return found == cells_.end() ? nullptr : &*found;
}

const EvalCell* Evaluation::same_numbers(const Cell& cell) const {
  for (const Cell& other : plan_) {
    if (other.id.context != cell.id.context || other.id.line.offset != cell.id.line.offset ||
        other.id.line.angles != cell.id.line.angles || !(other.essence == cell.essence))
      continue;
    if (const EvalCell* found = find(other.id)) return found;
  }
  return nullptr;
}

void Evaluation::resume() {
  cells_ = read_eval_csv(flags_.csv);
  for (const EvalCell& cell : cells_) check_same_keys(flags_.csv, cell.id.keys, keys_);
  parts_ = read_eval_parts(parts_path());
  for (const EvalPart& part : parts_) check_same_keys(parts_path(), part.id.keys, keys_);
  // Of a run that ended between its two files.
  std::erase_if(parts_, [&](const EvalPart& part) { return find(part.id) != nullptr; });
}

void Evaluation::save() const {
  if (!flags_.csv.empty()) write_text(flags_.csv, eval_csv(cells_));
}
void Evaluation::keep() const {
  if (flags_.csv.empty() || !is_first_rank()) return;
  if (!parts_.empty()) return write_text(parts_path(), eval_parts_csv(parts_));
  std::error_code ignored;
  std::filesystem::remove(parts_path(), ignored);
}

}  // namespace phasor::tools
