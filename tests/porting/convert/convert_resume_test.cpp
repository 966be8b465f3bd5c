// Conversions that were cut short, and those that are refused.
#include "phasor/porting/convert.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <set>
#include <stdexcept>

#include "phasor/io/internal/json.hpp"
#include "porting/convert/convert_fixture.hpp"
#include "support/cancellation.hpp"

namespace phasor::porting::testing {
namespace {

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

// A cancelled conversion is one that was cut.
TEST_F(Convert, CancelledAtAnyLookResumesToTheSameBytes) {
  ConvertOptions options;
  options.source = golden("llama_gqa_llama3");
  options.to = PairLayout::interleaved;
  options.destination = at("whole");
  ASSERT_TRUE(convert_checkpoint(options).ok());
  const std::map<std::string, std::string> expected = contents(at("whole"));
  options.destination = at("cancelled");
  const std::int64_t looks = test::cancel_at_each_look(
      [&] {
        (void)test::runs_to_its_end([&] { (void)convert_checkpoint(options).value_or_throw(); });
      },
      [&](std::int64_t look) {
        EXPECT_FALSE(config::read_config(options.destination).ok()) << "it is unfinished";
        ASSERT_TRUE(convert_checkpoint(options).ok());
        EXPECT_EQ(contents(options.destination), expected) << look;
        fs::remove_all(options.destination);
      });
  EXPECT_GT(looks, 5);
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
  EXPECT_NE(refusal(golden("llama_gqa_llama3"), PairLayout::interleaved)
                .find(fs::weakly_canonical(source).string()),
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
  // What another boot wrote may be lost or wrong, so it is overwritten here.
  auto journal = io::Json::parse(io::testing::get(at("cut") / ".phasor_convert.json"));
  journal["boot"] = "another";
  io::testing::put(at("cut") / ".phasor_convert.json", journal.dump());
  const fs::path partial = at("cut") / ".model.safetensors.partial";
  io::testing::put(partial, std::string(fs::file_size(partial), '\0'));
  EXPECT_EQ(convert_checkpoint(options).value_or_throw().resumed, 0U);
  ASSERT_TRUE(convert(options.source, at("whole"), PairLayout::interleaved).ok());
  EXPECT_EQ(contents(at("cut")), contents(at("whole")));
}

// A source that changes

// The copy would mix bytes of before and after.
TEST_F(Convert, ASourceThatChangesIsAnErrorAndNothingIsWritten) {
  using std::chrono::seconds;
  const std::pair<const char*, std::function<void(const fs::path&)>> changes[] = {
      {"model.safetensors",
       [](const fs::path& source) {  // other bytes, the same size
         std::fstream file(source / "model.safetensors", std::ios::in | std::ios::out);
         file.seekp(-8, std::ios::end);
         file << "12345678";
         file.close();
         const auto time = fs::last_write_time(source / "model.safetensors");
         fs::last_write_time(source / "model.safetensors", time + seconds(1));
       }},
      {"model.safetensors",
       [](const fs::path& source) { fs::resize_file(source / "model.safetensors", 5000); }},
      {"config.json",
       [](const fs::path& source) { std::ofstream(source / "config.json", std::ios::app) << " "; }},
      {"model.safetensors",
       [](const fs::path& source) {  // the same bytes and time in another file
         const auto time = fs::last_write_time(source / "model.safetensors");
         fs::copy_file(source / "model.safetensors", source / "other");
         fs::last_write_time(source / "other", time);
         fs::rename(source / "other", source / "model.safetensors");
       }},
      {"added", [](const fs::path& source) { io::testing::put(source / "tokenizer.json", "{}"); }},
      {"removed", [](const fs::path& source) { fs::remove(source / "generation_config.json"); }},
  };
  for (const auto& [shown, change] : changes) {
    // At the first report, in the middle and at the last.
    for (const int when : {0, 4, 8}) {
      const fs::path source = copy_of("llama_gqa_llama3");
      io::testing::put(source / "generation_config.json", "{}");
      fs::create_directory(source / "notes");
      io::testing::put(source / "notes" / "a.txt", "a");
      ConvertOptions options;
      options.source = source;
      options.destination = at("new");
      int steps = 0;
      options.progress = [&](const ConvertProgress&) {
        if (steps++ == when) change(source);
      };
      tests::expect_error(ErrorCode::io, {shown}, convert_checkpoint(options));
      EXPECT_GT(steps, when);
      EXPECT_FALSE(fs::exists(at("new"))) << shown;
      options.progress = {};
      fs::remove_all(source);
      EXPECT_EQ(entries(), 0U);
    }
  }
}

TEST_F(Convert, AJournalThatWasNotFinishedDoesNotCount) {
  fs::create_directories(at("cut"));
  io::testing::put(at("cut") / "..phasor_convert.json.partial", "{");
  ASSERT_TRUE(convert(golden("llama_gqa_llama3"), at("cut"), PairLayout::interleaved).ok());
  ASSERT_TRUE(convert(golden("llama_gqa_llama3"), at("whole"), PairLayout::interleaved).ok());
  EXPECT_EQ(contents(at("cut")), contents(at("whole")));
}

// Refusals

TEST_F(Convert, RefusesFoldersThatAreNotApart) {
  const fs::path source = copy_of("llama_gqa_llama3");
  for (const fs::path& to : {source, source / "inside", source / ".." / "llama_gqa_llama3"}) {
    const Result<ConvertResult> result = convert(source, to, PairLayout::interleaved);
    ASSERT_FALSE(result.ok()) << to;
    EXPECT_NE(std::string_view(result.error().what()).find("separate folder"), std::string::npos);
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

TEST_F(Convert, RefusesWeightsThatItWouldNotConvert) {
  const fs::path source = copy_of("llama_gqa_llama3");
  for (const char* name : {"pytorch_model.bin", "model.gguf", "adapter.safetensors"}) {
    io::testing::put(source / name, "");
    expect_refused(source, {name});
    fs::remove(source / name);
  }
}

TEST_F(Convert, RefusesTensorsThatItDoesNotKnow) {
  for (const char* name : {"q_proj.qweight", "q_proj.weight_scale_inv", "q_proj.lora_A.weight",
                           "q_gain", "kv_a_proj_with_mqa.weight"}) {
    Checkpoint checkpoint = llama();
    checkpoint.add(message("model.layers.0.self_attn.", name), {4, 4});
    checkpoint.write(at("source"), kLlama);
    expect_refused(at("source"), {name});
  }
  llama("base_model.model.layers.0.self_attn.").write(at("source"), kLlama);
  expect_refused(at("source"), {"base_model.model."});
}

TEST_F(Convert, RefusesShapesThatDisagree) {
  Checkpoint checkpoint;
  checkpoint.add("model.layers.0.self_attn.q_proj.weight", {16, 16});
  checkpoint.add("model.layers.0.self_attn.k_proj.weight", {16, 16});  // the config says 8
  checkpoint.add("model.layers.0.self_attn.v_proj.weight", {8, 16});
  checkpoint.write(at("source"), kLlama);
  expect_refused(at("source"), {"k_proj.weight", "8"});

  Checkpoint normed = llama();
  normed.add("model.layers.0.self_attn.q_norm.weight", {5});
  normed.write(at("source"), kLlama);
  expect_refused(at("source"), {"q_norm.weight", "4", "16"});
}

TEST_F(Convert, RefusesLayersThatAreNotThereOrTooMany) {
  llama("model.layers.1.self_attn.").write(at("source"), kLlama);
  expect_refused(at("source"), {"layer 0"});
  Checkpoint checkpoint = llama();
  checkpoint.add("model.layers.1.self_attn.q_proj.weight", {16, 16});
  checkpoint.write(at("source"), kLlama);
  expect_refused(at("source"), {"layer 1"});
}

TEST_F(Convert, RefusesKeysThatServeAsValues) {
  Checkpoint checkpoint;
  checkpoint.add("model.layers.0.self_attn.q_proj.weight", {16, 16});
  checkpoint.add("model.layers.0.self_attn.k_proj.weight", {8, 16});
  checkpoint.write(at("source"), kLlama);
  expect_refused(at("source"), {"serve as values"});
}

TEST_F(Convert, RefusesFamiliesByName) {
  llama().write(at("source"), R"({"model_type": "deepseek_v3", "hidden_size": 16,
      "num_attention_heads": 4, "num_hidden_layers": 1, "qk_rope_head_dim": 4,
      "qk_nope_head_dim": 4, "rope_theta": 10000.0})");
  expect_refused(at("source"), {"latent attention"});
  llama().write(at("source"), R"({"model_type": "codegen", "n_embd": 16, "n_head": 4,
      "n_layer": 1, "rotary_dim": 4})");
  expect_refused(at("source"), {"\"codegen\""});
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
  expect_refused(source, {"extra"});
  put(R"({"format": 2, "layout": "interleaved", "converted_from": "half", "model_type": "llama"})");
  expect_refused(source, {"format"});
  put(R"({"format": 1, "layout": "sideways", "converted_from": "half", "model_type": "llama"})");
  expect_refused(source, {"layout"});
  put(R"({"format": 1, "layout": "interleaved", "converted_from": "half", "model_type": "phi"})");
  expect_refused(source, {"model_type"});
  put(R"({"format": 1, "layout": "interleaved", "converted_from": "half", "model_type": "llama"})");
  EXPECT_TRUE(convert(source, at("there"), PairLayout::half).ok());
}

TEST_F(Convert, SummaryAsJson) {
  const ConvertResult result =
      convert(golden("qwen3_qk_norm"), at("there"), PairLayout::interleaved).value_or_throw();
  const auto json = io::Json::parse(convert_json(result));
  EXPECT_EQ(json["model_type"], "qwen3");
  EXPECT_EQ(json["from"], "half");
  EXPECT_EQ(json["to"], "interleaved");
  EXPECT_EQ(json["layers"], 3);
  EXPECT_EQ(json["tensors"], 12);
  EXPECT_EQ(json["files"], 2);
  EXPECT_LT(json["proof"]["largest_difference"].get<double>(), 1e-12);
  const auto sidecar = io::Json::parse(io::testing::get(at("there") / "phasor_layout.json"));
  EXPECT_EQ(sidecar["layout"], "interleaved");
  EXPECT_EQ(sidecar["tensors"], 12);
}

}  // namespace
}  // namespace phasor::porting::testing
