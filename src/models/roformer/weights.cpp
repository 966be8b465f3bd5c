#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "models/roformer/parts.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::models {
namespace {

// Half a unit in the last place below 1: the rounding of the stored table.
[[nodiscard]] double rounding_of(io::TensorType type) noexcept {
  return type == io::TensorType::bf16  ? std::ldexp(1.0, -9)
         : type == io::TensorType::f16 ? std::ldexp(1.0, -12)
                                       : 0.0;
}

void check_sinusoid(const Checkpoint& checkpoint, const std::string& name, const Matrix& table,
                    const encodings::RopeSpec& rope) {
  const core::Frequencies frequencies = encodings::resolve_frequencies(rope);
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  const double tolerance = kSinusoidTolerance + rounding_of(table.type());
  std::vector<float> row(static_cast<std::size_t>(table.columns()));
  std::vector<double> expected(2 * pairs);
  for (std::int64_t position = 0; position < table.rows(); ++position) {
    table.row(position, row);
    const auto place = static_cast<double>(position);
    core::cos_sin(frequencies, std::span(&place, 1), std::span(expected).subspan(pairs),
                  std::span(expected).first(pairs));
    for (std::size_t feature = 0; feature < row.size(); ++feature) {
      if (std::abs(static_cast<double>(row[feature]) - expected[feature]) <= tolerance) continue;
      refuse(message(checkpoint.name(), ": tensor ", name, " row ", position,
                     " must be the sines, then the cosines, of its position: feature ", feature,
                     " must be ", static_cast<float>(expected[feature]), ", got ", row[feature]));
    }
  }
}

[[nodiscard]] bool equal(const io::Tensor& a, const io::Tensor& b) {
  if (a.shape != b.shape) return false;
  if (a.type == b.type) return io::same_bytes(a, b);
  std::vector<float> left(static_cast<std::size_t>(a.size())), right(left.size());
  io::to_floats(a, 0, left);
  io::to_floats(b, 0, right);
  return left == right;
}

class Reading {
 public:
  Reading(WeightReader& reader, RoFormerSettings& settings)
      : reader_(reader), settings_(settings), facts_(settings.facts) {}

  [[nodiscard]] RoFormerWeights run() {
    find_head();
    constexpr std::string_view kPrefix = "roformer.";
    const bool prefixed = reader_.has("roformer." + std::string(kWords));
    const bool plain = reader_.has(kWords);
    if (prefixed || (!plain && facts_.head != RoFormerHead::none)) prefix_ = kPrefix;
    RoFormerWeights weights;
    read_embeddings(weights);
    for (std::int64_t layer = 0; layer < facts_.layers; ++layer) {
      weights.layers.push_back(read_layer(message(prefix_, "encoder.layer.", layer, ".")));
    }
    check_positions();
    read_head(weights);
    reader_.refuse_unread("roformer");
    facts_.parameters = reader_.parameters();
    return weights;
  }

 private:
  static constexpr std::string_view kWords = "embeddings.word_embeddings.weight";

  void find_head() {
    if (settings_.head_known) return;
    const auto language_model =
        facts_.is_causal ? RoFormerHead::causal_lm : RoFormerHead::masked_lm;
    facts_.head = reader_.has("cls.predictions.transform.dense.weight") ? language_model
                  : reader_.has("classifier.dense.weight") ? RoFormerHead::classification
                  : reader_.has("classifier.weight")       ? RoFormerHead::token_classification
                  : reader_.has("qa_outputs.weight")       ? RoFormerHead::question_answering
                                                           : RoFormerHead::none;
  }

  [[nodiscard]] RoFormerLinear linear(const std::string& name, std::int64_t rows,
                                      std::int64_t columns) {
    return {reader_.matrix(name + ".weight", rows, columns), reader_.vector(name + ".bias", rows)};
  }
  [[nodiscard]] LayerNorm norm(const std::string& name, std::int64_t size) {
    return {reader_.vector(name + ".weight", size), reader_.vector(name + ".bias", size)};
  }

  void read_embeddings(RoFormerWeights& weights) {
    weights.words =
        reader_.matrix(prefix_ + std::string(kWords), facts_.vocabulary, facts_.embedding);
    weights.token_types = reader_.matrix(prefix_ + "embeddings.token_type_embeddings.weight",
                                         facts_.token_types, facts_.embedding);
    weights.embedding_norm = norm(prefix_ + "embeddings.LayerNorm", facts_.embedding);
    if (facts_.embedding != facts_.hidden) {
      weights.project = linear(prefix_ + "embeddings_project", facts_.hidden, facts_.embedding);
    }
  }

  [[nodiscard]] RoFormerLayer read_layer(const std::string& at) {
    const std::int64_t hidden = facts_.hidden;
    RoFormerLayer layer;
    layer.query = linear(at + "attention.self.query", hidden, hidden);
    layer.key = linear(at + "attention.self.key", hidden, hidden);
    layer.value = linear(at + "attention.self.value", hidden, hidden);
    layer.attention_output = linear(at + "attention.output.dense", hidden, hidden);
    layer.attention_norm = norm(at + "attention.output.LayerNorm", hidden);
    layer.intermediate = linear(at + "intermediate.dense", settings_.intermediate, hidden);
    layer.output = linear(at + "output.dense", hidden, settings_.intermediate);
    layer.output_norm = norm(at + "output.LayerNorm", hidden);
    return layer;
  }

  // Some writers omit it, since it can be computed.
  void check_positions() {
    const std::string name = prefix_ + "encoder.embed_positions.weight";
    if (!reader_.has(name)) return;
    const Matrix table = reader_.matrix(name, facts_.trained_length, facts_.head_dim);
    check_sinusoid(reader_.checkpoint(), name, table, settings_.rope);
  }

  // A tied tensor may be stored as well. Readers differ in which of the two they use, so both must
  // be equal.
  void check_tied(const std::string& copy, const std::string& original) {
    const io::Tensor* const second = reader_.checkpoint().find(copy);
    const io::Tensor* const first = reader_.checkpoint().find(original);
    if (second == nullptr || first == nullptr || equal(*first, *second)) return;
    refuse(message(reader_.checkpoint().name(), ": tensors ", copy, " and ", original,
                   " differ, but tie_word_embeddings is true"));
  }

  void read_head(RoFormerWeights& weights) {
    switch (facts_.head) {
      case RoFormerHead::classification:
        weights.dense = linear("classifier.dense", facts_.hidden, facts_.hidden);
        weights.labels = linear("classifier.out_proj", facts_.labels, facts_.hidden);
        return;
      case RoFormerHead::token_classification:
        weights.labels = linear("classifier", facts_.labels, facts_.hidden);
        return;
      case RoFormerHead::question_answering:
        facts_.label_names = {"start", "end"};
        facts_.labels = 2;
        weights.labels = linear("qa_outputs", facts_.labels, facts_.hidden);
        return;
      case RoFormerHead::masked_lm:
      case RoFormerHead::causal_lm:
        read_language_model(weights);
        break;
      case RoFormerHead::none:
        break;
    }
    facts_.labels = 0;
    facts_.label_names.clear();
  }

  void read_language_model(RoFormerWeights& weights) {
    const std::string at = "cls.predictions.";
    weights.transform = linear(at + "transform.dense", facts_.embedding, facts_.hidden);
    weights.transform_norm = norm(at + "transform.LayerNorm", facts_.embedding);
    const std::string own_weight = at + "decoder.weight", own_bias = at + "decoder.bias";
    if (settings_.tied) {
      check_tied(own_weight, prefix_ + std::string(kWords));
      weights.decoder.weight = weights.words;
    } else {
      weights.decoder.weight = reader_.matrix(own_weight, facts_.vocabulary, facts_.embedding);
    }
    // Older writers store the bias of the head, of its decoder, or both.
    const bool both = reader_.has(own_bias) && reader_.has(at + "bias");
    if (both && settings_.tied) check_tied(own_bias, at + "bias");
    if (both) reader_.skip(at + "bias");
    weights.decoder.bias =
        reader_.vector(reader_.has(own_bias) ? own_bias : at + "bias", facts_.vocabulary);
  }

  WeightReader& reader_;
  RoFormerSettings& settings_;
  RoFormerFacts& facts_;
  std::string prefix_;
};

}  // namespace

RoFormerWeights roformer_weights(WeightReader& reader, RoFormerSettings& settings) {
  return Reading(reader, settings).run();
}

}  // namespace phasor::models
