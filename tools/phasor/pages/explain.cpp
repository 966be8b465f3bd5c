#include "pages/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pages/page.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

// A line of the page: name, value and the config key it came from.
void add_fact(std::string& page, std::string_view what, std::string_view value,
              const config::LayerGroup& group, std::string_view source_of) {
  const auto found = std::find_if(group.sources.begin(), group.sources.end(),
                                  [&](const auto& source) { return source.what == source_of; });
  const std::string lead = fmt::format("  {:<15}", what) + (what.size() < 15 ? "" : " ");
  if (found == group.sources.end()) {
    add(page, "{}", in_lines(lead, value));
    return;
  }
  constexpr std::size_t kValueWidth = 28;
  const bool fits = value.size() <= kValueWidth;
  if (!fits) add(page, "{}", in_lines(lead, value));
  const std::size_t left =
      lead.size() > 17 ? kValueWidth - std::min(kValueWidth, lead.size() - 17) : kValueWidth;
  add(page, "{}",
      in_lines(fmt::format("{:<17}{:<{}}  from ", fits ? lead : "", fits ? value : "",
                           fits ? left : kValueWidth),
               found->key));
}

std::string wavelength_text(double wavelength) {
  return std::isfinite(wavelength) ? fmt::format("{:.6g}", wavelength) : "infinite";
}

std::string pair_range(std::size_t first, std::size_t last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

// One line per band of neighbouring pairs.
void add_bands(std::string& page, const porting::LayerExplanation& layer) {
  if (layer.pairs.empty() || !layer.trained_length) return;
  const auto band_of = [](const porting::PairRotations& pair) {
    std::size_t band = 0;
    while (band < porting::kBandRotations.size() && *pair.rotations < porting::kBandRotations[band])
      ++band;
    return *pair.rotations == 0.0 ? porting::kBands : band;
  };
  static constexpr std::array<std::string_view, porting::kBands + 1> kNames = {
      "at least 32", "8 to 32", "1 to 8", "less than one", "does not rotate"};
  add(page, "  {:<15}{:<10}{:<30}{}\n", "rotations", "pairs", "wavelength, positions",
      fmt::format("rotations within the trained {}", *layer.trained_length));
  for (std::size_t first = 0; first < layer.pairs.size();) {
    std::size_t last = first;
    const std::size_t band = band_of(layer.pairs[first]);
    while (last + 1 < layer.pairs.size() && band_of(layer.pairs[last + 1]) == band) ++last;
    const std::string waves =
        first == last ? wavelength_text(layer.pairs[first].wavelength)
                      : fmt::format("{} to {}", wavelength_text(layer.pairs[first].wavelength),
                                    wavelength_text(layer.pairs[last].wavelength));
    const std::string rotations =
        band == porting::kBands
            ? std::string(kNames[band])
            : fmt::format("{:.3g} to {:.3g} ({})", *layer.pairs[first].rotations,
                          *layer.pairs[last].rotations, kNames[band]);
    add(page, "  {:<15}{:<10}{:<30}{}\n", "", pair_range(first, last), waves, rotations);
    first = last + 1;
  }
}

void add_every_pair(std::string& page, const porting::LayerExplanation& layer) {
  add(page, "  {:<15}{:>5}  {:>22}  {:>14}  {:>12}\n", "pairs", "pair", "frequency, rad",
      "wavelength", "rotations");
  for (std::size_t pair = 0; pair < layer.pairs.size(); ++pair) {
    const porting::PairRotations& rotations = layer.pairs[pair];
    add(page, "  {:<15}{:>5}  {:>22}  {:>14}  {:>12}\n", "", pair, rotations.frequency,
        wavelength_text(rotations.wavelength),
        rotations.rotations ? fmt::format("{:.6g}", *rotations.rotations) : "-");
  }
}

std::string axes_text(const encodings::RopeSpec& rope) {
  if (const auto* mrope = std::get_if<encodings::MropeAxes>(&rope.axes)) {
    using Order = encodings::MropeAxes::Order;
    std::string sections;
    for (const std::int64_t size : mrope->sections)
      sections += (sections.empty() ? "" : ", ") + std::to_string(size);
    return fmt::format(
        "{}: sections {}, {}",
        mrope->sections.size() == 3 ? "time, height, width" : "time, height, width and a fourth",
        sections,
        mrope->order == Order::chunked       ? "one after the other"
        : mrope->order == Order::interleaved ? "interleaved"
                                             : "height and width alternating");
  }
  if (const auto* axial = std::get_if<encodings::AxialAxes>(&rope.axes)) {
    using Kind = encodings::AxialAxes::Kind;
    return axial->kind == Kind::concatenated ? "height, then width"
           : axial->kind == Kind::alternating
               ? "height, then width: even frequencies, then odd ones"
               : "height and width on one half of the head each";
  }
  return {};
}

void add_rotation(std::string& page, const porting::LayerExplanation& layer) {
  const config::LayerGroup& group = layer.group;
  const encodings::RopeSpec& rope = *group.rope;
  add_fact(page, "layout", rope.layout ? core::name_of(*rope.layout) : "unknown", group, "layout");
  add_fact(page, "rotary_dim",
           rope.rotary_offset == 0 ? fmt::format("{} of {}", rope.rotary_dim, rope.head_dim)
                                   : fmt::format("{} of {}, from feature {}", rope.rotary_dim,
                                                 rope.head_dim, rope.rotary_offset),
           group, "rotary_dim");
  add_fact(page, "head_dim", fmt::format("{}", rope.head_dim), group, "head_dim");
  const auto list = [](const std::vector<double>& numbers) {
    return fmt::format("{} to {} ({})", numbers.front(), numbers.back(), numbers.size());
  };
  if (rope.frequencies.empty()) {
    add_fact(page, "base", fmt::format("{}", rope.base), group, "base");
  } else {
    add_fact(page, "frequencies", list(rope.frequencies), group, "frequencies");
  }
  add_fact(page, "scaling", porting::scaling_text(rope.scaling), group, "scaling");
  if (!rope.frequency_factors.empty())
    add_fact(page, "divided by", list(rope.frequency_factors), group, "frequency_factors");
  if (const std::string axes = axes_text(rope); !axes.empty())
    add_fact(page, "axes", axes, group, "mrope");
  if (rope.xpos) {
    add_fact(page, "xpos",
             fmt::format("scale_base {}, gamma {}", rope.xpos->scale_base, rope.xpos->gamma), group,
             "xpos");
  }
  add_fact(page, "amplitude", fmt::format("{}", layer.amplitude), group, "amplitude");
}

std::string value_text(const config::PositionParameter& parameter) {
  if (const auto* flag = std::get_if<bool>(&parameter.value)) return *flag ? "yes" : "no";
  if (const auto* integer = std::get_if<std::int64_t>(&parameter.value))
    return fmt::format("{}", *integer);
  if (const auto* number = std::get_if<double>(&parameter.value)) return fmt::format("{}", *number);
  if (const auto* text = std::get_if<std::string>(&parameter.value)) return *text;
  const auto& list = std::get<std::vector<double>>(parameter.value);
  constexpr std::size_t kShort = 4;
  if (list.size() <= kShort) return fmt::format("{}", fmt::join(list, ", "));
  return fmt::format("{:.6g} to {:.6g} ({})", list.front(), list.back(), list.size());
}

// "learned absolute positions", ...: what people call it.
std::string_view words_of(std::string_view encoding) {
  struct Words {
    std::string_view name, words;
  };
  static constexpr auto kWords = std::to_array<Words>({
      {"rope", "rotary position embedding"},
      {"xpos", "rotary position embedding with xPos"},
      {"none", "no positions"},
      {"learned_absolute", "learned absolute positions"},
      {"sinusoidal", "sinusoidal absolute positions"},
      {"learned_axial", "learned positions of two axes (Reformer)"},
      {"learned_boxes", "learned positions of boxes on a page"},
      {"alibi", "ALiBi: a bias by distance"},
      {"t5", "a trained bias per bucket of the distance (T5)"},
      {"bert_relative", "relative positions in the scores (BERT)"},
      {"deberta", "disentangled relative positions (DeBERTa)"},
      {"xlnet", "relative positions and segments (XLNet)"},
      {"transformer_xl", "relative positions (Transformer-XL)"},
      {"shaw", "relative positions of keys, clipped (Shaw)"},
      {"relative_bias_2d", "a bias by the offset of two patches"},
      {"relative_bias_boxes", "a bias by the distances of boxes on a page"},
      {"convolution", "positions by a convolution"},
  });
  for (const Words& words : kWords) {
    if (words.name == encoding) return words.words;
  }
  return encoding;
}

void add_positions(std::string& page, const config::PositionEncoding& encoding,
                   const config::LayerGroup& group) {
  add_fact(page, "encoding", fmt::format("{}, on the {}", encoding.name, encoding.acts_on), group,
           "encoding");
  for (const config::PositionParameter& parameter : encoding.parameters) {
    const config::LayerGroup shown{.layer_type = {},
                                   .rope = std::nullopt,
                                   .layers = {},
                                   .sources = {{parameter.name, parameter.key}}};
    add_fact(page, parameter.name, value_text(parameter), shown, parameter.name);
  }
}

std::string title_of(const config::LayerGroup& group, std::string_view other_positions) {
  const std::string name = porting::encoding_name(group);
  if (name == "none" && !other_positions.empty()) return std::string(other_positions);
  std::string title(words_of(name));
  for (std::size_t i = 1; i < group.positions.size(); ++i)
    title += "; " + std::string(words_of(group.positions[i].name));
  return title;
}

void add_layer(std::string& page, const porting::LayerExplanation& layer,
               const config::ModelConfig& config, PairList pairs) {
  const config::LayerGroup& group = layer.group;
  add(page, "\n{}: {}\n", layers_text(group.layers, group.layer_type),
      title_of(group, config.other_positions));
  if (group.rope) {
    add_rotation(page, layer);
  } else if (group.positions.empty()) {
    add_fact(page, "encoding", config.other_positions.empty() ? "no positions" : "no rotation",
             group, "encoding");
  }
  for (const config::PositionEncoding& encoding : group.positions)
    add_positions(page, encoding, group);
  if (group.softmax_scale != 0.0) {
    add_fact(page, "softmax scale", fmt::format("{:.9g}", group.softmax_scale), group,
             "softmax_scale");
  }
  if (const std::optional<encodings::QueryScale>& scale = group.query_scale) {
    const std::string position =
        scale->offset == 0 ? "position" : fmt::format("(position + {})", scale->offset);
    add_fact(page, "query scale",
             fmt::format("1 + {} ln(1 + floor({} / {}))", scale->beta, position, scale->length),
             group, "query_scale");
  }
  const bool slides = group.layer_type == "sliding_attention";
  add_fact(page, "window",
           group.window ? fmt::format("{} keys", *group.window)
           : slides     ? "unknown: no key gives it"
                        : "all keys",
           group, "window");
  if (group.chunk)
    add_fact(page, "chunk", fmt::format("{} positions: a query sees its own chunk", *group.chunk),
             group, "chunk");
  if (!group.rope) return;
  if (pairs == PairList::every) {
    add_every_pair(page, layer);
  } else {
    add_bands(page, layer);
  }
}

}  // namespace

std::string explain_page(const porting::Explanation& explanation, PairList pairs) {
  std::string page;
  const config::ModelConfig& config = explanation.config;
  std::string title = config.model_type.empty() ? "a plain spec" : config.model_type;
  if (config.heads) {
    title += fmt::format(", {} heads", *config.heads);
    if (config.key_heads && *config.key_heads != *config.heads)
      title += fmt::format(" over {} key heads", *config.key_heads);
  }
  if (config.max_position)
    title += fmt::format(", length {} ({})", *config.max_position, config.max_position_key);
  if (!config.part.empty()) title += fmt::format(", the part {}", config.part);
  add(page, "{}\n", title);
  if (explanation.context) add(page, "resolved for a context of {}\n", *explanation.context);
  if (config.rotates_values) add(page, "values are rotated too (rotary_value)\n");
  for (const porting::LayerExplanation& layer : explanation.layers)
    add_layer(page, layer, config, pairs);
  if (!explanation.warnings.empty()) add(page, "\nwarnings\n");
  for (const std::string& warning : explanation.warnings)
    add(page, "{}", in_lines("  - ", warning));
  if (config.unread_keys.empty()) return page;
  const std::string count = fmt::format("\nkeys not read: {}", config.unread_keys.size());
  if (config.unknown_keys.empty()) {
    add(page, "{}, none of them about positions (--json lists them)\n", count);
  } else {
    add(page, "{}",
        in_lines(count + "; not known: ", fmt::format("{}", fmt::join(config.unknown_keys, ", "))));
  }
  return page;
}

}  // namespace phasor::tools
