#include "phasor/porting/diagnose.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "porting/diagnose/parts.hpp"
#include "porting/share.hpp"

namespace phasor::porting {
namespace diagnosis {

bool ascend_by_one(const std::vector<double>& positions, std::int64_t first, std::int64_t count) {
  for (std::int64_t k = 1; k < count; ++k) {
    const auto at = static_cast<std::size_t>(first + k);
    if (positions[at] != positions[at - 1] + 1.0) return false;
  }
  return positions[static_cast<std::size_t>(first)] ==
         std::round(positions[static_cast<std::size_t>(first)]);
}

std::vector<double> law_errors(const Investigation& state, const FrequencyFit& fit) {
  const double farthest = std::max(1.0, farthest_position(state.gains));
  const double unit = unit_of(state.vectors.precision);
  std::vector<double> errors = fit.error;
  for (std::size_t pair = 0; pair < errors.size(); ++pair) {
    errors[pair] = std::hypot(errors[pair], kFrequencyRounding * fit.value[pair]);
    if (std::abs(fit.value[pair]) * farthest < unit) {
      errors[pair] = std::hypot(errors[pair], 0.5 * unit / farthest);
    }
  }
  return errors;
}

void Investigation::none(std::string reason) {
  found.answer = Answer::none;
  found.reason = std::move(reason);
  found.layout.reset();
  found.rotary_dim.reset();
  found.undetermined.clear();
  if (!layouts.empty()) {
    const LayoutScore& best = layouts.front();
    found.residual = best.residual;
    found.runner_up = RunnerUp{message("a rotation in ", name_of(best.window.pairing),
                                       " layout, rotary_dim ", best.window.width),
                               std::string(name_of(best.window.pairing)), "", best.residual};
  }
}

void measure(Investigation& state) {
  const bool per_batch = state.input.positions != nullptr &&
                         state.input.positions->shape.size() == 2 &&
                         state.input.positions->shape[0] > 1;
  const std::vector<double> coherence = coherence_by_axis(state.vectors, state.window);
  const auto batch = std::find(state.axes.names.begin(), state.axes.names.end(), "batch");
  const bool batch_varies =
      batch != state.axes.names.end() && state.axes.batch > 1 &&
      1.0 - coherence[static_cast<std::size_t>(batch - state.axes.names.begin())] > 1e-4;
  const bool apart = per_batch || batch_varies;
  std::vector<double> positions = state.given;
  if (positions.empty()) {
    positions.resize(static_cast<std::size_t>(state.axes.tokens));
    std::iota(positions.begin(), positions.end(), 0.0);
  }
  while (apart &&
         static_cast<std::int64_t>(positions.size()) < state.axes.batch * state.axes.tokens) {
    positions.insert(positions.end(), positions.begin(), positions.begin() + state.axes.tokens);
  }
  state.listed = positions;
  state.gains = measure_gains(state.vectors, state.window, state.axes, positions,
                              apart ? BatchRows::apart : BatchRows::pooled);
}

std::optional<std::string> mirrored(const Investigation& state) {
  // y = g conj(x): each pair reflected.
  Vectors mirrored = state.vectors;
  for (std::int64_t v = 0; v < state.vectors.count; ++v) {
    for (std::int64_t pair = 0; pair < state.window.pairs(); ++pair) {
      const PairFeatures at = features_of(state.window, pair);
      double& b = mirrored.before[static_cast<std::size_t>(v * mirrored.dim + at.read_b)];
      b = -b;
    }
  }
  const Gains reflection =
      measure_gains(mirrored, state.window, state.axes, state.listed, BatchRows::pooled);
  if (reflection.residual < kRotatedResidual) {
    return message("each pair is reflected, not rotated (", name_of(state.window.pairing),
                   " layout): a sign of sin or of rotate_half is wrong");
  }
  return std::nullopt;
}

}  // namespace diagnosis

namespace {

using namespace diagnosis;

// Root mean square of (after - before) divided by that of after.
double change_of(const Vectors& vectors) {
  double moved = 0.0, energy = 0.0;
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    core::throw_if_cancelled();
    if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
    for (std::int64_t j = 0; j < vectors.dim; ++j) {
      const auto at = static_cast<std::size_t>(v * vectors.dim + j);
      moved += (vectors.after[at] - vectors.before[at]) * (vectors.after[at] - vectors.before[at]);
      energy += vectors.after[at] * vectors.after[at];
    }
  }
  return energy > 0.0 ? std::sqrt(moved / energy) : 0.0;
}

std::vector<double> given_positions(const DiagnoseInput& input) {
  if (input.positions == nullptr) return {};
  const io::NpyArray& array = *input.positions;
  if (array.type == io::NpyType::boolean) {
    refuse(ErrorCode::invalid_argument, "diagnose: positions must be integers or floats, got bool");
  }
  const bool one_row = array.shape.size() == 1 || array.shape.size() == 2;
  if (!one_row || array.size() == 0) {
    refuse(ErrorCode::shape_mismatch,
           message("diagnose: positions must have the shape [tokens] or [batch, tokens], got ",
                   core::shape_text(array.shape)));
  }
  std::vector<double> positions = io::to_doubles(array).value_or_throw();
  for (const double position : positions) {
    if (!(std::abs(position) < 0x1p53)) {
      refuse(ErrorCode::out_of_range,
             message("diagnose: positions must be below 2^53, got ", position));
    }
  }
  return positions;
}

std::string rotated_apart(const Investigation& state) {
  return message("the lengths of the pairs are unchanged (", name_of(state.window.pairing),
                 " layout), but vectors of the same token are rotated differently: residual ",
                 digits(state.gains.residual, 3));
}

void describe_window(Investigation& state) {
  state.found.layout = std::string(name_of(state.window.pairing));
  state.found.rotary_dim = state.window.width;
  state.found.rotary_offset = state.window.first;
  if (state.window.width == 2) {
    state.found.layout.reset();
    state.undetermined("layout", "a single pair is the same in every layout");
  }
}

void investigate(Investigation& state) {
  Diagnosis& found = state.found;
  const Share share(state.input.progress);  // by the times of 4096 tokens, 32 heads of 128
  state.given = given_positions(state.input);
  state.vectors = read_vectors(state.input, found.notes);
  share.at(0.12);
  found.head_dim = state.vectors.dim;
  found.tensor_dtype = type_name(state.vectors.stored);
  found.rounding_floor = rounding_floor(state.vectors.precision);
  leave_out_not_finite(state.vectors, found.notes);
  if (auto reason = not_finite(state.vectors)) return state.none(*reason);
  const std::vector<std::uint8_t> changed = changed_features(state.vectors);
  if (auto reason = plain_reason(state.vectors, changed)) return state.none(*reason);
  share.at(0.19);
  state.layouts = rank_layouts(state.vectors, changed);
  const LayoutScore& best = state.layouts.front();
  // The residual of a rotation is rounding; that of a small addition is as large as the change.
  const bool explains =
      best.residual < kRotatedResidual && best.residual < 0.3 * change_of(state.vectors);
  if (!explains) return state.none(other_reason(state.vectors, best.residual));
  state.window = best.window;
  std::vector<std::string> order;
  state.axes = find_axes(state.vectors, state.window, state.input, order);
  found.axes = state.axes.names;
  found.axes.emplace_back("dim");
  share.at(0.32);
  measure(state);
  share.at(0.48);
  if (state.gains.residual > kRotatedResidual) {
    return state.none(mirrored(state).value_or(rotated_apart(state)));
  }
  found.answer = Answer::rope;
  describe_window(state);
  const bool solved = solve_rotations(state);
  share.at(0.82);
  if (solved) describe_answer(state);
  found.notes.insert(found.notes.end(), order.begin(), order.end());
  share.at(1.0);
}

}  // namespace

Diagnosis diagnose(const DiagnoseInput& input) {
  Investigation state{input};
  investigate(state);
  return std::move(state.found);
}

}  // namespace phasor::porting
