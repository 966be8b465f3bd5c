// phasor diff: compares how engines read one config.
#include "phasor/porting/config_reports.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "commands.hpp"
#include "config_source.hpp"
#include "output.hpp"
#include "rope_flags.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

// Two values that fit one line.
constexpr std::size_t kFactWidth = 60;

struct DiffFlags {
  std::vector<std::string> configs;
  RopeFlags rope;
  porting::DiffOptions options;
  bool json = false, list = false;
};

void print_list() {
  for (const porting::Dialect& dialect : porting::dialects()) {
    print_out("{}: {}, {}\n", dialect.name, dialect.engine, dialect.version);
    for (const porting::DialectRule& rule : dialect.rules) {
      print_out("  {}\n", rule.id);
      print_out("{}", in_lines("      ", rule.sentence));
      print_out("      {}{}{}; touches {}\n", name_of(rule.evidence),
                rule.source.empty() ? "" : ": ", rule.source, name_of(rule.touches));
    }
  }
}

void print_engines(const porting::GroupDiff& group) {
  print_out("  {:<10} {:>12} {:>14} {:>20} {:>15} {:>16}\n", "engine", "amplitude", "softmax scale",
            "float32 angle error", "key per shift", "stale key angle");
  for (const porting::EngineView& view : group.views) {
    if (!view.refusal.empty()) {
      print_out("{}", in_lines(fmt::format("  {:<10} ", view.dialect),
                               "cannot read this config: " + view.refusal));
      continue;
    }
    const double rounding =
        view.rounding.empty() ? 0.0 : *std::max_element(view.rounding.begin(), view.rounding.end());
    print_out(
        "  {:<10} {:>12.6g} {:>14} {:>16.2g} rad {:>15} {:>16}\n", view.dialect, view.amplitude,
        view.softmax_scale > 0.0 ? fmt::format("{:.6g}", view.softmax_scale) : "-", rounding,
        view.key_gain_per_shift == 1.0 ? "-" : fmt::format("x {:.6g}", view.key_gain_per_shift),
        view.stale_key_angle == 0.0 ? "-" : fmt::format("{:.3g} rad", view.stale_key_angle));
  }
}

std::string ratio_text(double ratio) { return fmt::format("x {:.6g}", ratio); }

// `explained` holds the rules that were already printed in full.
void print_causes(const porting::EngineComparison& part, std::set<std::string_view>& explained) {
  std::string_view lead = "    cause            ";
  for (const porting::DifferenceCause& cause : part.causes) {
    const porting::DialectRule& rule = cause.rule.rule;
    print_out("{}", in_lines(lead, fmt::format("{}: {}", cause.dialect, cause.rule.effect)));
    const std::string source =
        rule.source.empty() ? "found in its source" : std::string(rule.source);
    lead = "                     ";
    if (!explained.insert(rule.id).second) continue;
    print_out("{}", in_lines(lead, fmt::format("{} ({}; {})", rule.sentence, source, rule.id)));
  }
}

void print_part(const porting::EngineComparison& part, const porting::DiffReport& report,
                std::set<std::string_view>& explained) {
  const std::string pair = fmt::format("{} : {}", part.first, part.second);
  if (part.status == porting::ComparisonStatus::agree) {
    print_out("  {:<24} agree within float32 rounding ({:.2g} rad)\n", pair,
              part.rounding_difference);
    return;
  }
  if (part.status == porting::ComparisonStatus::unreadable) {
    print_out("  {:<24} cannot be compared: one of them cannot read this config\n", pair);
    print_causes(part, explained);
    return;
  }
  print_out("  {:<24} DIFFER\n", pair);
  if (part.first_difference) {
    const porting::FrequencyDifference& first = *part.first_difference;
    const porting::FrequencyDifference& largest = *part.largest_ratio;
    print_out("    first frequency  pair {}: {:.9g} and {:.9g}, {}\n", first.pair, first.first,
              first.second, ratio_text(first.ratio));
    print_out("    largest ratio    pair {}: {:.9g} and {:.9g}, {}\n", largest.pair, largest.first,
              largest.second, ratio_text(largest.ratio));
    print_out("    angle at {:<8}{:.4g} rad (pair {}); float32 rounding adds {:.2g} rad\n",
              report.context - 1, part.angle_difference, part.angle_pair, part.rounding_difference);
  }
  print_out("    amplitude        {}\n", ratio_text(part.amplitude_ratio));
  print_out("    softmax scale    {}\n",
            part.softmax_ratio ? ratio_text(*part.softmax_ratio) : "not in the config");
  if (report.shifts > 0) {
    print_out("    stored keys      {} after {} shift{}\n", ratio_text(part.key_gain_ratio),
              report.shifts, report.shifts == 1 ? "" : "s");
  }
  print_out("    score error      at most {:.3g} |q||k| evenly spread, {:.3g} |q||k| at worst\n",
            part.score_bound_even, part.score_bound);
  print_causes(part, explained);
}

void print_remarks(const porting::GroupDiff& group) {
  bool any = false;
  for (const porting::EngineView& view : group.views) {
    for (const porting::RuleInForce& rule : view.rules) {
      if (rule.changes) continue;
      if (!any) print_out("\n  notes\n");
      any = true;
      const std::string source =
          rule.rule.source.empty() ? "" : fmt::format(" ({})", rule.rule.source);
      print_out("{}", in_lines(fmt::format("    {:<10} ", view.dialect),
                               fmt::format("{}: {}{}", rule.effect, rule.rule.sentence, source)));
    }
  }
}

void print_report(const porting::DiffReport& report) {
  print_out("model    {}\n", report.model_type.empty() ? "plain spec" : report.model_type);
  print_out("context  {} ({})\n", report.context, report.context_source);
  std::string_view lead = "engines  ";
  for (const porting::Dialect& dialect : report.dialects) {
    print_out("{}{:<10} {}, {}\n", lead, dialect.name, dialect.engine, dialect.version);
    lead = "         ";
  }
  std::set<std::string_view> explained;
  for (const porting::GroupDiff& group : report.groups) {
    print_out("\n{}: {}, {}, rotary_dim {} of {}\n", layers_text(group.layers, group.layer_type),
              group.scaling,
              group.base ? fmt::format("base {:g}", *group.base) : "a list of frequencies",
              group.rotary_dim, group.head_dim);
    print_engines(group);
    print_out("\n");
    for (const porting::EngineComparison& part : group.comparisons)
      print_part(part, report, explained);
    print_remarks(group);
  }
  if (!report.layers_without_rotation.empty())
    print_out("\nwithout rotation: {}\n", fmt::join(report.layers_without_rotation, ", "));
}

void print_config_facts(const std::vector<porting::ConfigFact>& facts) {
  for (const porting::ConfigFact& fact : facts) {
    const std::string lead = fmt::format("  {:<24}", fact.name);
    if (fact.first.size() + fact.second.size() < kFactWidth) {
      print_out("{}{}  ->  {}\n", lead, fact.first, fact.second);
    } else {
      print_out("{}", in_lines(lead + "A  ", fact.first));
      print_out("{}", in_lines(fmt::format("  {:<24}B  ", ""), fact.second));
    }
  }
}

void print_config_diff(const porting::ConfigDiff& diff, const std::vector<std::string>& names) {
  print_out("A  {} ({})\nB  {} ({})\n", config_name(names[0]),
            diff.first_type.empty() ? "plain spec" : diff.first_type, config_name(names[1]),
            diff.second_type.empty() ? "plain spec" : diff.second_type);
  if (diff.agree) {
    print_out("the same positions in every layer\n");
    return;
  }
  if (!diff.facts.empty()) print_out("\nmodel\n");
  print_config_facts(diff.facts);
  for (const porting::ConfigGroupDiff& group : diff.groups) {
    const std::string& type =
        group.first_type == group.second_type
            ? group.first_type
            : fmt::format("{} -> {}", group.first_type.empty() ? "all layers" : group.first_type,
                          group.second_type.empty() ? "all layers" : group.second_type);
    print_out("\n{}\n", layers_text(group.layers, type));
    print_config_facts(group.facts);
    if (!group.rotation || !group.rotation->first_difference) continue;
    const porting::FrequencyDifference& first = *group.rotation->first_difference;
    const porting::FrequencyDifference& largest = *group.rotation->largest_ratio;
    print_out("  {:<24}pair {}: {:.9g}  ->  {:.9g}, {}\n", "first frequency", first.pair,
              first.first, first.second, ratio_text(first.ratio));
    print_out("  {:<24}pair {}: {:.9g}  ->  {:.9g}, {}\n", "largest ratio", largest.pair,
              largest.first, largest.second, ratio_text(largest.ratio));
    print_out("  {:<24}{:.4g} rad at position {} (pair {})\n", "angle",
              group.rotation->angle_difference, diff.context - 1, group.rotation->angle_pair);
  }
  print_out("\n{} layers are the same in both\n", diff.same_layers);
}

int compare_configs(const DiffFlags& flags) {
  const porting::ReadableConfig first = read_readable(flags.configs[0]);
  const porting::ReadableConfig second = read_readable(flags.configs[1]);
  const porting::ConfigDiff diff =
      porting::diff_configs(first, second, flags.options).value_or_throw();
  if (flags.json) {
    print_out("{}\n", porting::config_diff_json(diff));
  } else {
    print_config_diff(diff, flags.configs);
  }
  return diff.agree ? exit_code::done : exit_code::difference;
}

int run_diff(const DiffFlags& flags) {
  if (flags.list) {
    if (flags.json) {
      print_out("{}\n", porting::dialects_json());
    } else {
      print_list();
    }
    return exit_code::done;
  }
  if (flags.configs.empty() && !flags.rope.given())
    refuse("--config, --head-dim or --list is required");
  if (flags.configs.size() > 2)
    refuse(fmt::format("--config takes one or two configs, got {}", flags.configs.size()));
  if (flags.configs.size() == 2) return compare_configs(flags);
  if (flags.options.between.size() == 1)
    refuse("--between needs at least two engines, got " + flags.options.between.front());
  const std::string given = flags.configs.empty() ? std::string() : flags.configs[0];
  const porting::ReadableConfig config =
      read_readable(config_or_flags(given, flags.rope, "--config"));
  const porting::DiffReport report = porting::diff(config, flags.options).value_or_throw();
  if (flags.json) {
    print_out("{}\n", porting::diff_json(report));
  } else {
    print_report(report);
  }
  return report.agree ? exit_code::done : exit_code::difference;
}

}  // namespace

void add_diff(CommandLine& line) {
  auto flags = std::make_shared<DiffFlags>();
  Verb& verb = line.verb("diff", "compare how engines read one config, or two configs");
  verb.flag("--config", &flags->configs,
            fmt::format("{}; given twice, the two are compared instead of engines", kConfigHelp))
      .value("CONFIG")
      .read_by(config_path);
  add_rope_flags(verb, flags->rope, "--config");
  Flag& between = verb.flag("--between", &flags->options.between,
                            "engines to compare (default hf,vllm,llama.cpp; see --list)")
                      .separated_by(',');
  for (const porting::Dialect& dialect : porting::dialects())
    between.choices.emplace_back(dialect.name);
  verb.flag("--context", &flags->options.context,
            "sequence length in tokens (default: max_position_embeddings)")
      .at_least(1);
  verb.flag("--max-length", &flags->options.max_length,
            "maximum length a server is started with (default: the config's)");
  verb.flag("--shifts", &flags->options.shifts,
            "how many times cached keys were shifted (default 0)");
  verb.flag("--layer", &flags->options.layer,
            "layer index or layer type (default: every layer with rotation)")
      .free_text();
  verb.flag("--json", &flags->json, "print the result as one JSON object");
  verb.flag("--list", &flags->list, "print the known rules of each engine");
  verb.footer =
      R"(Reads a config as each engine does and compares the engines pairwise: the first frequency
that differs, the amplitude, the softmax scale, the angle at the end of the context, a bound
on the score error, and the rule that causes the difference, with a link if it was reported.

With two configs it compares what they mean, layer by layer: encoding, layout, widths, base,
scaling, window, heads and the angle at the end of the context.

Exit     0 the engines agree within float32 rounding, 1 they differ, 2 wrong input

Example  phasor diff --config model/config.json --between hf,vllm,sglang --context 32768
         phasor diff --config base/config.json --config tuned/config.json)";
  verb.action = [flags] { return run_diff(*flags); };
}

}  // namespace phasor::tools
