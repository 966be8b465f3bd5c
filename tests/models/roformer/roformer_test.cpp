#include "phasor/models/roformer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <utility>

#include "roformer_support.hpp"
#include "support/cancellation.hpp"
#include "support/errors.hpp"

namespace phasor::models {
namespace {

using testing::doubles;
using testing::expect_near;
using testing::Files;
using testing::golden_case;
using testing::integers;

RoFormer load_roformer(const std::filesystem::path& folder) {
  return RoFormer::load(folder).value_or_throw();
}

// The bounds of the golden cases.
constexpr double kRelative = 1e-4, kHidden = 2e-5, kLogits = 1e-4;

class RoFormerGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(RoFormerGolden, HiddenStatesAndLogits) {
  const std::filesystem::path golden = golden_case(GetParam());
  RoFormer model = load_roformer(golden / "model");
  const std::vector<std::int64_t> ids = integers(golden / "input_ids.npy");
  const RoFormerResult result = model.forward({.ids = ids}, HiddenStates::collect);
  const std::vector<double> states = doubles(golden / "hidden_states.npy");
  expect_near(result.hidden_states, states, kHidden, kRelative);
  const std::size_t last = result.last_hidden_state.size();
  expect_near(result.last_hidden_state, std::span(states).last(last), kHidden, kRelative);
  if (model.facts().has_logits_per_token()) {
    expect_near(result.logits, doubles(golden / "logits.npy"), kLogits, kRelative);
  } else {
    EXPECT_TRUE(result.logits.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RoFormerGolden,
                         ::testing::Values("roformer_base", "roformer_mlm",
                                           "roformer_mlm_rotary_value", "roformer_causal_lm",
                                           "roformer_token_classification",
                                           "roformer_question_answering"));

TEST(RoFormer, HeadsAndTheirLogits) {
  const struct {
    const char* name;
    RoFormerHead head;
    std::string_view says;
    std::int64_t columns;
    std::vector<std::string> labels;
    bool is_causal;
  } heads[] = {
      {"roformer_base", RoFormerHead::none, "", 0, {}, false},
      {"roformer_mlm", RoFormerHead::masked_lm, "masked_lm", 97, {}, false},
      {"roformer_causal_lm", RoFormerHead::causal_lm, "causal_lm", 61, {}, true},
      {"roformer_token_classification",
       RoFormerHead::token_classification,
       "token_classification",
       5,
       {"LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4"},
       false},
      {"roformer_question_answering",
       RoFormerHead::question_answering,
       "question_answering",
       2,
       {"start", "end"},
       false},
  };
  for (const auto& expected : heads) {
    SCOPED_TRACE(expected.name);
    const RoFormerFacts facts = load_roformer(golden_case(expected.name) / "model").facts();
    EXPECT_EQ(facts.head, expected.head);
    EXPECT_EQ(name_of(facts.head), expected.says);
    EXPECT_EQ(facts.logit_columns(), expected.columns);
    EXPECT_EQ(facts.label_names, expected.labels);
    EXPECT_EQ(facts.is_causal, expected.is_causal);
  }
}

// A later token changes nothing before it in the causal form, and something in the other.
TEST(RoFormer, OnlyTheCausalFormHidesLaterTokens) {
  for (const auto& [name, is_causal] :
       {std::pair{"roformer_causal_lm", true}, std::pair{"roformer_token_classification", false}}) {
    RoFormer model = load_roformer(golden_case(name) / "model");
    std::vector<std::int64_t> ids = {5, 17, 60, 3, 41};
    const std::vector<float> before = model.forward({.ids = ids}).logits;
    ids.back() = 9;
    const std::vector<float> after = model.forward({.ids = ids}).logits;
    const auto row = static_cast<std::ptrdiff_t>(model.facts().logit_columns());
    EXPECT_EQ(std::equal(before.begin(), before.begin() + 4 * row, after.begin()), is_causal);
    EXPECT_FALSE(std::equal(before.begin() + 4 * row, before.end(), after.begin() + 4 * row));
  }
}

TEST(RoFormer, CanBeCancelled) {
  RoFormer model = load_roformer(golden_case("roformer_causal_lm") / "model");
  const std::vector<std::int64_t> ids = {5, 17, 60, 3, 41};
  const std::vector<float> expected = model.forward({.ids = ids}).logits;
  EXPECT_GT(test::cancel_at_each_look(
                [&] { (void)test::runs_to_its_end([&] { (void)model.forward({.ids = ids}); }); },
                [&](std::int64_t) { EXPECT_EQ(model.forward({.ids = ids}).logits, expected); }),
            10);
  const test::CancelledLook first(0);
  tests::expect_error(ErrorCode::cancelled, {},
                      RoFormer::load(golden_case("roformer_causal_lm") / "model"));
}

TEST(RoFormer, ClassifiesPairsOfSentences) {
  const std::filesystem::path golden = golden_case("roformer_classification");
  RoFormer model = load_roformer(golden / "model");
  const RoFormerFacts& facts = model.facts();
  EXPECT_EQ(facts.head, RoFormerHead::classification);
  EXPECT_EQ(facts.label_names, (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
  EXPECT_EQ(facts.embedding, 48);
  EXPECT_EQ(facts.hidden, 64);
  std::vector<std::uint8_t> mask;
  for (const std::int64_t value : integers(golden / "attention_mask.npy")) {
    mask.push_back(value != 0 ? 1 : 0);
  }
  const std::vector<std::int64_t> ids = integers(golden / "input_ids.npy");
  const std::vector<std::int64_t> types = integers(golden / "token_type_ids.npy");
  const RoFormerResult result =
      model.forward({.batch = 3, .ids = ids, .token_types = types, .mask = mask});
  expect_near(result.logits, doubles(golden / "logits_f64.npy"), kHidden, kRelative);
  // Types and mask count.
  const RoFormerResult other = model.forward({.batch = 3, .ids = ids});
  EXPECT_GT(std::abs(other.logits[0] - result.logits[0]), 1e-2F);
}

// Five tokens among padding: on the right they have the same slots as alone, on the left at
// later ones.
TEST(RoFormer, PaddingOnEitherSideIsNotSeen) {
  for (const std::string name : {"roformer_mlm", "roformer_mlm_rotary_value"}) {
    RoFormer model = load_roformer(golden_case(name) / "model");
    const std::vector<std::int64_t> alone = {5, 17, 90, 3, 41};
    const std::vector<std::int64_t> ids = {5, 17, 90, 3, 41, 7,  8, 9,    // right
                                           7, 8,  9,  5, 17, 90, 3, 41};  // left
    const std::vector<std::uint8_t> mask = {1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1};
    const RoFormerResult one = model.forward({.ids = alone});
    const RoFormerResult two = model.forward({.batch = 2, .ids = ids, .mask = mask});
    const std::vector<double> expected(one.logits.begin(), one.logits.end());
    const std::size_t row = 97;
    expect_near(std::span(two.logits).subspan(0, 5 * row), expected, 2e-5, 1e-5);
    const auto left = std::span(two.logits).subspan(11 * row, 5 * row);
    if (name == "roformer_mlm") {
      expect_near(left, expected, 2e-5, 1e-5);  // (16): scores see m - n alone
    } else {
      // A rotated value depends on its slot.
      double difference = 0.0;
      for (std::size_t i = 0; i < left.size(); ++i) {
        difference = std::max(difference, std::abs(left[i] - expected[i]));
      }
      EXPECT_GT(difference, 1e-2);
    }
  }
}

TEST(RoFormer, LogitsOfChosenSlots) {
  RoFormer model = load_roformer(golden_case("roformer_mlm") / "model");
  const std::vector<std::int64_t> ids = {5, 17, 90, 3, 41, 7, 8, 9}, slots = {3, 0};
  const RoFormerResult all = model.forward({.batch = 2, .ids = ids});
  const RoFormerResult some = model.forward({.batch = 2, .ids = ids, .logit_slots = slots});
  const std::size_t row = 97;
  ASSERT_EQ(some.logits.size(), 4 * row);
  const std::size_t from[] = {3, 0, 7, 4};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto expected = std::span(all.logits).subspan(from[i] * row, row);
    expect_near(std::span(some.logits).subspan(i * row, row),
                std::vector<double>(expected.begin(), expected.end()), 1e-5, 1e-5);
  }
}

// The encoder once more: float64, one token after the other, rotation as a product of complex
// numbers (12), every pair of tokens at once.
class Plain {
 public:
  explicit Plain(const Files& files) : files_(files) {}
  static constexpr std::int64_t kVocabulary = 11, kEmbedding = 8, kHidden = 12, kHeads = 2,
                                kInner = 10, kLayers = 2, kTypes = 3, kLength = 9;
  static constexpr double kEpsilon = 1e-6;
  using Row = std::vector<double>;

  [[nodiscard]] Row weight(const std::string& name) const {
    const auto& values = files_.weights.at(name).values;
    return {values.begin(), values.end()};
  }
  [[nodiscard]] Row linear(const std::string& name, const Row& x) const {
    const Row w = weight(name + ".weight");
    Row y = weight(name + ".bias");
    for (std::size_t r = 0; r < y.size(); ++r) {
      for (std::size_t c = 0; c < x.size(); ++c) y[r] += w[r * x.size() + c] * x[c];
    }
    return y;
  }
  [[nodiscard]] Row norm(const std::string& name, Row x) const {
    const Row scale = weight(name + ".weight"), shift = weight(name + ".bias");
    double mean = 0.0, variance = 0.0;
    for (const double value : x) mean += value / static_cast<double>(x.size());
    for (const double value : x)
      variance += std::pow(value - mean, 2) / static_cast<double>(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = (x[i] - mean) / std::sqrt(variance + kEpsilon) * scale[i] + shift[i];
    }
    return x;
  }
  static Row gelu_tanh(Row x) {
    for (double& v : x) {
      v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
    }
    return x;
  }
  static Row sum(Row a, const Row& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
  static Row rotated(Row x, std::size_t slot) {
    constexpr std::size_t kDim = kHidden / kHeads;
    for (std::size_t i = 0; i + 1 < x.size(); i += 2) {
      const double frequency = std::pow(10000.0, -static_cast<double>(i % kDim) / kDim);  // (15)
      const auto y = std::complex(x[i], x[i + 1]) *
                     std::polar(1.0, static_cast<double>(slot) * frequency);  // (12)
      x[i] = y.real();
      x[i + 1] = y.imag();
    }
    return x;
  }

  [[nodiscard]] std::vector<Row> attention(const std::string& at, const std::vector<Row>& x,
                                           const std::vector<std::uint8_t>& mask) const {
    std::vector<Row> q, k, v, out;
    for (std::size_t n = 0; n < x.size(); ++n) {
      q.push_back(rotated(linear(at + "self.query", x[n]), n));
      k.push_back(rotated(linear(at + "self.key", x[n]), n));
      v.push_back(rotated(linear(at + "self.value", x[n]), n));
    }
    constexpr std::size_t kDim = kHidden / kHeads;
    for (std::size_t m = 0; m < x.size(); ++m) {
      Row context(kHidden, 0.0);
      for (std::size_t head = 0; head < kHidden; head += kDim) {
        Row share(x.size(), 0.0);
        double all = 0.0;
        for (std::size_t n = 0; n < x.size(); ++n) {
          double score = 0.0;
          for (std::size_t d = head; d < head + kDim; ++d) score += q[m][d] * k[n][d];
          share[n] = mask[n] == 0 ? 0.0 : std::exp(score / std::sqrt(double{kDim}));
          all += share[n];
        }
        for (std::size_t n = 0; n < x.size(); ++n) {
          for (std::size_t d = head; d < head + kDim; ++d) context[d] += share[n] / all * v[n][d];
        }
      }
      out.push_back(norm(at + "output.LayerNorm", sum(linear(at + "output.dense", context), x[m])));
    }
    return out;
  }

  // Logits of all tokens, row after row.
  [[nodiscard]] Row logits(const std::vector<std::int64_t>& ids,
                           const std::vector<std::int64_t>& types,
                           const std::vector<std::uint8_t>& mask) const {
    const Row words = weight("roformer.embeddings.word_embeddings.weight");
    const Row type_rows = weight("roformer.embeddings.token_type_embeddings.weight");
    std::vector<Row> x;
    for (std::size_t n = 0; n < ids.size(); ++n) {
      Row row(kEmbedding);
      for (std::size_t c = 0; c < row.size(); ++c) {
        row[c] = words[static_cast<std::size_t>(ids[n]) * row.size() + c] +
                 type_rows[static_cast<std::size_t>(types[n]) * row.size() + c];
      }
      x.push_back(linear("roformer.embeddings_project",
                         norm("roformer.embeddings.LayerNorm", std::move(row))));
    }
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string at = message("roformer.encoder.layer.", layer, ".");
      x = attention(at + "attention.", x, mask);
      for (Row& row : x) {
        const Row inner = gelu_tanh(linear(at + "intermediate.dense", row));
        row = norm(at + "output.LayerNorm", sum(linear(at + "output.dense", inner), row));
      }
    }
    Row all;
    for (const Row& row : x) {
      const Row head = norm("cls.predictions.transform.LayerNorm",
                            gelu_tanh(linear("cls.predictions.transform.dense", row)));
      Row y = weight("cls.predictions.bias");
      for (std::size_t r = 0; r < y.size(); ++r) {
        for (std::size_t c = 0; c < head.size(); ++c) y[r] += words[r * head.size() + c] * head[c];
      }
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }

 private:
  const Files& files_;
};

Files random_files() {
  using P = Plain;
  Files files;
  files.config = message(
      R"({"model_type": "roformer", "vocab_size": )", P::kVocabulary, R"(, "hidden_size": )",
      P::kHidden, R"(, "embedding_size": )", P::kEmbedding, R"(, "num_attention_heads": )",
      P::kHeads, R"(, "num_hidden_layers": )", P::kLayers, R"(, "intermediate_size": )", P::kInner,
      R"(, "type_vocab_size": )", P::kTypes, R"(, "max_position_embeddings": )", P::kLength,
      R"(, "layer_norm_eps": 1e-6, "hidden_act": "gelu_new", "rotary_value": true})");
  std::mt19937_64 random(6);
  const auto linear = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    files.add(name + ".weight", {rows, columns}, 0.0F, 0.6F, random);
    files.add(name + ".bias", {rows}, 0.0F, 0.3F, random);
  };
  const auto norm = [&](const std::string& name, std::int64_t size) {
    files.add(name + ".weight", {size}, 1.0F, 0.3F, random);
    files.add(name + ".bias", {size}, 0.0F, 0.3F, random);
  };
  const std::string at = "roformer.embeddings";
  files.add(at + ".word_embeddings.weight", {P::kVocabulary, P::kEmbedding}, 0.0F, 1.0F, random);
  files.add(at + ".token_type_embeddings.weight", {P::kTypes, P::kEmbedding}, 0.0F, 1.0F, random);
  norm(at + ".LayerNorm", P::kEmbedding);
  linear(at + "_project", P::kHidden, P::kEmbedding);
  for (std::int64_t layer = 0; layer < P::kLayers; ++layer) {
    const std::string here = message("roformer.encoder.layer.", layer, ".");
    for (const std::string part : {"self.query", "self.key", "self.value", "output.dense"}) {
      linear(here + "attention." + part, P::kHidden, P::kHidden);
    }
    norm(here + "attention.output.LayerNorm", P::kHidden);
    linear(here + "intermediate.dense", P::kInner, P::kHidden);
    linear(here + "output.dense", P::kHidden, P::kInner);
    norm(here + "output.LayerNorm", P::kHidden);
  }
  linear("cls.predictions.transform.dense", P::kEmbedding, P::kHidden);
  norm("cls.predictions.transform.LayerNorm", P::kEmbedding);
  files.add("cls.predictions.bias", {P::kVocabulary}, 0.0F, 1.0F, random);
  return files;
}

using RoFormerFiles = io::testing::TemporaryFolder;

TEST_F(RoFormerFiles, EqualsAPlainForwardInDouble) {
  const Files files = random_files();
  files.write(at("model"));
  RoFormer model = load_roformer(at("model"));
  EXPECT_EQ(model.facts().head, RoFormerHead::masked_lm);  // by the tensors: no architectures
  const std::vector<std::int64_t> ids = {3, 10, 0, 7, 7, 1, 2, 9, 4},
                                  types = {0, 0, 2, 1, 1, 0, 2, 0, 1};
  const std::vector<std::uint8_t> mask = {1, 1, 1, 0, 1, 1, 1, 1, 0};
  const RoFormerResult result = model.forward({.ids = ids, .token_types = types, .mask = mask});
  expect_near(result.logits, Plain(files).logits(ids, types, mask), 2e-5, 2e-5);
}

TEST_F(RoFormerFiles, NamesWithAndWithoutPrefix) {
  const Files golden = Files::of_golden("roformer_base");
  Files prefixed{golden.config, {}};
  for (const auto& [name, weight] : golden.weights) prefixed.weights["roformer." + name] = weight;
  prefixed.write(at("model"));
  const std::vector<std::int64_t> ids = {5, 17, 90, 3};
  RoFormer plain = load_roformer(golden_case("roformer_base") / "model"),
           named = load_roformer(at("model"));
  EXPECT_EQ(plain.forward({.ids = ids}).last_hidden_state,
            named.forward({.ids = ids}).last_hidden_state);
}

TEST_F(RoFormerFiles, TheTableOfPositionsMayBeRoundedOrLeftOut) {
  const std::string table = "roformer.encoder.embed_positions.weight";
  Files files = Files::of_golden("roformer_mlm");
  files.write(at("rounded"), table);
  EXPECT_TRUE(RoFormer::load(at("rounded")).ok());
  files.weights.erase(table);
  files.write(at("without"));
  const auto without = RoFormer::load(at("without"));
  ASSERT_TRUE(without.ok()) << without.error().what();
}

TEST_F(RoFormerFiles, ADecoderOfItsOwn) {
  const std::string weight = "cls.predictions.decoder.weight",
                    bias = "cls.predictions.decoder.bias";
  const std::vector<std::int64_t> ids = {5, 17, 90, 3};
  Files files = Files::of_golden("roformer_mlm");
  const std::vector<float> tied =
      load_roformer(golden_case("roformer_mlm") / "model").forward({.ids = ids}).logits;
  files.weights[weight] = files.weights["roformer.embeddings.word_embeddings.weight"];
  files.weights[bias] = files.weights["cls.predictions.bias"];
  files.write(at("equal"));
  EXPECT_EQ(load_roformer(at("equal")).forward({.ids = ids}).logits, tied);

  for (float& value : files.weights[weight].values) value *= 2.0F;
  for (float& value : files.weights[bias].values) value *= 2.0F;
  files.write(at("other"));
  tests::expect_error(ErrorCode::invalid_argument, {weight, "tie_word_embeddings"},
                      RoFormer::load(at("other")));

  files.change_config("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  files.write(at("untied"));
  const std::vector<float> own = load_roformer(at("untied")).forward({.ids = ids}).logits;
  std::vector<double> twice;
  for (const float logit : tied) twice.push_back(2.0 * logit);
  expect_near(own, twice, 1e-4, 1e-5);
}

}  // namespace
}  // namespace phasor::models
