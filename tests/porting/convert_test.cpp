// Checkpoints converted between layouts: which rows move, which bytes stay, and what happens to a
// conversion that was cut short.
#include "phasor/porting/convert.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "phasor/config/config.hpp"
#include "phasor/core/reference.hpp"
#include "porting/checkpoints.hpp"

namespace phasor::porting::testing {
namespace {

using core::PairLayout;

const fs::path kModels = fs::path(PHASOR_GOLDEN_DIR) / "models";

fs::path golden(std::string_view name) { return kModels / name / "model"; }

PairLayout layout_in(const fs::path& folder) {
  const config::ModelConfig model = config::read_config(folder).value_or_throw();
  for (const config::LayerGroup& group : model.groups) {
    if (group.rope) return group.rope->layout.value();
  }
  throw std::runtime_error("no layer rotates");
}

PairLayout other(PairLayout layout) {
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
  void expect_refused(const fs::path& from, std::string_view words,
                      PairLayout layout = PairLayout::interleaved) const {
    const Result<ConvertResult> result = convert(from, at("refused"), layout);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(std::string_view(result.error().what()).find(words), std::string::npos)
        << result.error().what();
    EXPECT_FALSE(fs::exists(at("refused")));
  }
  // A copy that the test may spoil.
  [[nodiscard]] fs::path copy_of(std::string_view model) const {
    const fs::path folder = at(model);
    fs::copy(golden(model), folder, fs::copy_options::recursive);
    return folder;
  }
};

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
  const bool values_turn = GetParam() == "roformer_mlm_rotary_value";
  ASSERT_TRUE(convert(source, at("there"), other(layout_in(source))).ok());
  const auto before = io::SafetensorsCheckpoint::open(source).value_or_throw();
  const auto after = io::SafetensorsCheckpoint::open(at("there")).value_or_throw();
  std::int64_t moved = 0;
  for (const io::Tensor& tensor : before.shards()[0].file.tensors()) {
    const io::Tensor* now = after.find(tensor.name);
    ASSERT_NE(now, nullptr);
    EXPECT_EQ(now->shape, tensor.shape);
    const bool same = std::equal(tensor.bytes.begin(), tensor.bytes.end(), now->bytes.begin());
    bool expected = false;
    for (const char* part : {"q_proj", "k_proj", "qkv_proj", "query_key_value", "self.query",
                             "self.key", "q_norm", "k_norm"}) {
      expected = expected || tensor.name.find(part) != std::string::npos;
    }
    if (values_turn && (tensor.name.find("self.value") != std::string::npos ||
                        tensor.name.find("attention.output.dense.weight") != std::string::npos)) {
      expected = true;
    }
    // Constant biases and norms look alike in any order.
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
  expect_refused(source, message("already ", core::name_of(own)), own);
  ASSERT_TRUE(convert(source, at("there"), other(own)).ok());
  expect_refused(at("there"), message("already ", core::name_of(other(own))), other(own));
}

std::vector<std::string> all_models() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kModels)) {
    if (fs::exists(entry.path() / "model")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Golden, EveryFamily, ::testing::ValuesIn(all_models()),
                         [](const auto& param) { return param.param; });

// Which row goes where, written out

// From half to interleaved: the row of the source that row r of a head of d rows takes, the first R
// turning.
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

TEST_F(Convert, OfAPartialRotationOnlyThePartThatTurns) {
  const fs::path source = golden("gpt_neox_partial");  // 4 heads of 16, 4 features turn
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
  const fs::path source = golden("phi3_longrope_partial");  // 4 q, 2 k, 2 v heads of 16, 12 turn
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
  const auto turned = [&](const char* name, const std::vector<float>& in, std::int64_t position) {
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
  const auto q = turned("model.layers.0.self_attn.q_proj.weight", x, 7);
  const auto k = turned("model.layers.0.self_attn.k_proj.weight", y, 3);
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

constexpr std::string_view kLlama = R"({"model_type": "llama", "hidden_size": 16,
  "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
  "rope_theta": 10000.0, "max_position_embeddings": 64})";

// q and k of one layer of kLlama: 4 and 2 heads of 4.
Checkpoint llama(const std::string& module = "model.layers.0.self_attn.") {
  Checkpoint checkpoint;
  checkpoint.add(module + "q_proj.weight", {16, 16});
  checkpoint.add(module + "k_proj.weight", {8, 16});
  checkpoint.add(module + "v_proj.weight", {8, 16});
  checkpoint.add(module + "o_proj.weight", {16, 16});
  return checkpoint;
}

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
  expect_refused(at("source"), "already interleaved");
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

// Cut short

struct Cut : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs until the callback was called `steps` times; true when it was cut.
bool run_cut(ConvertOptions options, int steps) {
  options.progress = [&](const ConvertProgress&) {
    if (--steps < 0) throw Cut("cut");
  };
  try {
    (void)convert_checkpoint(options).value_or_throw();
  } catch (const Cut&) {
    return true;
  }
  return false;
}

TEST_F(Convert, ResumesAfterAnyStep) {
  ConvertOptions options;
  options.source = golden("gpt_neox_partial");
  options.to = PairLayout::interleaved;
  options.destination = at("whole");
  const ConvertResult whole = convert_checkpoint(options).value_or_throw();
  const std::map<std::string, std::string> expected = contents(at("whole"));
  int cuts = 0;
  for (int steps = 0;; ++steps, ++cuts) {
    options.destination = at(message("cut", steps));
    if (!run_cut(options, steps)) break;
    EXPECT_FALSE(fs::exists(options.destination / "phasor_layout.json"));
    EXPECT_FALSE(fs::exists(options.destination / "config.json"));
    const ConvertResult resumed = convert_checkpoint(options).value_or_throw();
    EXPECT_GT(resumed.resumed, 0U);
    EXPECT_EQ(resumed.tensors, whole.tensors);
    EXPECT_EQ(contents(options.destination), expected) << steps;
    fs::remove_all(options.destination);
  }
  EXPECT_GT(cuts, 5);
}

TEST_F(Convert, ResumesFromAPartialFileOfAnyLength) {
  ConvertOptions options;
  options.source = golden("glm_interleaved_partial");
  options.to = PairLayout::half;
  options.destination = at("whole");
  int steps = 0;
  options.progress = [&](const ConvertProgress&) { ++steps; };
  ASSERT_TRUE(convert_checkpoint(options).ok());
  options.progress = {};
  const std::map<std::string, std::string> expected = contents(at("whole"));
  const std::uintmax_t size = fs::file_size(options.source / "model.safetensors");
  options.destination = at("cut");
  for (std::uintmax_t length = 0; length < size; length += 9973) {
    ASSERT_TRUE(run_cut(options, steps - 2));  // the last step is config.json
    const fs::path partial = options.destination / ".model.safetensors.partial";
    ASSERT_EQ(fs::file_size(partial), size);
    fs::resize_file(partial, length);
    ASSERT_TRUE(convert_checkpoint(options).ok());
    EXPECT_EQ(contents(options.destination), expected) << length;
    fs::remove_all(options.destination);
  }
}

TEST_F(Convert, AnUnfinishedFolderIsNoCheckpoint) {
  ConvertOptions options;
  options.source = golden("llama_gqa_llama3");
  options.destination = at("cut");
  ASSERT_TRUE(run_cut(options, 3));
  fs::copy_file(options.source / "config.json", at("cut") / "config.json");
  const Result<config::ModelConfig> config = config::read_config(at("cut"));
  ASSERT_FALSE(config.ok());
  EXPECT_NE(std::string_view(config.error().what()).find("unfinished"), std::string::npos);
}

TEST_F(Convert, AnotherConversionIsNotContinued) {
  const fs::path source = copy_of("llama_gqa_llama3");
  ConvertOptions options;
  options.source = source;
  options.destination = at("cut");
  ASSERT_TRUE(run_cut(options, 3));
  const auto refusal = [&](const fs::path& from, PairLayout to) {
    const Result<ConvertResult> result = convert(from, at("cut"), to);
    return result.ok() ? std::string("none") : std::string(result.error().what());
  };
  EXPECT_NE(refusal(golden("llama_gqa_llama3"), PairLayout::interleaved).find("got one of "),
            std::string::npos);
  io::testing::put(source / "generation_config.json", "{}");
  EXPECT_NE(refusal(source, PairLayout::interleaved).find("changed since"), std::string::npos);
  io::testing::put(at("cut") / ".phasor_convert.json", "{");
  EXPECT_NE(refusal(source, PairLayout::interleaved).find("journal"), std::string::npos);
}

TEST_F(Convert, StartsOverAfterTheMachineDid) {
  ConvertOptions options;
  options.source = golden("llama_gqa_llama3");
  options.destination = at("cut");
  ASSERT_TRUE(run_cut(options, 8));
  // What another boot wrote may be lost or wrong, so spoil it.
  auto journal = nlohmann::json::parse(io::testing::get(at("cut") / ".phasor_convert.json"));
  journal["boot"] = "another";
  io::testing::put(at("cut") / ".phasor_convert.json", journal.dump());
  const fs::path partial = at("cut") / ".model.safetensors.partial";
  io::testing::put(partial, std::string(fs::file_size(partial), '\0'));
  EXPECT_EQ(convert_checkpoint(options).value_or_throw().resumed, 0U);
  ASSERT_TRUE(convert(options.source, at("whole"), PairLayout::interleaved).ok());
  EXPECT_EQ(contents(at("cut")), contents(at("whole")));
}

// Refusals

TEST_F(Convert, RefusesFoldersThatAreNotApart) {
  const fs::path source = copy_of("llama_gqa_llama3");
  for (const fs::path& to : {source, source / "inside", source / ".." / "llama_gqa_llama3"}) {
    const Result<ConvertResult> result = convert(source, to, PairLayout::interleaved);
    ASSERT_FALSE(result.ok()) << to;
    EXPECT_NE(std::string_view(result.error().what()).find("apart"), std::string::npos);
  }
  EXPECT_EQ(contents(source), contents(golden("llama_gqa_llama3")));
}

TEST_F(Convert, RefusesADestinationWithOtherFiles) {
  fs::create_directories(at("full"));
  io::testing::put(at("full") / "mine.txt", "mine");
  const Result<ConvertResult> result =
      convert(golden("llama_gqa_llama3"), at("full"), PairLayout::interleaved);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(std::string_view(result.error().what()).find("must be empty"), std::string::npos);
  EXPECT_EQ(contents(at("full")).size(), 1U);
}

TEST_F(Convert, RefusesWeightsThatItWouldLeaveBehind) {
  const fs::path source = copy_of("llama_gqa_llama3");
  for (const char* name : {"pytorch_model.bin", "model.gguf", "adapter.safetensors"}) {
    io::testing::put(source / name, "");
    expect_refused(source, name);
    fs::remove(source / name);
  }
}

TEST_F(Convert, RefusesTensorsThatItDoesNotKnow) {
  for (const char* name : {"q_proj.qweight", "q_proj.weight_scale_inv", "q_proj.lora_A.weight",
                           "q_gain", "kv_a_proj_with_mqa.weight"}) {
    Checkpoint checkpoint = llama();
    checkpoint.add(message("model.layers.0.self_attn.", name), {4, 4});
    checkpoint.write(at("source"), kLlama);
    expect_refused(at("source"), name);
  }
  llama("base_model.model.layers.0.self_attn.").write(at("source"), kLlama);
  expect_refused(at("source"), "base_model.model.");
}

TEST_F(Convert, RefusesShapesThatDisagree) {
  Checkpoint checkpoint;
  checkpoint.add("model.layers.0.self_attn.q_proj.weight", {16, 16});
  checkpoint.add("model.layers.0.self_attn.k_proj.weight", {16, 16});  // the config says 8
  checkpoint.add("model.layers.0.self_attn.v_proj.weight", {8, 16});
  checkpoint.write(at("source"), kLlama);
  expect_refused(at("source"), "k_proj.weight: must have 8 features");

  Checkpoint normed = llama();
  normed.add("model.layers.0.self_attn.q_norm.weight", {5});
  normed.write(at("source"), kLlama);
  expect_refused(at("source"), "q_norm.weight: must have 4 or 16 numbers");
}

TEST_F(Convert, RefusesLayersThatAreNotThereOrTooMany) {
  llama("model.layers.1.self_attn.").write(at("source"), kLlama);
  expect_refused(at("source"), "layer 0");
  Checkpoint checkpoint = llama();
  checkpoint.add("model.layers.1.self_attn.q_proj.weight", {16, 16});
  checkpoint.write(at("source"), kLlama);
  expect_refused(at("source"), "layer 1");
}

TEST_F(Convert, RefusesKeysThatServeAsValues) {
  Checkpoint checkpoint;
  checkpoint.add("model.layers.0.self_attn.q_proj.weight", {16, 16});
  checkpoint.add("model.layers.0.self_attn.k_proj.weight", {8, 16});
  checkpoint.write(at("source"), kLlama);
  expect_refused(at("source"), "serve as values");
}

TEST_F(Convert, RefusesFamiliesByName) {
  llama().write(at("source"), R"({"model_type": "deepseek_v3", "hidden_size": 16,
      "num_attention_heads": 4, "num_hidden_layers": 1, "qk_rope_head_dim": 4,
      "qk_nope_head_dim": 4, "rope_theta": 10000.0})");
  expect_refused(at("source"), "latent attention");
  llama().write(at("source"), R"({"model_type": "codegen", "n_embd": 16, "n_head": 4,
      "n_layer": 1, "rotary_dim": 4})");
  expect_refused(at("source"), "\"codegen\"");
}

TEST_F(Convert, RefusesTheLayoutThatTheConfigContradicts) {
  ConvertOptions options;
  options.source = golden("llama_gqa_llama3");
  options.destination = at("refused");
  options.to = PairLayout::half;
  options.from = PairLayout::interleaved;
  const Result<ConvertResult> result = convert_checkpoint(options);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(std::string_view(result.error().what()).find("--from"), std::string::npos);
}

TEST_F(Convert, RefusesASidecarThatItDidNotWrite) {
  const fs::path source = copy_of("llama_gqa_llama3");
  const auto put = [&](std::string_view text) {
    io::testing::put(source / "phasor_layout.json", text);
  };
  put(R"({"format": 1, "layout": "interleaved", "converted_from": "half", "model_type": "llama",
          "extra": 1})");
  expect_refused(source, "extra");
  put(R"({"format": 2, "layout": "interleaved", "converted_from": "half", "model_type": "llama"})");
  expect_refused(source, "format");
  put(R"({"format": 1, "layout": "sideways", "converted_from": "half", "model_type": "llama"})");
  expect_refused(source, "layout");
  put(R"({"format": 1, "layout": "interleaved", "converted_from": "half", "model_type": "phi"})");
  expect_refused(source, "model_type");
  put(R"({"format": 1, "layout": "interleaved", "converted_from": "half", "model_type": "llama"})");
  EXPECT_TRUE(convert(source, at("there"), PairLayout::half).ok());
}

TEST_F(Convert, SummaryAsJson) {
  const ConvertResult result =
      convert(golden("qwen3_qk_norm"), at("there"), PairLayout::interleaved).value_or_throw();
  const auto json = nlohmann::json::parse(convert_json(result));
  EXPECT_EQ(json["model_type"], "qwen3");
  EXPECT_EQ(json["from"], "half");
  EXPECT_EQ(json["to"], "interleaved");
  EXPECT_EQ(json["layers"], 3);
  EXPECT_EQ(json["tensors"], 12);
  EXPECT_EQ(json["files"], 2);
  EXPECT_LT(json["proof"]["largest_difference"], 1e-12);
  const auto sidecar = nlohmann::json::parse(io::testing::get(at("there") / "phasor_layout.json"));
  EXPECT_EQ(sidecar["layout"], "interleaved");
  EXPECT_EQ(sidecar["tensors"], 12);
}

}  // namespace
}  // namespace phasor::porting::testing
