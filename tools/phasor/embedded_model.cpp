#include "embedded_model.hpp"

#include <cstddef>
#include <span>
#include <string_view>

// The bytes of a file of tools/phasor/embedded, between two symbols. By the assembler: a compiler takes
// half a minute for a list of two million numbers.
#define PHASOR_EMBED(name, file)                                             \
  asm(".pushsection .rodata\n"                                               \
      ".balign 64\n"                                                         \
      ".globl phasor_embedded_" #name                                        \
      "\n"                                                                   \
      ".hidden phasor_embedded_" #name "\nphasor_embedded_" #name            \
      ":\n.incbin \"" PHASOR_EMBEDDED_DIR "/" file                           \
      "\"\n"                                                                 \
      ".globl phasor_embedded_" #name "_end\n.hidden phasor_embedded_" #name \
      "_end\nphasor_embedded_" #name "_end:\n.popsection\n");                \
  extern "C" const std::byte phasor_embedded_##name[], phasor_embedded_##name##_end[];

PHASOR_EMBED(config, "config.json")
PHASOR_EMBED(tokenizer, "tokenizer.json")
PHASOR_EMBED(weights, "model.safetensors")

namespace phasor::tools {
namespace {

[[nodiscard]] std::span<const std::byte> between(const std::byte* first, const std::byte* end) {
  return {first, static_cast<std::size_t>(end - first)};
}
[[nodiscard]] std::string_view text_between(const std::byte* first, const std::byte* end) {
  return {reinterpret_cast<const char*>(first), static_cast<std::size_t>(end - first)};
}

}  // namespace

models::Checkpoint embedded_checkpoint() {
  return models::Checkpoint::parse(text_between(phasor_embedded_config, phasor_embedded_config_end),
                                   between(phasor_embedded_weights, phasor_embedded_weights_end),
                                   kEmbeddedModel)
      .value_or_throw();
}

std::unique_ptr<text::Tokenizer> embedded_tokenizer() {
  return text::parse_tokenizer_json(
             text_between(phasor_embedded_tokenizer, phasor_embedded_tokenizer_end), kEmbeddedModel)
      .value_or_throw();
}

}  // namespace phasor::tools
