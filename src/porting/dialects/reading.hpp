// How an engine reads a config: the rules of its dialect change the reading one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/porting/config_reports.hpp"

namespace phasor::porting {

// How an engine multiplies position and frequency: in float32, unless stated.
enum class FloatPath : std::uint8_t {
  product,            // float32 frequencies times float32 positions
  divided_positions,  // the same after dividing the positions
  recurrence,         // theta_{i+1} = theta_i * theta_scale, each step rounded (ggml)
  narrow,             // frequencies, positions and angles in EngineReading::type
};

struct EngineReading {
  encodings::RopeSpec rope;
  std::optional<std::int64_t> length;  // at which length-dependent scalings are resolved
  double softmax_scale = 0.0;
  double position_divisor = 1.0;
  std::vector<std::size_t> still_pairs;  // not rotated, whatever the frequency
  double key_gain_per_shift = 1.0;
  double stale_key_angle = 0.0;
  FloatPath path = FloatPath::product;
  core::DType type = core::DType::f32;  // of FloatPath::narrow
  std::string refusal;
};

// What a rule may read besides the reading itself.
struct Circumstances {
  const ReadableConfig& config;
  const config::LayerGroup& group;
  const RunState& state;
};

// What a rule did; an empty `text` means nothing.
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
// One function per engine; a new one is added to the list in dialects.cpp.
[[nodiscard]] std::vector<DialectEntry> hugging_face_dialects();
[[nodiscard]] std::vector<DialectEntry> vllm_dialects();
[[nodiscard]] std::vector<DialectEntry> sglang_dialects();
[[nodiscard]] std::vector<DialectEntry> llama_cpp_dialects();
[[nodiscard]] std::vector<DialectEntry> mlx_dialects();
[[nodiscard]] std::vector<DialectEntry> candle_dialects();
// All of them, in the order of `phasor diff --list`.
[[nodiscard]] const std::vector<DialectEntry>& dialect_entries();

// |angle in the engine's arithmetic - exact angle| of each pair at a position.
[[nodiscard]] std::vector<double> rounding_of(const EngineReading& reading,
                                              const core::Frequencies& frequencies,
                                              std::int64_t position);

}  // namespace phasor::porting
