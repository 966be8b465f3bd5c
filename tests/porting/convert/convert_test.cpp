// Checkpoints converted between layouts: which rows move, which bytes stay.
#include "phasor/porting/convert.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <stdexcept>

#include "phasor/core/internal/reference.hpp"
#include "phasor/io/internal/json.hpp"
#include "porting/convert/convert_fixture.hpp"

namespace phasor::porting::testing {
namespace {

// All golden models

class EveryFamily : public Convert, public ::testing::WithParamInterface<std::string> {};

TEST_P(EveryFamily, ConvertsThereAndBack) {
  const fs::path source = golden(GetParam());
  const PairLayout own = layout_in(source);
  const ConvertResult there = convert(source, at("there"), other(own)).value_or_throw();
  EXPECT_EQ(there.from, own);
  EXPECT_GT(there.tensors, 0);
  EXPECT_GT(there.proof.scores, 0);
  EXPECT_GT(there.proof.largest_score, 0.0);
  EXPECT_LT(there.proof.largest_difference, 1e-12);
  EXPECT_EQ(there.sidecar, at("there") / "phasor_layout.json");
  EXPECT_EQ(layout_in(at("there")), other(own));

  const ConvertResult back = convert(at("there"), at("back"), own).value_or_throw();
  EXPECT_FALSE(back.sidecar.has_value());
  EXPECT_EQ(back.tensors, there.tensors);
  EXPECT_EQ(contents(at("back")), contents(source));
}

TEST_P(EveryFamily, TouchesOnlyQueriesAndKeys) {
  const fs::path source = golden(GetParam());
  const bool values_rotate =
      GetParam() == "roformer_mlm_rotary_value" || GetParam() == "roformer_causal_lm";
  std::vector<std::int64_t> still;  // layers that do not rotate
  for (const config::LayerGroup& group : config::read_config(source).value_or_throw().groups) {
    if (!group.rope) still.insert(still.end(), group.layers.begin(), group.layers.end());
  }
  ASSERT_TRUE(convert(source, at("there"), other(layout_in(source))).ok());
  const auto before = io::SafetensorsCheckpoint::open(source).value_or_throw();
  const auto after = io::SafetensorsCheckpoint::open(at("there")).value_or_throw();
  std::int64_t moved = 0;
  for (const io::Tensor& tensor : before.shards()[0].file.tensors()) {
    const io::Tensor* now = after.find(tensor.name);
    ASSERT_NE(now, nullptr);
    EXPECT_EQ(now->shape, tensor.shape);
    const bool same = io::same_bytes(tensor, *now);
    bool expected = false;
    for (const char* part : {"q_proj", "k_proj", "qkv_proj", "query_key_value", "self.query",
                             "self.key", "q_norm", "k_norm", "q_layernorm", "k_layernorm"}) {
      expected = expected || tensor.name.find(part) != std::string::npos;
    }
    for (const std::int64_t layer : still) {
      const std::string folder = message("model.layers.", layer, ".");
      expected = expected && tensor.name.find(folder) == std::string::npos;
    }
    if (values_rotate && (tensor.name.find("self.value") != std::string::npos ||
                          tensor.name.find("attention.output.dense.weight") != std::string::npos)) {
      expected = true;
    }
    // Constant biases and norms are the same in any order.
    const bool constant = [&] {
      std::vector<float> numbers(static_cast<std::size_t>(tensor.size()));
      io::to_floats(tensor, 0, numbers);
      return std::set<float>(numbers.begin(), numbers.end()).size() <= 1;
    }();
    EXPECT_EQ(!same, expected && !constant) << tensor.name;
    moved += same ? 0 : 1;
  }
  EXPECT_GT(moved, 0);
}

TEST_P(EveryFamily, RefusesASecondTime) {
  const fs::path source = golden(GetParam());
  const PairLayout own = layout_in(source);
  expect_refused(source, {message("already ", core::name_of(own))}, own);
  ASSERT_TRUE(convert(source, at("there"), other(own)).ok());
  expect_refused(at("there"), {message("already ", core::name_of(other(own)))}, other(own));
}

// No layer rotates, or the norms of q and k are one tensor per head.
const std::set<std::string> kNotConverted = {"bloom_alibi",
                                             "gpt2_inverse_layer_scale",
                                             "gpt2_learned",
                                             "mt5_gated",
                                             "stablelm_parallel_qk_norm",
                                             "t5_gated_untied",
                                             "t5_relu_tied",
                                             "umt5_tables"};

TEST_F(Convert, RefusesModelsThatItCannotConvert) {
  for (const std::string& name : kNotConverted) {
    const Result<ConvertResult> result =
        convert(golden(name), at("there"), PairLayout::interleaved);
    ASSERT_FALSE(result.ok()) << name;
    EXPECT_FALSE(fs::exists(at("there"))) << name;
  }
}

std::vector<std::string> all_models() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kModels)) {
    const std::string name = entry.path().filename().string();
    if (fs::exists(entry.path() / "model") && !kNotConverted.contains(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Golden, EveryFamily, ::testing::ValuesIn(all_models()),
                         [](const auto& param) { return param.param; });

// Which row goes where, written out

// From half to interleaved: the row of the source that row r of a head of d rows takes; the
// first R rotate.
std::size_t source_row(std::size_t r, std::size_t d, std::size_t rotary) {
  const std::size_t head = r / d * d, at = r % d;
  if (at >= rotary) return r;
  return head + (at % 2 == 0 ? at / 2 : rotary / 2 + at / 2);
}

TEST_F(Convert, GroupedHeadsMoveByTheNumberOfKeyHeads) {
  const fs::path source = golden("llama_gqa_llama3");  // 4 query heads, 2 key heads of 16
  ASSERT_TRUE(convert(source, at("there"), PairLayout::interleaved).ok());
  for (const char* name : {"q_proj", "k_proj"}) {
    const std::string tensor = message("model.layers.1.self_attn.", name, ".weight");
    EXPECT_EQ(
        floats(at("there"), tensor),
        with_rows(floats(source, tensor), 64, [](std::size_t r) { return source_row(r, 16, 16); }))
        << tensor;
  }
}

TEST_F(Convert, LlamaCpp2376_KeysDoNotMoveByTheNumberOfQueryHeads) {
  const fs::path source = golden("llama_gqa_llama3");
  ASSERT_TRUE(convert(source, at("there"), PairLayout::interleaved).ok());
  const std::string tensor = "model.layers.0.self_attn.k_proj.weight";
  // 32 rows as 4 heads of 8, as the report's converter took them.
  const std::vector<float> wrong =
      with_rows(floats(source, tensor), 64, [](std::size_t r) { return source_row(r, 8, 8); });
  EXPECT_NE(floats(at("there"), tensor), wrong);
}

TEST_F(Convert, OfAPartialRotationOnlyThePartThatRotates) {
  const fs::path source = golden("gpt_neox_partial");  // 4 heads of 16, 4 features rotate
  ASSERT_TRUE(convert(source, at("there"), PairLayout::interleaved).ok());
  for (const auto& [part, width] : {std::pair("weight", 64), std::pair("bias", 1)}) {
    const std::string tensor = message("gpt_neox.layers.2.attention.query_key_value.", part);
    EXPECT_EQ(floats(at("there"), tensor),
              with_rows(floats(source, tensor), static_cast<std::size_t>(width),
                        [](std::size_t r) {
                          const bool value = r / 16 % 3 == 2;  // [heads, 3, head_dim]
                          return value ? r : source_row(r, 16, 4);
                        }))
        << tensor;
  }
}

TEST_F(Convert, FusedSections) {
  const fs::path source = golden("phi3_longrope_partial");  // 4 q, 2 k, 2 v heads of 16, 12 rotate
  ASSERT_TRUE(convert(source, at("there"), PairLayout::interleaved).ok());
  const std::string tensor = "model.layers.0.self_attn.qkv_proj.weight";
  EXPECT_EQ(floats(at("there"), tensor), with_rows(floats(source, tensor), 64, [](std::size_t r) {
              return r < 96 ? source_row(r, 16, 12) : r;
            }));
}

// Scores by the reference, which shares nothing with the proof: q.k of one head at two positions.
double score_of(const fs::path& folder, const std::vector<float>& x, const std::vector<float>& y) {
  const config::ModelConfig model = config::read_config(folder).value_or_throw();
  const core::Rotary rotary = encodings::resolve(model.groups[0].rope.value());
  const auto rotated = [&](const char* name, const std::vector<float>& in, std::int64_t position) {
    const std::vector<float> w = floats(folder, name);
    std::vector<double> head(16), out(16);
    for (std::size_t r = 0; r < 16; ++r) {
      for (std::size_t c = 0; c < 64; ++c) head[r] += double{w[r * 64 + c]} * double{in[c]};
    }
    core::reference::rotate(rotary, core::positions_from(position),
                            core::heads_view(head.data(), 1, 1, 1, 16),
                            core::heads_view(out.data(), 1, 1, 1, 16));
    return out;
  };
  const auto q = rotated("model.layers.0.self_attn.q_proj.weight", x, 7);
  const auto k = rotated("model.layers.0.self_attn.k_proj.weight", y, 3);
  return std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
}

TEST_F(Convert, ScoresAreTheSame) {
  std::vector<float> x(64), y(64);
  for (std::size_t i = 0; i < 64; ++i) {
    x[i] = std::sin(static_cast<float>(i));
    y[i] = std::cos(2.0F * static_cast<float>(i));
  }
  const fs::path source = golden("llama_gqa_llama3");
  ASSERT_TRUE(convert(source, at("there"), PairLayout::interleaved).ok());
  const double score = score_of(source, x, y);
  EXPECT_GT(std::abs(score), 1e-3);
  EXPECT_NEAR(score_of(at("there"), x, y), score, 1e-12);
  // And they differ when the sidecar is lost, so the comparison can fail.
  fs::remove(at("there") / "phasor_layout.json");
  EXPECT_GT(std::abs(score_of(at("there"), x, y) - score), 1e-6);
}

// Families that the golden data lack

TEST_F(Convert, GroupedFusedHeads) {
  // InternLM2: for each key head its query heads, the key and the value.
  Checkpoint checkpoint;
  checkpoint.add("model.layers.0.attention.wqkv.weight", {32, 16});
  checkpoint.add("model.layers.0.attention.wo.weight", {16, 16});
  checkpoint.write(at("source"), R"({"model_type": "internlm2", "hidden_size": 16,
      "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
      "rope_theta": 10000.0})");
  ASSERT_TRUE(convert(at("source"), at("there"), PairLayout::interleaved).ok());
  const std::string tensor = "model.layers.0.attention.wqkv.weight";
  EXPECT_EQ(floats(at("there"), tensor),
            with_rows(floats(at("source"), tensor), 16, [](std::size_t r) {
              const bool value = r / 4 % 4 == 3;
              return value ? r : source_row(r, 4, 4);
            }));
}

TEST_F(Convert, NormsOfOneHeadAndOfAllHeads) {
  Checkpoint checkpoint = llama();
  checkpoint.add("model.layers.0.self_attn.q_norm.weight", {16});  // OLMo 2: all heads at once
  checkpoint.add("model.layers.0.self_attn.k_norm.weight", {8});
  std::string text(kLlama);
  text.replace(text.find("llama"), 5, "olmo2");
  checkpoint.write(at("source"), text);
  ASSERT_TRUE(convert(at("source"), at("there"), PairLayout::interleaved).ok());
  const std::string tensor = "model.layers.0.self_attn.q_norm.weight";
  EXPECT_EQ(floats(at("there"), tensor),
            with_rows(floats(at("source"), tensor), 1,
                      [](std::size_t r) { return source_row(r, 4, 4); }));

  Checkpoint cohere = llama();
  cohere.add("model.layers.0.self_attn.q_norm.weight", {4, 4});  // [heads, head_dim]
  cohere.add("model.layers.0.self_attn.k_norm.weight", {2, 4});
  text.replace(text.find("olmo2"), 5, "cohere");
  cohere.write(at("cohere"), text);
  const ConvertResult result =
      convert(at("cohere"), at("cohere_half"), PairLayout::half).value_or_throw();
  EXPECT_EQ(result.tensors, 4);
  EXPECT_LT(result.proof.largest_difference, 1e-12);
}

TEST_F(Convert, NamesOfMetaAreInterleavedWhateverTheConfigSays) {
  Checkpoint checkpoint;
  for (const char* name : {"wq", "wk", "wv", "wo"}) {
    const std::int64_t rows = name[1] == 'k' || name[1] == 'v' ? 8 : 16;
    checkpoint.add(message("layers.0.attention.", name, ".weight"), {rows, 16});
  }
  checkpoint.write(at("source"), kLlama);
  expect_refused(at("source"), {"already interleaved"});
  ASSERT_TRUE(convert(at("source"), at("half"), PairLayout::half).ok());
  const ConvertResult back =
      convert(at("half"), at("back"), PairLayout::interleaved).value_or_throw();
  EXPECT_FALSE(back.sidecar.has_value());
  EXPECT_EQ(contents(at("back")), contents(at("source")));
}

TEST_F(Convert, LayersThatDoNotRotateAndTowersStay) {
  Checkpoint checkpoint;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string module = message("model.layers.", layer, ".self_attn.");
    checkpoint.add(module + "q_proj.weight", {16, 16});
    checkpoint.add(module + "k_proj.weight", {8, 16});
    checkpoint.add(module + "v_proj.weight", {8, 16});
  }
  checkpoint.add("model.vision_tower.layers.0.self_attn.q_proj.weight", {16, 16});
  std::string text(kLlama);
  text.replace(text.find("llama"), 5, "smollm3");
  text.replace(text.find("\"num_hidden_layers\": 1"), 22, "\"num_hidden_layers\": 4");
  checkpoint.write(at("source"), text);
  const ConvertResult result =
      convert(at("source"), at("there"), PairLayout::interleaved).value_or_throw();
  EXPECT_EQ(result.layers, 3);
  EXPECT_EQ(result.tensors, 6);
  for (const char* name : {"model.layers.3.self_attn.q_proj.weight",
                           "model.vision_tower.layers.0.self_attn.q_proj.weight"}) {
    EXPECT_EQ(floats(at("there"), name), floats(at("source"), name)) << name;
  }
}

TEST_F(Convert, ShardsAndOtherFilesAreCopied) {
  const fs::path source = at("source");
  fs::create_directories(source / "extra");
  io::testing::put(source / "config.json", kLlama);
  io::testing::put(source / "tokenizer.json", "{}");
  io::testing::put(source / "extra" / "notes.txt", "kept");
  io::testing::put(source / "training_args.bin", "not weights");
  const auto shard = [&](const char* file, const char* name, std::int64_t rows) {
    std::vector<float> values(static_cast<std::size_t>(rows * 16));
    std::iota(values.begin(), values.end(), 1.0F);
    const io::Tensor tensor{message("model.layers.0.self_attn.", name, ".weight"),
                            io::TensorType::f32,
                            {rows, 16},
                            std::as_bytes(std::span(values))};
    ASSERT_TRUE(io::write_safetensors(source / file, {tensor}).ok());
  };
  shard("model-00001-of-00003.safetensors", "q_proj", 16);
  shard("model-00002-of-00003.safetensors", "k_proj", 8);
  shard("model-00003-of-00003.safetensors", "v_proj", 8);
  io::testing::put(source / "model.safetensors.index.json", R"({"metadata": {}, "weight_map": {
      "model.layers.0.self_attn.q_proj.weight": "model-00001-of-00003.safetensors",
      "model.layers.0.self_attn.k_proj.weight": "model-00002-of-00003.safetensors",
      "model.layers.0.self_attn.v_proj.weight": "model-00003-of-00003.safetensors"}})");
  const ConvertResult there =
      convert(source, at("there"), PairLayout::interleaved).value_or_throw();
  EXPECT_EQ(there.files, 8);
  EXPECT_EQ(there.tensors, 2);
  ASSERT_TRUE(convert(at("there"), at("back"), PairLayout::half).ok());
  EXPECT_EQ(contents(at("back")), contents(source));
  EXPECT_NE(contents(at("there")), contents(source));
}

}  // namespace
}  // namespace phasor::porting::testing
