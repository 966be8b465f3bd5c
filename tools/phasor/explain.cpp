// phasor explain: every layer's encoding with its numbers, on one page.
#include "phasor/porting/config_reports.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "config_source.hpp"
#include "output.hpp"
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

// A line of the page: name, value and the config key it came from.
void print_fact(std::string_view what, std::string_view value, const config::LayerGroup& group,
                std::string_view source_of) {
  const auto found = std::find_if(group.sources.begin(), group.sources.end(),
                                  [&](const auto& source) { return source.what == source_of; });
  const std::string lead = fmt::format("  {:<15}", what) + (what.size() < 15 ? "" : " ");
  if (found == group.sources.end()) {
    print_out("{}", in_lines(lead, value));
    return;
  }
  constexpr std::size_t kValueWidth = 28;
  const bool fits = value.size() <= kValueWidth;
  if (!fits) print_out("{}", in_lines(lead, value));
  const std::size_t left =
      lead.size() > 17 ? kValueWidth - std::min(kValueWidth, lead.size() - 17) : kValueWidth;
  print_out("{}", in_lines(fmt::format("{:<17}{:<{}}  from ", fits ? lead : "", fits ? value : "",
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
void print_bands(const porting::LayerExplanation& layer) {
  if (layer.pairs.empty() || !layer.trained_length) return;
  const auto band_of = [](const porting::PairRotations& pair) {
    std::size_t band = 0;
    while (band < porting::kBandRotations.size() && *pair.rotations < porting::kBandRotations[band])
      ++band;
    return *pair.rotations == 0.0 ? porting::kBands : band;
  };
  static constexpr std::array<std::string_view, porting::kBands + 1> kNames = {
      "at least 32", "8 to 32", "1 to 8", "less than one", "does not rotate"};
  print_out("  {:<15}{:<10}{:<30}{}\n", "rotations", "pairs", "wavelength, positions",
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
    print_out("  {:<15}{:<10}{:<30}{}\n", "", pair_range(first, last), waves, rotations);
    first = last + 1;
  }
}

void print_every_pair(const porting::LayerExplanation& layer) {
  print_out("  {:<15}{:>5}  {:>22}  {:>14}  {:>12}\n", "pairs", "pair", "frequency, rad",
            "wavelength", "rotations");
  for (std::size_t pair = 0; pair < layer.pairs.size(); ++pair) {
    const porting::PairRotations& rotations = layer.pairs[pair];
    print_out("  {:<15}{:>5}  {:>22}  {:>14}  {:>12}\n", "", pair, rotations.frequency,
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

void print_rotation(const porting::LayerExplanation& layer) {
  const config::LayerGroup& group = layer.group;
  const encodings::RopeSpec& rope = *group.rope;
  print_fact("layout", rope.layout ? core::name_of(*rope.layout) : "unknown", group, "layout");
  print_fact("rotary_dim",
             rope.rotary_offset == 0 ? fmt::format("{} of {}", rope.rotary_dim, rope.head_dim)
                                     : fmt::format("{} of {}, from feature {}", rope.rotary_dim,
                                                   rope.head_dim, rope.rotary_offset),
             group, "rotary_dim");
  print_fact("head_dim", fmt::format("{}", rope.head_dim), group, "head_dim");
  const auto list = [](const std::vector<double>& numbers) {
    return fmt::format("{} to {} ({})", numbers.front(), numbers.back(), numbers.size());
  };
  if (rope.frequencies.empty()) {
    print_fact("base", fmt::format("{}", rope.base), group, "base");
  } else {
    print_fact("frequencies", list(rope.frequencies), group, "frequencies");
  }
  print_fact("scaling", porting::scaling_text(rope.scaling), group, "scaling");
  if (!rope.frequency_factors.empty())
    print_fact("divided by", list(rope.frequency_factors), group, "frequency_factors");
  if (const std::string axes = axes_text(rope); !axes.empty())
    print_fact("axes", axes, group, "mrope");
  if (rope.xpos) {
    print_fact("xpos",
               fmt::format("scale_base {}, gamma {}", rope.xpos->scale_base, rope.xpos->gamma),
               group, "xpos");
  }
  print_fact("amplitude", fmt::format("{}", layer.amplitude), group, "amplitude");
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

void print_positions(const config::PositionEncoding& encoding, const config::LayerGroup& group) {
  print_fact("encoding", fmt::format("{}, on the {}", encoding.name, encoding.acts_on), group,
             "encoding");
  for (const config::PositionParameter& parameter : encoding.parameters) {
    const config::LayerGroup shown{.layer_type = {},
                                   .rope = std::nullopt,
                                   .layers = {},
                                   .sources = {{parameter.name, parameter.key}}};
    print_fact(parameter.name, value_text(parameter), shown, parameter.name);
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

void print_layer(const porting::LayerExplanation& layer, const config::ModelConfig& config,
                 const ExplainFlags& flags) {
  const config::LayerGroup& group = layer.group;
  print_out("\n{}: {}\n", layers_text(group.layers, group.layer_type),
            title_of(group, config.other_positions));
  if (group.rope) {
    print_rotation(layer);
  } else if (group.positions.empty()) {
    print_fact("encoding", config.other_positions.empty() ? "no positions" : "no rotation", group,
               "encoding");
  }
  for (const config::PositionEncoding& encoding : group.positions) print_positions(encoding, group);
  if (group.softmax_scale != 0.0) {
    print_fact("softmax scale", fmt::format("{:.9g}", group.softmax_scale), group, "softmax_scale");
  }
  if (const std::optional<encodings::QueryScale>& scale = group.query_scale) {
    const std::string position =
        scale->offset == 0 ? "position" : fmt::format("(position + {})", scale->offset);
    print_fact("query scale",
               fmt::format("1 + {} ln(1 + floor({} / {}))", scale->beta, position, scale->length),
               group, "query_scale");
  }
  const bool slides = group.layer_type == "sliding_attention";
  print_fact("window",
             group.window ? fmt::format("{} keys", *group.window)
             : slides     ? "unknown: no key gives it"
                          : "all keys",
             group, "window");
  if (group.chunk)
    print_fact("chunk", fmt::format("{} positions: a query sees its own chunk", *group.chunk),
               group, "chunk");
  if (!group.rope) return;
  if (flags.pairs) {
    print_every_pair(layer);
  } else {
    print_bands(layer);
  }
}

void print_page(const porting::Explanation& explanation, const ExplainFlags& flags) {
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
  print_out("{}\n", title);
  if (explanation.context) print_out("resolved for a context of {}\n", *explanation.context);
  if (config.rotates_values) print_out("values are rotated too (rotary_value)\n");
  for (const porting::LayerExplanation& layer : explanation.layers)
    print_layer(layer, config, flags);
  if (!explanation.warnings.empty()) print_out("\nwarnings\n");
  for (const std::string& warning : explanation.warnings)
    print_out("{}", in_lines("  - ", warning));
  if (config.unread_keys.empty()) return;
  const std::string count = fmt::format("\nkeys not read: {}", config.unread_keys.size());
  if (config.unknown_keys.empty()) {
    print_out("{}, none of them about positions (--json lists them)\n", count);
  } else {
    print_out("{}", in_lines(count + "; not known: ",
                             fmt::format("{}", fmt::join(config.unknown_keys, ", "))));
  }
}

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
    print_page(explanation, flags);
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
