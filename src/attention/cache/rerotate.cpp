#include "phasor/attention/kv_cache.hpp"

#include <vector>

#include "attention/cache/rerotate_into.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/window.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;
using core::Direction;
using core::HeadsView;
using core::Rotary;

bool pairs_alike(const Rotary& a, const Rotary& b) {
  return a.layout == b.layout && a.offset == b.offset && a.blocks == b.blocks &&
         a.rotary_dim() == b.rotary_dim();
}

void rotate_back_and_forth(const RotaryAt& from, const RotaryAt& to, HeadsView keys, int threads) {
  const core::Rotation back{keys, keys, core::Role::key};
  core::rotate(from.rotary, from.positions, {&back, 1},
               {.direction = Direction::inverse, .threads = threads});
  core::rotate(to.rotary, to.positions, {&back, 1}, {.threads = threads});
}

// Every (b, t, pair) of the composed rotation as (cos, sin): R_B R_A^-1 applied to (1, 0), in float64.
std::vector<double> composed_rows(const RotaryAt& from, const RotaryAt& to, const HeadsView& keys,
                                  int threads) {
  const std::int64_t width = from.rotary.rotary_dim();
  std::vector<double> rows(static_cast<std::size_t>(keys.batch * keys.tokens * width), 0.0);
  for (std::size_t i = 0; i < rows.size(); i += 2) rows[i] = 1.0;
  const auto bare = [width](const Rotary& rotary) {
    return Rotary{rotary.frequencies, core::PairLayout::interleaved, width, 0, 1, rotary.growth};
  };
  const Rotary bare_from = bare(from.rotary), bare_to = bare(to.rotary);
  rotate_back_and_forth({bare_from, from.positions}, {bare_to, to.positions},
                        core::heads_view(rows.data(), keys.batch, keys.tokens, 1, width), threads);
  return rows;
}

void rotate_once(const RotaryAt& from, const RotaryAt& to, ConstHeadsView in, HeadsView out,
                 int threads) {
  const std::vector<double> rows = composed_rows(from, to, out, threads);
  core::Window window = core::window_of(from.rotary);
  // interleaved_to_half wrote the keys in half layout.
  if (window.layout == core::PairLayout::interleaved_to_half)
    window.layout = core::PairLayout::half;
  const core::CosSinRows by_row{.cos = rows.data(),
                                .sin = rows.data() + 1,
                                .dtype = core::DType::f64,
                                .pairs = window.pairs,
                                .batch_stride = out.tokens * 2 * window.pairs,
                                .token_stride = 2 * window.pairs,
                                .pair_stride = 2};
  const core::Rotation rotation{in, out, core::Role::key};
  core::rotate_window(window, by_row, {&rotation, 1}, {.threads = threads});
}

// Calls visit(index in view, index in a dense float64 copy) for every element.
template <class Visit>
void for_each_element(const ConstHeadsView& view, const Visit& visit) {
  std::size_t dense = 0;
  for (std::int64_t b = 0; b < view.batch; ++b) {
    for (std::int64_t t = 0; t < view.tokens; ++t) {
      for (std::int64_t h = 0; h < view.heads; ++h) {
        const std::int64_t head =
            b * view.batch_stride + t * view.token_stride + h * view.head_stride;
        for (std::int64_t d = 0; d < view.head_dim; ++d, ++dense) visit(head + d, dense);
      }
    }
  }
}

// Different pairs: no single rotation exists, so both are done in float64 and the result is rounded
// once.
void rotate_wide(const RotaryAt& from, const RotaryAt& to, ConstHeadsView in, HeadsView out,
                 int threads) {
  std::vector<double> wide(static_cast<std::size_t>(in.batch * in.tokens * in.heads * in.head_dim));
  for_each_element(
      in, [&](std::int64_t at, std::size_t dense) { wide[dense] = core::element_of(in, at); });
  rotate_back_and_forth(
      from, to, core::heads_view(wide.data(), in.batch, in.tokens, in.heads, in.head_dim), threads);
  for_each_element(
      out, [&](std::int64_t at, std::size_t dense) { core::set_element(out, at, wide[dense]); });
}

}  // namespace

void rerotate_into(const RotaryAt& from, const RotaryAt& to, ConstHeadsView in, HeadsView out,
                   int threads) {
  core::validate(from.rotary);
  core::validate(to.rotary);
  for (const Rotary* rotary : {&from.rotary, &to.rotary}) {
    if (rotary->head_dim != in.head_dim) {
      throw Error(ErrorCode::shape_mismatch,
                  message("rerotate: head_dim must be ", rotary->head_dim, ", got ", in.head_dim));
    }
  }
  core::check_extent("rerotate", "keys", in);
  if (in.batch * in.tokens * in.heads <= 0) return;
  if (in.dtype != core::DType::f64 && pairs_alike(from.rotary, to.rotary)) {
    rotate_once(from, to, in, out, threads);
  } else {
    rotate_wide(from, to, in, out, threads);
  }
}

void rerotate(const RotaryAt& from, const RotaryAt& to, HeadsView keys, int threads) {
  rerotate_into(from, to, keys, keys, threads);
}

}  // namespace phasor::attention
