#include "config/gguf_architectures.hpp"

#include <algorithm>
#include <array>

namespace phasor::config {
namespace {

using Layers = GgufLayers;
using LogMultiplier = GgufLogMultiplier;
using Softmax = GgufSoftmax;
using Turn = GgufTurn;
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

constexpr auto kUnturned = std::to_array<std::string_view>(
    {"gpt2", "bloom", "mpt", "refact", "starcoder", "bert", "jina-bert-v2", "jais"});

// Without heads, or with a factor on q.k that is not the usual one.
constexpr auto kUnturnedOtherwise = std::to_array<std::string_view>(
    {"mamba", "mamba2", "jamba", "t5", "t5encoder", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7",
     "nemotron_h", "nemotron_h_moe", "kimi-linear"});

constexpr std::array kOthers = {
    GgufArchitecture{.name = "baichuan", .turn = Turn::interleaved, .alibi_layers = 40},
    GgufArchitecture{.name = "granite", .turn = Turn::interleaved, .finetuned_is_switch = true},
    GgufArchitecture{.name = "granitemoe", .turn = Turn::interleaved, .finetuned_is_switch = true},
    GgufArchitecture{
        .name = "granitehybrid", .turn = Turn::interleaved, .finetuned_is_switch = true},
    GgufArchitecture{
        .name = "mistral3", .turn = Turn::interleaved, .log_multiplier = LogMultiplier::all_dim},
    GgufArchitecture{.name = "falcon-h1", .turn = Turn::half, .softmax = Softmax::unknown},
    GgufArchitecture{.name = "grok", .turn = Turn::half, .softmax = Softmax::unknown},
    // Latent attention.
    GgufArchitecture{.name = "deepseek2",
                     .turn = Turn::interleaved,
                     .softmax = Softmax::latent,
                     .latent = true,
                     .log_multiplier = LogMultiplier::tenth_all_dim},
    GgufArchitecture{
        .name = "plm", .turn = Turn::interleaved, .softmax = Softmax::latent, .latent = true},
    GgufArchitecture{
        .name = "minicpm3", .turn = Turn::half, .softmax = Softmax::latent, .latent = true},
    // Layers that do not turn.
    GgufArchitecture{.name = "smollm3",
                     .turn = Turn::interleaved,
                     .layers = Layers::skip_interval,
                     .interval = 4},
    GgufArchitecture{.name = "llama4",
                     .turn = Turn::interleaved,
                     .layers = Layers::full_unturned,
                     .interval = 4,
                     .window = Window::chunks_of_8192},
    GgufArchitecture{.name = "cohere2",
                     .turn = Turn::interleaved,
                     .layers = Layers::full_unturned,
                     .interval = 4},
    GgufArchitecture{.name = "exaone4",
                     .turn = Turn::half,
                     .layers = Layers::full_unturned,
                     .interval = 4,
                     .window = Window::default_4096_64},
    GgufArchitecture{.name = "smallthinker",
                     .turn = Turn::half,
                     .layers = Layers::full_unturned,
                     .interval = 4,
                     .full_first = true},
    // Sliding windows.
    GgufArchitecture{
        .name = "gpt-oss", .turn = Turn::half, .layers = Layers::windows, .interval = 2},
    GgufArchitecture{.name = "gemma2",
                     .turn = Turn::half,
                     .layers = Layers::windows,
                     .interval = 2,
                     .window = Window::default_4096,
                     .softmax = Softmax::largest,
                     .largest_layers = 46},
    GgufArchitecture{.name = "gemma3",
                     .turn = Turn::half,
                     .layers = Layers::local_base,
                     .interval = 6,
                     .local_base = 1e4,
                     .softmax = Softmax::largest,
                     .largest_layers = 62},
    GgufArchitecture{.name = "gemma3n",
                     .turn = Turn::half,
                     .layers = Layers::local_base,
                     .interval = 5,
                     .local_base = 1e4,
                     .softmax = Softmax::one},
    GgufArchitecture{.name = "gemma-embedding",
                     .turn = Turn::half,
                     .layers = Layers::local_base,
                     .interval = 6,
                     .window = Window::both_sides,
                     .local_base = 1e4},
    GgufArchitecture{.name = "modern-bert",
                     .turn = Turn::half,
                     .layers = Layers::local_base,
                     .interval = 3,
                     .full_first = true,
                     .window = Window::both_sides,
                     .local_base = 1e4},
    GgufArchitecture{
        .name = "olmo2", .turn = Turn::half, .layers = Layers::local_base, .interval = 4},
    // Every n-th layer attends.
    GgufArchitecture{
        .name = "qwen3next", .turn = Turn::half, .layers = Layers::linear_but, .interval = 4},
    GgufArchitecture{.name = "qwen35",
                     .turn = Turn::mixed_sections,
                     .layers = Layers::linear_but,
                     .interval = 4},
    GgufArchitecture{.name = "qwen35moe",
                     .turn = Turn::mixed_sections,
                     .layers = Layers::linear_but,
                     .interval = 4},
    // Rows of positions.
    GgufArchitecture{.name = "qwen2vl", .turn = Turn::sections},
    GgufArchitecture{.name = "paddleocr", .turn = Turn::sections},
    GgufArchitecture{.name = "qwen3vl", .turn = Turn::mixed_sections},
    GgufArchitecture{.name = "qwen3vlmoe", .turn = Turn::mixed_sections},
    GgufArchitecture{.name = "glm4", .turn = Turn::pairs_or_sections},
    GgufArchitecture{.name = "glm4moe", .turn = Turn::half_or_sections},
};

constexpr std::size_t kCount = kPlainInterleaved.size() + kPlainHalf.size() + kUnturned.size() +
                               kUnturnedOtherwise.size() + kOthers.size();

constexpr std::array<GgufArchitecture, kCount> all_architectures() {
  std::array<GgufArchitecture, kCount> all{};
  std::size_t count = 0;
  for (const std::string_view name : kPlainInterleaved)
    all[count++] = {.name = name, .turn = Turn::interleaved};
  for (const std::string_view name : kPlainHalf) all[count++] = {.name = name, .turn = Turn::half};
  for (const std::string_view name : kUnturned) all[count++] = {.name = name};
  for (const std::string_view name : kUnturnedOtherwise)
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
