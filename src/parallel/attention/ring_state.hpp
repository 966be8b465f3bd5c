// What a RingPlan holds: the pieces of this rank with their plans, and the memory of a run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "parallel/attention/heads_data.hpp"
#include "parallel/attention/pieces.hpp"
#include "phasor/parallel/attention.hpp"

namespace phasor::parallel {

// A piece and the plan that attends to it; pieces of the same shape share a plan.
struct PieceWork {
  Piece piece;
  std::size_t plan = 0;
};

// Keys and values of a shard, one after the other in one message; or their gradients.
class ShardBuffer {
 public:
  void reserve(core::DType dtype, const attention::AttentionSizes& whole, std::int64_t tokens);
  // For a shard of so many tokens, at most those reserved.
  void set_tokens(std::int64_t tokens) noexcept { tokens_ = tokens; }
  [[nodiscard]] core::HeadsView keys() noexcept;
  [[nodiscard]] core::HeadsView values() noexcept;
  [[nodiscard]] std::span<std::byte> bytes() noexcept;
  [[nodiscard]] std::size_t capacity() const noexcept { return memory_.capacity(); }
  void clear() noexcept;

 private:
  [[nodiscard]] std::size_t key_bytes() const noexcept;
  core::DType dtype_ = core::DType::f32;
  std::int64_t batch_ = 0, heads_ = 0, key_dim_ = 0, value_dim_ = 0, tokens_ = 0;
  std::vector<std::byte> memory_;
};

// Messages of one step. Their memory belongs to the plan.
class StepTransfers {
 public:
  void add(Transfer transfer) { transfers_.push_back(std::move(transfer)); }
  void poll();
  void wait();
  [[nodiscard]] bool done() const noexcept;

 private:
  std::vector<Transfer> transfers_;
};

struct RingPlan::State {
  State(Communicator& communicator, encodings::ScoreTerms given,
        const attention::AttentionSizes& sizes, const attention::AttentionOptions& wanted,
        const ParallelOptions& choices, attention::AttentionPasses for_passes);

  Communicator& ranks;
  attention::AttentionSizes whole;
  attention::AttentionOptions
      options;  // spans and positions are those of the caller, read while planning
  ParallelOptions parallel;
  attention::AttentionPasses passes;
  Layout layout;
  Schedule schedule;
  int rank;
  std::int64_t queries, keys;  // of this rank
  // Rotated once on the rank that holds them, not in every piece; none: pieces do it, since other terms
  // read q or k without the rotation.
  std::optional<core::Rotary> rotary;
  core::Positions query_positions, key_positions;  // of this rank's rows, for the rotary
  encodings::ScoreTerms terms;                     // of the pieces
  std::vector<std::vector<PieceWork>> work;        // [shard]
  attention::AttentionWorkspace scratch;           // that all plans share
  std::deque<attention::AttentionPlan> plans;
  std::deque<std::vector<std::uint8_t>> paddings;
  std::deque<std::vector<std::int32_t>> segments;
  std::int64_t sent = 0;

  // Memory of a run, in elements of the arithmetic unless it travels.
  ShardBuffer home;                     // travels
  std::array<ShardBuffer, 2> incoming;  // travel: of even and of odd steps
  std::vector<std::byte> rotated_queries, wide_keys, log_sums;
  std::vector<std::byte> partial, partial_log_sums;  // of one piece: out, or d_q
  std::vector<std::byte> sums, query_sums;  // out and d_q if the caller's are of another type
  // Backward. Sums of the gradients of a shard travel in `chains`, of even and of odd steps; if they are
  // rounded for the wire, this rank adds its own in `shard_sums`.
  std::array<ShardBuffer, 2> chains;
  ShardBuffer early_chain;  // one that ends at home before the last step
  ShardBuffer shard_sums, piece_gradients, home_sums;
  std::vector<std::byte> table_gradients;

  [[nodiscard]] core::DType arithmetic() const noexcept { return whole.arithmetic; }
  [[nodiscard]] core::DType wire() const noexcept {
    return parallel.wire == WireType::bf16 ? core::DType::bf16 : whole.arithmetic;
  }
  [[nodiscard]] core::HeadsView dense(std::vector<std::byte>& memory, std::int64_t tokens,
                                      std::int64_t heads, std::int64_t dim) const noexcept;

  // ring_plan.cpp
  void plan_pieces();
  [[nodiscard]] std::size_t plan_for(const Piece& piece);
  void allocate();

  // ring_run.cpp
  void check_input(const char* name, const core::ConstHeadsView& view, std::int64_t tokens,
                   std::int64_t heads, std::int64_t dim) const;
  void check_output(const char* name, const core::HeadsView& view, std::int64_t tokens,
                    std::int64_t heads, std::int64_t dim,
                    std::span<const core::ConstHeadsView> inputs) const;
  void fill_home(const core::ConstHeadsView& k, const core::ConstHeadsView& v);
  [[nodiscard]] core::ConstHeadsView fill_queries(const core::ConstHeadsView& q);
  void rotate(core::HeadsView view, core::Role role, core::Direction direction) const;
  // Starts what brings the keys of the next step, and sends those of this one. `step` + 1 < ranks.
  void start_keys(int step, StepTransfers& transfers);
  [[nodiscard]] ShardBuffer& shard_buffer(int step) noexcept;
  // Whether sums of this rank's own shard come home in this step; and where they go.
  [[nodiscard]] bool comes_home(int step) const noexcept;
  [[nodiscard]] ShardBuffer& homecoming(int step) noexcept;
  void send(std::span<const std::byte> bytes, int to, int tag, StepTransfers& transfers);
  void receive(std::span<std::byte> bytes, int from, int tag, StepTransfers& transfers);
  template <class Number>
  void run(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
           const core::ConstHeadsView& v, const core::HeadsView& out, Number* log_sum_exp);

  // ring_backward.cpp
  template <class Number>
  void run_backward(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                    const core::ConstHeadsView& v, const attention::AttentionForward& forward,
                    const Number* log_sum_exp, const attention::AttentionGradients& gradients);
};

// Runs work() while the transfers move: the calling thread lets MPI work between tiles.
//
// throws   what work() throws; Error(io) of a transfer
void compute_beside(std::initializer_list<StepTransfers*> transfers,
                    const std::function<void()>& work);

}  // namespace phasor::parallel
