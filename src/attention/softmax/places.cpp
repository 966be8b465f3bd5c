#include "attention/softmax/places.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "phasor/core/internal/positions.hpp"

namespace phasor::attention {
namespace {

using core::Positions;
using encodings::RelativeMap;
using encodings::RelativeRows;

// Differences of places, and of those and columns, stay within 32 bits.
constexpr std::int64_t kMostPlace = std::int64_t{1} << 28;
// Beyond, neighbouring integers are no longer distinct as double.
constexpr double kMostPosition = 0x1p53;

std::optional<double> first_fraction(const Positions& positions) {
  if (positions.kind != Positions::Kind::floats) return std::nullopt;
  const double* const end = positions.floats + positions.count();
  const double* const found =
      std::find_if(positions.floats, end, [](double at) { return at != std::floor(at); });
  return found == end ? std::nullopt : std::optional(*found);
}

core::PositionBounds check_side(const char* where, const char* name, const Positions& positions,
                                const core::ConstHeadsView& x) {
  if (positions.axes != 1) {
    refuse(ErrorCode::unsupported, where,
           message("an encoding that reads distances needs one position per token, got ", name,
                   " with ", positions.axes, " axes"));
  }
  const core::PositionBounds bounds = core::check_positions(positions, 1, x.batch, x.tokens);
  if (const std::optional<double> fraction = first_fraction(positions)) {
    refuse(ErrorCode::unsupported, where,
           message("an encoding that reads distances needs whole numbers as ", name, ", got ",
                   *fraction));
  }
  if (std::fmax(std::fabs(bounds.low), std::fabs(bounds.high)) > kMostPosition) {
    refuse(
        ErrorCode::out_of_range, where,
        message(name, " must be at most 2^53 in magnitude, got ", bounds.low, " to ", bounds.high));
  }
  return bounds;
}

// Rows of a table by position: none before 0. validate() has checked the last.
void check_rows_from_zero(const char* where, const char* name, const encodings::Table& table,
                          const core::PositionBounds& bounds) {
  if (!table.given() || bounds.low >= 0.0) return;
  refuse(ErrorCode::out_of_range, where,
         message(name, " must not be negative for an encoding with a row per position, got ",
                 bounds.low));
}

template <class T>
bool counts_up(const T* values, std::int64_t count) noexcept {
  std::int64_t t = 1;
  while (t < count && values[t] == values[0] + static_cast<T>(t)) ++t;
  return t >= count;
}

// The queries or keys of a call.
struct Side {
  const std::optional<Positions>& given;
  std::int64_t tokens;
  core::Role role;

  [[nodiscard]] std::int64_t first(const Sequence& s) const noexcept {
    return role == core::Role::query ? s.first_query : s.first_key;
  }
  [[nodiscard]] std::int64_t count(const Sequence& s) const noexcept {
    return role == core::Role::query ? s.queries : s.keys;
  }
  // The position of the sequence's first token.
  [[nodiscard]] std::int64_t start(const Sequence& s) const noexcept {
    if (!given) return role == core::Role::query ? s.offset : 0;
    return static_cast<std::int64_t>(given->at(0, s.batch, first(s)));
  }
  [[nodiscard]] bool is_even(const Sequence& s) const noexcept {
    if (!given || given->kind == Positions::Kind::offset) return true;
    if (given->is_list()) {
      const std::int64_t at = (given->batch == 0 ? 0 : s.batch * tokens) + first(s);
      return given->kind == Positions::Kind::integers ? counts_up(given->integers + at, count(s))
                                                      : counts_up(given->floats + at, count(s));
    }
    for (std::int64_t t = 1; t < count(s); ++t) {
      if (given->at(0, s.batch, first(s) + t) !=
          given->at(0, s.batch, first(s)) + static_cast<double>(t))
        return false;
    }
    return true;
  }
  void write(const char* where, const Sequence& s, std::int32_t* places, std::int32_t* runs) const {
    std::optional<core::PositionCursor> cursor;
    if (given) cursor.emplace(*given, 1, tokens, s.batch * tokens + first(s));
    std::int64_t position = start(s) - 1;
    for (std::int64_t t = 0; t < count(s); ++t) {
      ++position;
      if (cursor) cursor->next(&position);
      if (std::abs(position - s.origin) > kMostPlace) {
        refuse(
            ErrorCode::out_of_range, where,
            message("the positions of a sequence must be at most 2^28 apart for an encoding that "
                    "reads distances, got ",
                    s.origin, " and ", position));
      }
      places[t] = static_cast<std::int32_t>(position - s.origin);
    }
    for (std::int64_t t = count(s) - 1; t >= 0; --t) {
      const bool goes_on = t + 1 < count(s) && places[t + 1] == places[t] + 1;
      runs[t] = goes_on ? runs[t + 1] : static_cast<std::int32_t>(t + 1);
    }
  }
};

bool has_tokens(const Sequence& s) noexcept { return s.queries > 0 && s.keys > 0; }

const std::int32_t* query_places_of(const Call& call, const Sequence& s) noexcept {
  return call.memory.places.queries.data() + s.batch * call.q.tokens + s.first_query;
}
const std::int32_t* key_places_of(const Call& call, const Sequence& s) noexcept {
  return call.memory.places.keys.data() + s.batch * call.k.tokens + s.first_key;
}

std::optional<DistanceRange> hull_of(const std::optional<DistanceRange>& a,
                                     const std::optional<DistanceRange>& b) noexcept {
  if (!a) return b;
  if (!b) return a;
  return DistanceRange{std::min(a->low, b->low), std::max(a->high, b->high)};
}

// Every pair of a sequence, hidden ones too.
DistanceRange all_distances(const Call& call, const Sequence& s) {
  if (!call.is_scattered())
    return {s.offset + s.shift - (s.keys - 1), s.offset + s.shift + s.queries - 1};
  const std::int32_t *queries = query_places_of(call, s), *keys = key_places_of(call, s);
  const auto [low_query, high_query] = std::minmax_element(queries, queries + s.queries);
  const auto [low_key, high_key] = std::minmax_element(keys, keys + s.keys);
  return {*low_query - *high_key, *high_query - *low_key};
}

// The columns of the bias: those of every pair, up to a multiple of the tokens around 0, and as far as
// the table's rows differ.
void find_bias_columns(Call& call) {
  std::optional<DistanceRange> found;
  for (const Sequence& s : call.sequences)
    if (has_tokens(s)) found = hull_of(found, all_distances(call, s));
  const DistanceRange all = found.value_or(DistanceRange{});
  DistanceRange kept = all;
  if (call.is_scattered()) {
    const std::int64_t reach = 2 * (call.most_queries + call.most_keys);
    kept = {std::clamp(-reach, all.low, all.high), std::clamp(reach, all.low, all.high)};
    if (call.terms.bias) {
      const RelativeMap& map = call.terms.bias->map;
      kept.low = std::min(kept.low, std::clamp(map.first, all.low, all.high));
      kept.high = std::max(kept.high, std::clamp(map.last(), all.low, all.high));
    }
  }
  call.bias_first = -kept.high;
  call.bias_last = -kept.low;
}

// Whether one vector of the bias serves all sequences without growing out of proportion.
bool bias_fits(const Call& call) {
  std::int64_t farthest = 0;
  for (const Sequence& s : call.sequences)
    if (has_tokens(s)) farthest = std::max(farthest, std::abs(s.shift));
  return !call.has_bias() || farthest <= call.most_queries + call.most_keys;
}

std::size_t key_place_count(const Call& call, std::int64_t tokens) noexcept {
  return static_cast<std::size_t>(call.k.batch * tokens + kernels::kTileKeys);
}
void reserve_places(const Call& call) {
  Places& places = call.memory.places;
  const auto queries = static_cast<std::size_t>(call.q.batch * call.q.tokens);
  const std::size_t keys =
      key_place_count(call, std::max(call.k.tokens, call.memory.room_for_keys));
  for (auto* values : {&places.queries, &places.query_runs}) values->reserve(queries);
  for (auto* values : {&places.keys, &places.key_runs}) values->reserve(keys);
}
void write_places(const char* where, const Call& call, const Side& queries, const Side& keys) {
  Places& places = call.memory.places;
  for (auto* values : {&places.queries, &places.query_runs})
    values->resize(static_cast<std::size_t>(call.q.batch * call.q.tokens));
  for (auto* values : {&places.keys, &places.key_runs})
    values->resize(key_place_count(call, call.k.tokens));
  for (const Sequence& s : call.sequences) {
    if (!has_tokens(s)) continue;
    const std::int64_t query = s.batch * call.q.tokens + s.first_query;
    const std::int64_t key = s.batch * call.k.tokens + s.first_key;
    queries.write(where, s, places.queries.data() + query, places.query_runs.data() + query);
    keys.write(where, s, places.keys.data() + key, places.key_runs.data() + key);
  }
}

// A sequence's pairs that are not hidden: both ends of the keys that a query sees rise with the query.
std::optional<DistanceRange> scattered_distances(const Call& call, const Sequence& s,
                                                 Hidden hidden) {
  const AttentionOptions& options = call.options;
  const std::int32_t *queries = query_places_of(call, s), *keys = key_places_of(call, s);
  const auto is_padding = [&](std::int64_t j) {
    return hidden == Hidden::by_padding_too && !options.key_padding.empty() &&
           options.key_padding[static_cast<std::size_t>(s.batch * call.k.tokens + s.first_key +
                                                        j)] == 0;
  };
  // Reaches every key.
  const std::int64_t farthest = std::abs(s.offset) + call.q.tokens + call.k.tokens;
  const std::int64_t window = std::min(options.window.value_or(farthest), farthest);
  std::vector<std::int64_t>& ahead = call.memory.places.ahead;    // keys fall
  std::vector<std::int64_t>& behind = call.memory.places.behind;  // keys rise
  ahead.clear();
  behind.clear();
  for (auto* farthest : {&ahead, &behind})
    farthest->reserve(static_cast<std::size_t>(std::max(s.keys, call.memory.room_for_keys)));
  std::size_t first_ahead = 0, first_behind = 0;
  std::optional<DistanceRange> range;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < s.queries; ++i) {
    const std::int64_t position = s.offset + i;
    std::int64_t last = std::min(s.keys - 1, position + window - 1);
    if (options.causality == Causality::bottom_right) last = std::min(last, position);
    for (; next <= last; ++next) {
      if (is_padding(next)) continue;
      while (ahead.size() > first_ahead && keys[ahead.back()] <= keys[next]) ahead.pop_back();
      while (behind.size() > first_behind && keys[behind.back()] >= keys[next]) behind.pop_back();
      ahead.push_back(next);
      behind.push_back(next);
    }
    const std::int64_t first = position - window + 1;
    while (first_ahead < ahead.size() && ahead[first_ahead] < first) ++first_ahead;
    while (first_behind < behind.size() && behind[first_behind] < first) ++first_behind;
    if (first_ahead == ahead.size()) continue;
    range = hull_of(range, DistanceRange{queries[i] - keys[ahead[first_ahead]],
                                         queries[i] - keys[behind[first_behind]]});
  }
  return range;
}

std::optional<DistanceRange> even_distances(const Call& call, const Sequence& s) {
  DistanceRange range{s.offset - (s.keys - 1), s.offset + s.queries - 1};
  if (call.options.causality == Causality::bottom_right)
    range.low = std::max<std::int64_t>(range.low, 0);
  if (call.options.window) {
    range.low = std::max(range.low, 1 - *call.options.window);
    range.high = std::min(range.high, *call.options.window - 1);
  }
  if (range.low > range.high) return std::nullopt;
  return DistanceRange{range.low + s.shift, range.high + s.shift};
}

// The lowest and highest position of one batch row.
DistanceRange row_positions(const Positions& positions, std::int64_t tokens, std::int64_t row) {
  const auto of_list = [&](const auto* values) {
    values += positions.batch == 0 ? 0 : row * tokens;
    const auto [low, high] = std::minmax_element(values, values + tokens);
    return DistanceRange{static_cast<std::int64_t>(*low), static_cast<std::int64_t>(*high)};
  };
  if (positions.kind == Positions::Kind::integers) return of_list(positions.integers);
  if (positions.kind == Positions::Kind::floats) return of_list(positions.floats);
  // Counted, in packed sequences each from the same number.
  return {positions.offset, static_cast<std::int64_t>(*positions.largest(tokens))};
}

}  // namespace

encodings::AttentionShape attention_shape(const AttentionSizes& sizes,
                                          const AttentionOptions& options) {
  encodings::AttentionShape shape{.heads = sizes.heads,
                                  .key_heads = sizes.key_heads,
                                  .head_dim = sizes.head_dim,
                                  .value_dim = sizes.value_dim,
                                  .query_tokens = sizes.queries,
                                  .key_tokens = sizes.keys};
  const auto &queries = options.query_positions, &keys = options.key_positions;
  if (keys) shape.largest_position = keys->largest(sizes.keys);
  bool known = queries || keys || options.query_offset;
  const auto check = [&](const std::optional<Positions>& positions, std::int64_t tokens) {
    if (!positions) return;
    const auto bounds = core::check_positions(*positions, positions->axes, sizes.batch, tokens);
    known = known && positions->axes == 1 && !first_fraction(*positions) &&
            std::fmax(std::fabs(bounds.low), std::fabs(bounds.high)) <= kMostPosition;
  };
  check(queries, sizes.queries);
  check(keys, sizes.keys);
  if (!known || sizes.queries < 1 || sizes.keys < 1) return shape;
  std::optional<DistanceRange> range;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    // Queries without ids are at most as far back as key_lengths may put them.
    const std::int64_t first = options.query_offset.value_or(-sizes.queries);
    const std::int64_t last = options.query_offset ? first + sizes.queries - 1 : sizes.keys - 1;
    const DistanceRange of_queries =
        queries ? row_positions(*queries, sizes.queries, b) : DistanceRange{first, last};
    const DistanceRange of_keys =
        keys ? row_positions(*keys, sizes.keys, b) : DistanceRange{0, sizes.keys - 1};
    range =
        hull_of(range, DistanceRange{of_queries.low - of_keys.high, of_queries.high - of_keys.low});
  }
  if (range && std::max(-range->low, range->high) <= 2 * kMostPlace)
    shape.distances = encodings::Distances{range->low, range->high};
  return shape;
}

encodings::AttentionShape attention_shape(const core::ConstHeadsView& q,
                                          const core::ConstHeadsView& k,
                                          const core::ConstHeadsView& v,
                                          const AttentionOptions& options) {
  return attention_shape({.batch = q.batch,
                          .queries = q.tokens,
                          .keys = k.tokens,
                          .heads = q.heads,
                          .key_heads = k.heads,
                          .head_dim = q.head_dim,
                          .value_dim = v.head_dim},
                         options);
}

bool reads_positions(const encodings::ScoreTerms& terms) noexcept {
  return terms.query_rows || terms.key_rows || terms.bias || terms.value_rows ||
         !terms.slopes.empty() || terms.extra_query.given() || terms.first_row.given() ||
         terms.first_column.given();
}

void find_sequences(const AttentionSizes& sizes, const AttentionOptions& options,
                    std::vector<Sequence>& sequences) {
  sequences.clear();
  const auto queries = options.query_boundaries, keys = options.key_boundaries;
  sequences.reserve(queries.empty() ? static_cast<std::size_t>(sizes.batch) : queries.size());
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    const std::int64_t query_count = queries[s + 1] - queries[s];
    const std::int64_t key_count = keys[s + 1] - keys[s];
    sequences.push_back({0, queries[s], query_count, keys[s], key_count, key_count - query_count});
  }
  if (!queries.empty()) return;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    const std::int64_t length =
        options.key_lengths.empty() ? sizes.keys : options.key_lengths[static_cast<std::size_t>(b)];
    sequences.push_back(
        {b, 0, sizes.queries, 0, length, options.query_offset.value_or(length - sizes.queries)});
  }
}

void find_places(const char* where, Call& call) {
  Places& places = call.memory.places;
  for (auto* values : {&places.queries, &places.keys, &places.query_runs, &places.key_runs})
    values->clear();
  const AttentionOptions& options = call.options;
  const Side queries{options.query_positions, call.q.tokens, core::Role::query};
  const Side keys{options.key_positions, call.k.tokens, core::Role::key};
  if (reads_positions(call.terms)) {
    if (queries.given) {
      const auto bounds = check_side(where, "query_positions", *queries.given, call.q);
      check_rows_from_zero(where, "query_positions", call.terms.extra_query, bounds);
    }
    if (keys.given) {
      const auto bounds = check_side(where, "key_positions", *keys.given, call.k);
      check_rows_from_zero(where, "key_positions", call.terms.extra_key, bounds);
    }
    bool is_even = true;
    for (Sequence& s : call.memory.sequences) {
      if (!has_tokens(s) || (!queries.given && !keys.given)) continue;
      s.origin = keys.start(s);
      s.shift = queries.start(s) - s.origin - s.offset;
      is_even = is_even && queries.is_even(s) && keys.is_even(s);
    }
    const bool scattered = !is_even || !bias_fits(call);
    // A cache may leave gaps later on.
    if (scattered || call.memory.room_for_keys > 0) reserve_places(call);
    if (scattered) write_places(where, call, queries, keys);
  }
  find_bias_columns(call);
}

DistanceRange seen_distances(const Call& call, Hidden hidden) {
  std::optional<DistanceRange> range;
  for (const Sequence& s : call.sequences) {
    if (!has_tokens(s)) continue;
    range = hull_of(range, call.is_scattered() ? scattered_distances(call, s, hidden)
                                               : even_distances(call, s));
  }
  return range.value_or(DistanceRange{});
}

void check_distances(const char* where, const Call& call) {
  const encodings::ScoreTerms& terms = call.terms;
  if (!call.has_refusing_map()) return;
  const DistanceRange range = seen_distances(call, Hidden::by_padding_too);
  const auto check = [&](const char* name, const std::optional<RelativeRows>& rows) {
    if (!rows || rows->map.outside == RelativeMap::Outside::clamp) return;
    if (range.low >= rows->map.first && range.high <= rows->map.last()) return;
    refuse(ErrorCode::out_of_range, where,
           message(name, " must have rows for the distances ", range.low, " to ", range.high,
                   ", got rows for ", rows->map.first, " to ", rows->map.last()));
  };
  check("query_rows", terms.query_rows);
  check("key_rows", terms.key_rows);
  check("bias", terms.bias);
  check("value_rows", terms.value_rows);
}

void check_padding(const char* where, const Call& call) {
  if (call.is_scattered() && !call.options.key_padding.empty()) check_distances(where, call);
}

}  // namespace phasor::attention
