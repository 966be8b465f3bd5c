// The ranks of MPI that run this command together. `phasor` knows none; `phasor-mpi` sets them before a
// verb runs, so that verbs need no MPI.
#pragma once

#include <string>
#include <string_view>

namespace phasor::lab {
class GradientExchange;
}
namespace phasor::models {
class ContextShare;
}

namespace phasor::tools {

class RankContext {
 public:
  virtual ~RankContext() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  // Collective: the text of rank 0, to all.
  virtual void broadcast(std::string& text) = 0;
  // Collective, as parallel::Communicator::agree.
  virtual void agree(std::string_view what, std::string_view value) = 0;

  // Threads of this rank if the ranks of its machine divide the cores.
  [[nodiscard]] virtual int threads() const noexcept = 0;
  // For sequences of models whose context all ranks share.
  [[nodiscard]] virtual models::ContextShare& context() noexcept = 0;
  // For training whose batches all ranks divide.
  [[nodiscard]] virtual lab::GradientExchange& gradients() noexcept = 0;
};

// Null: the command runs on one rank.
[[nodiscard]] RankContext* ranks() noexcept;
// `context` must outlive the verbs.
void set_ranks(RankContext* context) noexcept;

// ranks()->context(), or null.
[[nodiscard]] models::ContextShare* shared_context() noexcept;

// Whether this rank prints and writes files: rank 0 does, and a command without ranks.
[[nodiscard]] bool is_first_rank() noexcept;

}  // namespace phasor::tools
