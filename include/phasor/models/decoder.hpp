// One decoder for every family: llama, mistral, mixtral, gpt_neox, gptj, glm, qwen2, qwen3, cohere,
// phi3, gemma3, palm. A family is a row of src/models/decoder_families.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phasor/attention/kv_cache.hpp"
#include "phasor/config/config.hpp"
#include "phasor/encodings/rope_scaling.hpp"
#include "phasor/export.h"
#include "phasor/models/checkpoint.hpp"
#include "phasor/models/matrix.hpp"

namespace phasor::models {

// What a checkpoint is, for people and for callers that size things.
struct DecoderFacts {
  std::string model_type;
  std::int64_t layers = 0, hidden = 0, intermediate = 0, vocabulary = 0;
  std::int64_t heads = 0, key_heads = 0, head_dim = 0;
  std::int64_t experts = 0, experts_used = 0;  // 0: no mixture
  std::int64_t trained_length = 0;             // 0: the config does not tell
  std::int64_t parameters = 0;
  std::size_t weight_bytes = 0;           // as kept in memory
  std::vector<std::string> weight_types;  // "q4_1", "f32", ...
  std::vector<std::int64_t> stops;        // eos_token_id of the config
};

// Keys and values of one sequence in every layer, and the ids that they stand for.
struct SequenceOptions {
  std::int64_t capacity = 0;  // tokens
  // None: f32, or f16 where the decoder computes in Precision::fast.
  std::optional<core::DType> cache = std::nullopt;
  attention::CacheMode mode = attention::CacheMode::compact;
  // In place of the config's own scaling, in every layer that turns; the weights stay as they are.
  std::optional<encodings::RopeScaling> scaling = std::nullopt;
};

class Decoder;

// A call that throws leaves it as it was.
class PHASOR_API Sequence {
 public:
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  [[nodiscard]] std::span<const std::int64_t> ids() const noexcept;  // of the tokens in the cache
  [[nodiscard]] std::int64_t capacity() const noexcept;
  // The next token's position; ids().size() until a shift.
  [[nodiscard]] std::int64_t next_position() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;  // of the caches
  // A layer's keys and values, to look at. Valid until the next call that changes the sequence.
  //
  // throws   Error(out_of_range)
  [[nodiscard]] const attention::KVCache& cache(std::int64_t layer) const;

  // Keeps the first `tokens`: where a new prompt shares its beginning with the last one.
  //
  // throws   Error(out_of_range)
  void truncate(std::int64_t tokens);
  // Drops tokens [keep, keep + drop) and moves the later ones to their places, their keys turned
  // once more: room in a full window without computing the past again. What that cannot repair is
  // told in attention/kv_cache.hpp.
  //
  // throws   Error(out_of_range)
  void shift(std::int64_t keep, std::int64_t drop);
  // The same tokens with room for `capacity`.
  //
  // throws   Error(out_of_range) for less room than tokens
  [[nodiscard]] Sequence fork(std::int64_t capacity) const;

  struct State;

 private:
  friend class Decoder;
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Tokens to run, behind those that the sequence has.
struct Step {
  Sequence* sequence = nullptr;
  std::span<const std::int64_t> ids;
};

enum class LogitsOf : std::uint8_t { none, last_token, every_token };
enum class HiddenStates : std::uint8_t { leave, collect };

struct ForwardOptions {
  LogitsOf logits = LogitsOf::last_token;
  HiddenStates hidden = HiddenStates::leave;
};

struct ForwardResult {
  // [rows, vocabulary]: a row for each step (last_token) or for each token of each step
  // (every_token), in order.
  std::vector<float> logits;
  // [layers + 1, tokens of all steps, hidden]: the embedding first, the last after the final norm.
  std::vector<float> hidden_states;
};

class PHASOR_API Decoder {
 public:
  // refuses  what Checkpoint::open refuses; a model_type without a row; settings that the row does
  //          not compute (an activation, a soft cap ...); a tensor that is missing, has another
  //          shape, or that nobody reads
  [[nodiscard]] static Result<Decoder> load(const std::filesystem::path& path,
                                            const ComputeOptions& options = {});
  [[nodiscard]] static Result<Decoder> load(Checkpoint checkpoint,
                                            const ComputeOptions& options = {});
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  [[nodiscard]] const DecoderFacts& facts() const noexcept;
  [[nodiscard]] const config::ModelConfig& config() const noexcept;
  void set_options(const ComputeOptions& options);

  // throws   Error(invalid_argument): a capacity below 1, a scaling that does not fit the config
  [[nodiscard]] Sequence sequence(const SequenceOptions& options) const;

  // Runs the steps' tokens through every layer and appends them to their sequences. All steps are
  // one product with the weights; each attends to its own sequence, so that a left-padded batch is
  // its rows without the padding. Scalings that read the context (dynamic, longrope) read that of
  // the longest sequence of the call, as Hugging Face does for a batch. Where their frequencies
  // change, the keys of a dynamic scaling are turned again; a sequence that crosses longrope's
  // original length is computed again from its ids, as the reference does.
  //
  // One call at a time for a Decoder, whose memory the next call uses again.
  //
  // into     holds the results alone afterwards, in the memory that it has where that is enough; when
  //          the call throws, nothing to rely on
  // throws   Error(invalid_argument): no step, an empty step, a sequence twice or of another
  //          decoder, sequences of different scalings; Error(out_of_range): an id outside the
  //          vocabulary, more tokens than a sequence has room for; before a cache is touched.
  //          std::bad_alloc, Error(internal): whatever it throws, every sequence is as it was, bit for
  //          bit
  // cost     a step of the size of an earlier one, on a sequence of the capacity of an earlier one,
  //          allocates nothing, unless the context changes the frequencies: a dynamic scaling beyond
  //          its original length, longrope where it crosses it
  // memory   a sequence that crosses longrope's original length has its caches twice during the call;
  //          one under a dynamic scaling has its keys twice from its first turn on
  void forward(std::span<const Step> steps, const ForwardOptions& options, ForwardResult& into);
  [[nodiscard]] ForwardResult forward(std::span<const Step> steps,
                                      const ForwardOptions& options = {});

  struct State;

 private:
  explicit Decoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A padded batch as rows of ids: [batch, tokens] with a mask of the same shape, 0 = padding on
// either side. Rows without a token are refused.
struct MaskedBatch {
  std::vector<std::vector<std::int64_t>> rows;
  // Where token i of row b stood: rows[b][i] was column slots[b][i].
  std::vector<std::vector<std::int64_t>> slots;
};
[[nodiscard]] PHASOR_API MaskedBatch unpad(std::span<const std::int64_t> ids,
                                           std::span<const std::uint8_t> mask, std::int64_t batch);

// A padded batch through the decoder, from its first token on: results stand where their tokens
// stood, zeros at padding.
//
// shape    logits [batch, tokens, vocabulary], of LogitsOf::last_token [batch, vocabulary];
//          hidden_states [layers + 1, batch, tokens, hidden]
// throws   as unpad() and Decoder::forward
[[nodiscard]] PHASOR_API ForwardResult forward_padded(Decoder& decoder,
                                                      std::span<const std::int64_t> ids,
                                                      std::span<const std::uint8_t> mask,
                                                      std::int64_t batch,
                                                      const ForwardOptions& options = {});
// Zeros in values [.., slots, width] at the slots whose mask is 0.
//
// precondition  a whole number of values for each slot
PHASOR_API void clear_padding(std::span<const std::uint8_t> mask, std::int64_t width,
                              std::span<float> values) noexcept;

}  // namespace phasor::models
