// The parts of `phasor run`: flags, the loaded model, and streaming the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model_options.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/generate.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::tools {

struct RunFlags {
  ModelOptions model;
  RopeOverride rope;
  std::optional<std::string> prompt, system, chat_format;
  std::string prompt_file, ids, mask, cache;
  std::optional<std::int64_t> tokens, context;
  std::optional<double> temperature;
  std::optional<std::uint64_t> seed;
  models::SamplerOptions sampler;
  std::int64_t keep = models::GenerateOptions{}.keep;
  bool embedded = false, shift = false, chat = false, interactive = false, raw = false,
       stats = false, json = false;
};

struct LoadedModel {
  models::Decoder decoder;
  std::unique_ptr<text::Tokenizer> tokenizer;  // null with --ids
  double load_seconds = 0.0;
};

// What loading cost, for --stats and --json.
struct LoadCost {
  double seconds = 0.0;
  std::size_t weight_bytes = 0;
};
[[nodiscard]] LoadCost cost_of(const LoadedModel& model);

// The context length: --context, or the trained length; 0 when neither is known.
[[nodiscard]] std::int64_t context_of(const RunFlags& flags, const models::Decoder& decoder);
[[nodiscard]] models::GenerateOptions generate_options(const RunFlags& flags,
                                                       const LoadedModel& model);
[[nodiscard]] models::SequenceOptions cache_options(const RunFlags& flags);

// The text of --prompt or --prompt-file.
[[nodiscard]] std::string prompt_text(const RunFlags& flags);
// The ids of a prompt: --raw leaves the begin token out.
[[nodiscard]] std::vector<std::int64_t> prompt_ids(const RunFlags& flags,
                                                   const text::Tokenizer& tokenizer,
                                                   const std::string& text);
// The model's own style, or that of --chat-format and --system.
[[nodiscard]] text::ChatStyle chat_style(const RunFlags& flags, const text::Tokenizer& tokenizer);

// Handles Ctrl-C during its lifetime: the first stops the answer; a second one, or one before the
// answer began, ends the program with kExitCode.
class Interrupt {
 public:
  static constexpr int kExitCode = 130;
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  // Call when the answer begins.
  static void answering() noexcept;
  [[nodiscard]] static bool asked() noexcept;
};

struct Written {
  models::GenerateResult result;
  std::string text;  // of the answer
};
// Generates an answer, and calls back with each token; false cancels.
using AnswerMaker =
    std::function<models::GenerateResult(const std::function<bool(std::int64_t)>& on_token)>;
// The text that an answer continues: that of a decoder's prompt, or none.
struct AnswerStart {
  std::string before = {};
  // A SentencePiece token at the start of a text has a space in front.
  enum class FirstSpace : std::uint8_t { keep, drop } space = FirstSpace::keep;
};
// Generates and writes each complete character to stdout, start.before ahead of the first one, so that
// nothing is written when generation fails at once. With --json only collects the text. Without a
// tokenizer the ids are the text.
[[nodiscard]] Written write_answer(const RunFlags& flags, const text::Tokenizer* tokenizer,
                                   const AnswerMaker& make, const AnswerStart& start = {});
// Ends the answer's line, or prints it as JSON; --stats. The exit code.
[[nodiscard]] int finish_answer(const RunFlags& flags, const text::Tokenizer* tokenizer,
                                const LoadCost& cost, const Written& written,
                                const std::string& before = {});
// Several answers: a line of ids each, or JSON. The exit code.
[[nodiscard]] int print_rows(const RunFlags& flags, const LoadCost& cost,
                             const std::vector<models::GenerateResult>& rows);
// Writes to stdout and flushes; false after a write error.
bool write_now(std::string_view text);

void print_load_stats(const LoadCost& cost);
void print_stats(const models::GenerateResult& result);
[[nodiscard]] std::int64_t peak_memory() noexcept;  // bytes

// An encoder-decoder of the T5 family: the prompt is its input, the answer is printed alone.
//
// throws   Error(unsupported): flags of a chat, of the context or of a rotation
int run_t5(const RunFlags& flags, models::Checkpoint checkpoint);

// The chat loop: each line of stdin is a message or a command ("/help").
int run_interactive(const RunFlags& flags, LoadedModel& model);

}  // namespace phasor::tools
