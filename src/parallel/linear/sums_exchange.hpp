// The sums of linear attention, added over ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "phasor/attention/internal/linear_part.hpp"
#include "phasor/parallel/communicator.hpp"

namespace phasor::parallel {

// Which ranks' sums a rank needs.
enum class SumOver : std::uint8_t {
  all,
  before,  // ranks 0 .. rank - 1
  after,   // ranks rank + 1 .. P - 1
};

class SumsExchange {
 public:
  // Memory for sums like `like`.
  SumsExchange(Communicator& ranks, const attention::PartSums& like, SumOver over);

  // Collective: the sums over those ranks, from those of this rank. The same bits on every rank for `all`,
  // and in every run.
  //
  // throws   Error(io)
  const attention::PartSums& add(const attention::PartSums& own);

  [[nodiscard]] std::int64_t bytes() const noexcept;
  // What `rank` of `ranks` sends, of sums of `numbers` float64 numbers.
  [[nodiscard]] static std::int64_t bytes_sent(std::int64_t numbers, SumOver over, int ranks,
                                               int rank) noexcept;
  // And what bytes() is there, for `heads` key heads and batch rows.
  [[nodiscard]] static std::int64_t bytes_held(std::int64_t numbers, std::int64_t heads,
                                               SumOver over, int ranks, int rank) noexcept;

 private:
  void add_all(const attention::PartSums& own);
  // rank - distance gives, rank + distance takes, for distance 1, 2, 4, ...; `sign` -1 mirrors it.
  void add_prefix(const attention::PartSums& own, int sign);

  Communicator& ranks_;
  SumOver over_;
  attention::PartSums result_;
  std::vector<attention::PartSums>
      steps_;  // before and after: what this rank has so far, and what comes
  std::vector<double> exponents_, slices_;  // all
};

}  // namespace phasor::parallel
