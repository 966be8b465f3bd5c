// Golden models for tests: their ids and logits, copies with something changed, and what a decoder
// says of a sequence.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "models/ids.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/models/decoder.hpp"
#include "support/golden_array.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::models::testing {

// At least one golden model of each family of decoders.
inline constexpr const char* kGoldenFamilies[] = {
    "bloom_alibi",          "cohere2_windows",         "cohere_interleaved",
    "cwm_windows_llama3",   "gemma2_soft_caps",        "gemma3_local_global",
    "gemma_tied",           "glm_interleaved_partial", "gpt2_inverse_layer_scale",
    "gpt2_learned",         "gpt_neox_partial",        "gptj_interleaved_parallel",
    "granite_multipliers",  "llama_gqa_llama3",        "ministral3_query_scale",
    "mistral_sliding",      "mixtral_moe_top2",        "olmo2_post_norms",
    "olmo3_windows_yarn",   "palm_parallel_mqa",       "phi3_longrope_partial",
    "phi_parallel_partial", "phi_qk_layernorm",        "qwen2_bias_yarn",
    "qwen3_qk_norm",        "smollm3_skipped_layers",  "stablelm_parallel_qk_norm",
    "stablelm_partial_bias"};

inline std::filesystem::path golden_model(const std::string& name) {
  return std::filesystem::path(PHASOR_GOLDEN_DIR) / "models" / name / "model";
}
inline std::vector<std::int64_t> golden_ids(const std::string& name) {
  return tests::golden_array<std::int64_t>("models/" + name + "/input_ids.npy");
}

inline Decoder load(const std::filesystem::path& path, const ComputeOptions& options = {}) {
  return Decoder::load(path, options).value_or_throw();
}
inline Decoder decoder_of(const std::string& name) { return load(golden_model(name)); }

inline std::vector<float> logits_of(Decoder& decoder, const std::vector<std::int64_t>& ids,
                                    const SequenceOptions& options = {.capacity = 256}) {
  Sequence sequence = decoder.sequence(options);
  const Step step{&sequence, ids};
  return decoder.forward({&step, 1}, {LogitsOf::every_token, HiddenStates::leave}).logits;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

// The tensors of a golden model with bytes of their own, free to change.
struct Weights {
  std::vector<io::Tensor> tensors;
  std::vector<std::string> bytes;  // a tensor's span points here after own()

  static Weights of(const std::string& name) {
    const io::SafetensorsCheckpoint file =
        io::SafetensorsCheckpoint::open(golden_model(name)).value_or_throw();
    Weights weights;
    for (const io::Tensor& tensor : file.shards().front().file.tensors()) {
      std::string& bytes = weights.bytes.emplace_back(tensor.byte_size(), '\0');
      io::read_bytes(tensor, 0, std::as_writable_bytes(std::span(bytes)));
      weights.tensors.push_back({tensor.name, tensor.type, tensor.shape});
    }
    return weights;
  }
  [[nodiscard]] std::size_t find(const std::string& name) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == name) return i;
    }
    throw std::runtime_error("no tensor " + name);
  }
  [[nodiscard]] std::vector<float> floats(std::size_t i) const {
    std::vector<float> values(bytes[i].size() / sizeof(float));
    std::memcpy(values.data(), bytes[i].data(), bytes[i].size());
    return values;
  }
  void remove(const std::string& name) {
    const std::size_t i = find(name);
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    io::Tensor tensor;
    tensor.name = name;
    tensor.shape = shape;
    bytes.emplace_back(static_cast<std::size_t>(tensor.size()) * sizeof(float), '\0');
    tensors.push_back(std::move(tensor));
  }
  void write(const std::filesystem::path& folder) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].bytes = io::testing::bytes_of(bytes[i]);
    }
    ASSERT_TRUE(io::write_safetensors(folder / "model.safetensors", tensors).ok());
  }
};

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t place = text.find(from);
  if (place == std::string::npos) throw std::runtime_error("no " + from);
  return text.replace(place, from.size(), to);
}

}  // namespace phasor::models::testing
