// Architectures that only GGUF files name: no config.json with such a model_type is read.
#include <array>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

// Architectures that need no more than their pairing.
constexpr auto kPlainInterleaved =
    std::to_array<std::string_view>({"llada", "deci", "xverse", "arctic", "deepseek", "chameleon",
                                     "bailingmoe", "neo-bert", "llama-embed", "maincoder"});

constexpr auto kPlainHalf = std::to_array<std::string_view>(
    {"dbrx",    "jina-bert-v3", "nomic-bert-moe", "eurobert",    "qwen",
     "dream",   "llada-moe",    "rnd1",           "plamo",       "plamo2",
     "openelm", "codeshell",    "orion",          "bailingmoe2", "jais2",
     "lfm2moe", "grovemoe",     "minimax-m2",     "cogvlm",      "pangu-embedded"});

constexpr auto kUnrotated =
    std::to_array<std::string_view>({"mpt", "refact", "starcoder", "bert", "jina-bert-v2", "jais"});

// Without heads, or with another factor on q.k than head_dim^-1/2.
constexpr auto kUnrotatedOtherwise = std::to_array<std::string_view>(
    {"mamba", "mamba2", "jamba", "t5encoder", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7",
     "nemotron_h", "nemotron_h_moe", "kimi-linear"});

constexpr std::array kOthers = {
    GgufArchitecture{.name = "granitehybrid",
                     .rotation = GgufRotation::interleaved,
                     .finetuned_is_switch = true},
    GgufArchitecture{
        .name = "falcon-h1", .rotation = GgufRotation::half, .softmax = GgufSoftmax::unknown},
    GgufArchitecture{
        .name = "grok", .rotation = GgufRotation::half, .softmax = GgufSoftmax::unknown},
    GgufArchitecture{.name = "plm",
                     .rotation = GgufRotation::interleaved,
                     .softmax = GgufSoftmax::latent,
                     .latent = true},
    GgufArchitecture{.name = "smallthinker",
                     .rotation = GgufRotation::half,
                     .layers = GgufLayers::full_unrotated,
                     .interval = 4,
                     .full_first = true},
    GgufArchitecture{.name = "gemma3n",
                     .rotation = GgufRotation::half,
                     .layers = GgufLayers::local_base,
                     .interval = 5,
                     .local_base = 1e4,
                     .softmax = GgufSoftmax::one},
    GgufArchitecture{.name = "gemma-embedding",
                     .rotation = GgufRotation::half,
                     .layers = GgufLayers::local_base,
                     .interval = 6,
                     .window = GgufWindow::both_sides,
                     .local_base = 1e4},
    GgufArchitecture{.name = "paddleocr", .rotation = GgufRotation::sections},
};

constexpr std::size_t kCount = kPlainInterleaved.size() + kPlainHalf.size() + kUnrotated.size() +
                               kUnrotatedOtherwise.size() + kOthers.size();

constexpr std::array<Family, kCount> all_architectures() {
  std::array<Family, kCount> all{};
  std::size_t count = 0;
  for (const std::string_view name : kPlainInterleaved)
    all[count++].gguf = GgufArchitecture{.name = name, .rotation = GgufRotation::interleaved};
  for (const std::string_view name : kPlainHalf)
    all[count++].gguf = GgufArchitecture{.name = name, .rotation = GgufRotation::half};
  for (const std::string_view name : kUnrotated) all[count++].gguf = GgufArchitecture{.name = name};
  for (const std::string_view name : kUnrotatedOtherwise)
    all[count++].gguf = GgufArchitecture{.name = name, .softmax = GgufSoftmax::unknown};
  for (const GgufArchitecture& other : kOthers) all[count++].gguf = other;
  return all;
}
constexpr std::array<Family, kCount> kGgufFamilies = all_architectures();

}  // namespace

std::span<const Family> gguf_families() { return kGgufFamilies; }

}  // namespace phasor::config
