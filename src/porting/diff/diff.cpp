#include "phasor/porting/config_reports.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "phasor/core/internal/message_text.hpp"
#include "porting/diff/compare_views.hpp"

namespace phasor::porting {
namespace {

[[nodiscard]] bool same(double a, double b) {
  return std::abs(a - b) <= kSameRule * std::max(std::abs(a), std::abs(b));
}

[[nodiscard]] double ratio_of(double first, double second) {
  if (first == second) return 1.0;
  return first == 0.0 ? std::numeric_limits<double>::infinity() : second / first;
}

void compare_frequencies(const EngineView& first, const EngineView& second, double distance,
                         EngineComparison& compared) {
  double furthest = 0.0;
  for (std::size_t i = 0; i < first.frequencies.size(); ++i) {
    const double a = first.frequencies[i], b = second.frequencies[i];
    compared.rounding_difference =
        std::max(compared.rounding_difference, first.rounding[i] + second.rounding[i]);
    if (same(a, b)) continue;
    const FrequencyDifference here{static_cast<std::int64_t>(i), a, b, ratio_of(a, b)};
    if (!compared.first_difference) compared.first_difference = here;
    const double away = std::abs(std::log(here.ratio));
    if (!compared.largest_ratio || away > furthest) {
      furthest = away;
      compared.largest_ratio = here;
    }
    if (distance * std::abs(a - b) > compared.angle_difference) {
      compared.angle_difference = distance * std::abs(a - b);
      compared.angle_pair = here.pair;
    }
  }
}

void bound_scores(const EngineView& first, const EngineView& second, double distance,
                  EngineComparison& compared) {
  const double gain = compared.amplitude_ratio * compared.amplitude_ratio *
                      compared.softmax_ratio.value_or(1.0) * compared.key_gain_ratio;
  double sum = 0.0;
  for (std::size_t i = 0; i < first.frequencies.size(); ++i) {
    const double change = std::abs(first.frequencies[i] - second.frequencies[i]);
    const double rotation = same(first.frequencies[i], second.frequencies[i])
                                ? 0.0
                                : std::min(distance * change, std::numbers::pi);
    const double error = std::hypot(1.0 - gain, 2.0 * std::sqrt(gain) * std::sin(rotation / 2.0));
    sum += error;
    compared.score_bound = std::max(compared.score_bound, error);
  }
  compared.score_bound_even = sum / static_cast<double>(first.frequencies.size());
}

void find_causes(const EngineView& first, const EngineView& second, EngineComparison& compared) {
  const auto matters = [&](Touches touches) {
    switch (touches) {
      case Touches::everything:
        return true;
      case Touches::frequencies:
        return compared.first_difference.has_value();
      case Touches::amplitude:
        return !same(compared.amplitude_ratio, 1.0);
      case Touches::cached_keys:
        return !same(compared.key_gain_ratio, 1.0);
      case Touches::rounding:
        break;
    }
    return false;
  };
  for (const EngineView* view : {&first, &second}) {
    for (const RuleInForce& rule : view->rules) {
      if (rule.changes && matters(rule.rule.touches))
        compared.causes.push_back({view->dialect, rule});
    }
  }
}

}  // namespace

EngineComparison compare_views(const EngineView& first, const EngineView& second,
                               const RunState& state) {
  EngineComparison compared;
  compared.first = first.dialect;
  compared.second = second.dialect;
  if (!first.refusal.empty() || !second.refusal.empty()) {
    compared.status = ComparisonStatus::unreadable;
    find_causes(first, second, compared);
    return compared;
  }
  if (first.frequencies.size() != second.frequencies.size()) {
    // Another rotary_dim: nothing else can be compared.
    compared.status = ComparisonStatus::differ;
    compared.first_difference = FrequencyDifference{};
    find_causes(first, second, compared);
    compared.first_difference.reset();
    compared.score_bound = compared.score_bound_even = 2.0;
    return compared;
  }
  const auto distance = static_cast<double>(state.context - 1);
  compare_frequencies(first, second, distance, compared);
  compared.amplitude_ratio = ratio_of(first.amplitude, second.amplitude);
  if (first.softmax_scale > 0.0 && second.softmax_scale > 0.0)
    compared.softmax_ratio = ratio_of(first.softmax_scale, second.softmax_scale);
  compared.key_gain_ratio = ratio_of(first.key_gain, second.key_gain);
  const bool agree = !compared.first_difference && same(compared.amplitude_ratio, 1.0) &&
                     same(compared.softmax_ratio.value_or(1.0), 1.0) &&
                     same(compared.key_gain_ratio, 1.0);
  compared.status = agree ? ComparisonStatus::agree : ComparisonStatus::differ;
  if (agree) return compared;
  bound_scores(first, second, distance, compared);
  find_causes(first, second, compared);
  return compared;
}

namespace {

void check_names(const std::vector<std::string>& names) {
  if (names.size() < 2) {
    refuse(ErrorCode::invalid_argument,
           message("diff: at least two engines are required, got ", names.size()));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      refuse(ErrorCode::invalid_argument,
             message("diff: engine \"", names[i], "\" is listed twice"));
    }
  }
}

[[nodiscard]] std::vector<Dialect> dialects_of(const std::vector<std::string>& names) {
  std::vector<Dialect> chosen;
  for (const std::string& name : names) {
    const auto all = dialects();
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const Dialect& dialect) { return dialect.name == name; });
    if (found == all.end()) {
      std::vector<std::string_view> known;
      for (const Dialect& dialect : all) known.push_back(dialect.name);
      refuse(ErrorCode::invalid_argument,
             message("diff: unknown engine \"", name, "\"; must be ", core::list_text(known)));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// The groups to compare: that of `layer`, or all that rotate.
[[nodiscard]] std::vector<std::size_t> groups_of(const config::ModelConfig& model,
                                                 const std::string& layer) {
  std::vector<std::size_t> chosen;
  if (!layer.empty()) {
    const config::LayerGroup group = config::select_layer(model, layer).value_or_throw();
    for (std::size_t i = 0; i < model.groups.size(); ++i) {
      if (model.groups[i].layer_type == group.layer_type &&
          model.groups[i].layers == group.layers && group.rope)
        chosen.push_back(i);
    }
  } else {
    for (std::size_t i = 0; i < model.groups.size(); ++i) {
      if (model.groups[i].rope) chosen.push_back(i);
    }
  }
  if (chosen.empty()) {
    refuse(ErrorCode::unsupported, layer.empty()
                                       ? "diff: no layer of this config has a rotation"
                                       : message("diff: layer '", layer, "' has no rotation"));
  }
  return chosen;
}

[[nodiscard]] GroupDiff compare_group(const ReadableConfig& config, std::size_t index,
                                      const std::vector<std::string>& between,
                                      const RunState& state) {
  const config::LayerGroup& layers = config.meaning.groups[index];
  GroupDiff group;
  group.layer_type = layers.layer_type;
  group.layers = layers.layers;
  group.scaling = encodings::name_of(layers.rope->scaling);
  group.head_dim = layers.rope->head_dim;
  group.rotary_dim = layers.rope->rotary_dim;
  group.base = encodings::base_of(*layers.rope);
  for (const std::string& name : between)
    group.views.push_back(view_of(name, config, index, state));
  for (std::size_t a = 0; a < group.views.size(); ++a) {
    for (std::size_t b = a + 1; b < group.views.size(); ++b)
      group.comparisons.push_back(compare_views(group.views[a], group.views[b], state));
  }
  return group;
}

// Whether two groups give the same report: engines may read the legacy keys of each differently.
[[nodiscard]] bool rotate_alike(const ReadableConfig& config, std::size_t a, std::size_t b) {
  const auto same = [&](const config::ModelConfig& model) {
    if (std::max(a, b) >= model.groups.size()) return false;
    const config::LayerGroup &first = model.groups[a], &second = model.groups[b];
    return first.rope == second.rope && first.softmax_scale == second.softmax_scale;
  };
  return same(config.meaning) && (!config.legacy || same(*config.legacy));
}

void join(const config::LayerGroup& layers, GroupDiff& to) {
  if (!layers.layer_type.empty()) to.layer_type += ", " + layers.layer_type;
  to.layers.insert(to.layers.end(), layers.layers.begin(), layers.layers.end());
  std::sort(to.layers.begin(), to.layers.end());
}

}  // namespace

Result<DiffReport> diff(const ReadableConfig& config, const DiffOptions& options) {
  try {
    check_names(options.between);
    DiffReport report;
    report.dialects = dialects_of(options.between);
    report.model_type = config.meaning.model_type;
    report.form = config.form;
    report.max_length = options.max_length;
    report.shifts = options.shifts;
    if (options.context) {
      report.context = *options.context;
      report.context_source = "as requested";
    } else if (config.meaning.max_position) {
      report.context = *config.meaning.max_position;
      report.context_source = "max_position_embeddings";
    } else {
      report.context = kAssumedContext;
      report.context_source = "assumed: the config has no max_position_embeddings";
    }
    const RunState state{report.context, options.max_length, options.shifts};
    std::vector<std::size_t> leaders;  // of the groups in the report
    for (const std::size_t index : groups_of(config.meaning, options.layer)) {
      const auto twin = std::find_if(leaders.begin(), leaders.end(), [&](std::size_t leader) {
        return rotate_alike(config, leader, index);
      });
      if (twin != leaders.end()) {
        join(config.meaning.groups[index],
             report.groups[static_cast<std::size_t>(twin - leaders.begin())]);
        continue;
      }
      leaders.push_back(index);
      report.groups.push_back(compare_group(config, index, options.between, state));
      for (const EngineComparison& compared : report.groups.back().comparisons)
        report.agree = report.agree && compared.status == ComparisonStatus::agree;
    }
    for (const config::LayerGroup& group : config.meaning.groups) {
      if (!group.rope) report.layers_without_rotation.push_back(group.layer_type);
    }
    return report;
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace phasor::porting
