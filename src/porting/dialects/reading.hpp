// A config on its way through an engine: the rules of a dialect change it one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/frequencies.hpp"
#include "phasor/porting/dialects.hpp"

namespace phasor::porting {

// A number as a sentence shows it: six digits.
[[nodiscard]] std::string shown(double value);

// How an engine multiplies position and frequency in float32.
enum class FloatPath : std::uint8_t {
  product,            // float32 frequencies times float32 positions
  divided_positions,  // the same, the positions divided first
  recurrence,         // theta_{i+1} = theta_i * theta_scale, each step rounded (ggml)
};

struct EngineReading {
  encodings::RopeSpec rope;
  std::optional<std::int64_t> length;  // that length-dependent types are resolved at
  double softmax_scale = 0.0;
  double position_divisor = 1.0;
  double key_gain_per_shift = 1.0;
  double stale_key_angle = 0.0;
  FloatPath path = FloatPath::product;
  std::string refusal;
};

// What a rule may look at beside the reading itself.
struct Circumstances {
  const ReadableConfig& config;
  const config::LayerGroup& group;
  const RunState& state;
};

// What a rule did: nothing when `text` is empty.
struct Effect {
  std::string text;
  bool changes = true;
};

struct RuleEntry {
  DialectRule rule;
  Effect (*apply)(EngineReading& reading, const Circumstances& given);
};

struct DialectEntry {
  std::string_view name, engine, version;
  std::vector<const RuleEntry*> rules;
};
[[nodiscard]] const std::vector<DialectEntry>& dialect_entries();

// |angle in float32 - exact angle| of each pair at a position.
[[nodiscard]] std::vector<double> rounding_of(const EngineReading& reading,
                                              const core::Frequencies& frequencies,
                                              std::int64_t position);

}  // namespace phasor::porting
