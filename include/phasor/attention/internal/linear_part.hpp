// Linear attention of one part of a sequence whose other parts are elsewhere: the sums over keys and over
// queries leave a part and enter it, so that the caller can add up those of all parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "phasor/attention/linear.hpp"

namespace phasor::attention {

enum class SumsOf : std::uint8_t {
  keys,     // sum_n (R_n phi(k_n)) v_n^T and sum_n phi(k_n), in units of 2^e
  queries,  // sum_m g_m (R_m phi(q_m))^T and sum_m -D_m phi(q_m), in units of 2^-e
};

// The sums over some tokens, for each batch row and key head, in float64: what float32 sums and their
// Kahan corrections hold, so that adding the sums of many parts rounds no more than one part does.
class PartSums {
 public:
  // heads    batch rows x key heads
  PartSums(SumsOf of, std::int64_t heads, std::int64_t dim, std::int64_t value_dim);

  [[nodiscard]] std::int64_t heads() const noexcept { return heads_; }
  // Numbers of a head: products [dim, value_dim], or [value_dim, dim] of queries; vectors [dim]; then e,
  // which is -infinity while nothing counts.
  [[nodiscard]] std::int64_t per_head() const noexcept { return dim_ * value_dim_ + dim_ + 1; }
  struct Shape {
    std::int64_t rows, columns;  // of the products
    std::int64_t width;          // of the vectors
  };
  [[nodiscard]] Shape shape() const noexcept {
    return of_ == SumsOf::keys ? Shape{dim_, value_dim_, dim_} : Shape{value_dim_, dim_, dim_};
  }
  [[nodiscard]] std::vector<double>& numbers() noexcept { return numbers_; }
  [[nodiscard]] const std::vector<double>& numbers() const noexcept { return numbers_; }
  [[nodiscard]] double* head(std::int64_t index) noexcept {
    return numbers_.data() + index * per_head();
  }
  [[nodiscard]] const double* head(std::int64_t index) const noexcept {
    return numbers_.data() + index * per_head();
  }
  [[nodiscard]] double& exponent(std::int64_t index) noexcept {
    return head(index)[per_head() - 1];
  }

  // Back to no tokens.
  void clear() noexcept;
  // precondition  the same sizes
  void add(const PartSums& other) noexcept;
  // Converts a head's sums to units of another e: nothing is rounded.
  void change_exponent(std::int64_t index, double exponent) noexcept;

 private:
  SumsOf of_;
  std::int64_t heads_, dim_, value_dim_;
  std::vector<double> numbers_;
};

struct LinearPlanParts;

// A plan for one part. `sizes` are those of the part; causal: as many queries as keys. Positions must be
// given if there is a rotary: a part does not know what is before it.
class LinearPart {
 public:
  // use      forward or training
  // throws   as LinearPlan; Error(unsupported) for f64
  LinearPart(const std::optional<core::Rotary>& rotary, const LinearSizes& sizes,
             const LinearOptions& options, LinearUse use);
  ~LinearPart();
  LinearPart(LinearPart&&) noexcept;
  LinearPart& operator=(LinearPart&&) noexcept;

  [[nodiscard]] std::int64_t bytes() const noexcept;
  // Sums of the part's sizes, with nothing in them.
  [[nodiscard]] PartSums sums(SumsOf of) const;

  // throws   as LinearPlan::run unless the views have the part's sizes
  void check(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
             const core::ConstHeadsView& v, const core::HeadsView& out) const;
  void check_backward(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                      const core::ConstHeadsView& v, const core::ConstHeadsView& d_out,
                      const core::HeadsView& d_q, const core::HeadsView& d_k,
                      const core::HeadsView& d_v) const;

  // The part's own keys.
  void sum_keys(const core::ConstHeadsView& k, const core::ConstHeadsView& v, PartSums& keys);
  // keys     causal: of the parts before this one; otherwise of all parts, this one included
  void attend(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
              const core::ConstHeadsView& v, const PartSums& keys, const core::HeadsView& out);
  // d_q, and the sums over the part's own queries. `keys` as in attend().
  void query_gradients(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                       const core::ConstHeadsView& v, const core::ConstHeadsView& d_out,
                       const PartSums& keys, const core::HeadsView& d_q, PartSums& queries);
  // d_k and d_v, of the inputs of the last query_gradients().
  //
  // queries  causal: of the parts after this one; otherwise of all parts, this one included
  void key_gradients(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                     const core::ConstHeadsView& v, const core::ConstHeadsView& d_out,
                     const PartSums& queries, const core::HeadsView& d_k,
                     const core::HeadsView& d_v);

 private:
  std::unique_ptr<LinearPlanParts> parts_;
};

}  // namespace phasor::attention
