// Effects that several engines share.
#pragma once

#include <cstdint>
#include <initializer_list>
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
