// RoFormer (Su et al., arXiv 2104.09864) as Hugging Face stores it: the encoder, or with is_decoder its
// causal form.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"
#include "phasor/models/checkpoint.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::models {

enum class RoFormerHead : std::uint8_t {
  none,
  masked_lm,
  classification,  // of the whole row
  causal_lm,       // the layers of masked_lm; the config says whether attention is causal
  token_classification,
  question_answering,  // labels are the start and the end of the answer
};
// "masked_lm", ...; "" for none.
[[nodiscard]] PHASOR_API std::string_view name_of(RoFormerHead head) noexcept;

struct RoFormerFacts {
  RoFormerHead head = RoFormerHead::none;
  std::int64_t layers = 0, hidden = 0, embedding = 0, vocabulary = 0, heads = 0, head_dim = 0;
  std::int64_t token_types = 0, labels = 0, trained_length = 0, parameters = 0;
  std::vector<std::string> label_names;  // of id2label; start and end for question_answering
  bool is_causal = false;                // is_decoder: a token sees itself and earlier ones

  // The columns of the logits; 0 without a head.
  [[nodiscard]] std::int64_t logit_columns() const noexcept {
    return head == RoFormerHead::none ? 0 : labels > 0 ? labels : vocabulary;
  }
  // Whether each token has a row of logits; a classification has one for each sequence.
  [[nodiscard]] bool has_logits_per_token() const noexcept {
    return head != RoFormerHead::none && head != RoFormerHead::classification;
  }
};

// shape    ids, token_types, mask [batch, tokens]; empty token_types are 0, an empty mask is 1.
//          Slots count from 0, padding included: RoFormer has no position argument
struct RoFormerInput {
  std::int64_t batch = 1;
  std::span<const std::int64_t> ids = {}, token_types = {};
  std::span<const std::uint8_t> mask = {};
  // The slots whose logits are wanted; empty: all. A head with logits per token only.
  std::span<const std::int64_t> logit_slots = {};
};

struct RoFormerResult {
  std::vector<float> last_hidden_state;  // [batch, tokens, hidden]
  std::vector<float> hidden_states;      // [layers + 1, batch, tokens, hidden] if collected
  // [batch, tokens or logit_slots, logit_columns()], or [batch, labels] for a classification
  std::vector<float> logits;
};

class PHASOR_API RoFormer {
 public:
  // error    as Decoder::load: unsupported settings, unknown names, other shapes
  [[nodiscard]] static Result<RoFormer> load(const std::filesystem::path& path,
                                             const ComputeOptions& options = {});
  ~RoFormer();
  RoFormer(RoFormer&&) noexcept;
  RoFormer& operator=(RoFormer&&) noexcept;

  [[nodiscard]] const RoFormerFacts& facts() const noexcept;
  [[nodiscard]] const config::ModelConfig& config() const noexcept;

  // throws   Error(shape_mismatch | invalid_argument): sizes that disagree, no token, a row that is
  //          all padding; Error(out_of_range): ids, token types or lengths beyond what was trained;
  //          hidden states or logits that are not finite, with the first layer where they are not
  [[nodiscard]] RoFormerResult forward(const RoFormerInput& input,
                                       HiddenStates hidden = HiddenStates::leave);

 private:
  struct State;
  explicit RoFormer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Tokens for a mask, most likely first.
struct Filling {
  std::int64_t slot = 0;  // of the mask among the tokens
  struct Choice {
    std::int64_t id = 0;
    std::string token;
    double probability = 0.0;
    double logit = 0.0;
  };
  std::vector<Choice> choices;
};
// Runs [CLS] text [SEP]: `count` tokens for every [MASK] of the text, each mask predicted separately, as
// in training. Probabilities are over the model's whole vocabulary.
//
// throws   Error(invalid_argument): a text without a mask, a tokenizer without one or with more
//          tokens than the model, a model without a masked-LM head, a count below 1; as
//          RoFormer::forward
[[nodiscard]] PHASOR_API std::vector<Filling> fill(RoFormer& model,
                                                   const text::Tokenizer& tokenizer,
                                                   std::string_view text, std::int64_t count);

}  // namespace phasor::models
