#include "spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "config_source.hpp"
#include "output.hpp"
#include "phasor/config/config.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/npy.hpp"
#include "whole_numbers.hpp"

namespace phasor::tools {
namespace {

std::int64_t parse_bound(std::string_view text, std::string_view whole) {
  std::int64_t value = 0;
  if (read_whole(text, value) != std::errc{}) {
    refuse(message("--positions: a range must be A:B with whole numbers, got '", whole, "'"));
  }
  return value;
}

bool is_range(const std::string& text) {
  return text.find(':') != std::string::npos &&
         text.find_first_not_of("0123456789+-:kKMG") == std::string::npos;
}

core::Positions read_positions(const std::string& path) {
  const io::NpyArray array = read_array(path);
  if (io::is_integer(array.type))
    return core::positions_of_shape(io::to_integers(array).value_or_throw(), array.shape);
  if (array.type == io::NpyType::boolean) {
    refuse(message(path, ": positions must be integers or floats, got bool"));
  }
  std::vector<double> floats = io::to_doubles(array).value_or_throw();
  const auto bad = std::find_if(floats.begin(), floats.end(),
                                [](double value) { return !std::isfinite(value); });
  if (bad != floats.end()) {
    refuse(message(path, ": positions must be finite, got ", *bad, " at element ",
                   bad - floats.begin()));
  }
  return core::positions_of_shape(std::move(floats), array.shape);
}

}  // namespace

void add_spec_options(Verb& verb, SpecOptions& options) {
  verb.flag("--config", &options.config, kConfigHelp).value("CONFIG").read_by(config_path);
  verb.flag("--layer", &options.layer,
            "layer index or layer type, if layers differ (full_attention, ...)")
      .free_text();
  verb.flag("--context", &options.context,
            "context length, for scalings that depend on it (dynamic, longrope, xPos)")
      .at_least(1);
  add_rope_flags(verb, options.rope);
}

encodings::RopeSpec read_spec(const SpecOptions& options) { return read_model_spec(options).spec; }

ModelSpec read_model_spec(const SpecOptions& options) {
  if (options.config.empty()) {
    const std::string json = config_or_flags("", options.rope, "--config");
    if (!options.layer.empty()) refuse("--layer requires --config");
    config::ModelConfig model = config::parse_config(json, "the flags").value_or_throw();
    encodings::RopeSpec spec = *model.groups.front().rope;
    return {std::move(spec), std::move(model)};
  }
  const std::string name = config_name(options.config);
  config::ModelConfig model = read_model_config(options.config);
  config::LayerGroup group = config::select_layer(model, options.layer).value_or_throw();
  if (!group.rope) {
    const std::string layer = !group.layer_type.empty() ? "'" + group.layer_type + "'"
                              : options.layer.empty()   ? "of every index"
                                                        : "'" + options.layer + "'";
    refuse(ErrorCode::unsupported,
           message(name, ": layer ", layer, " has no rotation",
                   model.other_positions.empty() ? "" : ", but " + model.other_positions));
  }
  for (const config::KeyNote& note : model.notes) {
    if (note.leftover) print_err("{}: warning: {}: {}\n", name, note.key, note.note);
  }
  encodings::RopeSpec spec = replaced_by(options.rope, *group.rope, model.max_position, name);
  return {std::move(spec), std::move(model)};
}

void add_angles_option(Verb& verb, std::string& angles) {
  verb.flag("--angles", &angles,
            "exact (default); float32: round angles like engines that compute in float32; or one "
            "more "
            "rounding, of frequencies or angles: bfloat16_frequencies, bfloat16, float16")
      .one_of({"exact", "float32", "bfloat16_frequencies", "bfloat16", "float16"});
}

core::AngleMode parse_angles(std::string_view name) {
  return core::angle_mode_of(name).value_or(core::AngleMode::exact);
}

core::Positions parse_positions(const std::string& text) {
  if (!is_range(text)) return read_positions(text);
  const std::size_t colon = text.find(':');
  const std::string_view view = text;
  const std::int64_t first = parse_bound(view.substr(0, colon), text);
  const std::int64_t last = parse_bound(view.substr(colon + 1), text);
  // A table of this many rows would not fit any machine; refused before memory is asked for.
  constexpr std::int64_t kMaxRange = std::int64_t{1} << 32;
  if (last < first || static_cast<double>(last) - static_cast<double>(first) > kMaxRange) {
    refuse(message("--positions: a range must be A:B with A <= B <= A + 2^32, got '", text, "'"));
  }
  return core::positions_counted(first, last - first);
}

core::Positions fit_positions(const encodings::RopeSpec& spec, const core::Positions& positions,
                              std::optional<std::int64_t> batch, std::int64_t tokens) {
  using OneRow = core::PositionsShape::OneRow;
  const bool image = std::holds_alternative<encodings::AxialAxes>(spec.axes);
  return core::fit_positions(positions,
                             {encodings::axis_count(spec.axes), batch, tokens,
                              image ? OneRow::serves_one_axis : OneRow::serves_every_axis});
}

std::optional<std::int64_t> context_for(const encodings::RopeSpec& spec, const SpecOptions& options,
                                        const core::Positions& positions, std::string_view verb) {
  const std::optional<std::int64_t> context =
      encodings::context_for(spec, options.context, positions.largest());
  if (context && !options.context) {
    print_err("phasor {}: using context {} (the largest position + 1); set it with --context\n",
              verb, *context);
  }
  return context;
}

}  // namespace phasor::tools
