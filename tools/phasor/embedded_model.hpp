// A small trained model inside the command, so that text can be generated without a download.
#pragma once

#include <memory>

#include "phasor/models/checkpoint.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::tools {

// tools/phasor/embedded has its files, and a README that says how it was trained.
inline constexpr const char* kEmbeddedModel = "the embedded model";

[[nodiscard]] models::Checkpoint embedded_checkpoint();
[[nodiscard]] std::unique_ptr<text::Tokenizer> embedded_tokenizer();

}  // namespace phasor::tools
