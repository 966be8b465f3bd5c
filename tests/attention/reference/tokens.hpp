// What the references of softmax and linear attention share: inputs as dense numbers, and products of
// rotated heads in their relative form.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <map>
#include <numbers>
#include <optional>
#include <vector>

#include "phasor/core/internal/positions.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"

namespace phasor::attention::tests {

// The direction of a derivative: numbers for one tensor, named by its data; the others do not move.
struct Direction {
  const void* of = nullptr;
  std::vector<double> values;  // dense, in the order of the tensor's axes
};

// [batch, tokens, heads, dim], dense.
template <class T>
struct Tokens {
  std::int64_t batch, tokens, heads, dim;
  std::vector<T> values;

  Tokens(const core::ConstHeadsView& view, const Direction& direction)
      : batch(view.batch), tokens(view.tokens), heads(view.heads), dim(view.head_dim) {
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t d = 0; d < dim; ++d) {
            values.push_back(core::element_of(
                view, b * view.batch_stride + t * view.token_stride + h * view.head_stride + d));
          }
        }
      }
    }
    if constexpr (!std::is_same_v<T, double>) {
      if (direction.of != view.data) return;
      for (std::size_t i = 0; i < values.size(); ++i) values[i].d = direction.values[i];
    }
  }
  [[nodiscard]] const T* row(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return values.data() + ((b * tokens + t) * heads + h) * dim;
  }
};

template <class T>
T dot(const T* a, const T* b, std::int64_t dim) {
  T sum = 0.0;
  for (std::int64_t d = 0; d < dim; ++d) sum += a[d] * b[d];
  return sum;
}

using Phases = std::vector<std::complex<double>>;  // one per pair

// RoFormer (16): (R_m q) . (R_n k) = Re sum_i q_i conj(k_i) e^{i (m - n) θ_i}, pairs as complex
// numbers. No head is rotated: a product needs the difference of the positions only.
class RelativeRotation {
 public:
  enum class Side : std::uint8_t { raw, rotated };  // features in the order read, or as written

  explicit RelativeRotation(const core::Rotary& rotary) : rotary_(rotary) {}

  // a^2 e^{i (m - n) θ} e^{rate (m - n)}, for two raw heads.
  [[nodiscard]] const Phases& between(const std::vector<double>& m, const std::vector<double>& n) {
    std::vector<double> distance(m.size());
    for (std::size_t axis = 0; axis < m.size(); ++axis) distance[axis] = m[axis] - n[axis];
    return phases(distance, distance[0], 2);
  }
  // The phases of R_m q alone, and of R_n k alone, against a head that is not rotated.
  [[nodiscard]] const Phases& of_query(const std::vector<double>& m) {
    return phases(m, m[0] - centre(), 1);
  }
  [[nodiscard]] const Phases& of_key(const std::vector<double>& n) {
    std::vector<double> backward(n.size());
    for (std::size_t axis = 0; axis < n.size(); ++axis) backward[axis] = -n[axis];
    return phases(backward, centre() - n[0], 1);
  }

  template <class T>
  [[nodiscard]] T product(const T* q, Side q_side, const T* k, Side k_side,
                          const Phases& phases) const {
    T sum = dot(q, k, rotary_.offset);
    const std::int64_t end = rotary_.offset + rotary_.rotary_dim();
    sum += dot(q + end, k + end, rotary_.head_dim - end);
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const auto [qa, qb] = pair(static_cast<std::int64_t>(i), q_side);
      const auto [ka, kb] = pair(static_cast<std::int64_t>(i), k_side);
      const T real = q[qa] * k[ka] + q[qb] * k[kb], imaginary = q[qb] * k[ka] - q[qa] * k[kb];
      sum += real * T(phases[i].real()) - imaginary * T(phases[i].imag());
    }
    return sum;
  }

  // R_m q, or R_n k, in the order read, of the phases of_query() or of_key().
  template <class T>
  void rotate(const Phases& phases, core::Role role, T* x) const {
    for (std::size_t i = 0; i < phases.size(); ++i) {
      const auto [a, b] = pair(static_cast<std::int64_t>(i), Side::raw);
      const T cos = phases[i].real(),
              sin = role == core::Role::query ? phases[i].imag() : -phases[i].imag();
      const T xa = x[a], xb = x[b];
      x[a] = xa * cos - xb * sin;
      x[b] = xb * cos + xa * sin;
    }
  }

 private:
  struct Pair {
    std::int64_t a, b;
  };
  [[nodiscard]] Pair pair(std::int64_t i, Side side) const {
    const std::int64_t per_block = rotary_.frequencies.pairs() / rotary_.blocks;
    const std::int64_t start = rotary_.offset + i / per_block * 2 * per_block, at = i % per_block;
    const bool interleaved =
        rotary_.layout == core::PairLayout::interleaved ||
        (rotary_.layout == core::PairLayout::interleaved_to_half && side == Side::raw);
    return interleaved ? Pair{start + 2 * at, start + 2 * at + 1}
                       : Pair{start + at, start + at + per_block};
  }
  [[nodiscard]] double centre() const { return rotary_.growth ? rotary_.growth->centre : 0.0; }
  // amplitude^rotations e^{i angle} e^{rate growth}
  [[nodiscard]] const Phases& phases(const std::vector<double>& position, double growth,
                                     int rotations) {
    std::vector<double> key = position;
    key.push_back(growth);
    key.push_back(rotations);
    const auto [found, is_new] = known_.try_emplace(std::move(key));
    if (!is_new) return found->second;
    const core::Frequencies& frequencies = rotary_.frequencies;
    for (std::size_t i = 0; i < frequencies.values().size(); ++i) {
      const std::size_t axis = frequencies.axes().empty() ? 0 : frequencies.axes()[i];
      const long double angle =
          std::fmod(static_cast<long double>(position[axis]) * frequencies.values()[i],
                    2 * std::numbers::pi_v<long double>);
      double length = std::pow(frequencies.amplitude(), rotations);
      if (rotary_.growth) length *= std::exp(rotary_.growth->rates[i] * growth);
      found->second.emplace_back(length * static_cast<double>(std::cos(angle)),
                                 length * static_cast<double>(std::sin(angle)));
    }
    return found->second;
  }

  core::Rotary rotary_;
  std::map<std::vector<double>, Phases> known_;
};

// One entry per axis, for each of batch * tokens tokens.
inline std::vector<std::vector<double>> ids_of(const core::Positions& positions, int axes,
                                               std::int64_t batch, std::int64_t tokens) {
  std::vector<std::vector<double>> ids;
  if (batch * tokens == 0) return ids;
  core::PositionCursor cursor(positions, axes, tokens, 0);
  for (std::int64_t t = 0; t < batch * tokens; ++t) {
    cursor.next(ids.emplace_back(static_cast<std::size_t>(axes)).data());
  }
  return ids;
}

}  // namespace phasor::attention::tests
