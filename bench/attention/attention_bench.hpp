// Attention compared with the limits of a core, encodings with none, backward with forward.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "core/rotary_bench.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::bench {

struct AttentionPlan {
  enum class Extent : std::uint8_t {
    brief,  // a row or two of each kind, at the highest level
    full,
  };
  std::vector<core::InstructionSet> levels;
  int rounds = 15;
  Extent extent = Extent::full;
  std::string only;              // measure the rows whose name holds this text
  std::size_t* count = nullptr;  // as Plan
};

// Measures one row after the other and passes each to `done`. A share of a limit is one over the
// ratio.
void run_attention_bench(const AttentionPlan& plan, const std::function<void(const Row&)>& done);

struct MemoryRow {
  std::string name;
  std::optional<double> mib;  // none: the system does not report it
  double at_most = 0.0;
  bool correct = true;
};
// Scratch memory of a call at 16384 tokens, for every encoding, forward and backward.
void run_attention_memory(core::InstructionSet isa,
                          const std::function<void(const MemoryRow&)>& done);
[[nodiscard]] std::size_t count_attention_memory() noexcept;

// Time and memory against the number of tokens for every encoding, as CSV with a header:
// encoding,n,ms,ns_per_pair,scratch_mib. A pair is a query, a key that it sees and a head; ms is the
// median of three calls or more; scratch_mib is empty if the system does not report it.
struct CurvePlan {
  core::InstructionSet isa = core::InstructionSet::best;
  std::int64_t largest = 16384;
};
void write_attention_curves(const CurvePlan& plan, std::ostream& csv,
                            const std::function<void(const std::string& line)>& done);
[[nodiscard]] std::size_t count_attention_curves(const CurvePlan& plan) noexcept;  // lines

}  // namespace phasor::bench
