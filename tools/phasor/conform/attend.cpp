#include "conform/attend.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace phasor::tools {
namespace {

CaseArray zeros_like(const CaseArray& array) {
  CaseArray zeros = array;
  std::fill(zeros.data.bytes.begin(), zeros.data.bytes.end(), std::byte{0});
  return zeros;
}

const CaseArray* expected_array(const Case& golden, const std::string& name) {
  if (const auto output = golden.outputs.find(name); output != golden.outputs.end())
    return &output->second;
  for (const auto& [truth_name, truth] : golden.truth) {
    if (truth.of == name || truth_name == name + "_f64") return &truth;
  }
  return nullptr;
}

bool is_query_axis(const std::string& dim) { return dim == "query" || is_token_axis(dim); }

}  // namespace

CaseHeads::CaseHeads(const Case& golden, const std::string& q, const std::string& k,
                     const std::string& v)
    : CaseHeads(golden.input(q), golden.input(k), golden.input(v)) {}

CaseHeads::CaseHeads(CaseArray q, CaseArray k, CaseArray v)
    : q_(std::move(q)),
      k_(std::move(k)),
      v_(std::move(v)),
      q_view_(heads_of(q_, "q")),
      k_view_(heads_of(k_, "k")),
      v_view_(heads_of(v_, "v")) {}

encodings::AttentionShape CaseHeads::shape() const {
  return encodings::attention_shape(q_view_, k_view_, v_view_);
}

CaseHeads CaseHeads::with_zero_queries() const { return {zeros_like(q_), k_, v_}; }
CaseHeads CaseHeads::with_zero_queries_and_keys() const {
  return {zeros_like(q_), zeros_like(k_), v_};
}

core::HeadsView Attended::output_view() {
  return core::heads_view(output.data(), batch, queries, heads, value_dim);
}

Attended attend_heads(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                      core::ConstHeadsView k, core::ConstHeadsView v,
                      const attention::AttentionOptions& options) {
  Attended attended{q.batch, q.heads, q.tokens, k.tokens, v.head_dim, {}, {}, {}, {}, {}, {}, {}};
  const auto rows = static_cast<std::size_t>(q.batch * q.heads * q.tokens);
  const std::size_t square = rows * static_cast<std::size_t>(k.tokens);
  attended.output.resize(rows * static_cast<std::size_t>(v.head_dim));
  attended.log_sum_exp.resize(rows);
  for (std::vector<float>* values :
       {&attended.scores, &attended.capped, &attended.masked, &attended.probabilities}) {
    values->resize(square);
  }
  attention::AttentionExtras extras;
  extras.log_sum_exp = attended.log_sum_exp.data();
  extras.scores = attended.scores.data();
  extras.capped_scores = attended.capped.data();
  extras.masked_scores = attended.masked.data();
  extras.probabilities = attended.probabilities.data();
  attention::attend(terms, q, k, v, attended.output_view(), options, extras);
  return attended;
}

encodings::ScoreTerms terms_of(const Case& golden, const CaseEncoding& encoding,
                               const encodings::AttentionShape& shape) {
  encodings::ScoreTerms terms = encodings::resolve(encoding.encoding, shape);
  if (const auto given = optional_member<double>(golden, "scale")) {
    const double factor = encoding.scale == CaseEncoding::Scale::divisor ? 1.0 / *given : *given;
    // The encoding's own scale is what is under test, unless the case has chosen another.
    constexpr double kSame = 1e-6;
    if (!(std::abs(terms.scale - factor) <= kSame * std::abs(factor))) terms.scale = factor;
  }
  return terms;
}

attention::Mask mask_strides(const CaseArray& array, const std::string& name) {
  const std::vector<std::int64_t>& shape = array.data.shape;
  attention::Mask mask;
  mask.key_stride = 0;
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const std::string& dim = array.dims[axis];
    if (dim == "key") mask.keys = shape[axis];
    if (shape[axis] != 1) {
      std::int64_t* const found = dim == "batch"   ? &mask.batch_stride
                                  : dim == "head"  ? &mask.head_stride
                                  : dim == "query" ? &mask.query_stride
                                  : dim == "key"   ? &mask.key_stride
                                                   : nullptr;
      if (found == nullptr) {
        refuse(ErrorCode::unsupported,
               fmt::format("{}: 'dims' must be of batch, head, query and key, got [{}]", name,
                           fmt::join(array.dims, ", ")));
      }
      *found = stride;
    }
    stride *= shape[axis];
  }
  return mask;
}

CaseMask::CaseMask(const CaseArray& array, const std::string& name,
                   const encodings::AttentionShape& shape, std::int64_t batch) {
  const bool boolean =
      array.data.type == io::NpyType::u8 || array.data.type == io::NpyType::boolean;
  const std::vector<double> values = io::to_doubles(array.data).value_or_throw();
  if (boolean) {
    for (const double value : values) booleans_.push_back(value != 0.0 ? 1 : 0);
  } else {
    floats_.assign(values.begin(), values.end());
  }
  if (array.dims.empty()) {
    mask_ = boolean ? attention::boolean_mask(booleans_.data(), array.data.shape, batch,
                                              shape.heads, shape.query_tokens, shape.key_tokens)
                    : attention::additive_mask(floats_.data(), array.data.shape, batch, shape.heads,
                                               shape.query_tokens, shape.key_tokens);
    return;
  }
  mask_ = mask_strides(array, name);
  if (mask_.keys <= 1) mask_.keys = shape.key_tokens;
  mask_.kind = boolean ? attention::Mask::Kind::boolean : attention::Mask::Kind::additive;
  mask_.data = boolean ? static_cast<const void*>(booleans_.data()) : floats_.data();
}

std::vector<std::uint8_t> CaseMask::hidden_rows(const encodings::AttentionShape& shape,
                                                std::int64_t batch) const {
  std::vector<std::uint8_t> hidden;
  for (std::int64_t row = 0; row < batch; ++row) {
    for (std::int64_t query = 0; query < shape.query_tokens; ++query) {
      bool sees = false;
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        for (std::int64_t key = 0; key < mask_.keys; ++key) {
          const std::int64_t at = row * mask_.batch_stride + head * mask_.head_stride +
                                  query * mask_.query_stride + key * mask_.key_stride;
          sees = sees || booleans_.at(static_cast<std::size_t>(at)) != 0;
        }
      }
      hidden.push_back(sees ? 0 : 1);
    }
  }
  return hidden;
}

Computed computed_heads(core::ConstHeadsView view, const std::vector<std::string>& dims) {
  Computed computed;
  computed.shape = {view.batch, view.tokens, view.heads, view.head_dim};
  computed.dims = dims;
  for (std::int64_t row = 0; row < view.batch; ++row) {
    for (std::int64_t token = 0; token < view.tokens; ++token) {
      for (std::int64_t head = 0; head < view.heads; ++head) {
        const std::int64_t at =
            row * view.batch_stride + token * view.token_stride + head * view.head_stride;
        for (std::int64_t i = 0; i < view.head_dim; ++i) {
          computed.values.push_back(core::element_of(view, at + i));
        }
      }
    }
  }
  return computed;
}

bool expects(const Case& golden, const std::string& name) {
  return expected_array(golden, name) != nullptr;
}

void compare_output(const Case& golden, Comparison& comparison, const std::string& name,
                    Attended& attended) {
  const CaseArray* expected = expected_array(golden, name);
  if (expected == nullptr) return;
  const auto tokens = std::find_if(expected->dims.begin(), expected->dims.end(), is_query_axis);
  const std::string query = tokens == expected->dims.end() ? "seq" : *tokens;
  Computed computed = computed_heads(attended.output_view(), {"batch", query, "head", "dim"});
  if (expected->dims.size() == 3 && expected->dims.back() == "head*dim") {
    computed.shape = {attended.batch, attended.queries, attended.heads * attended.value_dim};
    computed.dims = {"batch", query, "head*dim"};
  }
  const auto width = static_cast<std::size_t>(attended.heads * attended.value_dim);
  for (const std::uint8_t flag : attended.left_out) {
    computed.left_out.insert(computed.left_out.end(), width, flag);
  }
  comparison.result(name, computed);
}

void compare_square(Comparison& comparison, const std::string& name, const Attended& attended,
                    const std::vector<float>& values) {
  Computed computed;
  computed.values.assign(values.begin(), values.end());
  computed.shape = {attended.batch, attended.heads, attended.queries, attended.keys};
  computed.dims = {"batch", "head", "query", "key"};
  if (!attended.left_out.empty()) {
    for (std::int64_t row = 0; row < attended.batch; ++row) {
      for (std::int64_t head = 0; head < attended.heads; ++head) {
        for (std::int64_t query = 0; query < attended.queries; ++query) {
          const auto at = static_cast<std::size_t>(row * attended.queries + query);
          computed.left_out.insert(computed.left_out.end(), static_cast<std::size_t>(attended.keys),
                                   attended.left_out[at]);
        }
      }
    }
  }
  comparison.result(name, computed);
}

}  // namespace phasor::tools
