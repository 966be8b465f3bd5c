// Rotates keys on append to a cache, and rotates cached keys again.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "attention/cache/rerotate_into.hpp"
#include "attention/cache/state.hpp"
#include "attention/softmax/call.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/dispatch.hpp"
#include "phasor/core/internal/window.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;
using core::HeadsView;
using core::Positions;
using core::Rotary;

void rotate_keys(const Rotary& rotary, const Positions& positions, ConstHeadsView in, HeadsView out,
                 int threads, core::AngleMode angles = core::AngleMode::exact) {
  const core::Rotation rotation{in, out, core::Role::key};
  core::rotate(rotary, positions, {&rotation, 1}, {.angles = angles, .threads = threads});
}

// Rows of cos and sin of the tokens of an append, from another layer or for the next ones.
core::CosSinRows step_rows(const Rotary& rotary, const PositionRows& positions, std::int64_t first,
                           std::int64_t count, SharedRows& shared) {
  const int axes = positions.axes();
  shared.wanted.resize(static_cast<std::size_t>(axes * count));
  positions.copy(first, count, shared.wanted.data());
  const float* const rows = shared.rows_for(
      rotary, core::Role::key, core::kernels_for(core::InstructionSet::best), shared.wanted, count);
  const std::int64_t pairs = rotary.frequencies.pairs();
  return {.cos = rows,
          .sin = rows + pairs,
          .dtype = core::DType::f32,
          .pairs = pairs,
          .batch_stride = 0,
          .token_stride = 2 * pairs};
}

void rotate_keys(const Rotary& rotary, const core::CosSinRows& rows, ConstHeadsView in,
                 HeadsView out, int threads) {
  const core::Rotation rotation{in, out, core::Role::key};
  core::rotate_window(core::window_of(rotary), rows, {&rotation, 1}, {.threads = threads});
}

// Batch row b, tokens [first, first + count).
template <class View>
View part_of(const View& view, std::int64_t b, std::int64_t first, std::int64_t count) {
  View part = view;
  const auto element = static_cast<std::int64_t>(core::size_of(view.dtype));
  using Byte = std::conditional_t<std::is_same_v<View, HeadsView>, std::byte, const std::byte>;
  part.data =
      static_cast<Byte*>(view.data) + (b * view.batch_stride + first * view.token_stride) * element;
  part.batch = 1;
  part.tokens = count;
  return part;
}

// Every float32 of `in` rounded once to the sixteen bits of `out`.
void round_tokens(const ConstHeadsView& in, const HeadsView& out) noexcept {
  const auto round = attention::kernels_for(core::InstructionSet::best).write_rows;
  for (std::int64_t b = 0; b < in.batch; ++b) {
    for (std::int64_t h = 0; h < in.heads; ++h) {
      const kernels::Rows from = rows_of(in, b, h, 0), to = rows_of(out, b, h, 0);
      round(static_cast<const float*>(from.data), from.stride, in.tokens, in.head_dim, to.storage,
            const_cast<void*>(to.data), to.stride);
    }
  }
}

// precondition  shapes and dtypes agree; the tokens of a head are contiguous in out
void copy_tokens(const ConstHeadsView& in, const HeadsView& out) noexcept {
  const auto element = static_cast<std::int64_t>(core::size_of(in.dtype));
  const std::int64_t bytes = in.head_dim * element;
  for (std::int64_t b = 0; b < in.batch; ++b) {
    for (std::int64_t h = 0; h < in.heads; ++h) {
      const auto* from = static_cast<const std::byte*>(rows_of(in, b, h, 0).data);
      auto* to = static_cast<std::byte*>(const_cast<void*>(rows_of(out, b, h, 0).data));
      if (in.token_stride == in.head_dim) {
        std::memcpy(to, from, static_cast<std::size_t>(in.tokens * bytes));
        continue;
      }
      for (std::int64_t t = 0; t < in.tokens; ++t) {
        std::memcpy(to + t * bytes, from + t * in.token_stride * element,
                    static_cast<std::size_t>(bytes));
      }
    }
  }
}

// cos and sin of `delta` positions with amplitude 1, times xPos's growth.
struct DeltaRow {
  double cos[core::kMaxRotaryDim / 2], sin[core::kMaxRotaryDim / 2];

  DeltaRow(const Rotary& rotary, double delta) {
    double positions[core::kMaxAxes];
    std::fill(std::begin(positions), std::end(positions), delta);
    core::kernels::Angles angles = core::kernel_angles(rotary.frequencies);
    angles.amplitude = 1.0;
    core::kernels_for(core::InstructionSet::best).row_f64(angles, positions, cos, sin);
    if (!rotary.growth) return;
    for (std::size_t i = 0; i < rotary.growth->rates.size(); ++i) {
      const double factor = std::exp(-rotary.growth->rates[i] * delta);
      cos[i] *= factor;
      sin[i] *= factor;
    }
  }
};

}  // namespace

void KVCache::State::write_plain(const ConstHeadsView& from,
                                 const CacheBlock& block) const noexcept {
  const HeadsView to = view(block, tokens, from.tokens);
  from.dtype == spec.dtype ? copy_tokens(from, to) : round_tokens(from, to);
}

void KVCache::State::write_keys(const ConstHeadsView& k, const Positions& at, int threads,
                                SharedRows* shared) {
  if (!spec.rotary) return write_plain(k, keys);
  const HeadsView out = view(keys, tokens, k.tokens);
  std::optional<core::CosSinRows> rows;
  // Shared rows are those of exact angles.
  if (shared != nullptr && spec.angles == core::AngleMode::exact)
    rows = step_rows(*spec.rotary, positions, tokens, k.tokens, *shared);
  if (k.dtype == spec.dtype) {
    return rows ? rotate_keys(*spec.rotary, *rows, k, out, threads)
                : rotate_keys(*spec.rotary, at, k, out, threads, spec.angles);
  }
  // Rotated in float32, then rounded: a key is rounded once.
  constexpr std::int64_t kMostTokens = 64;
  const std::int64_t token = k.heads * k.head_dim;
  const std::int64_t most =
      std::min(kMostTokens, static_cast<std::int64_t>(wide_keys.size()) / token);
  double where[core::kMaxAxes * kMostTokens];
  for (std::int64_t b = 0; b < k.batch; ++b) {
    for (std::int64_t first = 0; first < k.tokens; first += most) {
      const std::int64_t count = std::min(most, k.tokens - first);
      const ConstHeadsView part = part_of(k, b, first, count);
      const HeadsView wide = core::heads_view(wide_keys.data(), 1, count, k.heads, k.head_dim);
      if (rows) {
        core::CosSinRows some = *rows;
        some.cos = static_cast<const float*>(rows->cos) + first * rows->token_stride;
        some.sin = static_cast<const float*>(rows->sin) + first * rows->token_stride;
        rotate_keys(*spec.rotary, some, part, wide, threads);
      } else {
        positions.copy(tokens + first, count, where);
        rotate_keys(*spec.rotary, core::positions_per_row(where, positions.axes(), 0, count), part,
                    wide, threads, spec.angles);
      }
      round_tokens(wide, part_of(out, b, first, count));
    }
  }
}

void KVCache::State::rotate_to(const RotaryAt& to, const Positions& old, HeadsView out,
                               int threads) const {
  if (spec.mode == CacheMode::drift_free) {
    rotate_keys(to.rotary, to.positions, view(raw_keys, 0, tokens), out, threads);
  } else if (spec.rotary) {
    rerotate_into({*spec.rotary, old}, to, view(keys, 0, tokens), out, threads);
  } else {
    rotate_keys(to.rotary, to.positions, view(keys, 0, tokens), out, threads);
  }
}

void KVCache::State::rotate_by(std::int64_t first, std::int64_t count, double delta,
                               int threads) const {
  if (spec.mode == CacheMode::drift_free) {
    // The new positions, some tokens at a time on the stack: an allocation that fails in a later
    // layer would leave the first layers of a sequence shifted.
    constexpr std::int64_t kRoom = 4096;
    double where[kRoom];
    const std::int64_t most = kRoom / positions.axes();
    for (std::int64_t at = first; at < first + count; at += most) {
      const std::int64_t some = std::min(most, first + count - at);
      positions.copy(at, some, where);
      for (std::int64_t i = 0; i < some * positions.axes(); ++i) where[i] += delta;
      rotate_keys(*spec.rotary, core::positions_per_row(where, positions.axes(), 0, some),
                  view(raw_keys, at, some), view(keys, at, some), threads);
    }
    return;
  }
  const HeadsView rotated = view(keys, first, count);
  // The difference of two positions with exact angles may need two rotations.
  if (std::fabs(delta) * spec.rotary->frequencies.largest() > core::kMaxAngle) {
    rotate_by(first, count, delta / 2, threads);
    return rotate_by(first, count, delta / 2, threads);
  }
  const DeltaRow row(*spec.rotary, delta);
  core::Window window = core::window_of(*spec.rotary);
  // interleaved_to_half wrote the keys in half layout.
  if (window.layout == core::PairLayout::interleaved_to_half)
    window.layout = core::PairLayout::half;
  const core::CosSinRows rows{
      .cos = row.cos, .sin = row.sin, .dtype = core::DType::f64, .pairs = window.pairs};
  const core::Rotation rotation{rotated, rotated, core::Role::key};
  core::rotate_window(window, rows, {&rotation, 1}, {.threads = threads});
}

}  // namespace phasor::attention
