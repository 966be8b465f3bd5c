#include "phasor/encodings/encoding.hpp"

#include <array>
#include <optional>

#include "encodings/relative/terms.hpp"

namespace phasor::encodings {
namespace {

// An encoding without a scale of its own takes the scale of the encodings it is combined with.
[[nodiscard]] bool has_own_scale(const Encoding& encoding) noexcept {
  return !std::holds_alternative<NoEncoding>(encoding) &&
         !std::holds_alternative<Alibi>(encoding) && !std::holds_alternative<Kerple>(encoding);
}

// Moves the terms of several encodings into one set; throws when two fill the same term.
class Merger {
 public:
  Merger(std::optional<double> scale, const AttentionShape& shape)
      : scale_is_given_(scale.has_value()) {
    merged_.scale = scale.value_or(plain_scale(shape));
  }

  void add(const Encoding& encoding, ScoreTerms terms) {
    name_ = name_of(encoding);
    take("rotation", merged_.rotation, terms.rotation);
    take("content_bias", merged_.content_bias, terms.content_bias);
    take("position_bias", merged_.position_bias, terms.position_bias);
    take("query_rows", merged_.query_rows, terms.query_rows);
    take("key_rows", merged_.key_rows, terms.key_rows);
    take("bias", merged_.bias, terms.bias);
    take("slopes", merged_.slopes, terms.slopes);
    take("extra_query", merged_.extra_query, terms.extra_query);
    take("extra_key", merged_.extra_key, terms.extra_key);
    take("first_row", merged_.first_row, terms.first_row);
    take("first_column", merged_.first_column, terms.first_column);
    take("segment_rows", merged_.segment_rows, terms.segment_rows);
    take("segment_bias", merged_.segment_bias, terms.segment_bias);
    take("value_rows", merged_.value_rows, terms.value_rows);
    if (scale_is_given_ || !has_own_scale(encoding)) return;
    if (scaled_by_ && merged_.scale != terms.scale) {
      refuse(ErrorCode::unsupported,
             message("encoding: combined encodings must have the same scale, got ", merged_.scale,
                     " of ", *scaled_by_, " and ", terms.scale, " of ", name_));
    }
    merged_.scale = terms.scale;
    scaled_by_ = name_;
  }

  [[nodiscard]] ScoreTerms terms() && { return std::move(merged_); }

 private:
  template <class T>
  [[nodiscard]] static bool filled(const std::optional<T>& term) {
    return term.has_value();
  }
  [[nodiscard]] static bool filled(const Table& term) { return term.given(); }
  [[nodiscard]] static bool filled(const std::vector<double>& term) { return !term.empty(); }

  template <class T>
  void take(std::string_view term, T& merged, T& added) {
    if (!filled(added)) return;
    if (filled(merged)) {
      refuse(ErrorCode::unsupported, message("encoding: ", name_,
                                             " cannot be combined with another "
                                             "encoding that has ",
                                             term));
    }
    merged = std::move(added);
  }

  ScoreTerms merged_;
  bool scale_is_given_;
  std::string_view name_;
  std::optional<std::string_view> scaled_by_;
};

}  // namespace

std::string_view name_of(const Encoding& encoding) noexcept {
  static constexpr std::array<std::string_view, std::variant_size_v<Encoding>> kNames = {
      "none", "rope", "shaw",    "bert_relative", "transformer_xl", "xlnet",
      "t5",   "tupe", "deberta", "alibi",         "kerple"};
  return kNames[encoding.index()];
}

AttentionShape attention_shape(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                               const core::ConstHeadsView& v) noexcept {
  return {.heads = q.heads,
          .key_heads = k.heads,
          .head_dim = q.head_dim,
          .value_dim = v.head_dim,
          .query_tokens = q.tokens,
          .key_tokens = k.tokens};
}

ScoreTerms terms_of(const NoEncoding& /*encoding*/, const AttentionShape& shape) {
  ScoreTerms terms;
  terms.scale = plain_scale(shape);  // RoFormer (2)
  return terms;
}

ScoreTerms terms_of(const RopeSpec& encoding, const AttentionShape& shape) {
  if (encoding.head_dim != shape.head_dim) {
    refuse(ErrorCode::shape_mismatch, message("rope: head_dim must be that of q, ", shape.head_dim,
                                              ", got ", encoding.head_dim));
  }
  ScoreTerms terms;
  terms.rotation =
      resolve(encoding, context_for(encoding, shape.context,
                                    shape.largest_position.value_or(
                                        static_cast<double>(shape.key_tokens - 1))));  // (14)
  terms.scale = plain_scale(shape);
  return terms;
}

ScoreTerms resolve(const Encoding& encoding, const AttentionShape& shape) {
  validate_shape(shape);
  return std::visit([&](const auto& kind) { return terms_of(kind, shape); }, encoding);
}

ScoreTerms resolve(std::span<const Encoding> encodings, const AttentionShape& shape,
                   std::optional<double> scale) {
  validate_shape(shape);
  Merger merger(scale, shape);
  for (const Encoding& encoding : encodings) merger.add(encoding, resolve(encoding, shape));
  return std::move(merger).terms();
}

}  // namespace phasor::encodings
