// Configs that the tests of several tools start from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"

namespace phasor::porting::testing {

using json = io::Json;

// A model of 32 heads of 128, in the legacy form.
inline json llama(std::int64_t max_position, double base = 10000.0) {
  return {{"model_type", "llama"},
          {"hidden_size", 4096},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 4},
          {"max_position_embeddings", max_position},
          {"rope_theta", base}};
}

// Gemma 3 4B in the legacy form: global layers scaled, local ones with a base of their own.
inline json gemma3() {
  return {{"model_type", "gemma3_text"},
          {"hidden_size", 2560},
          {"num_attention_heads", 8},
          {"head_dim", 256},
          {"max_position_embeddings", 131072},
          {"num_hidden_layers", 34},
          {"rope_theta", 1e6},
          {"rope_local_base_freq", 1e4},
          {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}};
}

// Every config of golden/rope_freqs, in both forms, and of golden/models.
inline std::vector<std::filesystem::path> golden_config_files() {
  std::vector<std::filesystem::path> files;
  for (const char* group : {"rope_freqs", "models"}) {
    const std::filesystem::path folder = std::filesystem::path(PHASOR_GOLDEN_DIR) / group;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("config.") && name.ends_with(".json")) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace phasor::porting::testing
