// phasor eval: perplexity of a text for lists of contexts, scalings, offsets and kinds of angles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "eval_cells.hpp"
#include "eval_run.hpp"
#include "eval_table.hpp"
#include "model_options.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/content_hash.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/internal/perplexity.hpp"
#include "phasor/text/tokenizer.hpp"
#include "signals.hpp"
#include "text_files.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

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
  // Offsets and angles are compared on the model as it is.
  const bool moved = !flags.offsets.empty() || !flags.angles.empty();
  if (flags.offsets.empty()) flags.offsets = {0};
  if (flags.angles.empty()) flags.angles = {"exact"};
  if (flags.scalings.empty()) {
    flags.scalings = {"none"};
    if (!moved) flags.scalings.insert(flags.scalings.end(), {"linear", "ntk", "dynamic", "yarn"});
  }
  std::vector<core::AngleMode> angles;
  for (const std::string& name : flags.angles) angles.push_back(*core::angle_mode_of(name));
  for (const std::int64_t offset : flags.offsets) {
    if (offset < 0) refuse(message("--offset must be at least 0, got ", offset));
  }
  for (const std::string& name : flags.scalings) {
    // The length does not matter for an unknown name.
    if (name != "longrope") (void)models::scaling_for(name, 1, 1).value_or_throw();
    if (name == "longrope" && flags.longrope.empty())
      refuse("--scaling longrope requires --longrope FACTORS.json");
    for (const core::AngleMode mode : angles) {
      for (const std::int64_t offset : flags.offsets) {
        const EvalLine line{name, offset, mode};
        if (std::find(flags.lines.begin(), flags.lines.end(), line) == flags.lines.end())
          flags.lines.push_back(line);
      }
    }
  }
  if (flags.text.empty() == flags.ids.empty())
    refuse(flags.text.empty() ? "--text or --ids is required"
                              : "--text cannot be combined with --ids");
  if (flags.csv == "-") refuse("--csv must be a file, since it is read too, got -");
}

std::string key_of(const std::vector<std::int64_t>& ids) {
  io::ContentHash hash;
  hash.add(std::as_bytes(std::span(ids)));
  return hash.text();
}

EvalText read_eval_text(const EvalFlags& flags) {
  EvalText result;
  std::vector<std::int64_t>& ids = result.ids;
  if (flags.ids.empty()) {
    constexpr std::size_t kLimit = std::size_t{1} << 30;
    const std::string text = flags.text == "-" ? read_text_or_stdin(flags.text)
                                               : io::read_text(flags.text, kLimit).value_or_throw();
    const std::unique_ptr<text::Tokenizer> tokenizer =
        text::read_tokenizer(flags.model.model).value_or_throw();
    io::ContentHash hash;
    hash.add(text);
    result.text_key = hash.text();
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
    result.text_key = key_of(ids);
  }
  if (flags.max_tokens > 0 && static_cast<std::int64_t>(ids.size()) > flags.max_tokens)
    ids.resize(static_cast<std::size_t>(flags.max_tokens));
  const std::int64_t needed = flags.contexts.back() + 1;
  if (static_cast<std::int64_t>(ids.size()) < needed)
    refuse(message("a context of ", flags.contexts.back(), " needs a text of at least ", needed,
                   " tokens, got ", ids.size()));
  result.ids_key = key_of(ids);
  return result;
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
    page["cells"].push_back({{"scaling", cell.id.line.scaling},
                             {"factor", cell.factor},
                             {"context", value.context},
                             {"stride", cell.id.stride},
                             {"offset", cell.id.line.offset},
                             {"angles", core::name_of(cell.id.line.angles)},
                             {"windows", value.windows},
                             {"scored_tokens", value.scored},
                             {"nats", number(value.nats)},
                             {"standard_error", number(value.standard_error)},
                             {"perplexity", number(value.perplexity)},
                             {"last_quarter_nats", number(value.last_quarter_nats)},
                             {"seconds", value.seconds}});
  }
  page["summary"] = eval_sentence(evaluation.cells(), flags.lines, flags.contexts);
  print_out("{}\n", page.dump());
}

// The scalings of the default list, for a model without RoPE.
void keep_the_models_own(const models::Decoder& decoder, EvalFlags& flags) {
  const std::vector<config::LayerGroup>& groups = decoder.config().groups;
  const bool rotates = std::any_of(groups.begin(), groups.end(),
                                   [](const auto& group) { return group.rope.has_value(); });
  if (rotates) return;
  std::erase_if(flags.lines, [](const EvalLine& line) { return line.scaling != "none"; });
}

int run_eval(EvalFlags flags) {
  const bool default_scalings = flags.scalings.empty();
  check_flags(flags);
  EvalText text = read_eval_text(flags);
  agree_on_ids(text.ids);
  models::Checkpoint checkpoint = models::Checkpoint::open(flags.model.model).value_or_throw();
  std::string model_key = flags.csv.empty() ? "" : checkpoint.content_key();
  models::Decoder decoder =
      models::Decoder::load(std::move(checkpoint), compute_options(flags.model)).value_or_throw();
  if (default_scalings) keep_the_models_own(decoder, flags);
  Evaluation evaluation(flags, decoder, std::move(text), std::move(model_key));
  if (const int signal = evaluation.run()) {
    print_err("phasor eval: {}\n", evaluation.how_to_continue());
    end_by(signal);
  }
  if (flags.json) {
    print_json(flags, evaluation);
    return exit_code::done;
  }
  print_out("model   {}\ntext    {} tokens\n{}\n{}\n{}", evaluation.model_name(),
            evaluation.tokens(), in_lines("note    ", training_note(evaluation.training())),
            eval_page(evaluation.cells(), flags.lines, flags.contexts),
            in_lines("", eval_sentence(evaluation.cells(), flags.lines, flags.contexts)));
  return exit_code::done;
}

}  // namespace

void add_eval(CommandLine& line) {
  auto flags = std::make_shared<EvalFlags>();
  Verb& verb = line.verb("eval", "perplexity of a text for each context length and scaling");
  verb.runs_on_ranks = true;
  add_model_options(verb, flags->model);
  verb.flag("--text", &flags->text, "a text file, UTF-8; -: stdin");
  verb.flag("--ids", &flags->ids, "token ids instead of text: .npy [tokens]");
  verb.flag("--contexts", &flags->contexts, "context lengths: 512,1024,8k,...")
      .separated_by(',')
      .required();
  verb.flag("--scaling", &flags->scalings,
            "scalings to compare (default all but longrope; with --offset or --angles: none)")
      .separated_by(',')
      .one_of({"none", "linear", "ntk", "dynamic", "yarn", "longrope"});
  verb.flag("--longrope", &flags->longrope,
            "a JSON file, or JSON itself: {\"short_factor\": [...], \"long_factor\": [...], "
            "\"original_max_position_embeddings\": N}, or a config.json with longrope");
  verb.flag("--stride", &flags->stride, "tokens between windows (default: half the context)")
      .at_least(1);
  verb.flag("--offset", &flags->offsets,
            "add N to every position; a list is evaluated one by one (default 0)")
      .separated_by(',');
  verb.flag("--angles", &flags->angles,
            "how cos and sin are computed (default exact); a list is evaluated one by one")
      .separated_by(',')
      .one_of({"exact", "float32", "bfloat16_frequencies", "bfloat16", "float16"});
  verb.flag("--max-tokens", &flags->max_tokens, "use the first N tokens of the text (default: all)")
      .at_least(1);
  verb.flag(
      "--csv", &flags->csv,
      "write each result to this file; results that are already in it are not computed again, and "
      "an interrupted one continues after its last finished window");
  verb.flag("--json", &flags->json, "print the result as one JSON object");
  verb.footer =
      R"(Slides a window over the text; every token after the first is scored once, with at least
context - stride tokens before it. The weights are unchanged; a scaling changes only the
frequencies, by the factor context / trained length. `none` is the model unchanged.

RoPE depends on distances only: with exact angles --offset changes nothing. The other angles
are computed in float32, as other engines do: from frequencies rounded to bfloat16, or with
the angle rounded to bfloat16 or float16. --offset and --angles need a model with RoPE and a
scaling that does not depend on the context.

CSV      model, scaling, factor, context, stride, windows, scored_tokens, nats,
         standard_error, perplexity, last_quarter_nats, seconds, offset, angles, precision,
         model_key, text_key, ids_key, scaling_key
         A key is a hash of the content: of the model's files, of the text, of its token ids, of
         the scaling's parameters. Results of other keys are refused. FILE.partial holds the
         finished windows of an interrupted result.

Ranks    mpirun -n 4 phasor eval ... divides each window among 4 ranks, each with a quarter of its
         keys and values; nats are within 1e-6 of those of one rank.

Example  phasor eval model.gguf --text book.txt --contexts 4096,8192,16384 --csv eval.csv
         phasor eval model.gguf --text book.txt --contexts 2048 --offset 0,1000000 \
           --angles exact,float32,bfloat16)";
  verb.action = [flags] { return run_eval(*flags); };
}

}  // namespace phasor::tools
