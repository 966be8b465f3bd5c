// The decoder part of the table of families (phasor/config/internal/families.hpp), resolved for the
// format of the weights. Layers are written once, in forward.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "phasor/config/internal/families.hpp"

namespace phasor::models {

using config::BiasRule;
using config::Block;
using config::FeedForward;
using config::HeadOrder;
using config::NormKind;
using config::Positions;
using config::QueryKeyNorm;

enum class WeightFormat : std::uint8_t { safetensors, gguf };

struct DecoderFamily : config::DecoderPart {
  std::string_view name;  // model_type, or the GGUF architecture
  WeightFormat format = WeightFormat::safetensors;
  HeadOrder order = HeadOrder::separate;  // of q, k and v; GGUF files may have either form
};

// Null when no row of the table has a decoder part for this format.
[[nodiscard]] const DecoderFamily* find_decoder(std::string_view name, WeightFormat format);
// For messages: "llama, mistral, ... or palm".
[[nodiscard]] std::string decoder_names(WeightFormat format);

// "model.layers.{}.mlp" with the number of the layer, and of the expert if it has a second {}.
[[nodiscard]] std::string numbered(std::string_view pattern, std::int64_t layer,
                                   std::int64_t expert = 0);

}  // namespace phasor::models
