#include <vector>

#include "attention/cache/same_rotary.hpp"
#include "attention/cache/state.hpp"
#include "attention/softmax/call_memory.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/attention/softmax.hpp"

namespace phasor::attention {
namespace {

[[noreturn]] void refuse_cache(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "cache: " + what);
}

// A cache used after its spec changed, or the terms after the cache's did.
void check_rotation(const std::optional<core::Rotary>& cached,
                    const std::optional<core::Rotary>& wanted) {
  if (!cached && !wanted) return;
  if (!cached)
    refuse_cache("terms must not turn queries over keys that were not turned, got a turn");
  if (!wanted) refuse_cache("terms must turn queries as the keys were turned, got no turn");
  const std::string difference = difference_of(*cached, *wanted);
  if (!difference.empty()) refuse_cache("terms must turn with the cache's " + difference);
}

void check_options(const AttentionOptions& options) {
  if (options.key_positions)
    refuse_cache("the keys were turned when they were appended, got other key positions");
  if (options.angles != core::AngleMode::exact)
    refuse_cache("queries must be turned by exact angles as the keys were, got float32 angles");
}

// Query i of `queries` beside token tokens - queries + i; before the first token, one apart.
void find_query_positions(const PositionRows& rows, std::int64_t tokens, std::int64_t queries,
                          std::vector<double>& positions) {
  positions.clear();
  for (int axis = 0; axis < rows.axes(); ++axis) {
    for (std::int64_t at = tokens - queries; at < tokens; ++at) {
      const double first = tokens > 0 ? *rows.from(axis, 0) : 0.0;
      positions.push_back(at >= 0 ? *rows.from(axis, at) : first + static_cast<double>(at));
    }
  }
}

}  // namespace

void KVCache::attend(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                     core::HeadsView out, AttentionOptions options) const {
  const State& state = *state_;
  check_rotation(state.spec.rotary, terms.rotation);
  check_options(options);
  std::vector<double> own;  // outlives the call that reads it
  CallMemory* const kept = options.workspace == nullptr ? nullptr : &options.workspace->memory();
  if (kept != nullptr) kept->room_for_keys = state.spec.capacity;
  if (state.spec.rotary) {
    options.keys = KeyState::rotated;
    if (!options.query_positions) {
      const int axes = state.positions.axes();
      const bool in_place = axes == 1 && q.tokens >= 0 && q.tokens <= state.tokens;
      std::vector<double>& rows = kept == nullptr ? own : kept->positions;
      if (!in_place) find_query_positions(state.positions, state.tokens, q.tokens, rows);
      options.query_positions = core::positions_per_row(
          in_place ? state.positions.from(0, state.tokens - q.tokens) : rows.data(), axes, 0,
          q.tokens);
    }
  }
  attention::attend(terms, q, keys(), values(), out, options);
}

}  // namespace phasor::attention
