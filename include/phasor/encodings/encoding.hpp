// An encoding as a value, and the terms that it adds to attention.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "phasor/encodings/relative.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/export.h"

namespace phasor::encodings {

struct NoEncoding {};  // RoFormer (2) alone

using Encoding = std::variant<NoEncoding, RopeSpec, Shaw, BertRelative, TransformerXl, Xlnet, T5,
                              Tupe, Deberta, Alibi, Kerple>;
[[nodiscard]] PHASOR_API std::string_view name_of(const Encoding& encoding) noexcept;

// Distances m - n of queries and keys, both ends included.
struct Distances {
  std::int64_t first = 0, last = 0;
  [[nodiscard]] std::int64_t count() const noexcept { return last - first + 1; }
  [[nodiscard]] bool operator==(const Distances&) const = default;
};

// The attention that an encoding is to serve.
struct AttentionShape {
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t head_dim = 0, value_dim = 0;
  std::int64_t query_tokens = 0, key_tokens = 0;
  // For RoPE that depends on the context; none: context_for() the largest position below.
  std::optional<std::int64_t> context = std::nullopt;
  // Of the keys' position ids; none: keys are at 0 .. key_tokens - 1.
  std::optional<double> largest_position = std::nullopt;
  // Between position ids, see attention_shape() in attention/plan.hpp; none: key n is at n, query i at
  // key_tokens - query_tokens + i.
  std::optional<Distances> distances = std::nullopt;
};
// The distances of a shape. Distance 0 is always included, even without tokens.
[[nodiscard]] PHASOR_API Distances distances_of(const AttentionShape& shape) noexcept;

// The terms are for attention of this shape; when a map was cut to it, attention over larger
// distances is refused.
//
// throws   Error naming the table and the sizes: heads, rows or dims that do not fit the shape,
//          rows that are not those of the clip range. Distances without a row are checked by
//          attention, which knows the ones that no query sees
[[nodiscard]] PHASOR_API ScoreTerms resolve(const Encoding& encoding, const AttentionShape& shape);

// Several encodings at once, such as RoPE with ALiBi.
//
// throws   also Error(unsupported) when two fill the same term or have different scales
[[nodiscard]] PHASOR_API ScoreTerms resolve(std::span<const Encoding> encodings,
                                            const AttentionShape& shape);

// Checks terms that were made by hand, as attention does before it starts.
PHASOR_API void validate(const ScoreTerms& terms, const AttentionShape& shape);

}  // namespace phasor::encodings
