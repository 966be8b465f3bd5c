// What the tests of the cache share: tensors of any storage type, rotations of every kind, and the
// keys rotated once that a cache is compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "phasor/attention/kv_cache.hpp"
#include "phasor/core/internal/reference.hpp"

namespace phasor::attention::tests {

using core::ConstHeadsView;
using core::DType;
using core::Frequencies;
using core::HeadsView;
using core::PairLayout;
using core::Positions;
using core::Rotary;

// A dense [batch, tokens, heads, dim] tensor.
class CacheTensor {
 public:
  CacheTensor(DType dtype, std::int64_t batch, std::int64_t tokens, std::int64_t heads,
              std::int64_t dim)
      : memory_(static_cast<std::size_t>(batch * tokens * heads * dim) * core::size_of(dtype)) {
    view_ = core::heads_view(static_cast<float*>(nullptr), batch, tokens, heads, dim);
    view_.dtype = dtype;
  }
  static CacheTensor random(DType dtype, std::int64_t batch, std::int64_t tokens,
                            std::int64_t heads, std::int64_t dim, std::uint32_t seed) {
    CacheTensor tensor(dtype, batch, tokens, heads, dim);
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < batch * tokens * heads * dim; ++i)
      core::set_element(tensor.view(), i, normal(random));
    return tensor;
  }
  [[nodiscard]] HeadsView view() {
    HeadsView view = view_;
    view.data = memory_.data();
    return view;
  }
  [[nodiscard]] HeadsView tokens(std::int64_t first, std::int64_t count) {
    HeadsView part = view();
    part.data = memory_.data() +
                static_cast<std::size_t>(first * part.token_stride) * core::size_of(part.dtype);
    part.tokens = count;
    return part;
  }

 private:
  std::vector<std::byte> memory_;
  HeadsView view_;
};

// The elements as float64, dense [batch, tokens, heads, dim].
inline std::vector<double> values_of(const ConstHeadsView& view) {
  std::vector<double> values;
  for (std::int64_t b = 0; b < view.batch; ++b) {
    for (std::int64_t t = 0; t < view.tokens; ++t) {
      for (std::int64_t h = 0; h < view.heads; ++h) {
        for (std::int64_t d = 0; d < view.head_dim; ++d) {
          values.push_back(core::element_of(
              view, b * view.batch_stride + t * view.token_stride + h * view.head_stride + d));
        }
      }
    }
  }
  return values;
}

// Keys rotated by the definition, in float64.
inline std::vector<double> fresh_keys(const ConstHeadsView& raw,
                                      const std::optional<Rotary>& rotary,
                                      const std::vector<double>& positions) {
  std::vector<double> keys = values_of(raw);
  if (!rotary || raw.tokens == 0) return keys;
  const std::vector<double> in = keys;
  core::reference::rotate(
      *rotary,
      core::positions_per_row(positions.data(), rotary->frequencies.axis_count(), 0, raw.tokens),
      core::heads_view(in.data(), raw.batch, raw.tokens, raw.heads, raw.head_dim),
      core::heads_view(keys.data(), raw.batch, raw.tokens, raw.heads, raw.head_dim),
      core::Direction::forward, core::Role::key);
  return keys;
}

inline double epsilon_of(DType dtype) {
  return dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
}
// kv_cache.hpp's bound after this many moves, relative to a pair's length.
inline double bound_of(DType dtype, std::int64_t moves) {
  const double storage = dtype == DType::f32 ? 0.0 : epsilon_of(dtype) / 2;
  return (kCacheMoveError * epsilon_of(DType::f32) + storage) * static_cast<double>(moves + 1);
}

// The features of pair i of a rotated key.
inline std::pair<std::int64_t, std::int64_t> pair_of(const Rotary& rotary, std::int64_t i) {
  const std::int64_t pairs = rotary.frequencies.pairs() / rotary.blocks;
  const std::int64_t start = rotary.offset + (i / pairs) * 2 * pairs;
  const std::int64_t j = i % pairs;
  if (rotary.layout == PairLayout::interleaved) return {start + 2 * j, start + 2 * j + 1};
  return {start + j, start + j + pairs};
}

// The largest |key - fresh| of a pair relative to the fresh pair's length; infinite where a feature
// outside the window changed.
inline double worst_error(const std::vector<double>& keys, const std::vector<double>& fresh,
                          const Rotary& rotary) {
  double worst = 0.0;
  for (std::size_t head = 0; head < keys.size();
       head += static_cast<std::size_t>(rotary.head_dim)) {
    std::vector<bool> rotated(static_cast<std::size_t>(rotary.head_dim));
    for (std::int64_t i = 0; i < rotary.frequencies.pairs(); ++i) {
      const auto [a, b] = pair_of(rotary, i);
      rotated[static_cast<std::size_t>(a)] = rotated[static_cast<std::size_t>(b)] = true;
      const std::size_t at = head + static_cast<std::size_t>(a);
      const std::size_t bt = head + static_cast<std::size_t>(b);
      worst = std::max(worst, std::hypot(keys[at] - fresh[at], keys[bt] - fresh[bt]) /
                                  std::hypot(fresh[at], fresh[bt]));
    }
    for (std::size_t d = 0; d < rotated.size(); ++d) {
      if (!rotated[d] && keys[head + d] != fresh[head + d]) return INFINITY;
    }
  }
  return worst;
}

inline Frequencies frequencies(std::int64_t dim, double base = 10000.0, double amplitude = 1.0,
                               std::vector<std::uint8_t> axes = {}) {
  const Frequencies plain = core::make_frequencies({dim, base});
  return Frequencies({plain.values().begin(), plain.values().end()}, amplitude, std::move(axes));
}

// Three axes, as M-RoPE deals them out.
inline Frequencies three_axes(std::int64_t dim) {
  std::vector<std::uint8_t> axes(static_cast<std::size_t>(dim / 2));
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<std::uint8_t>(i % 3);
  return frequencies(dim, 10000.0, 1.0, std::move(axes));
}

struct NamedRotary {
  const char* name;
  Rotary rotary;
};
inline std::vector<NamedRotary> rotaries(std::int64_t dim) {
  std::vector<NamedRotary> all = {
      {"half", {frequencies(dim), PairLayout::half, dim}},
      {"interleaved", {frequencies(dim), PairLayout::interleaved, dim}},
      {"across", {frequencies(dim), PairLayout::interleaved_to_half, dim}},
      {"another base", {frequencies(dim, 500000.0), PairLayout::half, dim}},
      {"amplitude", {frequencies(dim, 10000.0, 1.25), PairLayout::half, dim}},
      {"partial", {frequencies(dim / 2), PairLayout::half, dim, dim / 4}},
      {"three axes", {three_axes(dim), PairLayout::half, dim}},
      {"blocks", {frequencies(dim), PairLayout::half, dim, 0, 2}},
  };
  Rotary growing{frequencies(dim), PairLayout::interleaved, dim};
  growing.growth = core::Growth{std::vector<double>(static_cast<std::size_t>(dim / 2), 1e-3), 5.0};
  all.push_back({"growth", growing});
  return all;
}

// The cache that most tests use.
inline constexpr std::int64_t kBatch = 2, kHeads = 3, kDim = 32, kValueDim = 20, kCapacity = 24;

inline CacheSpec spec_of(std::optional<Rotary> rotary, CacheMode mode = CacheMode::compact,
                         DType dtype = DType::f32) {
  return {kBatch, kHeads, kDim, kValueDim, kCapacity, dtype, std::move(rotary), mode};
}
inline CacheTensor random_keys(std::int64_t tokens, DType dtype = DType::f32,
                               std::uint32_t seed = 3) {
  return CacheTensor::random(dtype, kBatch, tokens, kHeads, kDim, seed);
}
inline CacheTensor random_values(std::int64_t tokens, DType dtype = DType::f32,
                                 std::uint32_t seed = 4) {
  return CacheTensor::random(dtype, kBatch, tokens, kHeads, kValueDim, seed);
}
// 10, 13, 16, ... and on the further axes others.
inline std::vector<double> spread_positions(int axes, std::int64_t tokens) {
  std::vector<double> positions;
  for (int axis = 0; axis < axes; ++axis) {
    for (std::int64_t t = 0; t < tokens; ++t)
      positions.push_back(static_cast<double>(10 + 3 * t + 50 * axis - t * axis));
  }
  return positions;
}
inline Positions rows(const std::vector<double>& positions, std::int64_t tokens) {
  return core::positions_per_row(
      positions.data(), static_cast<int>(static_cast<std::int64_t>(positions.size()) / tokens), 0,
      tokens);
}

// Everything that can be seen of a cache.
struct Snapshot {
  std::int64_t tokens;
  std::vector<double> positions, keys, values;
  const void* frequencies;
  bool operator==(const Snapshot&) const = default;
};
inline Snapshot snapshot_of(const KVCache& cache) {
  return {cache.tokens(), cache.positions(), values_of(cache.keys()), values_of(cache.values()),
          cache.spec().rotary ? cache.spec().rotary->frequencies.values().data() : nullptr};
}

}  // namespace phasor::attention::tests
