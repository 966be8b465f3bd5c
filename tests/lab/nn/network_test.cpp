#include "phasor/lab/internal/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lab/nn/networks.hpp"
#include "support/errors.hpp"

namespace phasor::lab {
namespace {

using tests::small_batch;
using tests::small_spec;

struct Case {
  std::string name;
  ModelSpec spec;
  friend void PrintTo(const Case& that, std::ostream* to) { *to << that.name; }
};

[[nodiscard]] std::string plain(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

[[nodiscard]] std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Architecture architecture : {Architecture::encoder, Architecture::decoder}) {
    for (const EncodingName encoding : tests::kEveryEncoding) {
      all.push_back({plain(name_of(architecture)) + "_" + std::string(name_of(encoding)),
                     small_spec(architecture, encoding)});
    }
  }
  for (const EncodingName encoding :
       {EncodingName::rope, EncodingName::sinusoidal, EncodingName::t5}) {
    ModelSpec spec = small_spec(Architecture::encoder_decoder, encoding);
    all.push_back({"encoder_decoder_" + std::string(name_of(encoding)), spec});
    spec.cross = ModelSpec::Cross::rope;
    spec.output = ModelSpec::Output::own;
    all.push_back({"encoder_decoder_rope_across_" + std::string(name_of(encoding)), spec});
  }
  for (const Architecture architecture : {Architecture::encoder, Architecture::decoder}) {
    for (const EncodingName encoding : {EncodingName::rope, EncodingName::none}) {
      for (const auto& [features, name] :
           {std::pair{attention::FeatureMap::elu_plus_one, "elu"},
            std::pair{attention::FeatureMap::softmax_exp, "softmax_features"}}) {
        ModelSpec spec = small_spec(architecture, encoding);
        spec.attention = AttentionKind::linear;
        spec.features = features;
        all.push_back(
            {message("linear_", name, "_", plain(name_of(architecture)), "_", name_of(encoding)),
             spec});
      }
    }
  }
  for (const attention::Rotates rotates :
       {attention::Rotates::features, attention::Rotates::inputs}) {
    ModelSpec spec = small_spec(Architecture::decoder, EncodingName::rope);
    spec.attention = AttentionKind::linear;
    spec.features = attention::FeatureMap::favor;
    spec.feature_count = 6;
    spec.rotates = rotates;
    all.push_back({message("linear_favor_rotates_", attention::name_of(rotates)), spec});
  }
  ModelSpec classifier = small_spec(Architecture::encoder, EncodingName::rope);
  classifier.head = Head::classification;
  classifier.labels = 3;
  all.push_back({"classification", classifier});
  ModelSpec dropping = small_spec(Architecture::encoder, EncodingName::learned);
  dropping.dropout = 0.3;
  all.push_back({"encoder_dropout", dropping});
  dropping = small_spec(Architecture::decoder, EncodingName::rope);
  dropping.dropout = 0.3;
  dropping.output = ModelSpec::Output::own;
  all.push_back({"decoder_dropout_own_output", dropping});
  return all;
}

class EveryNetwork : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Lab, EveryNetwork, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

const TrainOptions kOptions{.label_smoothing = 0.1, .gradient_scale = 0.25, .seed = 4, .step = 2};

// In float64: (loss(w + e) - loss(w - e)) / 2e for numbers of every parameter.
TEST_P(EveryNetwork, GradientsAreFiniteDifferences) {
  const ModelSpec& spec = GetParam().spec;
  Network<double> network(spec);
  tests::randomise(network, 3);
  const Batch batch = small_batch(spec, 2, 7, 5);
  const auto loss = [&] {
    // train(), not evaluate(): with dropout both draw the same masks.
    return kOptions.gradient_scale * network.train(batch, kOptions).sum;
  };
  static_cast<void>(loss());
  const std::vector<double> gradients(network.gradients().begin(), network.gradients().end());
  Random random(7, Stream::sampling);
  for (const Parameter& parameter : network.layout()) {
    for (int sample = 0; sample < 4; ++sample) {
      const auto at =
          parameter.first +
          static_cast<std::size_t>(random.below(static_cast<std::int64_t>(parameter.count)));
      double& value = network.parameters()[at];
      const double before = value, step = 1e-5;
      value = before + step;
      const double more = loss();
      value = before - step;
      const double less = loss();
      value = before;
      const double difference = (more - less) / (2 * step);
      EXPECT_NEAR(gradients[at], difference, 2e-7 + 1e-5 * std::abs(difference))
          << parameter.name << "[" << at - parameter.first << "]";
    }
  }
}

// The kernels against the plain loops.
TEST_P(EveryNetwork, FloatAgreesWithDouble) {
  const ModelSpec& spec = GetParam().spec;
  Network<double> wide(spec);
  Network<float> narrow(spec);
  tests::randomise(wide, 3);
  std::copy(wide.parameters().begin(), wide.parameters().end(), narrow.parameters().begin());
  const Batch batch = small_batch(spec, 3, 9, 6);
  const Loss exact = wide.train(batch, kOptions), got = narrow.train(batch, kOptions);
  EXPECT_NEAR(got.sum, exact.sum, 1e-4 * exact.sum);
  EXPECT_NEAR(got.plain_sum, exact.plain_sum, 1e-4 * exact.plain_sum);
  EXPECT_EQ(got.labels, exact.labels);
  EXPECT_EQ(got.correct, exact.correct);
  for (const Parameter& parameter : wide.layout()) {
    double largest = 0.0, error = 0.0;
    for (std::size_t i = parameter.first; i < parameter.first + parameter.count; ++i) {
      const double want = wide.gradients()[i];
      largest = std::max(largest, std::abs(want));
      error = std::max(error, std::abs(static_cast<double>(narrow.gradients()[i]) - want));
    }
    EXPECT_LE(error, 2e-4 * largest + 2e-6) << parameter.name;
  }
}

TEST_P(EveryNetwork, ResultsDoNotDependOnThreads) {
  const ModelSpec& spec = GetParam().spec;
  const Batch batch = small_batch(spec, 5, 9, 6);
  std::vector<float> first;
  double loss = 0.0;
  for (const int threads : {1, 2, 3}) {
    Network<float> network(spec, {.threads = threads});
    tests::randomise(network, 3);
    const double sum = network.train(batch, kOptions).sum;
    const std::vector<float> gradients(network.gradients().begin(), network.gradients().end());
    if (threads == 1) {
      first = gradients;
      loss = sum;
    }
    EXPECT_EQ(sum, loss) << threads;
    EXPECT_EQ(gradients, first) << threads;
  }
}

TEST_P(EveryNetwork, LossesLogitsAndEvaluationAgree) {
  ModelSpec spec = GetParam().spec;
  spec.dropout = 0.0;
  Network<float> network(spec);
  tests::randomise(network, 3);
  const Batch batch = small_batch(spec, 2, 8, 9);
  const std::vector<float> logits = network.logits(batch), losses = network.losses(batch);
  const Loss total = network.evaluate(batch);
  const auto classes =
      static_cast<std::size_t>(spec.head == Head::language_model ? spec.vocabulary : spec.labels);
  ASSERT_EQ(logits.size(), batch.labels.size() * classes);
  double sum = 0.0;
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] == kNoLabel) {
      EXPECT_EQ(losses[i], 0.0F);
      continue;
    }
    double powers = 0.0;
    for (std::size_t c = 0; c < classes; ++c) {
      powers += std::exp(static_cast<double>(logits[i * classes + c]));
    }
    const double want =
        std::log(powers) -
        static_cast<double>(logits[i * classes + static_cast<std::size_t>(batch.labels[i])]);
    EXPECT_NEAR(static_cast<double>(losses[i]), want, 1e-5 * (1 + want));
    sum += want;
  }
  EXPECT_NEAR(total.plain_sum, sum, 1e-5 * sum);
}

// A gradient step must lower the loss, for every encoding.
TEST_P(EveryNetwork, LearnsABatch) {
  ModelSpec spec = GetParam().spec;
  spec.dropout = 0.0;
  Network<float> network(spec);
  network.initialise(1);
  const Batch batch = small_batch(spec, 4, 9, 2);
  const Loss before = network.evaluate(batch);
  const auto count = static_cast<double>(before.labels);
  for (std::uint64_t step = 0; step < 60; ++step) {
    std::fill(network.gradients().begin(), network.gradients().end(), 0.0F);
    network.train(batch, {.gradient_scale = 1 / count, .step = step});
    for (std::size_t i = 0; i < network.parameters().size(); ++i) {
      network.parameters()[i] -= 0.3F * network.gradients()[i];
    }
  }
  EXPECT_LT(network.evaluate(batch).sum, 0.8 * before.sum);
}

TEST(Network, RefusesBatchesThatDoNotFit) {
  const ModelSpec spec = small_spec(Architecture::decoder, EncodingName::learned);
  Network<float> network(spec);
  const Batch good = small_batch(spec, 2, 5, 1);
  const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> values,
                           const auto& change) {
    Batch batch = good;
    change(batch);
    phasor::tests::expect_error(code, values, [&] { return network.train(batch); });
  };
  refused(ErrorCode::out_of_range, {"23", "25"}, [](Batch& batch) { batch.ids[3] = 25; });
  refused(ErrorCode::out_of_range, {"-2"}, [](Batch& batch) { batch.labels[3] = -2; });
  refused(ErrorCode::shape_mismatch, {"10", "9"}, [](Batch& batch) { batch.ids.pop_back(); });
  refused(ErrorCode::shape_mismatch, {"mask"}, [](Batch& batch) { batch.mask.pop_back(); });
  refused(ErrorCode::invalid_argument, {"0"}, [](Batch& batch) { batch.rows = 0; });
  phasor::tests::expect_error(ErrorCode::out_of_range, {"9", "11"},
                              [&] { return network.evaluate(small_batch(spec, 1, 11, 1)); });
  EXPECT_TRUE(std::all_of(network.gradients().begin(), network.gradients().end(),
                          [](float value) { return value == 0.0F; }));
}

// A hierarchical table serves the square of its length, and rope any length.
TEST(Network, LongerRowsThanTrained) {
  for (const EncodingName name :
       {EncodingName::hierarchical, EncodingName::rope, EncodingName::t5, EncodingName::alibi,
        EncodingName::transformer_xl, EncodingName::shaw, EncodingName::kerple}) {
    const ModelSpec spec = small_spec(Architecture::decoder, name);
    Network<float> network(spec);
    tests::randomise(network, 3);
    EXPECT_TRUE(std::isfinite(network.evaluate(small_batch(spec, 1, 40, 1)).sum)) << name_of(name);
  }
}

TEST(Network, AnotherScalingAtTestTime) {
  const ModelSpec spec = small_spec(Architecture::decoder, EncodingName::rope);
  Network<float> network(spec);
  tests::randomise(network, 3);
  const Batch batch = small_batch(spec, 1, 20, 1);
  const double plain_loss = network.evaluate(batch).sum;
  EncodingSpec scaled = spec.encoding;
  scaled.scaling = encodings::LinearScaling{.factor = 4.0};
  network.set_test_encoding(scaled);
  EXPECT_NE(network.evaluate(batch).sum, plain_loss);
  network.set_test_encoding(spec.encoding);
  EXPECT_EQ(network.evaluate(batch).sum, plain_loss);
  Network<float> trained(small_spec(Architecture::decoder, EncodingName::t5));
  phasor::tests::expect_error(ErrorCode::unsupported, {"t5", "rope"}, [&] {
    trained.set_test_encoding(scaled);
    return 0;
  });
}

// Products of more than one piece, and rows of logits that are padded.
TEST(Network, LargerSizes) {
  ModelSpec spec = small_spec(Architecture::decoder, EncodingName::rope);
  spec.vocabulary = 1024;
  spec.hidden = 144;
  spec.intermediate = 140;
  spec.layers = 1;
  Network<double> wide(spec);
  wide.initialise(3);
  const Batch batch = small_batch(spec, 2, 9, 6);
  const double exact = wide.train(batch, kOptions).sum;
  std::vector<float> first;
  for (const int threads : {1, 2}) {
    Network<float> narrow(spec, {.threads = threads});
    std::copy(wide.parameters().begin(), wide.parameters().end(), narrow.parameters().begin());
    EXPECT_NEAR(narrow.train(batch, kOptions).sum, exact, 1e-5 * exact);
    if (threads == 1) first.assign(narrow.gradients().begin(), narrow.gradients().end());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), narrow.gradients().begin())) << threads;
  }
  for (const Parameter& parameter : wide.layout()) {
    double largest = 0.0, error = 0.0;
    for (std::size_t i = parameter.first; i < parameter.first + parameter.count; ++i) {
      largest = std::max(largest, std::abs(wide.gradients()[i]));
      error = std::max(error, std::abs(static_cast<double>(first[i]) - wide.gradients()[i]));
    }
    EXPECT_LE(error, 2e-5 * largest) << parameter.name;
  }
}

// Padding changes nothing: a row alone, and the same row padded in a batch.
TEST(Network, PaddingIsIgnored) {
  for (const Architecture architecture : {Architecture::encoder, Architecture::decoder}) {
    const ModelSpec spec = small_spec(architecture, EncodingName::rope);
    Network<float> network(spec);
    tests::randomise(network, 3);
    Batch batch = small_batch(spec, 1, 6, 4);
    batch.mask.assign(6, 1);
    batch.labels.assign(6, 3);
    const std::vector<float> alone = network.losses(batch);
    batch.tokens = 8;
    for (auto* values : {&batch.ids, &batch.token_types}) values->resize(8, 0);
    batch.labels.resize(8, kNoLabel);
    batch.mask.resize(8, 0);
    const std::vector<float> padded = network.losses(batch);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(padded[i], alone[i], 1e-5F);
  }
}

}  // namespace
}  // namespace phasor::lab
