// What a checkpoint holds beside its positions, read from the headers alone.
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
  // "decoder" or "encoder" where Phasor runs the family, else empty and `refusal` says why.
  std::string runs_as;
  std::string refusal;
  std::size_t cache_bytes_per_token = 0;  // float32 keys and values of all layers; 0: not a decoder
  std::string tokenizer;                  // "bpe/smollm, 49152 tokens", or why there is none
};

// Tensors are counted, not loaded: that each is there in its shape is seen when the model is.
//
// refuses  as Checkpoint::open, except that a family that cannot run is described too
[[nodiscard]] Result<ModelDescription> describe(const std::filesystem::path& path);
// describe() where there are weights; none for a config alone, and for weights that cannot be read.
[[nodiscard]] std::optional<ModelDescription> describe_weights(const std::filesystem::path& path);
// {"tensors", "parameters", "bytes", "types": [...], "runs_as", "refusal", "cache_bytes_per_token",
// "tokenizer"}
[[nodiscard]] std::string describe_json(const ModelDescription& description);

}  // namespace phasor::models
