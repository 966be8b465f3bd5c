// T5 and its relatives (Raffel et al., arXiv 1910.10683; T5 1.1, Flan-T5, mT5, umT5): an encoder reads
// the input, a decoder writes the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/view.hpp"
#include "phasor/export.h"
#include "phasor/models/checkpoint.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/generate.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::models {

struct T5Facts {
  std::string model_type;
  std::int64_t encoder_layers = 0, decoder_layers = 0, hidden = 0, intermediate = 0, vocabulary = 0;
  std::int64_t heads = 0, head_dim = 0;
  std::int64_t buckets = 0, max_distance = 0;  // of the relative bias
  std::int64_t start_token = 0;                // the decoder's first token
  std::int64_t parameters = 0;
  std::size_t weight_bytes = 0;           // as kept in memory
  std::vector<std::string> weight_types;  // "f32", ...
  std::vector<std::int64_t> stops;        // eos_token_id of the config
};

struct T5SequenceOptions {
  std::int64_t capacity = 0;  // tokens of the decoder, the start token included
  // Of keys and values. nullopt: f32, or f16 with Precision::fast.
  std::optional<core::DType> cache = std::nullopt;
};

struct T5Encoded {
  std::vector<float> last_hidden_state;  // [tokens, hidden], after the final norm
  // [encoder_layers + 1, tokens, hidden] if collected: the embedding first, the last after the final
  // norm.
  std::vector<float> hidden_states;
};

// One input, as the keys and values of every cross-attention, and the decoder's tokens so far with
// theirs. Must not outlive its model. A call that throws leaves it unchanged.
class PHASOR_API T5Sequence {
 public:
  ~T5Sequence();
  T5Sequence(T5Sequence&&) noexcept;
  T5Sequence& operator=(T5Sequence&&) noexcept;

  [[nodiscard]] std::span<const std::int64_t> ids() const noexcept;  // of the decoder
  [[nodiscard]] std::int64_t input_tokens() const noexcept;          // of the encoder
  [[nodiscard]] std::int64_t capacity() const noexcept;
  // Keeps the first `tokens` of the decoder.
  //
  // throws   Error(out_of_range)
  void truncate(std::int64_t tokens);

  struct State;

 private:
  friend class T5Model;
  explicit T5Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Scores are q.k + bias[bucket(n - m)], not scaled: RoFormer (8). The encoder sees both directions, the
// decoder the past; cross-attention has no bias. One table serves all layers of a side, except in umT5.
// Any length runs: distances beyond max_distance share a bucket.
//
// Not thread-safe: calls on one T5Model share its memory.
class PHASOR_API T5Model {
 public:
  // error    as Decoder::load: unsupported settings, unknown names, other shapes
  [[nodiscard]] static Result<T5Model> load(const std::filesystem::path& path,
                                            const ComputeOptions& options = {});
  [[nodiscard]] static Result<T5Model> load(Checkpoint checkpoint,
                                            const ComputeOptions& options = {});
  ~T5Model();
  T5Model(T5Model&&) noexcept;
  T5Model& operator=(T5Model&&) noexcept;

  [[nodiscard]] const T5Facts& facts() const noexcept;

  // Runs the encoder.
  //
  // throws   Error(invalid_argument): no token; Error(out_of_range): an id outside the vocabulary,
  //          hidden states that are not finite, with the first layer where they are not
  [[nodiscard]] T5Encoded encode(std::span<const std::int64_t> input,
                                 HiddenStates hidden = HiddenStates::leave);
  // Runs the encoder and computes the keys and values of every cross-attention, once for all steps.
  //
  // throws   as encode(); Error(invalid_argument): a capacity below 1
  [[nodiscard]] T5Sequence sequence(std::span<const std::int64_t> input,
                                    const T5SequenceOptions& options);
  // Runs tokens through the decoder and appends them to the sequence. The first one is, as in training,
  // facts().start_token; it is not added here.
  //
  // into     as Decoder::forward, for the layers of the decoder
  // throws   Error(invalid_argument): no token, a sequence of another model; Error(out_of_range): an id
  //          outside the vocabulary, more tokens than the capacity, numbers that are not finite
  void forward(T5Sequence& sequence, std::span<const std::int64_t> ids,
               const ForwardOptions& options, ForwardResult& into);
  [[nodiscard]] ForwardResult forward(T5Sequence& sequence, std::span<const std::int64_t> ids,
                                      const ForwardOptions& options = {});

  struct State;

 private:
  explicit T5Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether models::T5Model runs a checkpoint of this model_type, or GGUF architecture.
[[nodiscard]] PHASOR_API bool is_t5(std::string_view model_type);

// The ids of an input: those of the text, then the end token, as T5 was trained.
//
// throws   Error(invalid_argument): a tokenizer without an end token; as Tokenizer::encode
[[nodiscard]] PHASOR_API std::vector<std::int64_t> t5_input_ids(const text::Tokenizer& tokenizer,
                                                                std::string_view text);

// The answer to an input, greedy or sampled. Calls `on_token` with each token; false cancels. The
// repetition penalty counts tokens of the answer, not of the input.
//
// options  context counts the decoder's tokens, the start token included; 0: no limit. keep and chunk
//          are not used
// throws   as T5Model::sequence and T5Model::forward; Error(invalid_argument): tokens or context below 0;
//          Error(out_of_range): more tokens than the context; Error(unsupported): WindowFull::shift,
//          since the first tokens of an answer cannot be dropped; what `on_token` throws
[[nodiscard]] PHASOR_API GenerateResult
generate(T5Model& model, std::span<const std::int64_t> input, const GenerateOptions& options,
         std::optional<core::DType> cache = std::nullopt,
         const std::function<bool(std::int64_t)>& on_token = {});

}  // namespace phasor::models
