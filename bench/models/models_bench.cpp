#include "models/models_bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "attention/peak.hpp"
#include "core/buffer.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/models/internal/matrix.hpp"

namespace phasor::bench {
namespace {

using models::ComputeOptions;
using models::Matrix;
using models::Precision;

constexpr std::int64_t kLayers = 30, kHidden = 576, kWide = 1536, kVocabulary = 49152;

// Codes that look random, scales that do not.
Matrix made_up(io::TensorType type, std::int64_t rows, std::int64_t columns, std::uint32_t seed) {
  const std::size_t block = io::block_bytes(type);
  const auto blocks = static_cast<std::size_t>(rows * columns / io::block_elements(type));
  const std::size_t scales = type == io::TensorType::q4_1 ? 4 : 2;
  constexpr std::uint16_t kScale = 0x2400, kMinimum = 0xac00;  // 1/64 and -1/16 in f16
  std::vector<std::byte> bytes(blocks * block);
  for (std::size_t b = 0; b < blocks; ++b) {
    std::byte* const at = bytes.data() + b * block;
    std::memcpy(at, &kScale, 2);
    if (scales == 4) std::memcpy(at + 2, &kMinimum, 2);
    for (std::size_t i = scales; i < block; ++i) {
      seed = seed * 1664525U + 1013904223U;
      at[i] = static_cast<std::byte>(seed >> 24);
    }
  }
  io::Tensor tensor;
  tensor.name = "made up";
  tensor.type = type;
  tensor.shape = {rows, columns};
  tensor.bytes = bytes;
  return Matrix::pack(tensor);
}

// A call of a layer: matrices that read the same activations.
struct Call {
  std::vector<Matrix> matrices;
  [[nodiscard]] std::int64_t columns() const { return matrices.front().columns(); }
};

std::vector<Call> layer_calls(std::uint32_t seed) {
  const auto q4 = [&](std::int64_t rows, std::int64_t columns) {
    return made_up(io::TensorType::q4_1, rows, columns, ++seed);
  };
  return {{{q4(kHidden, kHidden), q4(192, kHidden), q4(192, kHidden)}},
          {{q4(kHidden, kHidden)}},
          {{q4(kWide, kHidden), q4(kWide, kHidden)}},
          {{q4(kHidden, kWide)}}};
}

class Model {
 public:
  Model() {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      for (Call& call : layer_calls(layer * 100)) calls_.push_back(std::move(call));
    }
    calls_.push_back({{made_up(io::TensorType::q8_0, kVocabulary, kHidden, 9999)}});
    for (std::size_t i = 0; i < x_.size(); ++i)
      x_[i] = static_cast<float>(std::sin(static_cast<double>(i) * 0.7));
  }

  // The first `calls` calls.
  void run(std::size_t calls, std::int64_t tokens, const ComputeOptions& options) {
    out_.resize(static_cast<std::size_t>(
        std::max(tokens * kWide * 2, calls == calls_.size() ? kVocabulary : 0)));
    for (std::size_t i = 0; i < calls; ++i) {
      std::vector<models::Product> products;
      float* out = out_.data();
      for (const Matrix& matrix : calls_[i].matrices) {
        products.push_back({&matrix, out, matrix.rows(), nullptr});
        out += tokens * matrix.rows();
      }
      models::multiply(products, x_.data(), tokens, calls_[i].columns(), options);
    }
  }

  [[nodiscard]] bool correct(const ComputeOptions& options) {
    run(1, 1, options);
    const Matrix& matrix = calls_.front().matrices.front();
    std::vector<float> row(static_cast<std::size_t>(kHidden));
    for (const std::int64_t r : {std::int64_t{0}, std::int64_t{77}, matrix.rows() - 1}) {
      matrix.row(r, row);
      double sum = 0.0, size = 0.0;
      for (std::size_t c = 0; c < row.size(); ++c) {
        sum += static_cast<double>(row[c]) * static_cast<double>(x_[c]);
        size += std::abs(static_cast<double>(row[c]));
      }
      if (!(std::abs(sum - static_cast<double>(out_[static_cast<std::size_t>(r)])) <= 0.01 * size))
        return false;
    }
    return true;
  }

  [[nodiscard]] std::size_t calls() const { return calls_.size(); }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Call& call : calls_)
      for (const Matrix& matrix : call.matrices) sum += matrix.bytes();
    return sum;
  }
  // Multiply-adds of a token in the first `calls` calls.
  [[nodiscard]] std::int64_t products(std::size_t calls) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < calls; ++i)
      for (const Matrix& matrix : calls_[i].matrices) sum += matrix.rows() * matrix.columns();
    return sum;
  }

 private:
  static constexpr std::int64_t kMostTokens = 512;
  std::vector<Call> calls_;
  std::vector<float> x_ = std::vector<float>(static_cast<std::size_t>(kMostTokens * kWide));
  std::vector<float> out_;
};

}  // namespace

void run_models_bench(const Plan& plan, const std::function<void(const Row&)>& done) {
  constexpr std::int64_t kPrompt = 512;
  constexpr std::size_t kLayerCalls = 4;
  // Made for the first row that is measured.
  std::optional<Model> made;
  std::optional<Buffer> as_large;
  // oneDNN keeps the instruction set of its first product, so float products are measured at
  // the highest level only.
  const core::InstructionSet highest = plan.levels.back();
  for (const core::InstructionSet isa : plan.levels) {
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      const ComputeOptions options{precision, 1, isa};
      const std::string how = message(models::name_of(precision), "/", core::name_of(isa));
      const auto measure = [&](const std::string& name, const std::string& against,
                               const std::function<void()>& ours,
                               const std::function<void()>& limit) {
        if (!wants_row(plan, name)) return;
        if (!made) as_large.emplace(made.emplace().bytes());
        Row row{name, against, 0.0, {}, made->correct(options)};
        if (row.correct) row.contest = compare(ours, limit, plan.rounds);
        done(row);
      };
      measure(
          "products/q4_1+q8_0/t1/" + how, "reading as many bytes",
          [&] { made->run(made->calls(), 1, options); },
          [&] { read_through(isa, as_large->floats(), as_large->count()); });
      if (precision == Precision::exact && isa != highest) continue;
      measure(
          "products/q4_1/t512/one layer/" + how, "its float multiply-adds at the peak",
          [&] { made->run(kLayerCalls, kPrompt, options); },
          [&] { multiply_add(isa, kPrompt * made->products(kLayerCalls)); });
    }
  }
}

}  // namespace phasor::bench
