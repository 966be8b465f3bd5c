#include "embedded_model.hpp"

#include <span>
#include <string_view>

#include "embed.hpp"

PHASOR_EMBED(config, PHASOR_EMBEDDED_DIR "/config.json")
PHASOR_EMBED(tokenizer, PHASOR_EMBEDDED_DIR "/tokenizer.json")
PHASOR_EMBED(weights, PHASOR_EMBEDDED_DIR "/model.safetensors")

namespace phasor::tools {
namespace {

[[nodiscard]] std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

models::Checkpoint embedded_checkpoint() {
  return models::Checkpoint::parse(text_of(PHASOR_EMBEDDED(config)), PHASOR_EMBEDDED(weights),
                                   kEmbeddedModel)
      .value_or_throw();
}

std::unique_ptr<text::Tokenizer> embedded_tokenizer() {
  return text::parse_tokenizer_json(text_of(PHASOR_EMBEDDED(tokenizer)), kEmbeddedModel)
      .value_or_throw();
}

}  // namespace phasor::tools
