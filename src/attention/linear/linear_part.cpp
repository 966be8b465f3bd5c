#include "phasor/attention/internal/linear_part.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attention/linear/linear_plan.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention {
namespace {

using core::ConstHeadsView;
using core::HeadsView;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// Kahan: `carry` is what was added too much.
double exact(float sum, float carry) noexcept {
  return static_cast<double>(sum) - static_cast<double>(carry);
}
void split(double number, float& sum, float& carry) noexcept {
  sum = static_cast<float>(number);
  // An infinity keeps no error: infinity - infinity is NaN.
  carry = std::isfinite(sum) ? static_cast<float>(static_cast<double>(sum) - number) : 0.0F;
}

}  // namespace

PartSums::PartSums(SumsOf of, std::int64_t heads, std::int64_t dim, std::int64_t value_dim)
    : of_(of),
      heads_(heads),
      dim_(dim),
      value_dim_(value_dim),
      numbers_(static_cast<std::size_t>(heads * per_head())) {
  clear();
}

void PartSums::clear() noexcept {
  std::fill(numbers_.begin(), numbers_.end(), 0.0);
  for (std::int64_t i = 0; i < heads_; ++i) exponent(i) = kNothing;
}

void PartSums::change_exponent(std::int64_t index, double to) noexcept {
  const double before = std::exchange(exponent(index), to);
  if (before == to || before == kNothing || to == kNothing) return;
  const double factor = std::exp2(of_ == SumsOf::keys ? before - to : to - before);
  double* const numbers = head(index);
  for (std::int64_t i = 0; i < per_head() - 1; ++i) numbers[i] *= factor;
}

void PartSums::add(const PartSums& other) noexcept {
  for (std::int64_t i = 0; i < heads_; ++i) {
    const double theirs = other.head(i)[per_head() - 1];
    if (theirs == kNothing) continue;
    const double mine = exponent(i);
    // Sums of keys shrink when e grows, sums of queries when it falls.
    const double to = mine == kNothing      ? theirs
                      : of_ == SumsOf::keys ? std::max(mine, theirs)
                                            : std::min(mine, theirs);
    change_exponent(i, to);
    const double factor = std::exp2(of_ == SumsOf::keys ? theirs - to : to - theirs);
    double* const numbers = head(i);
    const double* const from = other.head(i);
    for (std::int64_t at = 0; at < per_head() - 1; ++at) numbers[at] += factor * from[at];
  }
}

void load_sums(const PartSums& from, std::int64_t index, const Sums& to) noexcept {
  std::fill_n(to.products, to.floats, 0.0F);
  const PartSums::Shape shape = from.shape();
  const double* numbers = from.head(index);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.columns; ++c, ++numbers) {
      const std::int64_t at = r * to.columns + c;
      split(*numbers, to.products[at], to.products_carry[at]);
    }
  }
  for (std::int64_t i = 0; i < shape.width; ++i, ++numbers) {
    split(*numbers, to.vectors[i], to.vectors_carry[i]);
  }
  *to.exponent = *numbers == kNothing ? kNoExponent : static_cast<float>(*numbers);
}

void store_sums(const Sums& from, PartSums& to, std::int64_t index) noexcept {
  const PartSums::Shape shape = to.shape();
  double* numbers = to.head(index);
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      const std::int64_t at = r * from.columns + c;
      *numbers++ = exact(from.products[at], from.products_carry[at]);
    }
  }
  for (std::int64_t i = 0; i < shape.width; ++i) {
    *numbers++ = exact(from.vectors[i], from.vectors_carry[i]);
  }
  *numbers = *from.exponent <= kNoExponent ? kNothing : static_cast<double>(*from.exponent);
}

LinearPart::LinearPart(const std::optional<core::Rotary>& rotary, const LinearSizes& sizes,
                       const LinearOptions& options, LinearUse use)
    : parts_(std::make_unique<LinearPlanParts>(rotary, sizes, options, use, LinearExtent::part)) {
  const LinearCall& call = parts_->call;
  if (call.is_wide()) {
    refuse(ErrorCode::unsupported,
           message(kLinearWhere,
                   ": a part has float32 sums: q, k and v must be f32, f16 or bf16, "
                   "got f64"));
  }
  if (call.is_causal() && call.offset != 0) {
    refuse(ErrorCode::shape_mismatch,
           message(kLinearWhere, ": every token of a causal part has a query and a key, got ",
                   sizes.queries, " queries and ", sizes.keys, " keys"));
  }
}
LinearPart::~LinearPart() = default;
LinearPart::LinearPart(LinearPart&&) noexcept = default;
LinearPart& LinearPart::operator=(LinearPart&&) noexcept = default;

std::int64_t LinearPart::bytes() const noexcept { return parts_->bytes(); }

PartSums LinearPart::sums(SumsOf of) const {
  const LinearCall& call = parts_->call;
  return {of, call.k.batch * call.k.heads, call.dim, call.value_dim};
}

void LinearPart::check(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
                       const HeadsView& out) const {
  parts_->bind(q, k, v);
  parts_->check_out(q, k, v, out);
}

void LinearPart::check_backward(const ConstHeadsView& q, const ConstHeadsView& k,
                                const ConstHeadsView& v, const ConstHeadsView& d_out,
                                const HeadsView& d_q, const HeadsView& d_k,
                                const HeadsView& d_v) const {
  parts_->bind(q, k, v);
  parts_->check_gradients(q, k, v, d_out, d_q, d_k, d_v);
}

void LinearPart::sum_keys(const ConstHeadsView& k, const ConstHeadsView& v, PartSums& keys) {
  LinearCall& call = parts_->call;
  keys.clear();
  if (call.is_empty()) return;
  call.k = k;
  call.v = v;
  run_linear_forward(call, parts_->forward, {}, nullptr,
                     {.what = LinearStep::What::sum_keys, .leaves = &keys});
}

void LinearPart::attend(const ConstHeadsView& q, const ConstHeadsView& k, const ConstHeadsView& v,
                        const PartSums& keys, const HeadsView& out) {
  parts_->bind(q, k, v);
  if (parts_->call.is_empty()) return;
  run_linear_forward(parts_->call, parts_->forward, out, nullptr,
                     {.what = LinearStep::What::queries, .enters = &keys});
}

void LinearPart::query_gradients(const ConstHeadsView& q, const ConstHeadsView& k,
                                 const ConstHeadsView& v, const ConstHeadsView& d_out,
                                 const PartSums& keys, const HeadsView& d_q, PartSums& queries) {
  parts_->bind(q, k, v);
  queries.clear();
  if (parts_->call.is_empty()) return;
  run_linear_backward(parts_->call, parts_->backward, d_out, d_q, {}, {},
                      {.what = LinearStep::What::queries, .enters = &keys, .leaves = &queries});
}

void LinearPart::key_gradients(const ConstHeadsView& q, const ConstHeadsView& k,
                               const ConstHeadsView& v, const ConstHeadsView& d_out,
                               const PartSums& queries, const HeadsView& d_k,
                               const HeadsView& d_v) {
  parts_->bind(q, k, v);
  if (parts_->call.is_empty()) return;
  run_linear_backward(parts_->call, parts_->backward, d_out, {}, d_k, d_v,
                      {.what = LinearStep::What::keys, .enters = &queries});
}

}  // namespace phasor::attention
