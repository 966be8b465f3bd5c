// The scaling that GGUF metadata and tensors of frequency factors describe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/gguf/keys.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::config {

struct GgufScaling {
  encodings::RopeScaling scaling = encodings::DefaultScaling{};
  std::vector<double> frequency_factors;  // that go with the scaling
  std::vector<Source> sources;
  // (amplitude * g(mscale_all_dim))^2 of YaRN, else 1: the factor of DeepSeek's softmax scale.
  double latent_softmax_factor = 1.0;
};

struct GgufScalingInput {
  std::int64_t rotary_dim = 0;
  double base = 0.0;
  std::optional<std::int64_t> context_length;
};

// throws   Error(invalid_argument | unsupported)
[[nodiscard]] GgufScaling read_gguf_scaling(GgufKeys& keys, const GgufArchitecture& architecture,
                                            const GgufScalingInput& input,
                                            std::vector<KeyNote>& notes);

}  // namespace phasor::config
