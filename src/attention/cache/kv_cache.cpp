#include "phasor/attention/kv_cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "attention/cache/same_rotary.hpp"
#include "attention/cache/state.hpp"
#include "attention/softmax/call.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/large_memory.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;
using core::HeadsView;
using core::Positions;
using core::Rotary;

// Floats in which keys are rotated before they are rounded to 16 bits: they fit the L1 cache.
constexpr std::int64_t kWideKeys = 4096;

[[noreturn]] void refuse_cache(ErrorCode code, const std::string& what) {
  refuse(code, "cache: " + what);
}

CacheBlock allocate_block(const CacheSpec& spec, std::int64_t dim) {
  std::size_t rows = 1;
  for (const std::int64_t count : {spec.batch, spec.key_heads, spec.capacity}) {
    if (static_cast<std::size_t>(count) >
        static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()) / rows) {
      throw std::bad_alloc();
    }
    rows *= static_cast<std::size_t>(count);
  }
  return {core::allocate_beside(rows, static_cast<std::size_t>(dim) * core::size_of(spec.dtype)),
          dim};
}

// In bytes from the view's first element.
std::int64_t head_offset(const ConstHeadsView& view, std::int64_t batch, std::int64_t head) {
  return (batch * view.batch_stride + head * view.head_stride) *
         static_cast<std::int64_t>(core::size_of(view.dtype));
}

void check_spec(const CacheSpec& spec) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"batch", spec.batch},
                                                        {"key_heads", spec.key_heads},
                                                        {"head_dim", spec.head_dim},
                                                        {"value_dim", spec.value_dim},
                                                        {"capacity", spec.capacity}};
  for (const auto& [name, size] : sizes) {
    if (size < 1) {
      refuse_cache(ErrorCode::invalid_argument, message(name, " must be at least 1, got ", size));
    }
  }
  if (spec.dtype == core::DType::f64) {
    refuse_cache(ErrorCode::unsupported, "dtype must be f32, f16 or bf16, got f64");
  }
}

void check_rotary(const Rotary& rotary, std::int64_t head_dim) {
  core::validate(rotary);
  if (rotary.head_dim != head_dim) {
    refuse_cache(ErrorCode::shape_mismatch, message("the rotary's head_dim must be the cache's ",
                                                    head_dim, ", got ", rotary.head_dim));
  }
}

void check_threads(int threads) {
  if (threads < 0) {
    refuse_cache(ErrorCode::invalid_argument,
                 message("threads must not be negative, got ", threads));
  }
}

int axes_of(const std::optional<Rotary>& rotary) {
  return rotary ? rotary->frequencies.axis_count() : 1;
}

// The difference of two rounded angles is not the rounded angle of the difference.
void check_exact_angles(const CacheSpec& spec, const char* what) {
  if (spec.angles != core::AngleMode::exact) {
    refuse_cache(ErrorCode::unsupported, message(what, " needs exact angles, the cache has ",
                                                 core::name_of(spec.angles), " angles"));
  }
}

bool is_drift_free(const CacheSpec& spec) { return spec.mode == CacheMode::drift_free; }

void check_tensor(const char* name, const ConstHeadsView& view, const CacheSpec& spec,
                  std::int64_t tokens, std::int64_t dim) {
  if (tokens < 0 || view.batch != spec.batch || view.tokens != tokens ||
      view.heads != spec.key_heads || view.head_dim != dim) {
    refuse_cache(ErrorCode::shape_mismatch,
                 message(name, " must be [", spec.batch, ", ", std::max<std::int64_t>(tokens, 0),
                         ", ", spec.key_heads, ", ", dim, "], got ", shape_text(view)));
  }
  if (view.dtype != spec.dtype && view.dtype != core::DType::f32) {
    refuse_cache(ErrorCode::shape_mismatch,
                 message(name, " must have the cache's dtype ", core::name_of(spec.dtype),
                         spec.dtype == core::DType::f32 ? "" : " or f32", ", got ",
                         core::name_of(view.dtype)));
  }
  core::check_extent("cache", name, view);
  if (view.data == nullptr && tokens > 0) {
    refuse_cache(ErrorCode::invalid_argument,
                 message(name, " of shape ", shape_text(view), " has no data (null)"));
  }
}

// Tokens [first, last) of a cache that has `tokens`.
void check_tokens(const char* what, std::int64_t tokens, std::int64_t first, std::int64_t last) {
  if (first < 0 || last < first || last > tokens) {
    refuse_cache(ErrorCode::out_of_range, message(what, " must name tokens inside [0, ", tokens,
                                                  "), got [", first, ", ", last, ")"));
  }
}

}  // namespace

HeadsView KVCache::State::view(const CacheBlock& block, std::int64_t first,
                               std::int64_t count) const noexcept {
  HeadsView view = core::heads_first_view(static_cast<float*>(nullptr), spec.batch, spec.key_heads,
                                          spec.capacity, block.dim);
  view.dtype = spec.dtype;
  view.tokens = count;
  view.data =
      block.memory.get() + static_cast<std::size_t>(first * block.dim) * core::size_of(spec.dtype);
  return view;
}

KVCache::KVCache(CacheSpec spec) {
  check_spec(spec);
  if (spec.rotary) check_rotary(*spec.rotary, spec.head_dim);
  const auto first = static_cast<double>(spec.first_position);
  check_position_bounds(first, first + static_cast<double>(spec.capacity - 1), spec.rotary,
                        spec.angles);
  CacheBlock keys = allocate_block(spec, spec.head_dim),
             values = allocate_block(spec, spec.value_dim), raw_keys;
  if (is_drift_free(spec)) raw_keys = allocate_block(spec, spec.head_dim);
  PositionRows positions(axes_of(spec.rotary), spec.capacity);
  std::vector<float> wide_keys;
  if (spec.dtype != core::DType::f32) {
    wide_keys.resize(static_cast<std::size_t>(
        std::max<std::int64_t>(kWideKeys, spec.key_heads * spec.head_dim)));
  }
  state_ = std::make_unique<State>(State{.spec = std::move(spec),
                                         .keys = std::move(keys),
                                         .values = std::move(values),
                                         .raw_keys = std::move(raw_keys),
                                         .positions = std::move(positions),
                                         .wide_keys = std::move(wide_keys)});
}

KVCache::~KVCache() = default;
KVCache::KVCache(KVCache&&) noexcept = default;
KVCache& KVCache::operator=(KVCache&&) noexcept = default;

const CacheSpec& KVCache::spec() const noexcept { return state_->spec; }
std::int64_t KVCache::tokens() const noexcept { return state_->tokens; }

std::int64_t KVCache::next_position() const noexcept {
  if (state_->tokens == 0) return state_->spec.first_position;
  return static_cast<std::int64_t>(std::floor(state_->positions.largest(state_->tokens - 1))) + 1;
}

std::vector<double> KVCache::positions() const {
  return state_->positions.dense(0, state_->tokens);
}

void KVCache::append(ConstHeadsView k, ConstHeadsView v, std::optional<Positions> positions,
                     int threads, StepRotations* rotations) {
  State& state = *state_;
  const CacheSpec& spec = state.spec;
  check_threads(threads);
  check_tensor("k", k, spec, k.tokens, spec.head_dim);
  check_tensor("v", v, spec, k.tokens, spec.value_dim);
  if (k.tokens > spec.capacity - state.tokens) {
    refuse_cache(
        ErrorCode::out_of_range,
        message(state.tokens, " + ", k.tokens, " tokens exceed the capacity of ", spec.capacity));
  }
  const Positions at = positions ? *positions : core::positions_from(next_position());
  // Positions after the last token are not visible until `tokens` grows.
  state.positions.write(state.tokens, at, spec.batch, k.tokens, spec.rotary, spec.angles);
  if (k.tokens == 0) return;
  state.write_keys(k, at, threads, rotations == nullptr ? nullptr : &rotations->rows());
  if (is_drift_free(spec)) state.write_plain(k, state.raw_keys);
  state.write_plain(v, state.values);
  state.tokens += k.tokens;
}

void KVCache::truncate(std::int64_t tokens) {
  check_tokens("truncate", state_->tokens, 0, tokens);
  state_->before_rerotate.reset();
  state_->tokens = tokens;
}

void KVCache::evict(std::int64_t first, std::int64_t last) {
  State& state = *state_;
  check_tokens("evict", state.tokens, first, last);
  const std::int64_t after = state.tokens - last;
  if (first == last) return;
  state.before_rerotate.reset();
  for (const CacheBlock* block : {&state.keys, &state.values, &state.raw_keys}) {
    if (!block->memory) continue;
    const HeadsView to = state.view(*block, first, after);
    const std::size_t token =
        static_cast<std::size_t>(block->dim) * core::size_of(state.spec.dtype);
    for (std::int64_t b = 0; b < to.batch; ++b) {
      for (std::int64_t h = 0; h < to.heads; ++h) {
        std::byte* gap = static_cast<std::byte*>(to.data) + head_offset(to, b, h);
        std::memmove(gap, gap + static_cast<std::size_t>(last - first) * token,
                     static_cast<std::size_t>(after) * token);
      }
    }
  }
  state.positions.close_gap(first, last, after);
  state.tokens -= last - first;
}

void KVCache::shift(std::int64_t first, std::int64_t last, std::int64_t delta, int threads) {
  State& state = *state_;
  check_threads(threads);
  check_tokens("shift", state.tokens, first, last);
  check_exact_angles(state.spec, "shift");
  if (delta == 0 || first == last) return;
  const std::int64_t count = last - first;
  const auto step = static_cast<double>(delta);
  const PositionRows::Bounds old = state.positions.bounds(first, count);
  check_position_bounds(old.low + step, old.high + step, state.spec.rotary);
  if (state.spec.rotary) {
    core::throw_if_cancelled();
    const core::CancellationScope finishes(nullptr);  // the keys are rotated in place
    state.rotate_by(first, count, step, threads);
  }
  state.before_rerotate.reset();
  state.positions.add(first, count, step);
}

void KVCache::rerotate(const Rotary& rotary, std::optional<Positions> positions, int threads) {
  State& state = *state_;
  check_threads(threads);
  check_exact_angles(state.spec, "rerotate");
  check_rotary(rotary, state.spec.head_dim);
  std::optional<Rotary> wanted = rotary;
  const int axes = axes_of(wanted);
  PositionRows rows(axes, state.spec.capacity);
  if (positions) {
    rows.write(0, *positions, state.spec.batch, state.tokens, wanted);
  } else {
    rows.assign(0, state.positions.dense_for(axes, state.tokens));
  }
  const std::vector<double> old = state.positions.dense(0, state.tokens);
  const std::vector<double> moved = rows.dense(0, state.tokens);
  const Positions fresh = core::positions_per_row(moved.data(), axes, 0, state.tokens);
  check_position_range(fresh, axes, state.spec.batch, state.tokens, wanted);
  const bool stays =
      state.spec.rotary && old == moved && difference_of(*state.spec.rotary, rotary).empty();
  const bool moves = state.tokens > 0 && !stays;
  if (moves) {
    if (state.spare_keys.memory == nullptr)
      state.spare_keys = allocate_block(state.spec, state.spec.head_dim);
    state.before_rerotate.reset();  // its keys are overwritten
    state.rotate_to({rotary, fresh},
                    core::positions_per_row(old.data(), state.positions.axes(), 0, state.tokens),
                    state.view(state.spare_keys, 0, state.tokens), threads);
  }
  // Nothing below can fail.
  state.before_rerotate =
      State::Before{std::move(state.spec.rotary), std::move(state.positions), state.tokens, moves};
  state.spec.rotary = std::move(wanted);
  state.positions = std::move(rows);
  if (moves) std::swap(state.keys, state.spare_keys);
}

void KVCache::undo_rerotate() noexcept {
  State& state = *state_;
  if (!state.before_rerotate) return;
  State::Before& before = *state.before_rerotate;
  state.spec.rotary = std::move(before.rotary);
  state.positions = std::move(before.positions);
  state.tokens = before.tokens;
  if (before.keys_moved) std::swap(state.keys, state.spare_keys);
  state.before_rerotate.reset();
}

KVCache KVCache::fork() const { return fork(state_->spec.capacity); }

KVCache KVCache::fork(std::int64_t capacity) const {
  const State& from = *state_;
  if (capacity < from.tokens) {
    refuse_cache(ErrorCode::out_of_range,
                 message("a fork of ", from.tokens,
                         " tokens needs a capacity of at least as many, got ", capacity));
  }
  CacheSpec spec = from.spec;
  spec.capacity = capacity;
  KVCache copy(std::move(spec));
  State& to = *copy.state_;
  to.write_plain(from.view(from.keys, 0, from.tokens), to.keys);
  to.write_plain(from.view(from.values, 0, from.tokens), to.values);
  if (is_drift_free(from.spec))
    to.write_plain(from.view(from.raw_keys, 0, from.tokens), to.raw_keys);
  to.positions.assign(0, from.positions.dense(0, from.tokens));
  to.tokens = from.tokens;
  return copy;
}

ConstHeadsView KVCache::keys() const noexcept {
  return state_->view(state_->keys, 0, state_->tokens);
}
ConstHeadsView KVCache::values() const noexcept {
  return state_->view(state_->values, 0, state_->tokens);
}

}  // namespace phasor::attention
