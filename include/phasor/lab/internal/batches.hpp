// Batches of a corpus. The batch of a step is a function of settings, data and step: a run that is
// resumed needs no state.
#pragma once

#include <cstdint>
#include <memory>

#include "phasor/lab/internal/batch.hpp"
#include "phasor/lab/internal/corpus.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::lab {

enum class Order : std::uint8_t {
  shuffled,    // training: full batches without end; each epoch in another order
  sequential,  // evaluation: each row once, in order; the last batch may have fewer rows
};
// A text with more tokens than a row has.
enum class TooLong : std::uint8_t { truncate, refuse };

struct BatchSettings {
  std::int64_t rows = 0;    // of a batch
  std::int64_t tokens = 0;  // of a row; where rows are padded: at most
  std::uint64_t seed = 0;
  Order order = Order::shuffled;
  TooLong too_long = TooLong::truncate;
};

class Batches {
 public:
  virtual ~Batches() = default;
  // `shuffled`: any step from 0 on. `sequential`: steps below steps(). Not thread-safe.
  //
  // throws   Error(out_of_range): another step
  [[nodiscard]] virtual Batch at(std::int64_t step) const = 0;
  // Batches of one pass over the data.
  [[nodiscard]] virtual std::int64_t steps() const noexcept = 0;
  // Rows that were cut to fit, or left out because no cut helps.
  [[nodiscard]] virtual std::int64_t truncated() const noexcept { return 0; }
  [[nodiscard]] virtual std::int64_t left_out() const noexcept { return 0; }
};

// All functions below
// throws   Error(invalid_argument): rows or tokens below 1; fewer data than one batch needs, with both
//          numbers; a special token that is needed and missing, by its name

// Windows of `tokens` ids, and as labels the ids that follow them. Windows may span sections. An epoch
// begins at a random offset below `tokens`, and skips what does not fill a window.
[[nodiscard]] std::unique_ptr<Batches> causal_batches(std::shared_ptr<const TokenCorpus> corpus,
                                                      const BatchSettings& settings);

// BERT's masked language model: [CLS] window [SEP]. Of the ordinary ids in a window, kMaskedShare
// (rounded, at least one) are labelled: of these kMaskShare become the mask token, kRandomShare another
// ordinary id (uniform), the rest stay. `sequential` masks the same places in every call.
inline constexpr double kMaskedShare = 0.15, kMaskShare = 0.8, kRandomShare = 0.1;
[[nodiscard]] std::unique_ptr<Batches> masked_batches(std::shared_ptr<const TokenCorpus> corpus,
                                                      const BatchSettings& settings);

// Do two passages come from the same unit? [CLS] a [SEP] b [SEP], token types 0 and 1, all rows of full
// length; label 1: the same unit, without overlap; 0: different ones. Half of the rows each, on average.
// Units are chosen in proportion to their lengths; what stands between the sections of a work is left
// out. steps() counts the batches that hold a token kPairsOfToken times on average: pairs are drawn, and
// a short text has many.
inline constexpr std::int64_t kPairsOfToken = 8;
enum class Unit : std::uint8_t { work, section };
struct MatchingSettings {
  Unit unit = Unit::work;
  // Units too short for two passages of rows this long are left out: give the longest rows of an
  // experiment, so that all of its lengths have the same units. 0: BatchSettings::tokens.
  std::int64_t longest_tokens = 0;
};
[[nodiscard]] std::unique_ptr<Batches> matching_batches(const TokenCorpus& corpus,
                                                        const BatchSettings& settings,
                                                        const MatchingSettings& matching);

// [CLS] text [SEP], padded to the longest row of the batch. Rows of similar length share a batch when
// shuffled; each epoch leaves out at most rows - 1 texts.
[[nodiscard]] std::unique_ptr<Batches> classification_batches(const LabelledSet& set,
                                                              const text::Tokenizer& tokenizer,
                                                              const BatchSettings& settings);

// Source: its ids and the end token. Target: ids are the begin token and its ids, labels its ids and the
// end token. [CLS] and [SEP] stand in for begin and end. Padded and batched as above; the token limit is
// for each side.
[[nodiscard]] std::unique_ptr<Batches> translation_batches(const PairSet& set,
                                                           const text::Tokenizer& source,
                                                           const text::Tokenizer& target,
                                                           const BatchSettings& settings);

}  // namespace phasor::lab
