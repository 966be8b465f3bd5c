// The models that the lab trains, as a plain value and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/attention/linear.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::lab {

enum class Architecture : std::uint8_t { encoder, decoder, encoder_decoder };
// How a block is built. A checkpoint of `roformer` (an encoder) or `llama` (a decoder) with RoPE and
// softmax attention opens in other programs under that model_type.
enum class Style : std::uint8_t {
  roformer,  // layer norm after each sum, biases, GELU; embeddings with a norm and token types
  llama,     // RMS norm before each branch, no biases, SwiGLU, a final norm
};
enum class Head : std::uint8_t {
  language_model,  // a distribution over the vocabulary at each labelled place
  classification,  // of the first token of each row, RoFormer's head
};
enum class AttentionKind : std::uint8_t { softmax, linear };

// Position encodings that the lab trains. Sizes that an encoding needs follow from the model.
enum class EncodingName : std::uint8_t {
  none,
  sinusoidal,      // added to the input, RoFormer (4)
  learned,         // added to the input, (3)
  hierarchical,    // added to the input: rows of a shorter learned table, combined
  rope,            // (14), (34)
  xpos,            // RoPE with a decay
  shaw,            // (5), keys and values
  transformer_xl,  // (6)(7), u and v shared by the layers
  xlnet,           // the same, with u and v of each layer, and segments
  t5,              // (8), one table for all layers
  tupe,            // (9), with T5's bias; the first token untied in encoders
  deberta,         // (10), both terms
  alibi,
  kerple,
};
[[nodiscard]] std::string_view name_of(EncodingName name) noexcept;
[[nodiscard]] std::string_view name_of(Architecture architecture) noexcept;
[[nodiscard]] std::string_view name_of(Style style) noexcept;
[[nodiscard]] std::string_view name_of(Head head) noexcept;
[[nodiscard]] std::string_view name_of(AttentionKind kind) noexcept;

struct EncodingSpec {
  EncodingName name = EncodingName::rope;
  double base = 10000.0;                                         // rope, xpos, sinusoidal
  encodings::RopeScaling scaling = encodings::DefaultScaling{};  // rope: at test time too
  std::int64_t clip = 64;           // shaw: distances beyond read the last row
  std::int64_t buckets = 32;        // t5, tupe
  std::int64_t max_distance = 128;  // t5, tupe; deberta: max_relative_positions
  double alpha = 0.4;               // hierarchical
};

struct ModelSpec {
  Architecture architecture = Architecture::decoder;
  Style style = Style::llama;
  Head head = Head::language_model;
  std::int64_t vocabulary = 0, hidden = 0, layers = 0, heads = 0, intermediate = 0;
  std::int64_t context = 0;      // tokens of the longest row; rows of learned tables
  std::int64_t token_types = 1;  // roformer
  std::int64_t labels = 0;       // classification
  EncodingSpec encoding;
  // Encoder-decoder: whether queries and keys of cross-attention are rotated by their own positions.
  enum class Cross : std::uint8_t { none, rope };
  Cross cross = Cross::none;
  AttentionKind attention = AttentionKind::softmax;
  attention::FeatureMap features = attention::FeatureMap::elu_plus_one;  // linear
  std::int64_t feature_count = 0;                                        // favor: M
  std::uint64_t feature_seed = 0;
  attention::Rotates rotates = attention::Rotates::features;  // linear: RoFormer (19), or q and k
  double dropout = 0.0;                                       // of embeddings and of each branch
  enum class Output : std::uint8_t { tied, own };
  Output output =
      Output::tied;  // the head of a language model is the embedding, or has its own weights

  [[nodiscard]] std::int64_t head_dim() const noexcept { return heads == 0 ? 0 : hidden / heads; }
};

// throws   Error(invalid_argument | unsupported) naming the key and the value: sizes that do not fit
//          each other, combinations that do not exist (linear attention with anything but RoPE, none or
//          an encoding that is added to the input)
void validate(const ModelSpec& spec);

// {"architecture": "decoder", "style": "llama", "hidden": 128, ..., "encoding": "rope"} or
// {"encoding": {"name": "t5", "buckets": 32}}. Unknown keys are refused with what was perhaps meant.
//
// throws   Error as validate()
[[nodiscard]] ModelSpec parse_model_spec(const io::Json& json);
[[nodiscard]] io::Json json_of(const ModelSpec& spec);

}  // namespace phasor::lab
