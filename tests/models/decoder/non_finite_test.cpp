// Weights and results that are not finite, and files that change while a model is loaded.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "models/decoder/decoder_support.hpp"
#include "models/matrix/quantised_tensor.hpp"
#include "models/numbers.hpp"
#include "phasor/models/generate.hpp"
#include "phasor/models/internal/matrix.hpp"
#include "phasor/models/internal/perplexity.hpp"
#include "phasor/models/roformer.hpp"
#include "support/changed_model.hpp"
#include "support/errors.hpp"

namespace phasor::models::testing {
namespace {

namespace fs = std::filesystem;
using tests::copy_with_value;
using tests::expect_error;

constexpr float kLargest = std::numeric_limits<float>::max();

class NonFinite : public io::testing::TemporaryFolder {
 protected:
  [[nodiscard]] fs::path changed(std::string_view tensor, float value, std::size_t first = 0,
                                 std::size_t end = std::string::npos) const {
    copy_with_value(golden_model("llama_gqa_llama3"), at("model"), tensor, value, first, end);
    return at("model");
  }
};

TEST_F(NonFinite, WeightsAreRefusedWithTheirTensor) {
  const struct {
    const char* tensor;
    std::size_t element;
    const char* place;
  } cases[] = {
      {"model.embed_tokens.weight", 64 * 5 + 3, "row 5, column 3"},
      {"model.layers.2.self_attn.k_proj.weight", 64 * 31 + 63, "row 31, column 63"},
      {"model.layers.1.post_attention_layernorm.weight", 17, "element 17"},
      {"lm_head.weight", 0, "row 0, column 0"},
  };
  for (const auto& [tensor, element, place] : cases) {
    for (const auto& [value, text] :
         {std::pair(kInfinity, "inf"), std::pair(-kInfinity, "-inf"), std::pair(kNan, "nan")}) {
      expect_error(ErrorCode::invalid_argument, {at("model").string(), tensor, place, text},
                   Decoder::load(changed(tensor, value, element, element + 1)));
    }
  }
  EXPECT_TRUE(Decoder::load(changed(cases[1].tensor, kLargest)).ok());
}

// Each scale and minimum of each type.
TEST(NonFiniteBlocks, ScalesAreRefusedWithTheirRow) {
  using io::TensorType;
  for (const TensorType type :
       {TensorType::q4_0, TensorType::q4_1, TensorType::q5_0, TensorType::q5_1, TensorType::q8_0,
        TensorType::q4_k, TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl}) {
    constexpr std::int64_t kRows = 40, kColumns = 512;
    const std::int64_t elements = io::block_elements(type);
    for (const std::size_t half : plan_of(type).halves) {
      QuantisedTensor w(type, kRows, kColumns, 3);
      (void)Matrix::pack(w.tensor());
      // The last block of row 37.
      const auto block = static_cast<std::size_t>(38 * kColumns / elements - 1);
      w.set_half(block * io::block_bytes(type) + half, kNan);
      const std::string columns = message("columns ", kColumns - elements, " to ", kColumns - 1);
      expect_error(ErrorCode::invalid_argument, {"'w'", "row 37", columns, "nan"},
                   [&] { return Matrix::pack(w.tensor()); });
      // Rows without it are fine.
      const TensorRows before{&w.tensor(), 0, 37};
      EXPECT_EQ(Matrix::pack({&before, 1}).rows(), 37);
    }
  }
}

TEST(NonFiniteBlocks, ADoubleBeyondFloat32IsRefused) {
  const std::vector<double> values = {1.0, 2.0, 1e300, 4.0};
  const io::Tensor tensor{"w", io::TensorType::f64, {2, 2}, std::as_bytes(std::span(values))};
  expect_error(ErrorCode::invalid_argument, {"'w'", "row 1, column 0", "inf"},
               [&] { return Matrix::pack(tensor); });
}

// Finite weights whose products are not: the first layer with a result that is not finite is named.
TEST_F(NonFinite, OverflowNamesTheFirstLayer) {
  const std::vector<std::int64_t> ids = golden_ids("llama_gqa_llama3");
  for (const auto& [tensor, place] :
       {std::pair("model.layers.0.mlp.down_proj.weight", "layer 0 of 3"),
        std::pair("model.layers.1.self_attn.o_proj.weight", "layer 1 of 3"),
        std::pair("model.layers.2.mlp.up_proj.weight", "layer 2 of 3"),
        std::pair("lm_head.weight", "logits")}) {
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      Decoder decoder = load(changed(tensor, kLargest), {.precision = precision});
      Sequence sequence = decoder.sequence({.capacity = 64});
      const Step step{&sequence, ids};
      // Every result that a call can ask for, and a prompt whose logits are not requested.
      for (const LogitsOf logits : {LogitsOf::every_token, LogitsOf::last_token, LogitsOf::none}) {
        if (logits == LogitsOf::none && std::string_view(place) == "logits") continue;
        for (const HiddenStates hidden : {HiddenStates::leave, HiddenStates::collect}) {
          expect_error(ErrorCode::out_of_range, {place}, [&] {
            return decoder.forward({&step, 1}, {logits, hidden});
          });
          EXPECT_TRUE(sequence.ids().empty());
          EXPECT_EQ(sequence.next_position(), 0);
        }
      }
      Generator generator(decoder);
      expect_error(ErrorCode::out_of_range, {place},
                   [&] { return generator.generate(ids, {.tokens = 4}); });
      expect_error(ErrorCode::out_of_range, {place},
                   [&] { return perplexity(decoder, ids, {.context = 8}); });
    }
  }
}

// One token of the prompt overflows: a sequence that was fine goes on as before.
TEST_F(NonFinite, AFailedStepLeavesTheSequence) {
  // The largest numbers in the embedding of one token, and a first layer that adds more to all.
  constexpr std::size_t kToken = 96;
  const std::string embedding = "model.embed_tokens.weight";
  (void)changed("model.layers.0.mlp.down_proj.weight", 1e33F);
  copy_with_value(at("model"), at("half"), embedding, kLargest, 64 * kToken, 64 * kToken + 32);
  copy_with_value(at("half"), at("whole"), embedding, -kLargest, 64 * kToken + 32,
                  64 * kToken + 64);
  Decoder decoder = load(at("whole"));
  const std::vector<std::int64_t> fine = {1, 2, 3, 4}, bad = {5, kToken}, rest = {6, 7};
  const auto run = [&](Sequence& sequence, const std::vector<std::int64_t>& ids) {
    const Step step{&sequence, ids};
    return decoder.forward({&step, 1}).logits;
  };
  Sequence plain = decoder.sequence({.capacity = 16}), tried = decoder.sequence({.capacity = 16});
  (void)run(plain, fine);
  (void)run(tried, fine);
  expect_error(ErrorCode::out_of_range, {"layer 0 of 3"}, [&] { return run(tried, bad); });
  EXPECT_EQ(tried.ids().size(), fine.size());
  EXPECT_EQ(run(tried, rest), run(plain, rest));
}

TEST_F(NonFinite, RoFormerNamesTensorAndLayer) {
  const fs::path golden = golden_model("roformer_mlm");
  const std::string dense = "roformer.encoder.layer.1.output.dense.weight";
  copy_with_value(golden, at("weight"), dense, kNan, 70, 71);
  expect_error(ErrorCode::invalid_argument, {dense, "row 0, column 70", "nan"},
               RoFormer::load(at("weight")));
  copy_with_value(golden, at("bias"), "cls.predictions.transform.dense.bias", kInfinity, 3, 4);
  expect_error(ErrorCode::invalid_argument, {"cls.predictions.transform.dense.bias", "element 3"},
               RoFormer::load(at("bias")));
  const std::vector<std::int64_t> ids = {1, 2, 3};
  copy_with_value(golden, at("layer"), dense, kLargest);
  RoFormer model = RoFormer::load(at("layer")).value_or_throw();
  expect_error(ErrorCode::out_of_range, {"layer 1 of 3"},
               [&] { return model.forward({.ids = ids}); });
  copy_with_value(golden, at("head"), "cls.predictions.transform.LayerNorm.weight", kLargest);
  RoFormer head = RoFormer::load(at("head")).value_or_throw();
  expect_error(ErrorCode::out_of_range, {"logits"}, [&] { return head.forward({.ids = ids}); });
}

// A mapped file would raise SIGBUS here.
TEST_F(NonFinite, AFileThatBecomesShorterIsAnError) {
  fs::copy(golden_model("llama_gqa_llama3"), at("model"));
  const fs::path file = at("model") / "model.safetensors";
  const std::uintmax_t size = fs::file_size(file);
  for (const std::uintmax_t left : {std::uintmax_t{0}, std::uintmax_t{4096}, size / 2, size - 1}) {
    fs::copy(golden_model("llama_gqa_llama3"), at("model"),
             fs::copy_options::overwrite_existing | fs::copy_options::recursive);
    Checkpoint checkpoint = Checkpoint::open(at("model")).value_or_throw();
    fs::resize_file(file, left);
    expect_error(ErrorCode::io, {file.string()}, Decoder::load(std::move(checkpoint)));
  }
}

TEST_F(NonFinite, AFileThatIsWrittenToIsAnError) {
  fs::copy(golden_model("llama_gqa_llama3"), at("model"));
  const fs::path file = at("model") / "model.safetensors";
  Checkpoint checkpoint = Checkpoint::open(at("model")).value_or_throw();
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  expect_error(ErrorCode::io, {file.string()}, Decoder::load(std::move(checkpoint)));
  EXPECT_TRUE(Decoder::load(at("model")).ok());
}

}  // namespace
}  // namespace phasor::models::testing
