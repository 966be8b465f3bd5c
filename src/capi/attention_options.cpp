#include "capi/attention_options.hpp"

#include <array>
#include <span>

#include "capi/arguments.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"

namespace phasor::capi {
namespace {

// The product of sizes that attention has not checked yet: 0 for negative ones, which attention
// refuses by name.
std::int64_t elements(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return 0;
  return product;
}

attention::Mask to_mask(const phasor_mask* given, const core::ConstHeadsView& q,
                        const core::ConstHeadsView& k, std::string_view where) {
  if (given == nullptr) return {};
  using Kind = attention::Mask::Kind;
  enum class Offered { boolean, additive, additive_f64 };
  static_assert(static_cast<int>(Offered::boolean) == PHASOR_MASK_BOOLEAN);
  static_assert(static_cast<int>(Offered::additive) == PHASOR_MASK_ADDITIVE);
  static_assert(static_cast<int>(Offered::additive_f64) == PHASOR_MASK_ADDITIVE_F64);
  const Offered kind = choice(given->kind, Offered::additive_f64, where, "mask", ".kind");
  need(given->data, where, "mask", ".data");
  const std::array shape{given->batch, given->heads, given->queries, given->keys};
  // attention checks the shape; the strides are the caller's.
  attention::Mask mask = attention::boolean_mask(static_cast<const std::uint8_t*>(given->data),
                                                 shape, q.batch, q.heads, q.tokens, k.tokens);
  mask.kind = kind == Offered::boolean    ? Kind::boolean
              : kind == Offered::additive ? Kind::additive
                                          : Kind::additive_f64;
  mask.batch_stride = given->batch == 1 ? 0 : given->batch_stride;
  mask.head_stride = given->heads == 1 ? 0 : given->head_stride;
  mask.query_stride = given->queries == 1 ? 0 : given->query_stride;
  mask.key_stride = given->keys == 1 ? 0 : given->key_stride;
  return mask;
}

// Boundaries: the caller chooses their number.
std::span<const std::int64_t> to_boundaries(const std::int64_t* boundaries, std::size_t count,
                                            std::string_view where, std::string_view what) {
  need_array(boundaries, count, where, what);
  if (boundaries != nullptr && count == 0) {
    throw Error(ErrorCode::shape_mismatch,
                message(where, ": ", what, " must have at least 1 element, got 0"));
  }
  return {boundaries, count};
}

}  // namespace

void need_elements(const void* pointer, std::size_t count, std::int64_t expected,
                   std::string_view where, std::string_view what) {
  if (pointer == nullptr && count == 0) return;
  need(pointer, where, what);
  if (count != static_cast<std::size_t>(expected)) {
    throw Error(ErrorCode::shape_mismatch,
                message(where, ": ", what, " must have ", expected, " elements, got ", count));
  }
}

attention::Causality to_causality(phasor_causality causality, std::string_view where) {
  static_assert(static_cast<int>(attention::Causality::none) == PHASOR_NOT_CAUSAL);
  static_assert(static_cast<int>(attention::Causality::bottom_right) == PHASOR_CAUSAL);
  return choice(causality, attention::Causality::bottom_right, where, "causality");
}

phasor_attend_options attend_options(const phasor_attend_options* given, std::string_view where) {
  return take_options(given, phasor_attend_options{}, where);
}

attention::AttentionOptions to_options(const phasor_attend_options& from,
                                       const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                                       std::string_view where) {
  attention::AttentionOptions options;
  options.causality = to_causality(from.causality, where);
  if (from.window != 0) options.window = from.window;
  if (from.scale != 0.0) options.scale = from.scale;
  options.soft_cap = from.soft_cap;
  options.threads = to_threads(from.threads, where);
  options.isa = to_isa(from.isa, where);
  need_array(from.query_segments, from.query_segment_count, where, "query_segments");
  need_array(from.key_segments, from.key_segment_count, where, "key_segments");
  options.query_segments = {from.query_segments, from.query_segment_count};
  options.key_segments = {from.key_segments, from.key_segment_count};

  options.mask = to_mask(from.mask, q, k, where);
  need_elements(from.key_lengths, from.key_length_count, q.batch, where, "key_lengths");
  options.key_lengths = {from.key_lengths, from.key_length_count};
  need_elements(from.key_padding, from.key_padding_count, elements(k.batch, k.tokens), where,
                "key_padding");
  options.key_padding = {from.key_padding, from.key_padding_count};
  options.query_boundaries =
      to_boundaries(from.query_boundaries, from.query_boundary_count, where, "query_boundaries");
  options.key_boundaries =
      to_boundaries(from.key_boundaries, from.key_boundary_count, where, "key_boundaries");
  options.query_positions = optional_positions_of(from.query_positions, where, "query_positions");
  options.key_positions = optional_positions_of(from.key_positions, where, "key_positions");
  static_assert(static_cast<int>(attention::KeyState::raw) == PHASOR_KEYS_RAW);
  static_assert(static_cast<int>(attention::KeyState::rotated) == PHASOR_KEYS_ROTATED);
  options.keys = choice(from.key_state, attention::KeyState::rotated, where, "key_state");
  options.angles = to_angles(from.angles, where);
  return options;
}

encodings::ScoreTerms terms_of(const phasor_encoding* encoding,
                               const encodings::AttentionShape& shape) {
  return encoding == nullptr ? encodings::resolve(encodings::NoEncoding{}, shape)
                             : config::resolve(encoding->loaded, shape);
}

}  // namespace phasor::capi
