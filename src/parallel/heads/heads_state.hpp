// What a HeadsPlan and a GridPlan hold: the attention over the heads of this rank, and what is gathered for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "parallel/heads/head_exchange.hpp"
#include "parallel/heads/head_slices.hpp"
#include "phasor/parallel/heads.hpp"

namespace phasor::parallel {

// Attention over gathered tokens: of the whole sequence, or of this rank's part of a ring.
class GatheredAttention {
 public:
  virtual ~GatheredAttention() = default;
  virtual void run(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                   const core::ConstHeadsView& v, const core::HeadsView& out, float* log_sum_exp,
                   double* wide_log_sum_exp) = 0;
  virtual void run_backward(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                            const core::ConstHeadsView& v,
                            const attention::AttentionForward& forward,
                            const attention::AttentionGradients& gradients) = 0;
  virtual void update_tables() = 0;
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
  [[nodiscard]] virtual std::int64_t bytes_sent() const noexcept { return 0; }
};

// Sizes of the attention over the heads of one rank.
[[nodiscard]] attention::AttentionSizes sizes_of_heads(const attention::AttentionSizes& whole,
                                                       int ranks);
// throws   Error(shape_mismatch | unsupported) unless heads can be divided between so many ranks
void check_heads(const attention::AttentionSizes& whole, const ParallelOptions& parallel,
                 int ranks);

// throws   Error unless position ids fit the sizes, so that they can be read
void check_ids(const attention::AttentionSizes& whole, const attention::AttentionOptions& options);

struct HeadsState {
  // row      the ranks that divide the heads
  // queries  and keys: the rows that the tokens of each of them have in what is gathered
  HeadsState(Communicator& row, const attention::AttentionSizes& whole, TokenRows queries,
             TokenRows keys, WireType wire, attention::AttentionPasses passes,
             std::unique_ptr<GatheredAttention> attention);

  void run(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
           const core::ConstHeadsView& v, const core::HeadsView& out, float* log_sum_exp,
           double* wide_log_sum_exp);
  void run_backward(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                    const core::ConstHeadsView& v, const attention::AttentionForward& forward,
                    const attention::AttentionGradients& gradients);
  [[nodiscard]] std::int64_t bytes_sent() const noexcept { return sent + attention->bytes_sent(); }
  // Without the attention and the gradients of tables.
  [[nodiscard]] std::size_t exchange_bytes() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;

  Communicator& row;
  attention::AttentionSizes whole;  // of all heads; tokens are those that are gathered
  core::DType wire;
  attention::AttentionPasses passes;
  HeadExchange exchange;
  std::unique_ptr<GatheredAttention> attention;
  // HeadsPlan only: its shards.
  std::unique_ptr<Shards> query_shards, key_shards;
  std::int64_t sent = 0;

 private:
  using Memory = std::vector<std::byte>;
  [[nodiscard]] core::HeadsView gathered(Memory& memory, HeadExchange::Side side, std::int64_t dim);
  [[nodiscard]] bool is_wide() const noexcept { return whole.arithmetic == core::DType::f64; }
  void check_view(const char* name, const core::ConstHeadsView& view, HeadExchange::Side side,
                  std::int64_t dim) const;
  void check_output(const char* name, const core::HeadsView& view, HeadExchange::Side side,
                    std::int64_t dim, std::span<const core::ConstHeadsView> inputs) const;
  // [batch, heads, tokens] of the arithmetic, as a view of dim 1.
  template <class Void>
  [[nodiscard]] core::BasicHeadsView<Void> log_sums_view(Void* data, std::int64_t tokens,
                                                         std::int64_t heads) const;
  void run_here(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                const core::ConstHeadsView& v, const core::HeadsView& out, void* log_sums);
  template <class Number>
  void run_backward_here(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                         const core::ConstHeadsView& v, const attention::AttentionForward& forward,
                         const Number* log_sums, const attention::AttentionGradients& gradients);
  template <class Work>
  void counted(const Work& work) {
    const std::int64_t before = row.bytes_sent();
    row.guarded(work);
    sent += row.bytes_sent() - before;
  }

  Memory q_, k_, v_, out_, log_sums_, d_out_, d_q_, d_k_, d_v_;
  Memory table_gradients_;
};

}  // namespace phasor::parallel
