#include "phasor/phasor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capi/arguments.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "capi/spec.hpp"
#include "phasor/attention/decay.hpp"
#include "phasor/attention/rerotate.hpp"
#include "phasor/config/config.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::capi {
namespace {

constexpr std::size_t kTurnsWithoutAllocation = 8;

core::AngleMode to_angles(phasor_angle_mode angles, std::string_view where) {
  static_assert(static_cast<int>(core::AngleMode::exact) == PHASOR_ANGLES_EXACT);
  static_assert(static_cast<int>(core::AngleMode::float32) == PHASOR_ANGLES_FLOAT32);
  return choice(angles, core::AngleMode::float32, where, "angles");
}

core::Positions positions_of(const phasor_positions* given, std::string_view where) {
  const phasor_positions from =
      take_struct(given, phasor_positions_from(0), sizeof(phasor_positions), where, "positions");
  using Kind = core::Positions::Kind;
  static_assert(static_cast<int>(Kind::offset) == PHASOR_POSITIONS_OFFSET);
  static_assert(static_cast<int>(Kind::integers) == PHASOR_POSITIONS_INTEGERS);
  static_assert(static_cast<int>(Kind::floats) == PHASOR_POSITIONS_FLOATS);
  static_assert(static_cast<int>(Kind::packed) == PHASOR_POSITIONS_PACKED);
  core::Positions positions;
  positions.kind = choice(from.kind, Kind::packed, where, "positions.kind");
  for (const auto& [value, name] : {std::pair<std::int64_t, std::string_view>{from.axes, "axes"},
                                    {from.batch, "batch"},
                                    {from.tokens, "tokens"},
                                    {from.sequences, "sequences"}}) {
    if (value < 0) {
      throw Error(ErrorCode::invalid_argument,
                  message(where, ": positions.", name, " must not be negative, got ", value));
    }
  }
  if (from.axes > core::kMaxAxes) {
    throw Error(ErrorCode::invalid_argument, message(where, ": positions.axes must be at most ",
                                                     core::kMaxAxes, ", got ", from.axes));
  }
  const auto tokens = static_cast<std::size_t>(from.tokens);
  if (positions.kind == Kind::integers)
    need_array(from.integers, tokens, where, "positions.integers");
  if (positions.kind == Kind::floats) need_array(from.floats, tokens, where, "positions.floats");
  if (positions.kind == Kind::packed) need(from.integers, where, "positions.integers");
  positions.integers = from.integers;
  positions.floats = from.floats;
  positions.axes = static_cast<int>(std::max<std::int64_t>(from.axes, 1));
  positions.batch = from.batch;
  positions.tokens = from.tokens;
  positions.offset = from.offset;
  positions.sequences = from.sequences;
  // As core::positions_packed makes them: the boundaries tell the number of tokens.
  if (positions.kind == Kind::packed) {
    positions = core::positions_packed(
        {from.integers, static_cast<std::size_t>(from.sequences) + 1}, from.offset);
  }
  return positions;
}

core::RotateOptions to_options(const phasor_rotate_options* given, std::string_view where) {
  core::RotateOptions options;
  if (given == nullptr) return options;
  const phasor_rotate_options from =
      take_struct(given, phasor_rotate_options{}, sizeof(phasor_rotate_options), where, "options");
  static_assert(static_cast<int>(core::Direction::forward) == PHASOR_FORWARD);
  static_assert(static_cast<int>(core::Direction::transpose) == PHASOR_TRANSPOSE);
  static_assert(static_cast<int>(core::Direction::inverse) == PHASOR_INVERSE);
  options.direction = choice(from.direction, core::Direction::inverse, where, "direction");
  options.angles = to_angles(from.angles, where);
  options.table = from.table == nullptr ? nullptr : &from.table->table;
  options.threads = to_threads(from.threads, where);
  options.isa = to_isa(from.isa, where);
  return options;
}

core::Turn to_turn(const phasor_turn& turn, std::string_view where) {
  static_assert(static_cast<int>(core::Role::query) == PHASOR_QUERY);
  static_assert(static_cast<int>(core::Role::key) == PHASOR_KEY);
  const core::HeadsView out = to_view(turn.out, where, "out");
  const core::Role role = choice(turn.role, core::Role::key, where, "role");
  if (turn.in == nullptr) return {out, out, role};
  return {to_view(turn.in, where, "in"), out, role};
}

core::Rotary rotary_of(const Result<config::ModelConfig>& config, const char* layer,
                       phasor_pair_layout layout, std::int64_t context, std::string_view where) {
  if (!config) throw Error(config.error());
  const std::string_view selector = layer == nullptr ? "" : layer;
  Result<config::LayerGroup> selected = config::select_layer(*config, selector);
  if (!selected) throw Error(selected.error());
  config::LayerGroup group = std::move(selected).value();
  if (!group.rope) {
    throw Error(ErrorCode::unsupported,
                message(where, ": layer must rotate, got a layer without rotation (",
                        selector.empty() ? "all" : selector, ")"));
  }
  if (const auto chosen = to_layout(layout, where)) group.rope->layout = chosen;
  return encodings::resolve(*group.rope, to_context(context, where));
}

// The four functions of decay: one value out per distance, written only when all are there.
template <class Compute>
phasor_status decay(std::string_view where, const phasor_rope* rope, const double* distances,
                    std::size_t count, double* out, Compute compute) noexcept {
  return guarded([&] {
    need(rope, where, "rope");
    need_array(distances, count, where, "distances");
    need_array(out, count, where, "out");
    const std::vector<double> values =
        compute(rope->rotary.frequencies, std::span<const double>(distances, count));
    std::copy(values.begin(), values.end(), out);
  });
}

}  // namespace
}  // namespace phasor::capi

using namespace phasor;  // NOLINT(google-build-using-namespace): the functions below belong to no
                         // namespace
using namespace phasor::capi;  // NOLINT(google-build-using-namespace)

const char* phasor_version(void) { return PHASOR_VERSION; }

phasor_status phasor_resolve_instruction_set(phasor_instruction_set isa,
                                             phasor_instruction_set* out) {
  constexpr std::string_view kWhere = "phasor_resolve_instruction_set";
  return guarded([&] {
    need(out, kWhere, "out");
    *out = static_cast<phasor_instruction_set>(core::resolve_instruction_set(to_isa(isa, kWhere)));
  });
}

phasor_status phasor_rope_spec_init(phasor_rope_spec* spec, size_t struct_size) {
  constexpr std::string_view kWhere = "phasor_rope_spec_init";
  return guarded([&] {
    need(spec, kWhere, "spec");
    if (struct_size < sizeof(std::uint32_t) ||
        struct_size > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(
          ErrorCode::invalid_argument,
          message(kWhere, ": struct_size must be sizeof(phasor_rope_spec), got ", struct_size));
    }
    phasor_rope_spec values = default_spec();
    values.struct_size = static_cast<std::uint32_t>(struct_size);
    std::memset(static_cast<void*>(spec), 0, struct_size);
    std::memcpy(spec, &values, std::min(struct_size, sizeof(values)));
  });
}

phasor_status phasor_rope_create(const phasor_rope_spec* spec, int64_t context, phasor_rope** out) {
  constexpr std::string_view kWhere = "phasor_rope_create";
  return guarded([&] {
    need(out, kWhere, "out");
    hand_over(encodings::resolve(to_rope_spec(spec, kWhere), to_context(context, kWhere)), out);
  });
}

phasor_status phasor_rope_from_config_text(const char* text, size_t length, const char* layer,
                                           phasor_pair_layout layout, int64_t context,
                                           phasor_rope** out) {
  constexpr std::string_view kWhere = "phasor_rope_from_config_text";
  return guarded([&] {
    need(text, kWhere, "text");
    need(out, kWhere, "out");
    hand_over(rotary_of(config::parse_config({text, length}), layer, layout, context, kWhere), out);
  });
}

phasor_status phasor_rope_from_config_file(const char* path, const char* layer,
                                           phasor_pair_layout layout, int64_t context,
                                           phasor_rope** out) {
  constexpr std::string_view kWhere = "phasor_rope_from_config_file";
  return guarded([&] {
    need(path, kWhere, "path");
    need(out, kWhere, "out");
    hand_over(rotary_of(config::read_config(path), layer, layout, context, kWhere), out);
  });
}

void phasor_rope_destroy(phasor_rope* rope) { delete rope; }

phasor_status phasor_rope_describe(const phasor_rope* rope, phasor_rope_info* info) {
  constexpr std::string_view kWhere = "phasor_rope_describe";
  return guarded([&] {
    need(rope, kWhere, "rope");
    need(info, kWhere, "info");
    const std::size_t size = info->struct_size;
    if (size < sizeof(std::uint32_t)) {
      throw Error(ErrorCode::invalid_argument,
                  message(kWhere, ": struct_size must be sizeof(phasor_rope_info), got ", size));
    }
    const core::Rotary& rotary = rope->rotary;
    phasor_rope_info filled{};
    filled.struct_size = info->struct_size;
    filled.layout = static_cast<phasor_pair_layout>(rotary.layout);
    filled.head_dim = rotary.head_dim;
    filled.rotary_dim = rotary.rotary_dim();
    filled.rotary_offset = rotary.offset;
    filled.pairs = rotary.frequencies.pairs();
    filled.axis_count = rotary.frequencies.axis_count();
    filled.blocks = rotary.blocks;
    filled.amplitude = rotary.frequencies.amplitude();
    std::memset(static_cast<void*>(info), 0, size);
    std::memcpy(info, &filled, std::min(size, sizeof(filled)));
  });
}

phasor_status phasor_rope_frequencies(const phasor_rope* rope, double* frequencies, size_t count) {
  constexpr std::string_view kWhere = "phasor_rope_frequencies";
  return guarded([&] {
    need(rope, kWhere, "rope");
    need(frequencies, kWhere, "frequencies");
    const std::span<const double> values = rope->rotary.frequencies.values();
    need_count(count, std::ssize(values), kWhere, "count");
    std::copy(values.begin(), values.end(), frequencies);
  });
}

phasor_status phasor_rope_axes(const phasor_rope* rope, uint8_t* axes, size_t count) {
  constexpr std::string_view kWhere = "phasor_rope_axes";
  return guarded([&] {
    need(rope, kWhere, "rope");
    need(axes, kWhere, "axes");
    const core::Frequencies& frequencies = rope->rotary.frequencies;
    need_count(count, frequencies.pairs(), kWhere, "count");
    std::fill_n(axes, count, std::uint8_t{0});
    std::copy(frequencies.axes().begin(), frequencies.axes().end(), axes);
  });
}

phasor_status phasor_cos_sin_f32(const phasor_rope* rope, const double* positions,
                                 size_t position_count, phasor_angle_mode angles, float* cos,
                                 float* sin, size_t count) {
  constexpr std::string_view kWhere = "phasor_cos_sin_f32";
  return guarded([&] {
    need(rope, kWhere, "rope");
    need(positions, kWhere, "positions");
    need(cos, kWhere, "cos");
    need(sin, kWhere, "sin");
    core::cos_sin(rope->rotary.frequencies, {positions, position_count}, {cos, count}, {sin, count},
                  to_angles(angles, kWhere));
  });
}

phasor_status phasor_cos_sin_f64(const phasor_rope* rope, const double* positions,
                                 size_t position_count, double* cos, double* sin, size_t count) {
  constexpr std::string_view kWhere = "phasor_cos_sin_f64";
  return guarded([&] {
    need(rope, kWhere, "rope");
    need(positions, kWhere, "positions");
    need(cos, kWhere, "cos");
    need(sin, kWhere, "sin");
    core::cos_sin(rope->rotary.frequencies, std::span<const double>(positions, position_count),
                  std::span<double>(cos, count), std::span<double>(sin, count));
  });
}

phasor_status phasor_table_create(const phasor_rope* rope, int64_t first, int64_t count,
                                  phasor_angle_mode angles, int32_t threads, phasor_table** out) {
  constexpr std::string_view kWhere = "phasor_table_create";
  return guarded([&] {
    need(rope, kWhere, "rope");
    need(out, kWhere, "out");
    hand_over(core::CosSinTable::build(rope->rotary.frequencies, {first, count},
                                       to_angles(angles, kWhere), to_threads(threads, kWhere)),
              out);
  });
}

phasor_status phasor_table_grow(const phasor_table* table, int64_t first, int64_t count,
                                int32_t threads, phasor_table** out) {
  constexpr std::string_view kWhere = "phasor_table_grow";
  return guarded([&] {
    need(table, kWhere, "table");
    need(out, kWhere, "out");
    hand_over(table->table.grown({first, count}, to_threads(threads, kWhere)), out);
  });
}

phasor_status phasor_table_from_rows(const float* cos, const float* sin, size_t rows, size_t pairs,
                                     int64_t first, phasor_table** out) {
  constexpr std::string_view kWhere = "phasor_table_from_rows";
  return guarded([&] {
    need(out, kWhere, "out");
    // Bounds that the core knows too, checked here so that rows * pairs cannot overflow on the way
    // to it.
    if (pairs == 0 || pairs > static_cast<std::size_t>(core::kMaxRotaryDim / 2)) {
      throw Error(ErrorCode::invalid_argument, message(kWhere, ": pairs must be from 1 to ",
                                                       core::kMaxRotaryDim / 2, ", got ", pairs));
    }
    if (rows > std::numeric_limits<std::size_t>::max() / sizeof(float) / pairs) {
      throw Error(ErrorCode::invalid_argument,
                  message(kWhere, ": rows must fit in memory, got ", rows));
    }
    need_array(cos, rows, kWhere, "cos");
    need_array(sin, rows, kWhere, "sin");
    hand_over(core::CosSinTable::from_rows({cos, rows * pairs}, {sin, rows * pairs},
                                           static_cast<std::int64_t>(pairs), first),
              out);
  });
}

phasor_status phasor_table_range(const phasor_table* table, int64_t* first, int64_t* count) {
  constexpr std::string_view kWhere = "phasor_table_range";
  return guarded([&] {
    need(table, kWhere, "table");
    need(first, kWhere, "first");
    need(count, kWhere, "count");
    *first = table->table.range().first;
    *count = table->table.range().count;
  });
}

phasor_status phasor_table_rows(const phasor_table* table, int64_t position, const float** cos,
                                const float** sin, size_t* pairs) {
  constexpr std::string_view kWhere = "phasor_table_rows";
  return guarded([&] {
    need(table, kWhere, "table");
    need(cos, kWhere, "cos");
    need(sin, kWhere, "sin");
    need(pairs, kWhere, "pairs");
    const core::PositionRange range = table->table.range();
    // Unsigned, since the difference of two positions may not fit in 63 bits.
    const std::uint64_t row =
        static_cast<std::uint64_t>(position) - static_cast<std::uint64_t>(range.first);
    if (position < range.first || row >= static_cast<std::uint64_t>(range.count)) {
      throw Error(ErrorCode::out_of_range,
                  message(kWhere, ": position must be in [", range.first, ", ",
                          range.first + range.count, "), got ", position));
    }
    *cos = table->table.cos(position).data();
    *sin = table->table.sin(position).data();
    *pairs = static_cast<std::size_t>(table->table.pairs());
  });
}

void phasor_table_destroy(phasor_table* table) { delete table; }

phasor_status phasor_rotate(const phasor_rope* rope, const phasor_positions* positions,
                            const phasor_turn* turns, size_t turn_count,
                            const phasor_rotate_options* options) {
  constexpr std::string_view kWhere = "phasor_rotate";
  return guarded([&] {
    need(rope, kWhere, "rope");
    need_array(turns, turn_count, kWhere, "turns");
    std::array<core::Turn, kTurnsWithoutAllocation> few;
    std::vector<core::Turn> many(turn_count > few.size() ? turn_count : 0);
    const std::span<core::Turn> all =
        many.empty() ? std::span(few).first(turn_count) : std::span(many);
    for (std::size_t i = 0; i < turn_count; ++i) all[i] = to_turn(turns[i], kWhere);
    core::rotate(rope->rotary, positions_of(positions, kWhere), all, to_options(options, kWhere));
  });
}

phasor_status phasor_rotate_in_place(const phasor_rope* rope, const phasor_positions* positions,
                                     const phasor_heads* q, const phasor_heads* k,
                                     const phasor_rotate_options* options) {
  const phasor_turn turns[] = {{nullptr, q, PHASOR_QUERY}, {nullptr, k, PHASOR_KEY}};
  return phasor_rotate(rope, positions, turns, k == nullptr ? 1 : 2, options);
}

phasor_status phasor_rerotate(const phasor_rope* from, const phasor_positions* from_positions,
                              const phasor_rope* to, const phasor_positions* to_positions,
                              const phasor_heads* keys, int32_t threads) {
  constexpr std::string_view kWhere = "phasor_rerotate";
  return guarded([&] {
    need(from, kWhere, "from");
    need(to, kWhere, "to");
    attention::rerotate({from->rotary, positions_of(from_positions, kWhere)},
                        {to->rotary, positions_of(to_positions, kWhere)},
                        to_view(keys, kWhere, "keys"), to_threads(threads, kWhere));
  });
}

phasor_status phasor_mean_partial_sums(const phasor_rope* rope, const double* distances,
                                       size_t count, double* out) {
  return decay("phasor_mean_partial_sums", rope, distances, count, out,
               attention::mean_partial_sums);
}

phasor_status phasor_abel_bounds(const phasor_rope* rope, const double* q, const double* k,
                                 size_t feature_count, const double* distances, size_t count,
                                 double* out) {
  constexpr std::string_view kWhere = "phasor_abel_bounds";
  return decay(kWhere, rope, distances, count, out, [&](const auto& frequencies, auto at) {
    need_array(q, feature_count, kWhere, "q");
    need_array(k, feature_count, kWhere, "k");
    return attention::abel_bounds(frequencies, {q, feature_count}, {k, feature_count}, at);
  });
}

phasor_status phasor_rotated_scores(const phasor_rope* rope, const double* q, const double* k,
                                    size_t feature_count, const double* distances, size_t count,
                                    double* out) {
  constexpr std::string_view kWhere = "phasor_rotated_scores";
  return decay(kWhere, rope, distances, count, out, [&](const auto& frequencies, auto at) {
    need_array(q, feature_count, kWhere, "q");
    need_array(k, feature_count, kWhere, "k");
    return attention::rotated_scores(frequencies, {q, feature_count}, {k, feature_count}, at);
  });
}

phasor_status phasor_mean_rotated_scores(const phasor_rope* rope, double mean, double variance,
                                         phasor_query_key relation, const double* distances,
                                         size_t count, double* out) {
  constexpr std::string_view kWhere = "phasor_mean_rotated_scores";
  return decay(kWhere, rope, distances, count, out, [&](const auto& frequencies, auto at) {
    return attention::mean_rotated_scores(
        frequencies, mean, variance,
        choice(relation, attention::QueryKey::equal, kWhere, "relation"), at);
  });
}
