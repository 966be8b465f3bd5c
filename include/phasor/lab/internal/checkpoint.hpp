// Trained networks as folders that other programs open.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "phasor/core/error.hpp"
#include "phasor/lab/internal/network.hpp"
#include "phasor/text/internal/trainer.hpp"

namespace phasor::lab {

// The model_type of config.json for a network that no other program knows: its ModelSpec is under the
// same key.
inline constexpr std::string_view kLabModelType = "phasor_lab";

// "roformer" or "llama" if the network computes what that model does: its style with RoPE of the family's
// base, default scaling, and softmax attention. Else kLabModelType.
[[nodiscard]] std::string_view model_type_of(const ModelSpec& spec) noexcept;

// Writes model.safetensors, the tokenizer's files, then config.json, each replaced atomically; the folder
// is created. The folder of a `roformer` or `llama` is a Hugging Face checkpoint.
//
// weights  f32, or f16: rounded to nearest even
[[nodiscard]] Result<Done> save_checkpoint(const Network<float>& network,
                                           std::span<const text::TokenizerFile> tokenizer,
                                           const std::filesystem::path& folder,
                                           core::DType weights = core::DType::f32);

// Reads model.safetensors of the folder into the network's parameters.
//
// error    Error(shape_mismatch): a tensor of another shape, such as that of another vocabulary, with
//          both shapes; Error(invalid_argument): a missing or unknown tensor; Error(io). The parameters
//          then hold any numbers
[[nodiscard]] Result<Done> read_parameters(const std::filesystem::path& folder,
                                           Network<float>& network);

// The same for another head: parameters that the folder does not have or has in another shape, and those
// of its own that the network does not have, are allowed if they belong to a head. The network's keep
// their numbers.
[[nodiscard]] Result<Done> read_body(const std::filesystem::path& folder, Network<float>& network);

// Whether the folder has a config.json with model_type kLabModelType. False if it cannot be read.
[[nodiscard]] bool is_lab_checkpoint(const std::filesystem::path& folder);

// A network of a folder with kLabModelType.
//
// error    Error(io | invalid_argument | unsupported) with the path
[[nodiscard]] Result<Network<float>> load_checkpoint(const std::filesystem::path& folder,
                                                     const NetworkOptions& options = {});

}  // namespace phasor::lab
