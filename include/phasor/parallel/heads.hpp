// Softmax attention over ranks that divide the heads, alone or together with a ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "phasor/attention/softmax.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/score_terms.hpp"
#include "phasor/parallel/communicator.hpp"
#include "phasor/parallel/shards.hpp"

namespace phasor::parallel {

struct HeadsState;

// Head-parallel attention (all-to-all): tokens are divided between the ranks as for RingPlan. A run sends each
// rank the q, k and v of its heads, so that it has all tokens of them; each rank attends with one AttentionPlan
// over the whole sequence; outputs go back to the ranks of their tokens. Everything that AttentionPlan knows
// works: masks, key_lengths and query_offset too.
//
// Rank r has heads r H / P to (r + 1) H / P - 1 of H; H must be a multiple of the P ranks. Key heads must be
// a multiple, or a divisor: then each is sent to the ranks that read it, and its gradients are summed.
//
// `whole`, `terms` and `options` describe the whole sequence on every rank. They are copied, with the exception
// of the numbers of tables and mask, which must outlive the plan.
//
// error    f32: outputs, log-sum-exp and gradients of q, k and v have the bits of one rank, since a head is
//          computed whole; not those of k and v whose head several ranks have, and of tables that heads share:
//          they are sums in another order. bf16: q, k, v, outputs and gradients are rounded once before they
//          are sent, log-sum-exp is not
// memory   heads_memory(), and the AttentionPlan
class HeadsPlan {
 public:
  // Collective. All ranks must give the same sizes, terms and options; threads and isa may differ.
  //
  // throws   Error as attention::AttentionPlan, and if ranks disagree; Error(shape_mismatch): heads that cannot
  //          be divided; Error(unsupported): bf16 on the wire with f64 arithmetic
  HeadsPlan(Communicator& ranks, encodings::ScoreTerms terms,
            const attention::AttentionSizes& whole, const attention::AttentionOptions& options = {},
            const ParallelOptions& parallel = {},
            attention::AttentionPasses passes = attention::AttentionPasses::forward);
  ~HeadsPlan();
  HeadsPlan(HeadsPlan&&) noexcept;
  HeadsPlan& operator=(HeadsPlan&&) noexcept;

  // Collective: as RingPlan.
  void run(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
           core::HeadsView out, float* log_sum_exp = nullptr, double* wide_log_sum_exp = nullptr);
  void run_backward(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
                    const attention::AttentionForward& forward,
                    const attention::AttentionGradients& gradients);

  // Reads the tables again, after their numbers have changed; every rank does so before its next run.
  void update_tables();

  // Which tokens the rows of q and out, and of k and v, are.
  [[nodiscard]] const Shards& queries() const noexcept;
  [[nodiscard]] const Shards& keys() const noexcept;
  // What this rank has sent in all runs of the plan, in bytes: see heads_bytes(). Gradients of tables, which
  // MPI sums, are not counted.
  [[nodiscard]] std::int64_t bytes_sent() const noexcept;
  // Memory that the plan holds, in bytes; and that of the all-to-all alone, see heads_memory().
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t exchange_bytes() const noexcept;

 private:
  std::unique_ptr<HeadsState> state_;
};

// ring x heads ranks: rank r is in row r / heads and column r % heads. Rows divide the heads, columns form rings.
struct GridSize {
  int ring = 1, heads = 1;
};

// The tokens of a rank of a grid: the tokens of its row, Shards(order, tokens, ring), in as many contiguous parts
// as the row has ranks. A row of q, k, v or out is a token of the list.
[[nodiscard]] std::vector<std::int64_t> grid_tokens(TokenOrder order, std::int64_t tokens,
                                                    const GridSize& grid, int rank);

// Both at once: the all-to-all of HeadsPlan inside the rows, where links are fast, and RingPlan inside the
// columns, with the heads of the column. More ranks than heads can work together, and fewer bytes travel round the
// ring. `options` as RingPlan allows; error as RingPlan, with the pieces of a ring of grid.ring ranks.
class GridPlan {
 public:
  // Collective, as HeadsPlan; heads must be divisible by grid.heads only.
  //
  // throws   Error(invalid_argument): grid.ring * grid.heads is not the number of ranks
  GridPlan(Communicator& ranks, const GridSize& grid, encodings::ScoreTerms terms,
           const attention::AttentionSizes& whole, const attention::AttentionOptions& options = {},
           const ParallelOptions& parallel = {},
           attention::AttentionPasses passes = attention::AttentionPasses::forward);
  ~GridPlan();
  GridPlan(GridPlan&&) noexcept;
  GridPlan& operator=(GridPlan&&) noexcept;

  // Collective: as RingPlan.
  void run(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
           core::HeadsView out, float* log_sum_exp = nullptr, double* wide_log_sum_exp = nullptr);
  void run_backward(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
                    const attention::AttentionForward& forward,
                    const attention::AttentionGradients& gradients);
  // Reads the tables again, after their numbers have changed; every rank does so before its next run.
  void update_tables();

  [[nodiscard]] const GridSize& grid() const noexcept { return grid_; }
  // What this rank has sent in all runs of the plan, in bytes: see grid_bytes().
  [[nodiscard]] std::int64_t bytes_sent() const noexcept;
  // As HeadsPlan; grid_memory().
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] std::size_t exchange_bytes() const noexcept;

 private:
  GridSize grid_;
  std::unique_ptr<Communicator> row_, column_;
  std::unique_ptr<HeadsState> state_;
};

}  // namespace phasor::parallel
