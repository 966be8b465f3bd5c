#include "spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "phasor/config/config.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/porting/audit.hpp"

namespace phasor::tools {
namespace {

int axis_count(const encodings::RopeSpec& spec) {
  return encodings::resolve_frequencies(spec).axis_count();
}

std::int64_t parse_bound(std::string_view text, std::string_view whole) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::invalid_argument,
                message("--positions: a range must be A:B with whole numbers, got '", whole, "'"));
  }
  return value;
}

bool is_range(const std::string& text) {
  return text.find(':') != std::string::npos &&
         text.find_first_not_of("0123456789+-:") == std::string::npos;
}

// Copies rows of [rows, tokens] into [axes, batch, tokens]; a source row serves where the target
// has no own.
template <class T>
std::vector<T> spread_rows(const std::vector<T>& source, int source_axes, int axes,
                           std::int64_t source_batch, std::int64_t batch, std::int64_t tokens) {
  std::vector<T> result;
  result.reserve(static_cast<std::size_t>(axes * batch * tokens));
  for (int axis = 0; axis < axes; ++axis) {
    for (std::int64_t row = 0; row < batch; ++row) {
      const std::int64_t from =
          (source_axes == 1 ? 0 : axis) * source_batch + (source_batch == 1 ? 0 : row);
      const auto first = source.begin() + from * tokens;
      result.insert(result.end(), first, first + tokens);
    }
  }
  return result;
}

}  // namespace

void add_spec_options(Verb& verb, SpecOptions& options, ConfigFlag config) {
  Flag& flag = verb.flag(
      "--config", &options.config,
      "config.json (old or new form), a plain spec, or a directory that holds config.json");
  if (config == ConfigFlag::required) flag.required();
  verb.flag("--layer", &options.layer,
            "layer index or layer type, where layers differ (full_attention, ...)");
  verb.flag("--context", &options.context,
            "context length, where the numbers depend on it (dynamic, longrope, xPos)");
}

encodings::RopeSpec read_spec(const SpecOptions& options) {
  if (options.context && *options.context < 1) {
    throw Error(ErrorCode::invalid_argument,
                message("--context must be at least 1, got ", *options.context));
  }
  const config::ModelConfig model = config::read_config(options.config).value_or_throw();
  config::LayerGroup group = config::select_layer(model, options.layer).value_or_throw();
  if (!group.rope) {
    const std::string layer = !group.layer_type.empty() ? "'" + group.layer_type + "'"
                              : options.layer.empty()   ? "of every index"
                                                        : "'" + options.layer + "'";
    throw Error(ErrorCode::unsupported,
                message(options.config, ": the layer must rotate, got layer ", layer,
                        ", which has no rotation"));
  }
  return std::move(*group.rope);
}

core::Frequencies listed_frequencies(const encodings::RopeSpec& spec,
                                     std::optional<std::int64_t> context) {
  return std::holds_alternative<encodings::AxialAxes>(spec.axes)
             ? encodings::axial_frequencies(spec)
             : encodings::resolve_frequencies(spec, context);
}

void or_throw(const Result<Done>& result) {
  if (!result.ok()) throw Error(result.error());
}

void add_angles_option(Verb& verb, std::string& angles) {
  verb.flag("--angles", &angles,
            "exact (default), or float32: the rounding of engines that multiply in float32")
      .one_of({"exact", "float32"});
}

core::AngleMode parse_angles(std::string_view name) {
  return name == "float32" ? core::AngleMode::float32 : core::AngleMode::exact;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

RawPositions read_positions(const std::string& path) {
  const io::NpyArray array = io::read_npy(path).value_or_throw();
  RawPositions raw;
  raw.shape = array.shape;
  raw.are_integers = io::is_integer(array.type);
  if (raw.are_integers) {
    raw.integers = io::to_integers(array).value_or_throw();
    return raw;
  }
  if (array.type == io::NpyType::boolean) {
    throw Error(ErrorCode::invalid_argument,
                message(path, ": positions must be integers or floats, got bool"));
  }
  raw.floats = io::to_doubles(array).value_or_throw();
  const auto bad = std::find_if(raw.floats.begin(), raw.floats.end(),
                                [](double value) { return !std::isfinite(value); });
  if (bad != raw.floats.end()) {
    throw Error(ErrorCode::invalid_argument, message(path, ": positions must be finite, got ", *bad,
                                                     " at element ", bad - raw.floats.begin()));
  }
  return raw;
}

RawPositions count_positions(std::int64_t first, std::int64_t count) {
  // Larger ones are refused by the core as well; here, before first + t can overflow.
  const double end = static_cast<double>(first) + static_cast<double>(count);
  if (std::abs(static_cast<double>(first)) > core::kMaxPosition || end > core::kMaxPosition) {
    throw Error(ErrorCode::out_of_range, message("positions must be within 2^53 of 0, got ", first,
                                                 " and ", count, " more"));
  }
  RawPositions raw;
  raw.shape = {count};
  raw.integers.resize(static_cast<std::size_t>(count));
  std::iota(raw.integers.begin(), raw.integers.end(), first);
  return raw;
}

RawPositions parse_positions(const std::string& text) {
  if (!is_range(text)) return read_positions(text);
  const std::size_t colon = text.find(':');
  const std::string_view view = text;
  const std::int64_t first = parse_bound(view.substr(0, colon), text);
  const std::int64_t last = parse_bound(view.substr(colon + 1), text);
  // A table of this many rows would not fit any machine; refused before memory is asked for.
  constexpr std::int64_t kMaxRange = std::int64_t{1} << 32;
  if (last < first || static_cast<double>(last) - static_cast<double>(first) > kMaxRange) {
    throw Error(
        ErrorCode::invalid_argument,
        message("--positions: a range must be A:B with A <= B <= A + 2^32, got '", text, "'"));
  }
  return count_positions(first, last - first);
}

int position_rows(const encodings::RopeSpec& spec) {
  const auto* mrope = std::get_if<encodings::MropeAxes>(&spec.axes);
  return std::max(axis_count(spec),
                  mrope == nullptr ? 1 : static_cast<int>(mrope->sections.size()));
}

PositionGrid::PositionGrid(const encodings::RopeSpec& spec, const RawPositions& raw,
                           std::optional<std::int64_t> batch, std::int64_t tokens)
    : axes_(axis_count(spec)),
      batch_(batch.value_or(1)),
      tokens_(tokens),
      are_integers_(raw.are_integers) {
  const std::vector<std::int64_t>& shape = raw.shape;
  const bool batched = batch.has_value();
  const std::int64_t rows = position_rows(spec);
  const bool many = rows > 1;
  // A text token of M-RoPE stands at the same place on every axis; an image patch does not.
  const bool one_row_serves = !many || std::holds_alternative<encodings::MropeAxes>(spec.axes);

  int source_axes = 0;
  std::int64_t source_batch = 1;
  using Shape = std::vector<std::int64_t>;
  if (one_row_serves && shape == Shape{tokens}) {
    source_axes = 1;
  } else if (one_row_serves && shape == Shape{batch_, tokens} && (batched || !many)) {
    source_axes = 1;
    source_batch = batch_;
  } else if (many && !batched && shape == Shape{rows, tokens}) {
    source_axes = static_cast<int>(rows);
  } else if (many && shape == Shape{rows, batch_, tokens}) {
    source_axes = static_cast<int>(rows);
    source_batch = batch_;
  }
  if (source_axes == 0) {
    std::vector<std::string> fits;
    if (one_row_serves) fits.push_back(shape_text({tokens}));
    if (one_row_serves && batched) fits.push_back(shape_text({batch_, tokens}));
    if (many && !batched) fits.push_back(shape_text({rows, tokens}));
    if (many) fits.push_back(shape_text({rows, batch_, tokens}));
    throw Error(ErrorCode::shape_mismatch, fmt::format("positions must have the shape {}, got {}",
                                                       fmt::join(fits, " or "), shape_text(shape)));
  }
  if (are_integers_) {
    integers_ = spread_rows(raw.integers, source_axes, axes_, source_batch, batch_, tokens);
  } else {
    floats_ = spread_rows(raw.floats, source_axes, axes_, source_batch, batch_, tokens);
  }
}

core::Positions PositionGrid::view() const noexcept {
  return are_integers_ ? core::positions_per_row(integers_.data(), axes_, batch_, tokens_)
                       : core::positions_per_row(floats_.data(), axes_, batch_, tokens_);
}

void PositionGrid::token(std::int64_t index, std::vector<double>& per_axis) const {
  per_axis.resize(static_cast<std::size_t>(axes_));
  for (int axis = 0; axis < axes_; ++axis) {
    const auto at = static_cast<std::size_t>(axis * batch_ * tokens_ + index);
    per_axis[static_cast<std::size_t>(axis)] =
        are_integers_ ? static_cast<double>(integers_[at]) : floats_[at];
  }
}

std::optional<double> PositionGrid::largest() const noexcept {
  if (!integers_.empty()) {
    return static_cast<double>(*std::max_element(integers_.begin(), integers_.end()));
  }
  if (!floats_.empty()) return *std::max_element(floats_.begin(), floats_.end());
  return std::nullopt;
}

std::optional<std::int64_t> context_for(const encodings::RopeSpec& spec, const SpecOptions& options,
                                        const PositionGrid& positions, std::string_view verb) {
  if (options.context || !encodings::depends_on_context(spec)) return options.context;
  const std::optional<std::int64_t> context =
      porting::context_of_positions(spec, positions.largest());
  if (context) {
    fmt::print(stderr, "phasor {}: context {} taken from the largest position; --context sets it\n",
               verb, *context);
  }
  return context;
}

}  // namespace phasor::tools
