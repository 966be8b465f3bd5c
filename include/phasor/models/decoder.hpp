// One decoder for every family: a family is a row of src/config/families, and docs/models.md lists them.
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
#include "phasor/encodings/rope.hpp"
#include "phasor/export.h"
#include "phasor/models/checkpoint.hpp"

namespace phasor::models {

class ContextShare;

// Sizes and types of a checkpoint.
struct DecoderFacts {
  std::string model_type;
  std::int64_t layers = 0, hidden = 0, intermediate = 0, vocabulary = 0;
  std::int64_t heads = 0, key_heads = 0, head_dim = 0;
  std::int64_t experts = 0, experts_used = 0;  // 0: no mixture
  std::int64_t trained_length = 0;             // 0: not in the config
  std::int64_t position_limit = 0;  // rows of a learned table of positions; 0: no such limit
  std::int64_t parameters = 0;
  std::size_t weight_bytes = 0;           // as kept in memory
  std::vector<std::string> weight_types;  // "q4_1", "f32", ...
  std::vector<std::int64_t> stops;        // eos_token_id of the config
};

// Keys and values of one sequence in every layer, and the ids of their tokens.
struct SequenceOptions {
  std::int64_t capacity = 0;  // tokens
  // nullopt: f32, or f16 with Precision::fast.
  std::optional<core::DType> cache = std::nullopt;
  attention::CacheMode mode = attention::CacheMode::compact;
  // Replaces the config's scaling in every layer with RoPE; the weights are unchanged.
  std::optional<encodings::RopeScaling> scaling = std::nullopt;
  // The first token's position. RoPE reads distances, so that results do not depend on it: the test
  // of an engine's angles.
  std::int64_t first_position = 0;
  // With other than exact angles a sequence cannot be shifted.
  core::AngleMode angles = core::AngleMode::exact;
  // Not null: the context is shared by ranks, each of which keeps the keys and values of some tokens, in
  // caches of about capacity / ranks. Decoder::sequence and forward are then collective: every rank calls
  // them with the same options and all ids. Must outlive the sequence, which cannot be shifted.
  ContextShare* share = nullptr;
};

class Decoder;

// A call that throws leaves it unchanged.
class PHASOR_API Sequence {
 public:
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;

  [[nodiscard]] std::span<const std::int64_t> ids() const noexcept;  // of the tokens in the cache
  [[nodiscard]] std::int64_t capacity() const noexcept;
  // The next token's position; the first position + ids().size() until a shift.
  [[nodiscard]] std::int64_t next_position() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;  // of the caches, of this rank
  // A layer's keys and values; of a shared context, those of this rank. Valid until the next call that changes the sequence.
  //
  // throws   Error(out_of_range)
  [[nodiscard]] const attention::KVCache& cache(std::int64_t layer) const;

  // Keeps the first `tokens`, for a new prompt that starts with the same tokens.
  //
  // throws   Error(out_of_range)
  void truncate(std::int64_t tokens);
  // Drops tokens [keep, keep + drop) and moves the later ones to their places by rotating their keys
  // again, without computing them again. attention/kv_cache.hpp states the limits of this.
  //
  // throws   Error(out_of_range); Error(unsupported): angles that are not exact, a shared context
  void shift(std::int64_t keep, std::int64_t drop);
  // A copy with another capacity.
  //
  // throws   Error(out_of_range): a capacity below the number of tokens
  [[nodiscard]] Sequence fork(std::int64_t capacity) const;

  struct State;

 private:
  friend class Decoder;
  explicit Sequence(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Tokens to append to a sequence.
struct Step {
  Sequence* sequence = nullptr;
  std::span<const std::int64_t> ids;
};

enum class LogitsOf : std::uint8_t { none, last_token, every_token };
enum class HiddenStates : std::uint8_t { leave, collect };
// Which rank of a shared context gets the logits and hidden states of which tokens.
enum class RowsOn : std::uint8_t {
  every_rank,  // all of them, the same bits
  first_rank,  // all of them on rank 0, nothing on the others
  own_rank,    // those that the rank has computed: ForwardResult::rows
};

struct ForwardOptions {
  LogitsOf logits = LogitsOf::last_token;
  HiddenStates hidden = HiddenStates::leave;
  RowsOn rows = RowsOn::every_rank;
};

struct ForwardResult {
  // [rows, vocabulary]: a row for each step (last_token) or for each token of each step
  // (every_token), in order.
  std::vector<float> logits;
  // [layers + 1, tokens of all steps, hidden]: the embedding first, the last after the final norm.
  std::vector<float> hidden_states;
  // RowsOn::own_rank of a shared context: for each step, the first of its tokens with a row above, and
  // how many there are.
  struct Rows {
    std::int64_t first = 0, count = 0;
  };
  std::vector<Rows> rows;
};

// The merge of partial results rounds weights by the float32 log-sum-exp, and the layers carry it on.
inline constexpr double kSharedContextError = 1e-5;

class PHASOR_API Decoder {
 public:
  // error    as Checkpoint::open; Error(unsupported): an unknown model_type, settings that the family
  //          does not support (an activation, a soft cap ...), unknown tensors; missing tensors and
  //          other shapes; Error(invalid_argument): weights or scales of blocks that are not finite,
  //          with the tensor; Error(io): a file that is written to while it is read
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

  // throws   Error(invalid_argument): a capacity below 1, a scaling that does not fit the config;
  //          Error(out_of_range): a negative first position, positions beyond the angles;
  //          Error(unsupported): a first position or angles of a model without RoPE, or of one whose
  //          frequencies depend on the context; of a shared context, Error(invalid_argument) if the ranks
  //          disagree
  [[nodiscard]] Sequence sequence(const SequenceOptions& options) const;

  // Runs the steps' tokens through every layer and appends them to their sequences. All steps are
  // one product with the weights; each attends to its own sequence, so that a left-padded batch is
  // its rows without the padding. Scalings that read the context (dynamic, longrope) read that of
  // the longest sequence of the call, as Hugging Face does for a batch. When their frequencies
  // change, the keys of a dynamic scaling are rotated again; a sequence that crosses longrope's
  // original length is computed again from its ids, as the reference does.
  //
  // In a shared context each rank computes a part of the tokens, or all of a few, such as one; queries go
  // to all ranks, and what is sent does not grow with the context. Scalings read the whole context.
  // Logits are within kSharedContextError of those of one rank, relative to the largest.
  //
  // Not thread-safe: calls on one Decoder share its memory.
  //
  // into     is replaced by the results; its memory is reused if it is large enough. Unspecified when
  //          the call throws
  // throws   Error(invalid_argument): no step, an empty step, a sequence twice or of another
  //          decoder, sequences of different scalings or shares; Error(out_of_range): an id outside the
  //          vocabulary, more tokens than the capacity of a sequence; before a cache is changed.
  //          Error(out_of_range): hidden states or logits that are not finite, with the first layer
  //          where they are not. std::bad_alloc, Error(internal). Every sequence is unchanged, bit for
  //          bit, whatever is thrown
  // cost     a step of the size of an earlier one, on a sequence of the capacity of an earlier one,
  //          allocates nothing, unless the context changes the frequencies: a dynamic scaling beyond
  //          its original length, longrope when it crosses it
  // memory   a sequence that crosses longrope's original length has its caches twice during the call;
  //          one with a dynamic scaling has its keys twice from its first rotation on
  void forward(std::span<const Step> steps, const ForwardOptions& options, ForwardResult& into);
  [[nodiscard]] ForwardResult forward(std::span<const Step> steps,
                                      const ForwardOptions& options = {});

  struct State;

 private:
  explicit Decoder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A padded batch as rows of ids: [batch, tokens] with a mask of the same shape, 0 = padding on
// either side. Rows of only padding are an error.
struct MaskedBatch {
  std::vector<std::vector<std::int64_t>> rows;
  // Token rows[b][i] was in column slots[b][i].
  std::vector<std::vector<std::int64_t>> slots;
};
[[nodiscard]] PHASOR_API MaskedBatch unpad(std::span<const std::int64_t> ids,
                                           std::span<const std::uint8_t> mask, std::int64_t batch);

// Runs a padded batch from its first token on. Results are in the columns of their tokens, zeros at
// padding.
//
// share    as SequenceOptions::share, of every row
// shape    logits [batch, tokens, vocabulary], of LogitsOf::last_token [batch, vocabulary];
//          hidden_states [layers + 1, batch, tokens, hidden]; empty on other ranks than 0 with
//          RowsOn::first_rank
// throws   as unpad() and Decoder::forward; Error(invalid_argument): RowsOn::own_rank with padding
[[nodiscard]] PHASOR_API ForwardResult forward_padded(
    Decoder& decoder, std::span<const std::int64_t> ids, std::span<const std::uint8_t> mask,
    std::int64_t batch, const ForwardOptions& options = {}, ContextShare* share = nullptr);
// Zeros in values [.., slots, width] at the slots whose mask is 0.
//
// precondition  a whole number of values for each slot
PHASOR_API void clear_padding(std::span<const std::uint8_t> mask, std::int64_t width,
                              std::span<float> values) noexcept;

}  // namespace phasor::models
