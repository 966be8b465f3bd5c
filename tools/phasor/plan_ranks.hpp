// phasor plan --ranks: strategies that divide a sequence over ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command_line.hpp"

namespace phasor::tools {

enum class PlanForm : std::uint8_t { page, json };

struct RanksFlags {
  std::optional<std::int64_t> ranks, nodes;
  std::int64_t batch = 1;
  std::optional<double> bandwidth, node_bandwidth, gflops;
  std::string wire = "bf16";
  bool bidirectional = false;
};

void add_ranks_flags(Verb& verb, RanksFlags& flags);

// config   as read_readable() takes it
// tokens   0: the config's largest length
// throws   Error as porting::shard_plan()
int run_plan_ranks(const std::string& config, std::int64_t tokens, const RanksFlags& flags,
                   PlanForm form);

}  // namespace phasor::tools
