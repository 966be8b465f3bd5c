// The flags of linear attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command_line.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::io {
class Json;
}

namespace phasor::tools {

struct LinearFlags {
  std::string feature_map, rotates;
  std::optional<std::int64_t> feature_count, seed;

  // The number of random features, if a rope rotates them and not the heads.
  [[nodiscard]] std::optional<std::int64_t> rotated_features() const;
};

void add_linear_flags(Verb& verb, LinearFlags& flags);
// Each is an error for softmax attention.
void refuse_linear_flags(const LinearFlags& flags);
// A random map needs its number of features; no other map has one, or a seed.
void check_linear_flags(const LinearFlags& flags);
[[nodiscard]] attention::LinearOptions linear_options(const LinearFlags& flags);
// Adds what was computed to the summary of --json.
void describe(const LinearFlags& flags, io::Json& summary);

}  // namespace phasor::tools
