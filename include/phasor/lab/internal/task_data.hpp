// What a stage of a run reads: batches as functions of seed and step, and what it is evaluated on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/lab/internal/batches.hpp"
#include "phasor/lab/internal/experiment.hpp"
#include "phasor/text/internal/trainer.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::lab {

// Immutable after it is made, and makes independent batches: runs in several threads share it.
struct TaskData {
  std::int64_t vocabulary = 0, labels = 0;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<text::TokenizerFile> tokenizer_files;
  io::Json facts = io::Json::object();  // names, sizes and hashes of what was read, for run.json
  std::vector<std::string> notes;       // for people: what was used in place of what

  // Batches are not thread-safe: each run makes its own. A step of training is `accumulation` of them.
  std::function<std::unique_ptr<Batches>(std::uint64_t seed)> train;
  // Always the same ones; `validation` during training, `test` once at the end.
  std::function<std::unique_ptr<Batches>()> validation, test;
  // causal_lm: tokens that were not trained on.
  std::vector<std::int32_t> held_out;
  // translation: sentences that were not trained on.
  struct Sentence {
    std::vector<std::int32_t> source;
    std::string source_text, reference;
  };
  std::vector<Sentence> sentences;
};

// The excerpt that comes with Phasor in place of a corpus: english, chinese. nullopt: none.
[[nodiscard]] std::optional<std::string_view> built_in_text(std::string_view corpus);

// Reads the data of stages; texts and tokenizers that several runs use are read and made once.
class DataCache {
 public:
  // corpora   the folder that `./dev corpora` makes; empty: only paths and the excerpt that comes with
  //           Phasor can be read
  explicit DataCache(std::filesystem::path corpora);
  ~DataCache();
  DataCache(const DataCache&) = delete;
  DataCache& operator=(const DataCache&) = delete;

  // The data of a stage, with a tokenizer made from the training part by the plan's settings.
  //
  // data       masked_lm, causal_lm: {"corpus": NAME|PATH}; match: and "unit": "work" or "section",
  //            "longest": N (MatchingSettings); classification: {"labelled": NAME|PATH}; translation:
  //            {"pairs": NAME|PATH}. A name is a folder of `corpora`. A path is a folder with train,
  //            valid and test (folders of .txt, or .jsonl files); plain text may also be a file or a
  //            folder of .txt, of which the last tenth is the test, the one before it valid
  // tokenizer  {"kind": "bytes"|"bpe"|"wordpiece", "vocabulary": N, "min_character_frequency": N,
  //            "corpus": NAME|PATH}; without a corpus that of the data
  // throws     Error(invalid_argument | io | unsupported): unknown keys, a corpus that is absent, empty or
  //            not UTF-8; a text or sentence that does not fit the context
  [[nodiscard]] std::shared_ptr<const TaskData> load(const RunPlan& plan, const Stage& stage);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace phasor::lab
