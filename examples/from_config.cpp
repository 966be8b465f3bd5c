// Reads a config.json and prints the frequencies of each kind of layer. Argument: a file or folder.
#include <cstdio>
#include <optional>

#include "phasor/rope.hpp"

namespace {

constexpr const char* kLlama = R"({
  "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
  "num_hidden_layers": 32, "max_position_embeddings": 131072, "rope_theta": 500000.0,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}
})";

void print(const phasor::LayerGroup& group, std::optional<std::int64_t> context) {
  if (!group.rope) {
    std::printf("%s: no rotation\n", group.layer_type.c_str());
    return;
  }
  const phasor::Frequencies frequencies =
      phasor::encodings::resolve_frequencies(*group.rope, context);
  std::printf("%s: %lld frequencies from %.6g to %.6g, amplitude %.6g\n",
              group.layer_type.empty() ? "every layer" : group.layer_type.c_str(),
              static_cast<long long>(frequencies.pairs()), frequencies.values().front(),
              frequencies.values().back(), frequencies.amplitude());
}

}  // namespace

int main(int argc, char** argv) {
  const auto config =
      argc > 1 ? phasor::read_config(argv[1]) : phasor::parse_config(kLlama, "llama");
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().what());
    return 2;
  }
  for (const phasor::LayerGroup& group : config->groups) print(group, config->max_position);

  // What is not understood is refused by name.
  const auto refused =
      phasor::parse_config(R"({"head_dim": 64, "base": 1e4, "layuot": "half"})", "typo");
  if (refused.ok()) return 1;
  std::printf("refused: %s\n", refused.error().what());
  return 0;
}
