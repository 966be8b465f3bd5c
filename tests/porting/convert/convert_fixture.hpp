// A folder to convert into, and golden checkpoints to convert.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>

#include "phasor/config/config.hpp"
#include "phasor/porting/convert.hpp"
#include "porting/convert/checkpoints.hpp"

namespace phasor::porting::testing {

using core::PairLayout;

inline const fs::path kModels = fs::path(PHASOR_GOLDEN_DIR) / "models";

inline fs::path golden(std::string_view name) { return kModels / name / "model"; }

inline PairLayout layout_in(const fs::path& folder) {
  const config::ModelConfig model = config::read_config(folder).value_or_throw();
  for (const config::LayerGroup& group : model.groups) {
    if (group.rope) return group.rope->layout.value();
  }
  throw std::runtime_error("no layer rotates");
}

inline PairLayout other(PairLayout layout) {
  return layout == PairLayout::half ? PairLayout::interleaved : PairLayout::half;
}

class Convert : public io::testing::TemporaryFolder {
 protected:
  [[nodiscard]] static Result<ConvertResult> convert(const fs::path& from, const fs::path& to,
                                                     PairLayout layout) {
    ConvertOptions options;
    options.source = from;
    options.destination = to;
    options.to = layout;
    return convert_checkpoint(options);
  }
  // Refused with these words, and nothing written.
  void expect_refused(const fs::path& from, std::initializer_list<std::string_view> values,
                      PairLayout layout = PairLayout::interleaved) const {
    const Result<ConvertResult> result = convert(from, at("refused"), layout);
    ASSERT_FALSE(result.ok());
    tests::expect_error(result.error().code(), values, result);
    EXPECT_FALSE(fs::exists(at("refused")));
  }
  // A copy that the test may modify.
  [[nodiscard]] fs::path copy_of(std::string_view model) const {
    const fs::path folder = at(model);
    fs::copy(golden(model), folder, fs::copy_options::recursive);
    return folder;
  }
};

inline constexpr std::string_view kLlama = R"({"model_type": "llama", "hidden_size": 16,
  "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
  "rope_theta": 10000.0, "max_position_embeddings": 64})";

// q and k of one layer of kLlama: 4 and 2 heads of 4.
inline Checkpoint llama(const std::string& module = "model.layers.0.self_attn.") {
  Checkpoint checkpoint;
  checkpoint.add(module + "q_proj.weight", {16, 16});
  checkpoint.add(module + "k_proj.weight", {8, 16});
  checkpoint.add(module + "v_proj.weight", {8, 16});
  checkpoint.add(module + "o_proj.weight", {16, 16});
  return checkpoint;
}

}  // namespace phasor::porting::testing
