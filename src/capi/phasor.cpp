#include "phasor/phasor.h"

#include <algorithm>
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
#include "phasor/config/config.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::capi {
namespace {

// The four decay functions: one value per distance, written only after all are computed.
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
int32_t phasor_version_number(void) { return PHASOR_VERSION_NUMBER; }

float phasor_f16_to_float(uint16_t bits) { return core::to_float(core::Half{bits}); }
float phasor_bf16_to_float(uint16_t bits) { return core::to_float(core::BFloat16{bits}); }
uint16_t phasor_float_to_f16(float value) { return core::to_half(value).bits; }
uint16_t phasor_float_to_bf16(float value) { return core::to_bfloat16(value).bits; }

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
    check_struct_size<phasor_rope_spec>(struct_size, kWhere, "spec");
    give_struct(default_spec(), struct_size, spec);
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
    hand_over(layer_rotary(config::parse_config({text, length}).value_or_throw(), layer, layout,
                           context, kWhere),
              out);
  });
}

phasor_status phasor_rope_from_config_file(const char* path, const char* layer,
                                           phasor_pair_layout layout, int64_t context,
                                           phasor_rope** out) {
  constexpr std::string_view kWhere = "phasor_rope_from_config_file";
  return guarded([&] {
    need(path, kWhere, "path");
    need(out, kWhere, "out");
    hand_over(
        layer_rotary(config::read_config(path).value_or_throw(), layer, layout, context, kWhere),
        out);
  });
}

void phasor_rope_destroy(phasor_rope* rope) { delete rope; }

phasor_status phasor_rope_describe(const phasor_rope* rope, phasor_rope_info* info) {
  constexpr std::string_view kWhere = "phasor_rope_describe";
  return guarded([&] {
    need(rope, kWhere, "rope");
    const std::size_t size = size_to_fill(info, kWhere, "info");
    const core::Rotary& rotary = rope->rotary;
    phasor_rope_info filled{};
    filled.layout = static_cast<phasor_pair_layout>(rotary.layout);
    filled.head_dim = rotary.head_dim;
    filled.rotary_dim = rotary.rotary_dim();
    filled.rotary_offset = rotary.offset;
    filled.pairs = rotary.frequencies.pairs();
    filled.axis_count = rotary.frequencies.axis_count();
    filled.blocks = rotary.blocks;
    filled.amplitude = rotary.frequencies.amplitude();
    give_struct(filled, size, info);
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
    // The core checks these bounds too; here they keep rows * pairs from overflowing.
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
