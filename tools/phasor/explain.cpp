// phasor explain: every layer's encoding with its numbers, on one page.
#include "phasor/porting/config_reports.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "commands.hpp"
#include "config_source.hpp"
#include "output.hpp"
#include "pages/explain.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/models/internal/describe.hpp"
#include "rope_flags.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

struct ExplainFlags {
  std::string model;
  RopeFlags rope;
  std::optional<std::int64_t> context;
  bool pairs = false, json = false;
};

void print_weights(const models::ModelDescription& weights) {
  print_out("\nweights: {} parameters in {} tensors, {}\n", weights.parameters, weights.tensors,
            size_text(static_cast<double>(weights.bytes)));
  for (const models::ModelDescription::Type& type : weights.types) {
    print_out("  {:<15}{} tensors, {} parameters, {}\n", type.name, type.tensors, type.parameters,
              size_text(static_cast<double>(type.bytes)));
  }
  if (weights.cache_bytes_per_token != 0) {
    print_out("  {:<15}{} per token in float32\n", "cache",
              size_text(static_cast<double>(weights.cache_bytes_per_token)));
  }
  print_out("{}", in_lines(fmt::format("  {:<15}", "tokenizer"), weights.tokenizer));
  print_out("{}", in_lines(fmt::format("  {:<15}", "runs"),
                           weights.runs_as == "decoder"           ? "phasor run, logits, eval"
                           : weights.runs_as == "encoder"         ? "phasor fill, logits"
                           : weights.runs_as == "encoder-decoder" ? "phasor run, logits"
                                                                  : "no: " + weights.refusal));
}

int run_explain(const ExplainFlags& flags) {
  const porting::ReadableConfig config =
      read_readable(config_or_flags(flags.model, flags.rope, "MODEL"));
  const porting::Explanation explanation = porting::explain(config, flags.context).value_or_throw();
  const std::optional<models::ModelDescription> weights = models::describe_weights(flags.model);
  if (flags.json) {
    auto page = io::Json::parse(porting::explain_json(explanation));
    if (weights) page["weights"] = io::Json::parse(models::describe_json(*weights));
    print_out("{}\n", page.dump());
  } else {
    print_out("{}", explain_page(explanation, flags.pairs ? PairList::every : PairList::bands));
    if (weights) print_weights(*weights);
  }
  return exit_code::done;
}

}  // namespace

void add_explain(CommandLine& line) {
  auto flags = std::make_shared<ExplainFlags>();
  Verb& verb = line.verb(
      "explain", "explain the position encoding of every layer and the config key of each number");
  verb.argument("model", &flags->model, kConfigHelp).value("CONFIG").read_by(config_path);
  verb.flag("--context", &flags->context,
            "sequence length in tokens (default: within the original length)")
      .at_least(1);
  add_rope_flags(verb, flags->rope, "model");
  verb.flag("--pairs", &flags->pairs, "list every pair instead of groups");
  verb.flag("--json", &flags->json, "print the result as one JSON object");
  verb.footer =
      R"(Prints for every layer which features rotate, their frequencies and amplitude, and the config
key of each number. Warns about keys without effect, keys that engines read differently, and
a context beyond the trained length.

Example  phasor explain model/ --context 65536)";
  verb.action = [flags] { return run_explain(*flags); };
}

}  // namespace phasor::tools
