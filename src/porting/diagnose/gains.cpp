#include <algorithm>
#include <cmath>
#include <numeric>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    strides[axis - 1] = strides[axis] * shape[axis];
  }
  return strides;
}

struct PairValues {
  Complex before, after;
};

PairValues pair_of(const Vectors& vectors, const PairFeatures& at, std::int64_t vector) {
  const double* const x = vectors.before.data() + vector * vectors.dim;
  const double* const y = vectors.after.data() + vector * vectors.dim;
  return {{x[at.read_a], x[at.read_b]}, {y[at.write_a], y[at.write_b]}};
}

std::string plain_name(const std::string& name) {
  if (name == "seq" || name == "token" || name == "sequence") return "tokens";
  if (name == "head") return "heads";
  if (name == "head_dim") return "dim";
  return name;
}

// The axis along which the rotation varies most, among those that the positions match.
std::size_t token_axis(const Vectors& vectors, const std::vector<double>& coherence,
                       const io::NpyArray* positions) {
  std::vector<std::size_t> candidates;
  for (std::size_t axis = 0; axis < vectors.shape.size(); ++axis) {
    if (positions == nullptr || vectors.shape[axis] == positions->shape.back()) {
      candidates.push_back(axis);
    }
  }
  if (candidates.empty()) {
    refuse(ErrorCode::shape_mismatch,
           message("diagnose: the number of positions must be the length of one of the axes ",
                   core::shape_text(vectors.shape), ", got ", positions->shape.back()));
  }
  // [tokens, ...] and [batch, tokens, heads]: the order if the data do not determine it.
  const std::size_t usual = vectors.shape.size() == 3 ? 1 : 0;
  constexpr double kAlike = 1e-9;
  std::size_t best = candidates.front();
  for (const std::size_t axis : candidates) {
    const double gained = coherence[best] - coherence[axis];
    const bool as_usual = std::abs(gained) <= kAlike && axis == usual;
    const bool longer = std::abs(gained) <= kAlike && best != usual && axis != usual &&
                        vectors.shape[axis] > vectors.shape[best];
    if (gained > kAlike || as_usual || longer) best = axis;
  }
  return best;
}

}  // namespace

std::vector<std::string> named_axes(const std::vector<std::string>& given, std::size_t rank) {
  std::vector<std::string> names;
  for (const std::string& name : given) names.push_back(plain_name(name));
  const auto times = [&](const char* name) { return std::count(names.begin(), names.end(), name); };
  const auto known = times("batch") + times("tokens") + times("heads") + times("dim");
  const bool fits = names.size() == rank && names.back() == "dim" && times("tokens") == 1 &&
                    times("batch") <= 1 && times("heads") <= 1 && times("dim") == 1 &&
                    known == static_cast<std::ptrdiff_t>(rank);
  if (!fits) {
    std::string text;
    for (const std::string& name : given) text += (text.empty() ? "" : ",") + name;
    refuse(
        ErrorCode::invalid_argument,
        message(
            "diagnose: axes must be ", rank,
            " different names of batch, tokens, heads and dim, with tokens and with dim last, got ",
            text));
  }
  names.pop_back();
  return names;
}

std::vector<double> coherence_by_axis(const Vectors& vectors, const Window& window) {
  const std::vector<std::int64_t> strides = strides_of(vectors.shape);
  std::vector<double> result;
  for (std::size_t axis = 0; axis < vectors.shape.size(); ++axis) {
    const std::int64_t length = vectors.shape[axis], stride = strides[axis];
    double together = 0.0, apart = 0.0;
    for (std::int64_t v = 0; v < vectors.count && length > 1; ++v) {
      if (v / stride % length != 0) continue;
      core::throw_if_cancelled();
      for (std::int64_t pair = 0; pair < window.pairs(); ++pair) {
        const PairFeatures at = features_of(window, pair);
        Complex sum = 0.0;
        for (std::int64_t k = 0; k < length; ++k) {
          if (vectors.usable[static_cast<std::size_t>(v + k * stride)] == 0) continue;
          const auto [before, after] = pair_of(vectors, at, v + k * stride);
          const Complex rotation = after * std::conj(before);
          sum += rotation;
          apart += std::abs(rotation);
        }
        together += std::abs(sum);
      }
    }
    result.push_back(apart > 0.0 ? together / apart : 1.0);
  }
  return result;
}

Axes find_axes(const Vectors& vectors, const Window& window, const DiagnoseInput& input,
               std::vector<std::string>& notes) {
  const std::size_t rank = vectors.shape.size();
  Axes axes;
  if (!input.axes.empty()) {
    axes.names = named_axes(input.axes, rank + 1);
  } else {
    const std::vector<double> coherence = coherence_by_axis(vectors, window);
    const std::size_t tokens = token_axis(vectors, coherence, input.positions);
    axes.names.assign(rank, "heads");
    axes.names[tokens] = "tokens";
    std::vector<std::size_t> others;
    for (std::size_t axis = 0; axis < rank; ++axis) {
      if (axis != tokens) others.push_back(axis);
    }
    // All heads of a token have the same angles; an axis that varies is the batch.
    const auto varies = [&](std::size_t axis) {
      return 1.0 - coherence[axis] > 1e-3 * (1.0 - coherence[tokens]) + 1e-4;
    };
    if (others.size() == 2) {
      const bool second = varies(others[1]) && !varies(others[0]);
      axes.names[others[second ? 1 : 0]] = "batch";
    } else if (others.size() == 1 && varies(others[0])) {
      axes.names[others[0]] = "batch";
    }
    std::string order;
    for (const std::string& name : axes.names) order += name + ", ";
    const bool contract = rank == 1 || axes.names[rank - 2] == "tokens";
    if (!contract) notes.push_back("the axes are [" + order + "dim], found from the data");
  }
  const std::vector<std::int64_t> strides = strides_of(vectors.shape);
  const auto index_of = [&](const char* name) -> std::optional<std::size_t> {
    const auto found = std::find(axes.names.begin(), axes.names.end(), name);
    if (found == axes.names.end()) return std::nullopt;
    return static_cast<std::size_t>(found - axes.names.begin());
  };
  const std::size_t token = *index_of("tokens");
  const std::optional<std::size_t> batch = index_of("batch");
  axes.tokens = vectors.shape[token];
  axes.batch = batch ? vectors.shape[*batch] : 1;
  axes.token_of.resize(static_cast<std::size_t>(vectors.count));
  axes.batch_of.resize(static_cast<std::size_t>(vectors.count), 0);
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    const auto at = static_cast<std::size_t>(v);
    axes.token_of[at] = v / strides[token] % axes.tokens;
    if (batch) axes.batch_of[at] = v / strides[*batch] % axes.batch;
  }
  if (input.positions != nullptr) {
    const std::vector<std::int64_t>& shape = input.positions->shape;
    const bool one_row = shape.size() == 1 || (shape.size() == 2 && shape[0] == 1);
    const bool per_batch = shape.size() == 2 && shape[0] == axes.batch;
    if (shape.back() != axes.tokens || !(one_row || per_batch)) {
      refuse(ErrorCode::shape_mismatch,
             message("diagnose: positions must have the shape [", axes.tokens, "] or [", axes.batch,
                     ", ", axes.tokens, "], got ", core::shape_text(shape)));
    }
  }
  return axes;
}

Gains measure_gains(const Vectors& vectors, const Window& window, const Axes& axes,
                    const std::vector<double>& positions, BatchRows batch_rows) {
  const bool apart = batch_rows == BatchRows::apart;
  Gains gains;
  gains.pairs = window.pairs();
  gains.sequences = apart ? axes.batch : 1;
  gains.rows = gains.sequences * axes.tokens;
  gains.gain.assign(static_cast<std::size_t>(gains.rows * gains.pairs), 0.0);
  gains.weight.assign(gains.gain.size(), 0.0);
  gains.position = positions;
  gains.sequence.resize(static_cast<std::size_t>(gains.rows));
  for (std::int64_t row = 0; row < gains.rows; ++row) {
    gains.sequence[static_cast<std::size_t>(row)] = row / axes.tokens;
  }
  const auto row_of = [&](std::int64_t v) {
    const auto at = static_cast<std::size_t>(v);
    return (apart ? axes.batch_of[at] * axes.tokens : 0) + axes.token_of[at];
  };
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    core::throw_if_cancelled();
    if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
    for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
      const auto [before, after] = pair_of(vectors, features_of(window, pair), v);
      const std::size_t at = gains.at(row_of(v), pair);
      gains.gain[at] += after * std::conj(before);
      gains.weight[at] += std::norm(before);
    }
  }
  for (std::size_t at = 0; at < gains.gain.size(); ++at) {
    gains.gain[at] = gains.weight[at] > 0.0 ? gains.gain[at] / gains.weight[at] : 0.0;
  }
  double left = 0.0, energy = 0.0;
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    core::throw_if_cancelled();
    if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
    for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
      const auto [before, after] = pair_of(vectors, features_of(window, pair), v);
      left += std::norm(after - gains.gain[gains.at(row_of(v), pair)] * before);
      energy += std::norm(after);
    }
  }
  gains.residual = energy > 0.0 ? std::sqrt(left / energy) : 0.0;
  return gains;
}

void conjugate(Gains& gains) {
  for (Complex& gain : gains.gain) gain = std::conj(gain);
}

double farthest_position(const Gains& gains) {
  double farthest = 0.0;
  for (const double position : gains.position) farthest = std::max(farthest, std::abs(position));
  return farthest;
}

double mean_length(const Gains& gains) {
  double sum = 0.0, weight = 0.0;
  for (std::size_t at = 0; at < gains.gain.size(); ++at) {
    sum += gains.weight[at] * std::abs(gains.gain[at]);
    weight += gains.weight[at];
  }
  return weight > 0.0 ? sum / weight : 0.0;
}

}  // namespace phasor::porting::diagnosis
