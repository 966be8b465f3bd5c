// Attention options of the C API, for phasor_attend and phasor_cache_attend.
#pragma once

#include <optional>
#include <string_view>

#include "phasor/attention/softmax.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/phasor.h"

namespace phasor::capi {

[[nodiscard]] attention::Causality to_causality(phasor_causality causality, std::string_view where);
// The caller's options, of any version of phasor.h; NULL: the defaults.
[[nodiscard]] phasor_attend_options attend_options(const phasor_attend_options* given,
                                                   std::string_view where);

// For queries q over keys k; spans and positions point into the caller's memory.
//
// throws   Error(invalid_argument | shape_mismatch): a number outside its list, NULL for an
//          array that has elements, a count that does not fit the shapes. attention checks the sizes
[[nodiscard]] attention::AttentionOptions to_options(const phasor_attend_options& from,
                                                     const core::ConstHeadsView& q,
                                                     const core::ConstHeadsView& k,
                                                     std::string_view where);

// The terms of the encoding for attention of this shape; NULL: no encoding.
[[nodiscard]] encodings::ScoreTerms terms_of(const phasor_encoding* encoding,
                                             const encodings::AttentionShape& shape);

// A pointer that is not NULL must have `expected` elements: a forgotten count would silently ignore
// the array.
void need_elements(const void* pointer, std::size_t count, std::int64_t expected,
                   std::string_view where, std::string_view what);

}  // namespace phasor::capi
