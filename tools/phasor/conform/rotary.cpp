#include "conform/rotary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "phasor/config/config.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::tools {
namespace {

using encodings::AxialAxes;
using encodings::MropeAxes;
using encodings::RopeSpec;
using json = io::Json;

constexpr double kRoFormerBase = 10000.0;

[[noreturn]] void disagree(const std::string& where, const std::string& what,
                           const std::string& expected, const std::string& got) {
  refuse(message(where, ": ", what, " must be the case's ", expected, ", got ", got,
                 " from its config"));
}

// rope_parameters with a head width, as the cases of re-rotation and gradients give them: no
// family, so the keys mean what they mean for LLaMA.
RopeSpec spec_of_parameters(const json& config, const std::string& where) {
  json model = {{"model_type", "llama"},
                {"head_dim", member<std::int64_t>(config, "head_dim", where)},
                {"rope_parameters", config.at("rope_parameters")}};
  if (const auto length = optional_member<std::int64_t>(config, "max_position_embeddings", where)) {
    model["max_position_embeddings"] = *length;
  }
  RopeSpec spec = spec_of_config(model, "", where);
  spec.layout.reset();
  return spec;
}

RopeSpec spec_of_members(const json& description, const json& config, const std::string& where) {
  const auto find = [&]<class T>(const char* key, T fallback) {
    if (const auto own = optional_member<T>(config, key, where)) return *own;
    return optional_member<T>(description, key, where).value_or(fallback);
  };
  RopeSpec spec;
  spec.head_dim = find("head_dim", std::int64_t{0});
  spec.rotary_dim = find("rotary_dim", spec.head_dim);
  spec.base = find("theta", find("base", kRoFormerBase));
  return spec;
}

// Vision cases name how the two axes share the head where text cases name a pair layout.
std::optional<AxialAxes::Kind> axial_kind_of(const json& description, const std::string& where) {
  const auto layout = optional_member<std::string>(description, "layout", where).value_or("");
  const auto axial = optional_member<std::string>(description, "axial", where).value_or("shared");
  if (layout == "axis_per_half_head") return AxialAxes::Kind::per_half_head;
  if (layout != "axes_concat_then_half") return std::nullopt;
  return axial == "alternating" ? AxialAxes::Kind::alternating : AxialAxes::Kind::concatenated;
}

void settle_layout(const json& description, RopeSpec& spec, const std::string& where) {
  if (const std::optional<AxialAxes::Kind> kind = axial_kind_of(description, where)) {
    const auto* axial = std::get_if<AxialAxes>(&spec.axes);
    if (axial == nullptr || axial->kind != *kind) {
      disagree(where, "layout", description.at("layout").get<std::string>(), "another");
    }
    return;
  }
  const auto name = optional_member<std::string>(description, "layout", where);
  if (!name) return;
  const std::optional<core::PairLayout> layout = core::pair_layout_of(*name);
  if (!layout) {
    refuse(ErrorCode::unsupported,
           message(where,
                   ": 'layout' must be interleaved, half, interleaved_to_half, "
                   "axes_concat_then_half or axis_per_half_head, got ",
                   *name));
  }
  if (spec.layout && *spec.layout != *layout) {
    disagree(where, "layout", *name, std::string(core::name_of(*spec.layout)));
  }
  spec.layout = layout;
}

std::vector<int> axes_of(const RopeSpec& spec) {
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec);
  std::vector<int> axes(frequencies.axes().begin(), frequencies.axes().end());
  axes.resize(static_cast<std::size_t>(frequencies.pairs()), 0);
  return axes;
}

// A case that gives sections and rope parameters; the order is the one that gives its rows.
void settle_sections(const json& description, RopeSpec& spec, const std::string& where) {
  const auto sections =
      optional_member<std::vector<std::int64_t>>(description, "mrope_section", where);
  const auto rows = optional_member<std::vector<int>>(description, "mrope_axis_of_freq", where);
  if (sections && !std::holds_alternative<MropeAxes>(spec.axes)) {
    for (const MropeAxes::Order order : {MropeAxes::Order::chunked, MropeAxes::Order::interleaved,
                                         MropeAxes::Order::alternating}) {
      spec.axes = MropeAxes{*sections, order};
      if (!rows || axes_of(spec) == *rows) break;
    }
  }
  if (rows && axes_of(spec) != *rows) {
    disagree(where, "the row of each frequency", fmt::format("[{}]", fmt::join(*rows, ", ")),
             fmt::format("[{}]", fmt::join(axes_of(spec), ", ")));
  }
}

void check_width(const json& description, const char* key, std::int64_t got,
                 const std::string& where) {
  const auto expected = optional_member<std::int64_t>(description, key, where);
  if (expected && *expected != got) {
    disagree(where, key, std::to_string(*expected), std::to_string(got));
  }
}

}  // namespace

RopeSpec spec_of_config(const json& config, const std::string& layer_type,
                        const std::string& where) {
  const config::ModelConfig model = config::parse_config(config.dump(), where).value_or_throw();
  config::LayerGroup group = config::select_layer(model, layer_type).value_or_throw();
  if (!group.rope) {
    refuse(ErrorCode::unsupported, message(where, ": the layer has no rotation"));
  }
  return std::move(*group.rope);
}

RopeSpec spec_of(const json& description, const std::string& where) {
  const auto found = description.find("config");
  const json config = found == description.end() ? description : *found;
  RopeSpec spec;
  if (found != description.end() && (config.contains("model_type") || config.contains("base") ||
                                     config.contains("frequencies"))) {
    spec = spec_of_config(
        config, optional_member<std::string>(description, "layer_type", where).value_or(""),
        where + ".config");
  } else if (config.contains("rope_parameters")) {
    spec = spec_of_parameters(config, where);
  } else {
    spec = spec_of_members(description, config, where);
  }
  settle_layout(description, spec, where);
  settle_sections(description, spec, where);
  check_width(description, "head_dim", spec.head_dim, where);
  check_width(description, "rotary_dim", 2 * static_cast<std::int64_t>(axes_of(spec).size()),
              where);
  return spec;
}

core::Positions case_positions(const CaseArray& array, const std::string& name,
                               const RopeSpec& spec, std::int64_t batch, std::int64_t tokens) {
  const int rows = encodings::axis_count(spec.axes);
  const std::vector<std::int64_t>& shape = array.data.shape;
  std::vector<std::string> dims = array.dims;
  if (dims.empty()) {
    // Images put the coordinates last, M-RoPE puts its rows first.
    const bool last = std::holds_alternative<AxialAxes>(spec.axes);
    const std::size_t rest = shape.size() - (rows > 1 && shape.size() > 1 ? 1 : 0);
    dims = rest == 1 ? std::vector<std::string>{"seq"} : std::vector<std::string>{"batch", "seq"};
    if (rows > 1 && shape.size() > 1) dims.insert(last ? dims.end() : dims.begin(), "axis");
  }
  // Strides of 0 let one row serve every batch row or axis.
  std::int64_t axis_stride = 0, batch_stride = 0, token_stride = 0, stride = 1;
  bool fits = dims.size() == shape.size();
  bool has_tokens = false;
  for (std::size_t at = shape.size(); fits && at-- > 0;) {
    if (is_token_axis(dims[at])) {
      has_tokens = true;
      fits = shape[at] == tokens;
      token_stride = stride;
    } else if (dims[at] == "batch") {
      fits = shape[at] == batch || shape[at] == 1;
      batch_stride = shape[at] == 1 ? 0 : stride;
    } else {
      fits = shape[at] == rows;
      axis_stride = stride;
    }
    stride *= shape[at];
  }
  if (!fits || !has_tokens) {
    refuse(ErrorCode::shape_mismatch,
           fmt::format("{}: positions must be for {} axes, {} batch rows and {} tokens, got the "
                       "shape {}",
                       name, rows, batch, tokens, core::shape_text(shape)));
  }
  const std::vector<double> values = io::to_doubles(array.data).value_or_throw();
  const auto spread = [&](auto numbers) {
    for (int axis = 0; axis < rows; ++axis) {
      for (std::int64_t row = 0; row < batch; ++row) {
        for (std::int64_t token = 0; token < tokens; ++token) {
          const std::int64_t at = axis * axis_stride + row * batch_stride + token * token_stride;
          numbers.push_back(static_cast<typename decltype(numbers)::value_type>(
              values[static_cast<std::size_t>(at)]));
        }
      }
    }
    return core::positions_of_shape(std::move(numbers),
                                    std::array{std::int64_t{rows}, batch, tokens});
  };
  // Integers are below 2^53, which to_doubles has checked: the conversion is exact.
  return io::is_integer(array.data.type) ? spread(std::vector<std::int64_t>())
                                         : spread(std::vector<double>());
}

core::Rotary rotary_of(const json& description, const RopeSpec& spec,
                       const core::Positions& positions, const std::string& where) {
  const auto given = optional_member<std::int64_t>(description, "seq_len", where);
  return encodings::resolve(spec, encodings::context_for(spec, given, positions.largest()));
}

}  // namespace phasor::tools
