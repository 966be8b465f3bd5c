#include "phasor/porting/diff.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

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
                         EnginePart& part) {
  double furthest = 0.0;
  for (std::size_t i = 0; i < first.frequencies.size(); ++i) {
    const double a = first.frequencies[i], b = second.frequencies[i];
    part.rounding_difference =
        std::max(part.rounding_difference, first.rounding[i] + second.rounding[i]);
    if (same(a, b)) continue;
    const FrequencyPart here{static_cast<std::int64_t>(i), a, b, ratio_of(a, b)};
    if (!part.first_difference) part.first_difference = here;
    const double away = std::abs(std::log(here.ratio));
    if (!part.largest_ratio || away > furthest) {
      furthest = away;
      part.largest_ratio = here;
    }
    if (distance * std::abs(a - b) > part.angle_difference) {
      part.angle_difference = distance * std::abs(a - b);
      part.angle_pair = here.pair;
    }
  }
}

void bound_scores(const EngineView& first, const EngineView& second, double distance,
                  EnginePart& part) {
  const double gain = part.amplitude_ratio * part.amplitude_ratio *
                      part.softmax_ratio.value_or(1.0) * part.key_gain_ratio;
  double sum = 0.0;
  for (std::size_t i = 0; i < first.frequencies.size(); ++i) {
    const double change = std::abs(first.frequencies[i] - second.frequencies[i]);
    const double rotation = same(first.frequencies[i], second.frequencies[i])
                                ? 0.0
                                : std::min(distance * change, std::numbers::pi);
    const double error = std::hypot(1.0 - gain, 2.0 * std::sqrt(gain) * std::sin(rotation / 2.0));
    sum += error;
    part.score_bound = std::max(part.score_bound, error);
  }
  part.score_bound_even = sum / static_cast<double>(first.frequencies.size());
}

void find_causes(const EngineView& first, const EngineView& second, EnginePart& part) {
  const auto matters = [&](Touches touches) {
    switch (touches) {
      case Touches::everything:
        return true;
      case Touches::frequencies:
        return part.first_difference.has_value();
      case Touches::amplitude:
        return !same(part.amplitude_ratio, 1.0);
      case Touches::cached_keys:
        return !same(part.key_gain_ratio, 1.0);
      case Touches::rounding:
        break;
    }
    return false;
  };
  for (const EngineView* view : {&first, &second}) {
    for (const RuleInForce& rule : view->rules) {
      if (rule.changes && matters(rule.rule.touches)) part.causes.push_back({view->dialect, rule});
    }
  }
}

[[nodiscard]] EnginePart compare(const EngineView& first, const EngineView& second,
                                 const RunState& state) {
  EnginePart part;
  part.first = first.dialect;
  part.second = second.dialect;
  if (!first.refusal.empty() || !second.refusal.empty()) {
    part.status = PartStatus::unreadable;
    find_causes(first, second, part);
    return part;
  }
  if (first.frequencies.size() != second.frequencies.size()) {
    // A reader that loses the share of the head that turns; the widths tell it all.
    part.status = PartStatus::differ;
    part.first_difference = FrequencyPart{};
    find_causes(first, second, part);
    part.first_difference.reset();
    part.score_bound = part.score_bound_even = 2.0;
    return part;
  }
  const auto distance = static_cast<double>(state.context - 1);
  compare_frequencies(first, second, distance, part);
  part.amplitude_ratio = ratio_of(first.amplitude, second.amplitude);
  if (first.softmax_scale > 0.0 && second.softmax_scale > 0.0)
    part.softmax_ratio = ratio_of(first.softmax_scale, second.softmax_scale);
  part.key_gain_ratio = ratio_of(first.key_gain, second.key_gain);
  const bool agree = !part.first_difference && same(part.amplitude_ratio, 1.0) &&
                     same(part.softmax_ratio.value_or(1.0), 1.0) && same(part.key_gain_ratio, 1.0);
  part.status = agree ? PartStatus::agree : PartStatus::differ;
  if (agree) return part;
  bound_scores(first, second, distance, part);
  find_causes(first, second, part);
  return part;
}

void check_names(const std::vector<std::string>& names) {
  if (names.size() < 2) {
    throw Error(ErrorCode::invalid_argument,
                message("diff: at least two engines must be named, got ", names.size()));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw Error(ErrorCode::invalid_argument,
                  message("diff: each engine must be named once, got \"", names[i], "\" twice"));
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
      std::string known;
      for (const Dialect& dialect : all)
        known += (known.empty() ? "" : ", ") + std::string(dialect.name);
      throw Error(ErrorCode::invalid_argument,
                  message("diff: each engine must be one of ", known, ", got \"", name, "\""));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// Which groups to compare: the one that was asked for, or all that rotate.
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
    throw Error(
        ErrorCode::unsupported,
        message("diff: ", layer.empty() ? "a layer" : "layer '" + layer + "'", " must rotate, got ",
                layer.empty() ? "none that does" : "one that does not"));
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
  group.base = layers.rope->base;
  for (const std::string& name : between)
    group.views.push_back(view_of(name, config, index, state));
  for (std::size_t a = 0; a < group.views.size(); ++a) {
    for (std::size_t b = a + 1; b < group.views.size(); ++b)
      group.parts.push_back(compare(group.views[a], group.views[b], state));
  }
  return group;
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
      report.context_source = "as asked";
    } else if (config.meaning.max_position) {
      report.context = *config.meaning.max_position;
      report.context_source = "max_position_embeddings";
    } else {
      report.context = kAssumedContext;
      report.context_source = "assumed: the config gives no length";
    }
    const RunState state{report.context, options.max_length, options.shifts};
    for (const std::size_t index : groups_of(config.meaning, options.layer)) {
      report.groups.push_back(compare_group(config, index, options.between, state));
      for (const EnginePart& part : report.groups.back().parts)
        report.agree = report.agree && part.status == PartStatus::agree;
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
