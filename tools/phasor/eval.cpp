// phasor eval: perplexity of a text for a list of contexts and a list of scalings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "eval_table.hpp"
#include "model_options.hpp"
#include "output.hpp"
#include "phasor/config/config.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/internal/perplexity.hpp"
#include "phasor/text/tokenizer.hpp"
#include "progress.hpp"
#include "text_files.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

struct EvalFlags {
  ModelOptions model;
  std::string text, ids, longrope, csv;
  std::vector<std::int64_t> contexts;
  std::vector<std::string> scalings = {"none", "linear", "ntk", "dynamic", "yarn"};
  std::int64_t stride = 0, max_tokens = 0;
  bool json = false;
};

// What the contexts are compared with.
struct Training {
  std::int64_t length = 0;  // 0: not known
  std::string source;
  encodings::RopeScaling own = encodings::DefaultScaling{};  // of the layers that rotate
};

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

std::string training_note(const Training& training) {
  if (training.length == 0) return "the config does not state the trained length";
  std::string note =
      fmt::format("trained to {} positions ({}); ", training.length, training.source);
  note += std::holds_alternative<encodings::DefaultScaling>(training.own)
              ? "`none` extrapolates beyond it"
              : fmt::format("`none` keeps the model's own {} scaling, the others replace it",
                            encodings::name_of(training.own));
  return note;
}

// The lists from a config with longrope, or from a dictionary as in rope_scaling.
std::optional<encodings::LongRopeScaling> read_longrope(const std::string& path) {
  if (path.empty()) return std::nullopt;
  std::string text = io::read_text(path).value_or_throw();
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
  const config::ModelConfig config = config::parse_config(text, path).value_or_throw();
  for (const config::LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    if (const auto* found = std::get_if<encodings::LongRopeScaling>(&group.rope->scaling))
      return *found;
  }
  refuse(message(path, ": no longrope scaling found"));
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

class Evaluation {
 public:
  Evaluation(const EvalFlags& flags, models::Decoder& decoder, std::vector<std::int64_t> ids)
      : flags_(flags),
        decoder_(decoder),
        ids_(std::move(ids)),
        training_(training_of(decoder)),
        longrope_(read_longrope(flags.longrope)),
        model_name_(short_name(flags.model.model) + (flags.model.fast ? " (fast)" : "")) {
    if (!flags.csv.empty()) resume();
  }

  // Every cell; the CSV file is whole after each of them.
  void run() {
    plan();
    for (const Cell& cell : plan_) compute(cell);
    save();
  }

  [[nodiscard]] const Training& training() const { return training_; }
  // Those that were asked for; the CSV file may hold more.
  [[nodiscard]] std::vector<EvalCell> cells() const {
    std::vector<EvalCell> asked;
    for (const Cell& cell : plan_)
      asked.push_back(*find_cell(cells_, cell.name, cell.context, cell.stride));
    return asked;
  }
  [[nodiscard]] const std::string& model_name() const { return model_name_; }
  [[nodiscard]] std::size_t tokens() const { return ids_.size(); }

 private:
  struct Cell {
    std::string name;
    std::int64_t context = 0, stride = 0;
    double factor = 1.0;
    std::optional<encodings::RopeScaling> scaling;
    encodings::RopeScaling essence;
  };

  // Checks all names and lengths before the first cell runs.
  void plan() {
    for (const std::int64_t context : flags_.contexts) {
      for (const std::string& name : flags_.scalings) {
        Cell cell;
        cell.name = name;
        cell.context = context;
        cell.stride = flags_.stride == 0 ? context / 2 : flags_.stride;
        cell.scaling =
            models::scaling_for(name, training_.length, context, longrope_).value_or_throw();
        if (name == "longrope") {
          cell.factor = longrope_->factor;
        } else if (name != "none") {
          cell.factor =
              std::max(1.0, static_cast<double>(context) / static_cast<double>(training_.length));
        }
        cell.essence = essence(cell.scaling, training_, cell.factor);
        (void)decoder_.sequence({.capacity = 1, .scaling = cell.scaling});
        plan_.push_back(std::move(cell));
      }
    }
    save();
  }

  void compute(const Cell& cell) {
    progress_.begin(fmt::format("{}, context {}", cell.name, cell.context));
    if (find_cell(cells_, cell.name, cell.context, cell.stride)) {
      progress_.end("already in the CSV file");
      return;
    }
    EvalCell made{model_name_, cell.name, cell.factor, cell.stride, {}};
    if (const EvalCell* same = same_numbers(cell)) {
      made.value = same->value;
      made.value.seconds = 0.0;
      progress_.end(fmt::format("the same frequencies as {}", same->scaling));
    } else {
      made.value = models::perplexity(
          decoder_, ids_, {.context = cell.context, .stride = cell.stride, .scaling = cell.scaling},
          [&](std::int64_t done, std::int64_t all) {
            progress_.move(static_cast<double>(done), static_cast<double>(all));
            return true;
          });
      progress_.end(fmt::format("perplexity {:.3f} ({:.4f} +- {:.4f} nats), {} tokens, {:.1f} s",
                                made.value.perplexity, made.value.nats, made.value.standard_error,
                                made.value.scored, made.value.seconds));
    }
    cells_.push_back(std::move(made));
    save();
  }

  [[nodiscard]] const EvalCell* same_numbers(const Cell& cell) const {
    for (const Cell& other : plan_) {
      if (other.context != cell.context || !(other.essence == cell.essence)) continue;
      if (const EvalCell* found = find_cell(cells_, other.name, other.context, other.stride))
        return found;
    }
    return nullptr;
  }

  void resume() {
    cells_ = read_eval_csv(flags_.csv);
    for (const EvalCell& cell : cells_) {
      if (cell.model != model_name_)
        refuse(message(flags_.csv, " holds results of model ", cell.model, ", not of ", model_name_,
                       "; give a new file to --csv"));
      if (cell.value.scored + 1 != static_cast<std::int64_t>(ids_.size()))
        refuse(message(flags_.csv, " holds results for a text of ", cell.value.scored + 1,
                       " tokens, this one has ", ids_.size(), "; give a new file to --csv"));
    }
  }

  void save() const {
    if (!flags_.csv.empty()) write_text(flags_.csv, eval_csv(cells_));
  }

  const EvalFlags& flags_;
  models::Decoder& decoder_;
  std::vector<std::int64_t> ids_;
  Training training_;
  std::optional<encodings::LongRopeScaling> longrope_;
  std::string model_name_;
  std::vector<Cell> plan_;
  std::vector<EvalCell> cells_;
  Progress progress_;
};

void check_flags(EvalFlags& flags) {
  for (const std::int64_t context : flags.contexts) {
    if (context < 2) refuse(message("--contexts must be at least 2, got ", context));
    if (flags.stride > context)
      refuse(message("--stride must be at most the context, got ", flags.stride, " for context ",
                     context));
  }
  std::sort(flags.contexts.begin(), flags.contexts.end());
  flags.contexts.erase(std::unique(flags.contexts.begin(), flags.contexts.end()),
                       flags.contexts.end());
  std::vector<std::string> once;
  for (const std::string& name : flags.scalings) {
    // The length does not matter for an unknown name.
    if (name != "longrope") (void)models::scaling_for(name, 1, 1).value_or_throw();
    if (name == "longrope" && flags.longrope.empty())
      refuse("--scaling longrope requires --longrope FACTORS.json");
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  }
  flags.scalings = once;
  if (flags.text.empty() == flags.ids.empty())
    refuse(flags.text.empty() ? "--text or --ids is required"
                              : "--text cannot be combined with --ids");
}

std::vector<std::int64_t> text_ids(const EvalFlags& flags) {
  std::vector<std::int64_t> ids;
  if (flags.ids.empty()) {
    constexpr std::size_t kLimit = std::size_t{1} << 30;
    const std::string text = io::read_text(flags.text, kLimit).value_or_throw();
    const std::unique_ptr<text::Tokenizer> tokenizer =
        text::read_tokenizer(flags.model.model).value_or_throw();
    // A text about models may well spell "<|im_end|>": here it is text.
    ids = tokenizer->encode(text, text::SpecialText::as_text);
    if (tokenizer->specials().add_begin && tokenizer->specials().begin)
      ids.insert(ids.begin(), *tokenizer->specials().begin);
  } else {
    const IdArray array = read_ids(flags.ids);
    if (array.batch != 1)
      refuse(ErrorCode::shape_mismatch,
             message("--ids must hold one sequence, got ", array.batch, " rows"));
    ids = array.values;
  }
  if (flags.max_tokens > 0 && static_cast<std::int64_t>(ids.size()) > flags.max_tokens)
    ids.resize(static_cast<std::size_t>(flags.max_tokens));
  const std::int64_t needed = flags.contexts.back() + 1;
  if (static_cast<std::int64_t>(ids.size()) < needed)
    refuse(message("a context of ", flags.contexts.back(), " needs a text of at least ", needed,
                   " tokens, got ", ids.size()));
  return ids;
}

io::Json number(double value) { return std::isfinite(value) ? io::Json(value) : io::Json(nullptr); }

void print_json(const EvalFlags& flags, const Evaluation& evaluation) {
  io::Json page;
  page["model"] = evaluation.model_name();
  page["tokens"] = evaluation.tokens();
  page["trained"] =
      evaluation.training().length > 0 ? io::Json(evaluation.training().length) : io::Json(nullptr);
  page["note"] = training_note(evaluation.training());
  page["cells"] = io::Json::array();
  for (const EvalCell& cell : evaluation.cells()) {
    const models::Perplexity& value = cell.value;
    page["cells"].push_back({{"scaling", cell.scaling},
                             {"factor", cell.factor},
                             {"context", value.context},
                             {"stride", cell.stride},
                             {"windows", value.windows},
                             {"scored_tokens", value.scored},
                             {"nats", number(value.nats)},
                             {"standard_error", number(value.standard_error)},
                             {"perplexity", number(value.perplexity)},
                             {"last_quarter_nats", number(value.last_quarter_nats)},
                             {"seconds", value.seconds}});
  }
  page["summary"] = eval_sentence(evaluation.cells(), flags.scalings, flags.contexts);
  print_out("{}\n", page.dump());
}

int run_eval(EvalFlags flags) {
  check_flags(flags);
  std::vector<std::int64_t> ids = text_ids(flags);
  models::Decoder decoder =
      models::Decoder::load(flags.model.model, compute_options(flags.model)).value_or_throw();
  Evaluation evaluation(flags, decoder, std::move(ids));
  evaluation.run();
  if (flags.json) {
    print_json(flags, evaluation);
    return exit_code::done;
  }
  print_out("model   {}\ntext    {} tokens\n{}\n{}\n{}", evaluation.model_name(),
            evaluation.tokens(), in_lines("note    ", training_note(evaluation.training())),
            eval_page(evaluation.cells(), flags.scalings, flags.contexts),
            in_lines("", eval_sentence(evaluation.cells(), flags.scalings, flags.contexts)));
  return exit_code::done;
}

}  // namespace

void add_eval(CommandLine& line) {
  auto flags = std::make_shared<EvalFlags>();
  Verb& verb = line.verb("eval", "perplexity of a text for each context length and scaling");
  add_model_options(verb, flags->model);
  verb.flag("--text", &flags->text, "a text file, UTF-8");
  verb.flag("--ids", &flags->ids, "token ids instead of text: .npy [tokens]");
  verb.flag("--contexts", &flags->contexts, "context lengths: 512,1024,...")
      .separated_by(',')
      .required();
  verb.flag("--scaling", &flags->scalings,
            "none, linear, ntk, dynamic, yarn, longrope (default all but longrope)")
      .separated_by(',');
  verb.flag("--longrope", &flags->longrope,
            "JSON: {\"short_factor\": [...], \"long_factor\": [...], "
            "\"original_max_position_embeddings\": N}, or a config.json with longrope");
  verb.flag("--stride", &flags->stride, "tokens between windows (default: half the context)")
      .at_least(1);
  verb.flag("--max-tokens", &flags->max_tokens, "use the first N tokens of the text (default: all)")
      .at_least(1);
  verb.flag(
      "--csv", &flags->csv,
      "write each result to this file; results that are already in it are not computed again");
  verb.flag("--json", &flags->json, "print the result as one JSON object");
  verb.footer =
      R"(Slides a window over the text; every token after the first is scored once, with at least
context - stride tokens before it. The weights are unchanged; a scaling changes only the
frequencies, by the factor context / trained length. `none` is the model unchanged.

CSV      model, scaling, factor, context, stride, windows, scored_tokens, nats,
         standard_error, perplexity, last_quarter_nats, seconds

Example  phasor eval model.gguf --text book.txt --contexts 4096,8192,16384 --csv eval.csv)";
  verb.action = [flags] { return run_eval(*flags); };
}

}  // namespace phasor::tools
