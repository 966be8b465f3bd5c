// The order of q and k inferred from weights alone: weights that look trained, in every order,
// wrong ones included, and weights without a detectable order.
#include "phasor/porting/diagnose.hpp"

#include <gtest/gtest.h>

#include <random>

#include "phasor/io/internal/json.hpp"
#include "porting/convert/checkpoints.hpp"

namespace phasor::porting::testing {
namespace {

using core::PairLayout;

struct Model {
  std::size_t heads = 8, key_heads = 2, head_dim = 16, rotary_dim = 16, width = 48, layers = 4;
  // The share of each query pair that is a rotated copy of its key pair; the rest is noise.
  double trained = 0.5;
};

struct Weights {
  std::vector<std::vector<float>> queries, keys;  // by layer, half order
};

// For each pair of a key head two random rows, and for each of its query heads the same two rotated
// by an angle of the pair's own, in noise: q_a = c k_a + s k_b, q_b = c k_b - s k_a.
Weights trained_like(const Model& model, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto number = [&] { return static_cast<double>(random() >> 11) * 0x1p-52 - 1.0; };
  const std::size_t group = model.heads / model.key_heads;
  Weights weights;
  for (std::size_t layer = 0; layer < model.layers; ++layer) {
    std::vector<float> k(model.key_heads * model.head_dim * model.width);
    std::vector<float> q(model.heads * model.head_dim * model.width);
    for (float& value : k) value = static_cast<float>(number());
    for (float& value : q) value = static_cast<float>(number());
    const std::size_t half = model.rotary_dim / 2;
    for (std::size_t head = 0; head < model.heads; ++head) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = 3.14159 * number();
        const double c = model.trained * std::cos(angle), s = model.trained * std::sin(angle);
        const std::size_t key = head / group * model.head_dim;
        for (std::size_t x = 0; x < model.width; ++x) {
          const double ka = double{k[(key + i) * model.width + x]};
          const double kb = double{k[(key + i + half) * model.width + x]};
          const std::size_t at = head * model.head_dim + i;
          q[at * model.width + x] += static_cast<float>(c * ka + s * kb);
          q[(at + half) * model.width + x] += static_cast<float>(c * kb - s * ka);
        }
      }
    }
    weights.queries.push_back(std::move(q));
    weights.keys.push_back(std::move(k));
  }
  return weights;
}

// Half to interleaved in heads of `chunk` rows, the first `rotary` of each.
std::vector<float> interleaved(const std::vector<float>& rows, std::size_t width, std::size_t chunk,
                               std::size_t rotary) {
  return with_rows(rows, width, [&](std::size_t r) {
    const std::size_t at = r % chunk;
    return at >= rotary ? r : r - at + (at % 2 == 0 ? at / 2 : rotary / 2 + at / 2);
  });
}
// Interleaved to half, all of the head.
std::vector<float> halved(const std::vector<float>& rows, std::size_t width, std::size_t chunk) {
  return with_rows(rows, width, [&](std::size_t r) {
    const std::size_t at = r % chunk;
    return r - at + (at < chunk / 2 ? 2 * at : 2 * (at - chunk / 2) + 1);
  });
}

class Order : public io::testing::TemporaryFolder {
 protected:
  // Writes a llama checkpoint and infers its order.
  [[nodiscard]] WeightOrder ask(const Model& model, const Weights& weights) const {
    Checkpoint checkpoint;
    const auto rows = [&](std::size_t heads) {
      return std::vector<std::int64_t>{static_cast<std::int64_t>(heads * model.head_dim),
                                       static_cast<std::int64_t>(model.width)};
    };
    for (std::size_t layer = 0; layer < model.layers; ++layer) {
      const std::string module = message("model.layers.", layer, ".self_attn.");
      checkpoint.add(module + "q_proj.weight", rows(model.heads), weights.queries[layer]);
      checkpoint.add(module + "k_proj.weight", rows(model.key_heads), weights.keys[layer]);
      checkpoint.add(module + "v_proj.weight", rows(model.key_heads));
    }
    const io::Json config = {{"model_type", "llama"},
                             {"hidden_size", model.width},
                             {"head_dim", model.head_dim},
                             {"num_attention_heads", model.heads},
                             {"num_key_value_heads", model.key_heads},
                             {"num_hidden_layers", model.layers},
                             {"partial_rotary_factor", static_cast<double>(model.rotary_dim) /
                                                           static_cast<double>(model.head_dim)},
                             {"rope_theta", 10000.0}};
    checkpoint.write(at("model"), config.dump());
    return infer_weight_order(at("model")).value_or_throw();
  }
  static void all_interleaved(const Model& model, std::vector<std::vector<float>>& rows) {
    for (std::vector<float>& layer : rows) {
      layer = interleaved(layer, model.width, model.head_dim, model.rotary_dim);
    }
  }
};

void expect_order(const WeightOrder& order, PairLayout queries, PairLayout keys,
                  std::optional<std::int64_t> permuted_as_heads = std::nullopt) {
  EXPECT_TRUE(order.tells) << order.reason;
  EXPECT_GE(order.confidence, kOrderConfidence);
  EXPECT_EQ(order.candidates.front().queries, queries) << order.candidates.front().text;
  EXPECT_EQ(order.candidates.front().keys, keys) << order.candidates.front().text;
  EXPECT_EQ(order.candidates.front().permuted_as_heads, permuted_as_heads);
  EXPECT_GT(order.candidates.front().determinant, 0.1);
  for (std::size_t c = 1; c < order.candidates.size(); ++c) {
    EXPECT_GT(order.candidates[c].below_best, 3.0) << order.candidates[c].text;
  }
}

TEST_F(Order, HalfAndInterleaved) {
  const Model model;
  Weights weights = trained_like(model, 1);
  const WeightOrder half = ask(model, weights);
  expect_order(half, PairLayout::half, PairLayout::half);
  EXPECT_EQ(half.config_layout, PairLayout::half);
  EXPECT_EQ(half.samples, 8);
  EXPECT_FALSE(half.disagrees());
  all_interleaved(model, weights.queries);
  EXPECT_TRUE(ask(model, weights).disagrees());  // with its own keys
  all_interleaved(model, weights.keys);
  const WeightOrder other = ask(model, weights);
  expect_order(other, PairLayout::interleaved, PairLayout::interleaved);
  EXPECT_TRUE(other.disagrees());
}

TEST_F(Order, PartialRotation) {
  Model model;
  model.head_dim = 24;
  Weights weights = trained_like(model, 2);
  expect_order(ask(model, weights), PairLayout::half, PairLayout::half);
  all_interleaved(model, weights.queries);
  all_interleaved(model, weights.keys);
  expect_order(ask(model, weights), PairLayout::interleaved, PairLayout::interleaved);
}

TEST_F(Order, OneHeadOfKeysForAll) {
  Model model;
  model.key_heads = 1;
  model.heads = 4;
  model.layers = 8;
  expect_order(ask(model, trained_like(model, 3)), PairLayout::half, PairLayout::half);
}

TEST_F(Order, QueriesAndKeysInDifferentOrders) {
  const Model model;
  Weights weights = trained_like(model, 4);
  all_interleaved(model, weights.queries);
  const WeightOrder order = ask(model, weights);
  expect_order(order, PairLayout::interleaved, PairLayout::half);
  EXPECT_FALSE(order.candidates.front().consistent());
}

TEST_F(Order, LlamaCpp2376_KeysPermutedByTheNumberOfQueryHeads) {
  const Model model;
  Weights weights = trained_like(model, 5);
  all_interleaved(model, weights.queries);
  for (std::vector<float>& layer : weights.keys) layer = interleaved(layer, model.width, 4, 4);
  const WeightOrder order = ask(model, weights);
  expect_order(order, PairLayout::interleaved, PairLayout::interleaved, 8);
}

TEST_F(Order, LlamaCpp3364_KeysPermutedByTheQuotientOfTheHeads) {
  const Model model;  // 8 / 2 = 4 heads of 8 rows
  Weights weights = trained_like(model, 6);
  all_interleaved(model, weights.queries);
  for (std::vector<float>& layer : weights.keys) layer = interleaved(layer, model.width, 8, 8);
  expect_order(ask(model, weights), PairLayout::interleaved, PairLayout::interleaved, 4);
}

TEST_F(Order, LlamaCpp3364_HeadsWiderThanTheirOwn) {
  Model model;  // 8 / 4 = 2 heads of 32 rows: rows of two heads are mixed
  model.key_heads = 4;
  Weights weights = trained_like(model, 7);
  all_interleaved(model, weights.queries);
  for (std::vector<float>& layer : weights.keys) layer = interleaved(layer, model.width, 32, 32);
  expect_order(ask(model, weights), PairLayout::interleaved, PairLayout::interleaved, 2);
}

TEST_F(Order, Transformers31788_KeysPutBackByTheNumberOfQueryHeads) {
  const Model model;
  Weights weights = trained_like(model, 8);
  all_interleaved(model, weights.keys);  // as the GGUF file has them
  for (std::vector<float>& layer : weights.keys) layer = halved(layer, model.width, 4);
  expect_order(ask(model, weights), PairLayout::half, PairLayout::half, 8);
}

TEST_F(Order, UntrainedWeightsSayNothing) {
  Model model;
  model.trained = 0.0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const WeightOrder order = ask(model, trained_like(model, seed));
    EXPECT_FALSE(order.tells) << seed << ": " << order.candidates.front().text;
    EXPECT_FALSE(order.reason.empty());
  }
}

TEST_F(Order, SmoothProfilesOfTheRowsSayNothing) {
  // Neighbours of like length, as frequencies have them, are no pairs.
  Model model;
  model.trained = 0.0;
  Weights weights = trained_like(model, 9);
  const auto shape = [&](std::vector<std::vector<float>>& rows) {
    for (std::vector<float>& layer : rows) {
      for (std::size_t i = 0; i < layer.size(); ++i) {
        const std::size_t feature = i / model.width % model.head_dim;
        layer[i] *= std::exp(0.2F * static_cast<float>(feature % 8));
      }
    }
  };
  shape(weights.queries);
  shape(weights.keys);
  EXPECT_FALSE(ask(model, weights).tells);
}

TEST_F(Order, AFewHeadsAreTooFew) {
  Model model;
  model.layers = 1;
  const WeightOrder order = ask(model, trained_like(model, 10));
  EXPECT_FALSE(order.tells);
  EXPECT_EQ(order.samples, 2);
}

TEST_F(Order, GoldenModelsAreUntrained) {
  for (const char* name : {"llama_gqa_llama3", "gpt_neox_partial", "phi3_longrope_partial",
                           "glm_interleaved_partial", "roformer_base", "cohere_interleaved"}) {
    const auto order = infer_weight_order(fs::path(PHASOR_GOLDEN_DIR) / "models" / name / "model")
                           .value_or_throw();
    EXPECT_FALSE(order.tells) << name;
  }
}

TEST_F(Order, RefusesWhatIsNoCheckpoint) {
  EXPECT_FALSE(infer_weight_order(at("missing")).ok());
  io::testing::put(at("text"), "not a GGUF file");
  const Result<WeightOrder> result = infer_weight_order(at("text"));
  ASSERT_FALSE(result.ok());
  EXPECT_TRUE(std::string_view(result.error().what()).starts_with(at("text").string()));
}

TEST_F(Order, AsJson) {
  const Model model;
  const auto json = io::Json::parse(weight_order_json(ask(model, trained_like(model, 11))));
  EXPECT_EQ(json["order"], "half");
  EXPECT_EQ(json["consistent"], true);
  EXPECT_EQ(json["candidates"].size(), 8U);
  EXPECT_EQ(json["candidates"][0]["queries"], "half");
  EXPECT_GT(json["candidates"][0]["antisymmetry"].get<double>(), kOrderEffect);
}

}  // namespace
}  // namespace phasor::porting::testing
