// phasor plan: compares scaling methods for a longer context, or strategies over ranks.
#include "phasor/porting/config_reports.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "config_source.hpp"
#include "output.hpp"
#include "phasor/io/internal/json.hpp"
#include "plan_ranks.hpp"
#include "rope_flags.hpp"
#include "text_files.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

struct PlanFlags {
  std::string config, csv, method;
  RopeFlags rope;
  porting::PlanOptions options;
  RanksFlags ranks;
  bool json = false;
};

std::string band_name(const porting::PlanBand& band) {
  if (!band.to_rotations) return fmt::format("{:g} or more", band.from_rotations);
  return band.from_rotations == 0.0
             ? fmt::format("less than {:g}", *band.to_rotations)
             : fmt::format("{:g} to {:g}", band.from_rotations, *band.to_rotations);
}

void print_bands(const porting::Plan& plan) {
  constexpr std::array<std::string_view, porting::kBands> kSeen = {
      "every angle, many times", "every angle, often", "every angle",
      "only part of the circle: larger angles are new"};
  print_out("\n  {:<24} {:>5}  {}\n", fmt::format("rotations within {}", plan.trained), "pairs",
            "seen in training");
  for (std::size_t i = 0; i < porting::kBands; ++i) {
    print_out("  {:<24} {:>5}  {}\n", band_name(plan.bands[i]), plan.bands[i].pairs, kSeen[i]);
  }
}

// "1", "0.25" or "0.25-0.8".
std::string compression_text(const porting::PlanBand& band, const porting::BandEffect& effect) {
  if (band.pairs == 0) return "-";
  const std::string least = fmt::format("{:.2g}", effect.least_compression);
  const std::string most = fmt::format("{:.2g}", effect.most_compression);
  return least == most ? fmt::format("{:.3g}", effect.least_compression) : least + "-" + most;
}

void print_methods(const porting::Plan& plan) {
  print_out("\n  {:<9} {:>9} {:>11}  {:<48} {:>13}\n", "", "", "pairs with",
            "frequency / unscaled, by rotations (1: as trained)", "reach of the");
  print_out("  {:<9} {:>9} {:>11}  {:<11} {:<11} {:<11} {:<12} {:>13}\n", "method", "amplitude",
            "new angles", "32 or more", "8 to 32", "1 to 8", "less than 1", "slowest band");
  for (const porting::PlanMethod& method : plan.methods) {
    if (!method.problem.empty()) {
      print_out("{}",
                in_lines(fmt::format("  {:<9} does not apply: ", method.name), method.problem));
      continue;
    }
    std::array<std::string, porting::kBands> columns;
    for (std::size_t i = 0; i < porting::kBands; ++i)
      columns[i] = compression_text(plan.bands[i], method.bands[i]);
    const bool any_slow = plan.bands.back().pairs > 0;
    print_out("  {:<9} {:>9.5g} {:>11}  {:<11} {:<11} {:<11} {:<12} {:>13}\n", method.name,
              method.amplitude,
              fmt::format("{} of {}", method.out_of_distribution, method.pairs.size()), columns[0],
              columns[1], columns[2], columns[3],
              any_slow ? fmt::format("x {:.3g}", method.bands.back().furthest) : "-");
  }
}

// Lists of one number per pair do not fit a page.
constexpr std::size_t kLongList = 12;

bool has_long_list(const io::Json& value) {
  if (value.is_array() && value.size() > kLongList) return true;
  if (!value.is_object()) return false;
  for (const auto& [key, entry] : value.items()) {
    if (has_long_list(entry)) return true;
  }
  return false;
}

void print_snippet(std::string_view title, const porting::PlanSnippet& snippet) {
  if (snippet.json.empty()) {
    print_out("{}", in_lines("  ", fmt::format("{}: none ({})", title, snippet.problem)));
    return;
  }
  std::string remarks;
  if (!snippet.remove.empty())
    remarks += fmt::format("; remove {}", fmt::join(snippet.remove, ", "));
  if (!snippet.problem.empty()) remarks += "; " + snippet.problem;
  if (has_long_list(io::Json::parse(snippet.json))) {
    print_out("{}", in_lines("  ", fmt::format("{}{}: one number per pair, --json prints it", title,
                                               remarks)));
    return;
  }
  print_out("{}", in_lines("  ", fmt::format("{}{}", title, remarks)));
  std::string line;
  for (const char character : snippet.json + "\n") {
    if (character != '\n') {
      line += character;
      continue;
    }
    print_out("    {}\n", line);
    line.clear();
  }
}

// One line that can be pasted into a shell.
void print_flags(std::string_view engine, const porting::EngineFlags& flags, bool too_long) {
  if (flags.flags.empty()) {
    print_out("{}", in_lines(fmt::format("  {:<11}", engine), flags.problem));
  } else if (too_long) {
    print_out("  {:<11}one number per pair, --json prints it\n", engine);
  } else {
    print_out("  {:<11}{}\n", engine, flags.flags);
  }
}

void print_details(const porting::PlanMethod& method) {
  print_out("\n{}\n", method.name);
  print_out("{}", in_lines("  ", method.trade_off[0]));
  print_out("{}", in_lines("  ", method.trade_off[1]));
  print_out("{}", in_lines("  fine-tuning  ", method.fine_tuning));
  print_out("{}", in_lines("  engines      ", method.engines));
  const bool lists = !method.rope_parameters.json.empty() &&
                     has_long_list(io::Json::parse(method.rope_parameters.json));
  print_out("  start an engine with\n");
  print_flags("llama.cpp", method.llama_cpp, false);
  print_flags("vLLM", method.vllm, lists);
  print_flags("SGLang", method.sglang, lists);
  if (method.name == "none" || method.name == "present") return;
  print_snippet("or paste into config.json", method.rope_parameters);
  print_snippet("or, in the older rope_scaling form", method.rope_scaling);
}

void print_plan(const porting::Plan& plan, const std::string& only) {
  print_out("model    {}{}, base {:g}, rotary_dim {} of {}\n",
            plan.model_type.empty() ? "plain spec" : plan.model_type,
            plan.layer_type.empty() ? "" : ", layers of type " + plan.layer_type, plan.base,
            plan.rotary_dim, plan.head_dim);
  print_out("trained  {} ({})\n", plan.trained, plan.trained_source);
  print_out("target   {}, {:.6g} times as long\n", plan.to, plan.factor);
  if (plan.window && *plan.window <= plan.trained) {
    print_out("{}",
              in_lines("window   ",
                       fmt::format("a query of these layers sees {} keys, which is within the "
                                   "trained length: they need no scaling",
                                   *plan.window)));
  }
  print_bands(plan);
  print_methods(plan);
  if (!plan.recommended.empty())
    print_out("\n{}", in_lines("recommended  ", plan.recommended + ": " + plan.reason));
  const std::string& wanted = only.empty() ? plan.recommended : only;
  for (const porting::PlanMethod& method : plan.methods) {
    if (method.name == wanted && method.problem.empty()) print_details(method);
  }
  if (only.empty()) print_out("\n--method NAME shows another method in detail\n");
}

void check_method(const porting::Plan& plan, const std::string& name) {
  for (const porting::PlanMethod& method : plan.methods) {
    if (method.name != name) continue;
    if (!method.problem.empty())
      refuse(fmt::format("--method {} does not apply: {}", name, method.problem));
    return;
  }
  refuse(fmt::format("--method {} does not apply: the config {}", name,
                     plan.extended ? "is already extended" : "has no scaling"));
}

int run_plan(const PlanFlags& flags) {
  if (flags.ranks.ranks) {
    return run_plan_ranks(config_or_flags(flags.config, flags.rope, "--config"), flags.options.to,
                          flags.ranks, flags.json ? PlanForm::json : PlanForm::page);
  }
  if (flags.options.to == 0) refuse("missing --to, the context length to extend to");
  const porting::ReadableConfig config =
      read_readable(config_or_flags(flags.config, flags.rope, "--config"));
  porting::Plan plan = porting::plan(config, flags.options).value_or_throw();
  if (!flags.method.empty()) check_method(plan, flags.method);
  if (!flags.csv.empty()) write_text(flags.csv, porting::plan_csv(plan));
  if (flags.json) {
    if (!flags.method.empty()) {
      std::erase_if(plan.methods, [&](const auto& method) { return method.name != flags.method; });
    }
    print_out("{}\n", porting::plan_json(plan));
  } else {
    print_plan(plan, flags.method);
  }
  return exit_code::done;
}

}  // namespace

void add_plan(CommandLine& line) {
  auto flags = std::make_shared<PlanFlags>();
  Verb& verb = line.verb("plan", "compare scaling methods for a longer context, or ranks");
  verb.flag("--config", &flags->config, kConfigHelp).value("CONFIG").read_by(config_path);
  add_rope_flags(verb, flags->rope, "--config");
  verb.flag("--to,--tokens", &flags->options.to,
            "the context length to extend to; with --ranks: tokens (default: the config's)")
      .at_least(1);
  verb.flag("--trained", &flags->options.trained, "the trained length (default: from the config)");
  verb.flag("--layer", &flags->options.layer,
            "layer index or layer type, if layers differ (default: full_attention)")
      .free_text();
  verb.flag("--method", &flags->method, "show this method in detail, not the recommended one")
      .one_of({"none", "present", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope"});
  verb.flag("--csv", &flags->csv, "also write one row per method and pair to this file");
  add_ranks_flags(verb, flags->ranks);
  verb.flag("--json", &flags->json, "print the result as one JSON object");
  verb.footer =
      R"(Compares linear, NTK, dynamic, YaRN, llama3 and LongRoPE scaling for a longer context: which
pairs reach angles that training did not cover and how much the frequencies shrink. Recommends
one method, with its reason, the flags of llama.cpp, vLLM and SGLang, and the keys to paste into
the config, which are checked by parsing the config again. A config that is already extended counts
as trained at its published length; --trained plans from the unscaled frequencies instead.

With --ranks it compares ways to divide the attention of a context over ranks: rings with three
orders of tokens, an exchange of heads, grids of both, rows of a batch. For each: the bytes that a
rank sends, its memory, the balance of work (largest / mean) and the time, calculated.

CSV      method, pair, wavelength, turns_trained, frequency, turns_at_n, ood, compression

Example  phasor plan --config model/config.json --to 131072 --csv plan.csv
         phasor plan --config model/config.json --tokens 1M --ranks 16 --nodes 2 --bandwidth 400)";
  verb.action = [flags] { return run_plan(*flags); };
}

}  // namespace phasor::tools
