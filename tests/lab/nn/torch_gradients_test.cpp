// Losses and gradients that torch computed in float64: scripts/make_lab_gradients.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/lab/internal/network.hpp"

namespace phasor::lab {
namespace {

[[nodiscard]] std::vector<std::string> torch_cases() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(PHASOR_TORCH_GRADIENTS)) {
    all.push_back(entry.path().stem().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

template <class T>
[[nodiscard]] std::vector<T> tensor_of(const io::SafetensorsFile& file, const std::string& name) {
  const io::Tensor* const tensor = file.find(name);
  if (tensor == nullptr) return {};
  std::vector<T> values(static_cast<std::size_t>(tensor->size()));
  io::read_bytes(*tensor, 0, std::as_writable_bytes(std::span<T>(values)));
  return values;
}

struct TorchCase {
  io::SafetensorsFile file;
  ModelSpec spec;
  Batch batch;
  TrainOptions options;
  double loss = 0.0;

  explicit TorchCase(const std::string& name)
      : file(io::SafetensorsFile::open(std::filesystem::path(PHASOR_TORCH_GRADIENTS) /
                                       (name + ".safetensors"))
                 .value_or_throw()) {
    spec = parse_model_spec(io::parse_object(metadata("model")));
    loss = std::stod(metadata("loss"));
    options.label_smoothing = std::stod(metadata("label_smoothing"));
    options.gradient_scale = std::stod(metadata("gradient_scale"));
    const std::vector<std::int64_t>& shape = file.find("ids")->shape;
    batch.rows = shape[0];
    batch.tokens = shape[1];
    batch.ids = tensor_of<std::int32_t>(file, "ids");
    batch.token_types = tensor_of<std::int32_t>(file, "token_types");
    batch.mask = tensor_of<std::uint8_t>(file, "mask");
    batch.labels = tensor_of<std::int32_t>(file, "labels");
    batch.source_ids = tensor_of<std::int32_t>(file, "source_ids");
    batch.source_mask = tensor_of<std::uint8_t>(file, "source_mask");
    batch.source_tokens = static_cast<std::int64_t>(batch.source_ids.size()) / batch.rows;
  }
  [[nodiscard]] const std::string& metadata(const char* key) const {
    return file.metadata().at(key);
  }
};

// The loss to a relative `bound`, each gradient to `bound` of the largest of its parameter.
template <class T>
void expect_gradients(const TorchCase& given, double bound) {
  Network<T> network(given.spec);
  std::size_t stored = 0;
  for (const io::Tensor& tensor : given.file.tensors()) stored += tensor.name.starts_with("value.");
  ASSERT_EQ(network.layout().size(), stored);
  for (const Parameter& parameter : network.layout()) {
    const std::vector<float> values = tensor_of<float>(given.file, "value." + parameter.name);
    ASSERT_EQ(values.size(), parameter.count) << parameter.name;
    std::copy(values.begin(), values.end(),
              network.parameters().begin() + static_cast<std::ptrdiff_t>(parameter.first));
  }
  EXPECT_NEAR(network.train(given.batch, given.options).sum, given.loss, bound * given.loss);
  for (const Parameter& parameter : network.layout()) {
    const std::vector<float> expected = tensor_of<float>(given.file, "gradient." + parameter.name);
    ASSERT_EQ(expected.size(), parameter.count) << parameter.name;
    double largest = 0.0, error = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double want = expected[i];
      largest = std::max(largest, std::abs(want));
      error = std::max(
          error, std::abs(static_cast<double>(network.gradients()[parameter.first + i]) - want));
    }
    EXPECT_LE(error, bound * largest + 1e-3 * bound) << parameter.name;
  }
}

class TorchGradients : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Lab, TorchGradients, ::testing::ValuesIn(torch_cases()),
                         [](const auto& tested) { return tested.param; });

TEST_P(TorchGradients, OfPlainLoops) {
  // The stored gradients are rounded to float32, and so are rows of cos and sin.
  expect_gradients<double>(TorchCase(GetParam()), 1e-6);
}
TEST_P(TorchGradients, OfKernels) { expect_gradients<float>(TorchCase(GetParam()), 2e-5); }

// An empty folder would pass.
TEST(TorchCases, HasEveryArchitecture) {
  const std::vector<std::string> all = torch_cases();
  for (const char* name : {"roformer_masked", "roformer_classification", "llama",
                           "encoder_decoder_t5", "decoder_deberta", "decoder_shaw"}) {
    EXPECT_TRUE(std::find(all.begin(), all.end(), name) != all.end()) << name;
  }
}

}  // namespace
}  // namespace phasor::lab
