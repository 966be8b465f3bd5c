// Effects that several engines share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "porting/dialects/reading.hpp"
#include "porting/number_text.hpp"

namespace phasor::porting {

// DeepSeek's and Kimi's attention, whose YaRN is the model's own.
[[nodiscard]] bool has_latent_attention(const config::ModelConfig& model);

// Sets the refusal for xPos and for these rope types.
[[nodiscard]] Effect fail_to_load(EngineReading& reading,
                                  std::initializer_list<std::string_view> types);

// LongRoPE: short or long factors are chosen by the length that the engine was started with.
[[nodiscard]] Effect list_by_started_length(EngineReading& reading, const Circumstances& given);

// The effect of another amplitude; none if the two are equal up to kSameRule.
[[nodiscard]] Effect amplitude_becomes(double before, double after, const std::string& how = {});

// YaRN's attention_factor, mscale and mscale_all_dim are not read.
[[nodiscard]] Effect yarn_amplitude_from_factor(EngineReading& reading);

// YaRN's attention_factor is not read; mscale and mscale_all_dim are.
[[nodiscard]] Effect yarn_attention_factor_ignored(EngineReading& reading);

// YaRN's truncate: false is not read.
[[nodiscard]] Effect yarn_truncate_ignored(EngineReading& reading);

// DeepSeek's own YaRN: it reads mscale and mscale_all_dim, not attention_factor and truncate.
[[nodiscard]] Effect deepseek_yarn(EngineReading& reading, const Circumstances& given);

// The base of dynamic scaling is fixed at load, for a length of max * factor unless `served` says
// another; `report` is its known number.
[[nodiscard]] Effect dynamic_at_load(EngineReading& reading, std::optional<std::int64_t> served,
                                     std::string_view report);

// Linear scaling divides the positions: the same angles.
[[nodiscard]] Effect linear_by_positions(EngineReading& reading, const Circumstances& given);

// YaRN's extrapolation_factor is not read.
[[nodiscard]] Effect extrapolation_factor_ignored(EngineReading& reading,
                                                  const Circumstances& given);

// short_mscale and long_mscale, one amplitude per list.
enum class ListAmplitudes : std::uint8_t { read, dropped };

// LongRoPE: the amplitude follows max / original; the config's keys for it are ignored.
[[nodiscard]] Effect longrope_amplitude_from_lengths(EngineReading& reading,
                                                     const Circumstances& given,
                                                     ListAmplitudes per_list);

}  // namespace phasor::porting
