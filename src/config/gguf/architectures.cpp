#include "config/gguf/architectures.hpp"

#include <algorithm>
#include <array>

namespace phasor::config {
namespace {

using Layers = GgufLayers;
using LogMultiplier = GgufLogMultiplier;
using Softmax = GgufSoftmax;
using Rotation = GgufRotation;
using Window = GgufWindow;

// Architectures that need no more than their pairing.
constexpr auto kPlainInterleaved = std::to_array<std::string_view>(
    {"llama", "llada", "deci", "internlm2", "minicpm", "xverse", "command-r", "olmo", "arctic",
     "deepseek", "chatglm", "chameleon", "bailingmoe", "neo-bert", "arcee", "ernie4_5",
     "ernie4_5-moe", "llama-embed", "maincoder"});

constexpr auto kPlainHalf = std::to_array<std::string_view>(
    {"falcon",        "dbrx",     "jina-bert-v3", "nomic-bert",    "nomic-bert-moe", "eurobert",
     "stablelm",      "bitnet",   "qwen",         "qwen2",         "dream",          "qwen2moe",
     "qwen3",         "qwen3moe", "llada-moe",    "rnd1",          "olmoe",          "phi2",
     "phi3",          "phimoe",   "plamo",        "plamo2",        "gemma",          "starcoder2",
     "openelm",       "gptneox",  "codeshell",    "orion",         "nemotron",       "exaone",
     "bailingmoe2",   "dots1",    "hunyuan-moe",  "hunyuan-dense", "jais2",          "lfm2",
     "lfm2moe",       "seed_oss", "grovemoe",     "apertus",       "minimax-m2",     "cogvlm",
     "pangu-embedded"});

constexpr auto kUnrotated = std::to_array<std::string_view>(
    {"gpt2", "bloom", "mpt", "refact", "starcoder", "bert", "jina-bert-v2", "jais"});

// Without heads, or with a factor on q.k that is not the usual one.
constexpr auto kUnrotatedOtherwise = std::to_array<std::string_view>(
    {"mamba", "mamba2", "jamba", "t5", "t5encoder", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7",
     "nemotron_h", "nemotron_h_moe", "kimi-linear"});

constexpr std::array kOthers = {
    GgufArchitecture{.name = "baichuan", .rotation = Rotation::interleaved, .alibi_layers = 40},
    GgufArchitecture{
        .name = "granite", .rotation = Rotation::interleaved, .finetuned_is_switch = true},
    GgufArchitecture{
        .name = "granitemoe", .rotation = Rotation::interleaved, .finetuned_is_switch = true},
    GgufArchitecture{
        .name = "granitehybrid", .rotation = Rotation::interleaved, .finetuned_is_switch = true},
    GgufArchitecture{.name = "mistral3",
                     .rotation = Rotation::interleaved,
                     .log_multiplier = LogMultiplier::all_dim},
    GgufArchitecture{.name = "falcon-h1", .rotation = Rotation::half, .softmax = Softmax::unknown},
    GgufArchitecture{.name = "grok", .rotation = Rotation::half, .softmax = Softmax::unknown},
    // Latent attention.
    GgufArchitecture{.name = "deepseek2",
                     .rotation = Rotation::interleaved,
                     .softmax = Softmax::latent,
                     .latent = true,
                     .log_multiplier = LogMultiplier::tenth_all_dim},
    GgufArchitecture{.name = "plm",
                     .rotation = Rotation::interleaved,
                     .softmax = Softmax::latent,
                     .latent = true},
    GgufArchitecture{
        .name = "minicpm3", .rotation = Rotation::half, .softmax = Softmax::latent, .latent = true},
    // Layers that do not turn.
    GgufArchitecture{.name = "smollm3",
                     .rotation = Rotation::interleaved,
                     .layers = Layers::skip_interval,
                     .interval = 4},
    GgufArchitecture{.name = "llama4",
                     .rotation = Rotation::interleaved,
                     .layers = Layers::full_unrotated,
                     .interval = 4,
                     .window = Window::chunks_of_8192},
    GgufArchitecture{.name = "cohere2",
                     .rotation = Rotation::interleaved,
                     .layers = Layers::full_unrotated,
                     .interval = 4},
    GgufArchitecture{.name = "exaone4",
                     .rotation = Rotation::half,
                     .layers = Layers::full_unrotated,
                     .interval = 4,
                     .window = Window::default_4096_64},
    GgufArchitecture{.name = "smallthinker",
                     .rotation = Rotation::half,
                     .layers = Layers::full_unrotated,
                     .interval = 4,
                     .full_first = true},
    // Sliding windows.
    GgufArchitecture{
        .name = "gpt-oss", .rotation = Rotation::half, .layers = Layers::windows, .interval = 2},
    GgufArchitecture{.name = "gemma2",
                     .rotation = Rotation::half,
                     .layers = Layers::windows,
                     .interval = 2,
                     .window = Window::default_4096,
                     .softmax = Softmax::largest,
                     .largest_layers = 46},
    GgufArchitecture{.name = "gemma3",
                     .rotation = Rotation::half,
                     .layers = Layers::local_base,
                     .interval = 6,
                     .local_base = 1e4,
                     .softmax = Softmax::largest,
                     .largest_layers = 62},
    GgufArchitecture{.name = "gemma3n",
                     .rotation = Rotation::half,
                     .layers = Layers::local_base,
                     .interval = 5,
                     .local_base = 1e4,
                     .softmax = Softmax::one},
    GgufArchitecture{.name = "gemma-embedding",
                     .rotation = Rotation::half,
                     .layers = Layers::local_base,
                     .interval = 6,
                     .window = Window::both_sides,
                     .local_base = 1e4},
    GgufArchitecture{.name = "modern-bert",
                     .rotation = Rotation::half,
                     .layers = Layers::local_base,
                     .interval = 3,
                     .full_first = true,
                     .window = Window::both_sides,
                     .local_base = 1e4},
    GgufArchitecture{
        .name = "olmo2", .rotation = Rotation::half, .layers = Layers::local_base, .interval = 4},
    // Every n-th layer attends.
    GgufArchitecture{.name = "qwen3next",
                     .rotation = Rotation::half,
                     .layers = Layers::linear_but,
                     .interval = 4},
    GgufArchitecture{.name = "qwen35",
                     .rotation = Rotation::mixed_sections,
                     .layers = Layers::linear_but,
                     .interval = 4},
    GgufArchitecture{.name = "qwen35moe",
                     .rotation = Rotation::mixed_sections,
                     .layers = Layers::linear_but,
                     .interval = 4},
    // Rows of positions.
    GgufArchitecture{.name = "qwen2vl", .rotation = Rotation::sections},
    GgufArchitecture{.name = "paddleocr", .rotation = Rotation::sections},
    GgufArchitecture{.name = "qwen3vl", .rotation = Rotation::mixed_sections},
    GgufArchitecture{.name = "qwen3vlmoe", .rotation = Rotation::mixed_sections},
    GgufArchitecture{.name = "glm4", .rotation = Rotation::pairs_or_sections},
    GgufArchitecture{.name = "glm4moe", .rotation = Rotation::half_or_sections},
};

constexpr std::size_t kCount = kPlainInterleaved.size() + kPlainHalf.size() + kUnrotated.size() +
                               kUnrotatedOtherwise.size() + kOthers.size();

constexpr std::array<GgufArchitecture, kCount> all_architectures() {
  std::array<GgufArchitecture, kCount> all{};
  std::size_t count = 0;
  for (const std::string_view name : kPlainInterleaved)
    all[count++] = {.name = name, .rotation = Rotation::interleaved};
  for (const std::string_view name : kPlainHalf)
    all[count++] = {.name = name, .rotation = Rotation::half};
  for (const std::string_view name : kUnrotated) all[count++] = {.name = name};
  for (const std::string_view name : kUnrotatedOtherwise)
    all[count++] = {.name = name, .softmax = Softmax::unknown};
  for (const GgufArchitecture& other : kOthers) all[count++] = other;
  return all;
}
constexpr std::array<GgufArchitecture, kCount> kArchitectures = all_architectures();

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) noexcept {
  const auto* found =
      std::find_if(kArchitectures.begin(), kArchitectures.end(),
                   [name](const GgufArchitecture& one) { return one.name == name; });
  return found == kArchitectures.end() ? nullptr : found;
}

}  // namespace phasor::config
