#include <vector>

#include "attention/cache/same_rotary.hpp"
#include "attention/cache/state.hpp"
#include "attention/softmax/call_memory.hpp"
#include "attention/softmax/places.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {
namespace {

// The keys in the cache belong to one rotation; queries must have the same.
void check_rotation(const std::optional<core::Rotary>& cached,
                    const std::optional<core::Rotary>& wanted) {
  if (!cached && !wanted) return;
  if (!cached)
    refuse("cache: the terms have a rotation, the cache has no rotary: its keys are not rotated");
  if (!wanted)
    refuse("cache: the terms have no rotation, the cache has a rotary: its keys are rotated");
  const std::string difference = difference_of(*cached, *wanted);
  if (!difference.empty())
    refuse("cache: the rotation of the terms must be the cache's: " + difference);
}

void check_options(const CacheSpec& spec, const AttentionOptions& options) {
  if (options.key_positions)
    refuse("cache: key_positions cannot be given: keys have the positions they were appended at");
  if (options.query_offset && !options.query_positions)
    refuse(message("cache: query_offset ", *options.query_offset, " needs query_positions"));
  if (options.angles != spec.angles)
    refuse(message("cache: angles must be ", core::name_of(spec.angles),
                   " like those of the keys, got ", core::name_of(options.angles)));
}

// Query i of `queries` has the position of token tokens - queries + i; queries before the first token
// count down from its position.
void find_query_positions(const PositionRows& rows, std::int64_t tokens, std::int64_t queries,
                          double first_position, std::vector<double>& positions) {
  positions.clear();
  for (int axis = 0; axis < rows.axes(); ++axis) {
    for (std::int64_t at = tokens - queries; at < tokens; ++at) {
      const double first = tokens > 0 ? *rows.from(axis, 0) : first_position;
      positions.push_back(at >= 0 ? *rows.from(axis, at) : first + static_cast<double>(at));
    }
  }
}

// The positions of the cache's keys, and of the queries unless they are given. `own` must outlive the
// options.
void add_positions(const PositionRows& rows, std::int64_t tokens, std::int64_t queries,
                   std::int64_t first_position, std::vector<double>& own,
                   AttentionOptions& options) {
  const int axes = rows.axes();
  if (axes == 1) options.key_positions = core::positions_per_row(rows.from(0, 0), 1, 0, tokens);
  if (options.query_positions) return;
  const bool in_place = axes == 1 && queries >= 0 && queries <= tokens;
  if (!in_place)
    find_query_positions(rows, tokens, queries, static_cast<double>(first_position), own);
  options.query_positions = core::positions_per_row(
      in_place ? rows.from(0, tokens - queries) : own.data(), axes, 0, queries);
}

}  // namespace

encodings::AttentionShape KVCache::attention_shape(const core::ConstHeadsView& q,
                                                   AttentionOptions options) const {
  std::vector<double> own;
  add_positions(state_->positions, state_->tokens, q.tokens, state_->spec.first_position, own,
                options);
  return attention::attention_shape(q, keys(), values(), options);
}

void KVCache::attend(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                     core::HeadsView out, AttentionOptions options) const {
  const State& state = *state_;
  check_rotation(state.spec.rotary, terms.rotation);
  check_options(state.spec, options);
  const int axes = state.positions.axes();
  if (axes != 1 && reads_positions(terms)) {
    refuse(ErrorCode::unsupported,
           message("cache: an encoding that reads distances needs one position per token, got a "
                   "cache with ",
                   axes, " axes"));
  }
  std::vector<double> own;  // outlives the call that reads it
  CallMemory* const kept = options.workspace == nullptr ? nullptr : &options.workspace->memory();
  if (kept != nullptr) kept->room_for_keys = state.spec.capacity;
  if (state.spec.rotary) options.keys = KeyState::rotated;
  add_positions(state.positions, state.tokens, q.tokens, state.spec.first_position,
                kept == nullptr ? own : kept->positions, options);
  attention::attend(terms, q, keys(), values(), out, options);
}

}  // namespace phasor::attention
