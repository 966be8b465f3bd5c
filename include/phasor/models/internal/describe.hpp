// Size, types, family and tokenizer of a checkpoint, read from the headers only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::models {

struct ModelDescription {
  struct Type {
    std::string name;  // "q4_1", "f32", ...
    std::int64_t tensors = 0, parameters = 0;
    std::size_t bytes = 0;
  };
  std::vector<Type> types;  // most bytes first
  std::int64_t tensors = 0, parameters = 0;
  std::size_t bytes = 0;
  // "decoder", "encoder" or "encoder-decoder"; empty for an unsupported family, with the reason in `refusal`.
  std::string runs_as;
  std::string refusal;
  // Float32 keys and values of all layers of the decoder; 0: not a decoder.
  std::size_t cache_bytes_per_token = 0;
  std::string tokenizer;  // "bpe/smollm, 49152 tokens", or "none: " and the reason
};

// Counts the tensors without checking their names and shapes.
//
// error    as Checkpoint::open; an unsupported family is not an error
[[nodiscard]] Result<ModelDescription> describe(const std::filesystem::path& path);
// describe(); nullopt for a config without weights, and for weights that cannot be read.
[[nodiscard]] std::optional<ModelDescription> describe_weights(const std::filesystem::path& path);
// {"tensors", "parameters", "bytes", "types": [...], "runs_as", "refusal", "cache_bytes_per_token",
// "tokenizer"}
[[nodiscard]] std::string describe_json(const ModelDescription& description);

}  // namespace phasor::models
