#include "porting/convert/proof.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "porting/evenly_spaced.hpp"

namespace phasor::porting {
namespace {

constexpr std::int64_t kTokens = 2;
constexpr std::int64_t kContext = 4096;
constexpr std::size_t kLayers = 3;
constexpr std::int64_t kOutputRows = 64;
constexpr std::int64_t kProofBytes = std::int64_t{4} << 20;
constexpr std::size_t kProofHeads = 2;
constexpr double kNormEpsilon = 1e-6;

// [tokens, width]
using Rows = std::vector<double>;

struct Draw {
  std::mt19937_64 random;

  // Uniform; not a standard distribution, which differs between platforms.
  double number() { return static_cast<double>(random() >> 11) * 0x1p-52 - 1.0; }
  Rows activations(std::int64_t width) {
    Rows rows(static_cast<std::size_t>(kTokens * width));
    for (double& value : rows) value = number();
    return rows;
  }
  std::vector<std::int64_t> positions(int axes) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(axes * kTokens));
    for (std::int64_t& position : all) position = static_cast<std::int64_t>(random() % kContext);
    return all;
  }
};

// The largest difference of two lists of numbers.
class Agreement {
 public:
  void compare(double of_source, double of_result) {
    largest_ = std::max(largest_, std::abs(of_source));
    const double difference = std::abs(of_source - of_result);
    // A NaN on one side only is a difference; on both sides it is ignored.
    if (std::isnan(difference)) {
      nan_ = nan_ || std::isnan(of_source) != std::isnan(of_result);
    } else {
      difference_ = std::max(difference_, difference);
    }
    ++count_;
  }
  [[nodiscard]] double largest() const { return largest_; }
  [[nodiscard]] double relative() const {
    if (nan_) return HUGE_VAL;
    return difference_ == 0.0 ? 0.0 : difference_ / largest_;
  }
  [[nodiscard]] std::int64_t count() const { return count_; }

 private:
  double largest_ = 0.0, difference_ = 0.0;
  std::int64_t count_ = 0;
  bool nan_ = false;
};

[[nodiscard]] double number_at(const io::Tensor& tensor, std::int64_t index) {
  float value = 0.0F;
  io::to_floats(tensor, index, std::span(&value, 1));
  return value;
}

// One head's features of each token: W x + b.
[[nodiscard]] Rows project(const HeadRows& heads, std::size_t head, std::int64_t head_dim,
                           const Rows& x) {
  const std::int64_t width = heads.weight->shape[1];
  std::vector<float> row(static_cast<std::size_t>(width));
  Rows y(static_cast<std::size_t>(kTokens * head_dim));
  for (std::int64_t feature = 0; feature < head_dim; ++feature) {
    const std::int64_t at = heads.first_row[head] + feature;
    io::to_floats(*heads.weight, at * width, row);
    // All tokens in one pass over the row.
    std::array<double, kTokens> sums{};
    sums.fill(heads.bias == nullptr ? 0.0 : number_at(*heads.bias, at));
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (std::size_t token = 0; token < sums.size(); ++token) {
        sums[token] += static_cast<double>(row[i]) * x[token * row.size() + i];
      }
    }
    for (std::size_t token = 0; token < sums.size(); ++token) {
      y[token * static_cast<std::size_t>(head_dim) + static_cast<std::size_t>(feature)] =
          sums[token];
    }
  }
  return y;
}

// RMS normalisation of each head. Models that subtract the mean or normalise all heads at once scale
// both sides equally, so the comparison is as strict.
void normalise(const HeadNorm& norm, std::size_t head, std::int64_t head_dim, Rows& y) {
  if (norm.weight == nullptr) return;
  const std::int64_t first =
      norm.weight->size() == head_dim ? 0 : static_cast<std::int64_t>(head) * head_dim;
  for (std::int64_t token = 0; token < kTokens; ++token) {
    const std::span<double> features = std::span(y).subspan(
        static_cast<std::size_t>(token * head_dim), static_cast<std::size_t>(head_dim));
    double squares = 0.0;
    for (const double value : features) squares += value * value;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(head_dim) + kNormEpsilon);
    for (std::size_t i = 0; i < features.size(); ++i) {
      const std::int64_t at = first + static_cast<std::int64_t>(i);
      features[i] *= scale * number_at(*norm.weight, at);
      if (norm.bias != nullptr) features[i] += number_at(*norm.bias, at);
    }
  }
}

// The inputs of one layer, the same for both sides.
struct LayerInputs {
  Rows query_input, key_input;
  std::vector<std::int64_t> query_positions, key_positions;
};

class LayerSide {
 public:
  LayerSide(const AttentionLayer& layer, core::PairLayout layout)
      : layer_(layer), rotary_(rotary_of(layer.rope, layout)) {}

  [[nodiscard]] Rows query(std::size_t head, const LayerInputs& inputs) const {
    Rows q = project(layer_.queries, head, head_dim(), inputs.query_input);
    normalise(layer_.query_norm, head, head_dim(), q);
    rotate(q, inputs.query_positions, core::Role::query);
    return q;
  }
  [[nodiscard]] Rows key(std::size_t head, const LayerInputs& inputs) const {
    Rows k = project(layer_.keys, head, head_dim(), inputs.key_input);
    normalise(layer_.key_norm, head, head_dim(), k);
    rotate(k, inputs.key_positions, core::Role::key);
    return k;
  }
  // The contribution of this head's values to the first features of the layer's output.
  [[nodiscard]] Rows output(std::size_t head, const LayerInputs& inputs) const {
    Rows v = project(layer_.values, head, head_dim(), inputs.key_input);
    rotate(v, inputs.key_positions, core::Role::query);
    const std::int64_t width = layer_.output->shape[1];
    const std::int64_t rows = std::min(kOutputRows, layer_.output->shape[0]);
    std::vector<float> part(static_cast<std::size_t>(head_dim()));
    Rows out;
    for (std::int64_t row = 0; row < rows; ++row) {
      io::to_floats(*layer_.output, row * width + static_cast<std::int64_t>(head) * head_dim(),
                    part);
      for (std::int64_t token = 0; token < kTokens; ++token) {
        double sum = 0.0;
        for (std::size_t i = 0; i < part.size(); ++i) {
          sum += static_cast<double>(part[i]) * v[static_cast<std::size_t>(token * head_dim()) + i];
        }
        out.push_back(sum);
      }
    }
    return out;
  }
  [[nodiscard]] int axes() const { return rotary_.frequencies.axis_count(); }

 private:
  [[nodiscard]] static core::Rotary rotary_of(encodings::RopeSpec rope, core::PairLayout layout) {
    rope.layout = layout;
    return encodings::resolve(rope, kContext);
  }
  [[nodiscard]] std::int64_t head_dim() const { return layer_.rope.head_dim; }
  void rotate(Rows& rows, const std::vector<std::int64_t>& positions, core::Role role) const {
    const core::HeadsView view = core::heads_view(rows.data(), 1, kTokens, 1, head_dim());
    const core::Rotation rotations[] = {{view, view, role}};
    core::rotate(rotary_, core::positions_per_row(positions.data(), axes(), 1, kTokens), rotations);
  }

  const AttentionLayer& layer_;
  core::Rotary rotary_;
};

void compare_scores(const Rows& q, const Rows& k, const Rows& other_q, const Rows& other_k,
                    std::int64_t head_dim, Agreement& scores) {
  for (std::int64_t m = 0; m < kTokens; ++m) {
    for (std::int64_t n = 0; n < kTokens; ++n) {
      double score = 0.0, other = 0.0;
      for (std::int64_t i = 0; i < head_dim; ++i) {
        const auto at = static_cast<std::size_t>(m * head_dim + i);
        const auto to = static_cast<std::size_t>(n * head_dim + i);
        score += q[at] * k[to];
        other += other_q[at] * other_k[to];
      }
      scores.compare(score, other);
    }
  }
}

struct ChosenHeads {
  std::vector<std::size_t> keys, queries_of_key;
};
// All heads of the layer, or some if their rows are large.
[[nodiscard]] ChosenHeads chosen_heads(const AttentionLayer& layer) {
  const std::size_t queries = layer.queries.first_row.size();
  const std::size_t keys = layer.keys.first_row.size();
  const std::int64_t bytes = static_cast<std::int64_t>(queries + keys) * layer.rope.head_dim *
                             layer.queries.weight->shape[1] *
                             static_cast<std::int64_t>(io::block_bytes(layer.queries.weight->type));
  const std::size_t most = bytes <= kProofBytes ? queries : kProofHeads;
  return {evenly_spaced(keys, most), evenly_spaced(queries / keys, most)};
}

void prove_layer(const AttentionLayer& source, const AttentionLayer& result,
                 const ProofSide& of_source, const ProofSide& of_result, Draw& draw,
                 Agreement& scores, Agreement& outputs) {
  const LayerSide before(source, of_source.layout), after(result, of_result.layout);
  const std::int64_t width = source.queries.weight->shape[1];
  LayerInputs inputs;
  inputs.query_input = draw.activations(width);
  inputs.key_input = draw.activations(source.keys.weight->shape[1]);
  inputs.query_positions = draw.positions(before.axes());
  inputs.key_positions = draw.positions(before.axes());
  const std::size_t group = source.queries.first_row.size() / source.keys.first_row.size();
  const ChosenHeads heads = chosen_heads(source);
  for (const std::size_t key : heads.keys) {
    const Rows k = before.key(key, inputs), other_k = after.key(key, inputs);
    for (const std::size_t of_key : heads.queries_of_key) {
      const std::size_t query = key * group + of_key;
      compare_scores(before.query(query, inputs), k, after.query(query, inputs), other_k,
                     source.rope.head_dim, scores);
    }
    if (source.output == nullptr) continue;
    const Rows out = before.output(key, inputs), other_out = after.output(key, inputs);
    for (std::size_t i = 0; i < out.size(); ++i) outputs.compare(out[i], other_out[i]);
  }
}

}  // namespace

ScoreProof prove_scores(const ProofSide& source, const ProofSide& result, std::uint64_t seed) {
  std::vector<std::size_t> with_keys;
  for (std::size_t i = 0; i < source.tensors.layers.size(); ++i) {
    if (source.tensors.layers[i].keys.weight != nullptr) with_keys.push_back(i);
  }
  const std::vector<std::size_t> chosen = evenly_spaced(with_keys.size(), kLayers);
  Draw draw{std::mt19937_64(seed)};
  Agreement scores, outputs;
  for (const std::size_t i : chosen) {
    const std::size_t layer = with_keys[i];
    prove_layer(source.tensors.layers[layer], result.tensors.layers[layer], source, result, draw,
                scores, outputs);
  }
  return {static_cast<std::int64_t>(chosen.size()), scores.count() + outputs.count(),
          scores.largest(), std::max(scores.relative(), outputs.relative())};
}

}  // namespace phasor::porting
