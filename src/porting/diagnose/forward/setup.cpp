// What the spec says of these tensors: axes, positions, and the rotation as a model.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "porting/diagnose/forward/search.hpp"

namespace phasor::porting::forward {
namespace {

using Names = std::vector<std::string>;

Data data_of(const diagnosis::Vectors& vectors, Names names) {
  Data data;
  data.vectors = &vectors;
  std::int64_t stride = 1;
  for (std::size_t axis = names.size(); axis-- > 0;) {
    const std::int64_t length = vectors.shape[axis];
    if (names[axis] == "batch") {
      data.batch = length;
      data.batch_stride = stride;
    } else if (names[axis] == "tokens") {
      data.tokens = length;
      data.token_stride = stride;
    } else {
      data.heads = length;
      data.head_stride = stride;
    }
    stride *= length;
  }
  data.axes = std::move(names);
  return data;
}

// The shape of the positions, if the tensors' axes were these.
bool positions_fit(const std::vector<std::int64_t>& shape, const Data& data, int spec_axes) {
  if (shape.empty() || shape.back() != data.tokens) return false;
  const auto is_batch = [&](std::int64_t n) { return n == data.batch || n == 1; };
  const auto is_axes = [&](std::int64_t n) { return n == spec_axes || n == 1; };
  if (shape.size() == 1) return true;
  if (shape.size() == 2) return is_batch(shape[0]) || (spec_axes > 1 && shape[0] == spec_axes);
  return shape.size() == 3 && is_axes(shape[0]) && is_batch(shape[1]);
}

bool has_known_heads(const Data& data, const CheckOptions& options) {
  return options.heads &&
         (data.heads == *options.heads || data.heads == options.key_heads.value_or(*options.heads));
}

}  // namespace

std::vector<Reading> readings_of(const diagnosis::Vectors& vectors, const DiagnoseInput& input,
                                 const CheckOptions& options, int spec_axes) {
  const std::size_t rank = vectors.shape.size();
  std::vector<Names> namings;
  if (!input.axes.empty()) {
    namings = {diagnosis::named_axes(input.axes, rank + 1)};
  } else if (rank == 1) {
    namings = {{"tokens"}, {"heads"}};
  } else if (rank == 2) {
    namings = {{"tokens", "heads"}, {"heads", "tokens"}, {"batch", "tokens"}};
  } else {
    namings = {
        {"batch", "tokens", "heads"}, {"batch", "heads", "tokens"}, {"tokens", "batch", "heads"}};
  }
  std::vector<Reading> readings;
  for (const Names& names : namings) {
    Reading reading{data_of(vectors, names), names == namings.front(), false};
    // One token in a batch of many is [batch, 1, ...].
    const bool single = names.front() == "tokens" && !reading.usual && reading.data.tokens == 1;
    if (single) continue;
    if (input.positions != nullptr &&
        !positions_fit(input.positions->shape, reading.data, spec_axes)) {
      continue;
    }
    readings.push_back(std::move(reading));
  }
  if (readings.empty()) {
    refuse(ErrorCode::shape_mismatch,
           message("diagnose: the number of positions must be the length of one of the axes ",
                   core::shape_text(vectors.shape), " (for ", spec_axes, " rows of positions: [",
                   spec_axes, ", tokens] or [", spec_axes, ", batch, tokens]), got ",
                   core::shape_text(input.positions->shape)));
  }
  // The head counts of the config decide between namings, if an axis has such a length. In the
  // usual order a dump may hold fewer heads, and by chance as many tokens as the model has heads.
  const bool known = std::any_of(readings.begin(), readings.end(), [&](const Reading& reading) {
    return has_known_heads(reading.data, options);
  });
  for (Reading& reading : readings) {
    const bool few = reading.usual && options.heads && reading.data.heads < *options.heads;
    reading.contradicted = known && !has_known_heads(reading.data, options) && !few;
  }
  const auto open = std::count_if(readings.begin(), readings.end(),
                                  [](const Reading& reading) { return !reading.contradicted; });
  for (Reading& reading : readings) {
    reading.data.axes_certain = !reading.contradicted && open == 1;
  }
  std::stable_sort(readings.begin(), readings.end(), [](const Reading& a, const Reading& b) {
    return !a.contradicted && b.contradicted;
  });
  return readings;
}

Positions positions_of(const DiagnoseInput& input, const Data& data, int spec_axes) {
  auto table = std::make_shared<PositionTable>();
  if (input.positions == nullptr) {
    table->tokens = data.tokens;
    table->values.resize(static_cast<std::size_t>(data.tokens));
    std::iota(table->values.begin(), table->values.end(), 0.0);
    return table;
  }
  const std::vector<std::int64_t>& shape = input.positions->shape;
  table->values = io::to_doubles(*input.positions).value_or_throw();
  table->tokens = shape.back();
  if (shape.size() == 3) {
    table->axes = shape[0];
    table->batch = shape[1];
  } else if (shape.size() == 2) {
    (spec_axes > 1 && shape[0] == spec_axes ? table->axes : table->batch) = shape[0];
  }
  return table;
}

double largest_position(const PositionTable& table) {
  double largest = 0.0;
  for (const double position : table.values) largest = std::max(largest, position);
  return largest;
}

std::vector<PairPlace> places_of(const diagnosis::Window& window) {
  std::vector<PairPlace> places;
  for (std::int64_t pair = 0; pair < window.pairs(); ++pair) {
    const diagnosis::PairFeatures at = diagnosis::features_of(window, pair);
    places.push_back({at.read_a, at.read_b, at.write_a, at.write_b});
  }
  return places;
}

std::vector<PairPlace> places_of(const core::Rotary& rotary) {
  const auto pairing = rotary.layout == core::PairLayout::half ? diagnosis::Pairing::half
                       : rotary.layout == core::PairLayout::interleaved
                           ? diagnosis::Pairing::interleaved
                           : diagnosis::Pairing::interleaved_to_half;
  std::vector<PairPlace> places;
  const std::int64_t width = rotary.rotary_dim() / rotary.blocks;
  for (std::int64_t block = 0; block < rotary.blocks; ++block) {
    for (const PairPlace& place : places_of({pairing, rotary.offset + block * width, width})) {
      places.push_back(place);
    }
  }
  return places;
}

Model model_of(const encodings::RopeSpec& spec, core::PairLayout layout,
               std::optional<std::int64_t> context, const Positions& positions, core::Role role) {
  encodings::RopeSpec known = spec;
  known.layout = layout;
  const core::Rotary rotary = encodings::resolve(known, context);
  Model model;
  model.pairs = places_of(rotary);
  model.frequencies.assign(rotary.frequencies.values().begin(), rotary.frequencies.values().end());
  model.axes.assign(rotary.frequencies.axes().begin(), rotary.frequencies.axes().end());
  model.amplitude = rotary.frequencies.amplitude();
  model.growth = rotary.growth;
  if (model.growth && role == core::Role::key) {
    for (double& rate : model.growth->rates) rate = -rate;
  }
  model.positions = positions;
  return model;
}

}  // namespace phasor::porting::forward
