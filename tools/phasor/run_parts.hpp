// The parts of `phasor run`: flags, the loaded model, and streaming the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model_options.hpp"
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
  bool shift = false, chat = false, interactive = false, raw = false, stats = false, json = false;
};

struct LoadedModel {
  models::Decoder decoder;
  std::unique_ptr<text::Tokenizer> tokenizer;  // null with --ids
  double load_seconds = 0.0;
};

// The context length: --context, or the trained length; 0 when neither is known.
[[nodiscard]] std::int64_t context_of(const RunFlags& flags, const models::Decoder& decoder);
[[nodiscard]] models::GenerateOptions generate_options(const RunFlags& flags,
                                                       const LoadedModel& model);
[[nodiscard]] models::SequenceOptions cache_options(const RunFlags& flags);

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
// Generates and writes each complete character to stdout, `before` ahead of the first one, so that
// nothing is written when generation fails at once. With --json only collects the text.
[[nodiscard]] Written write_answer(LoadedModel& model, models::Generator& generator,
                                   const std::vector<std::int64_t>& prompt, const RunFlags& flags,
                                   const models::GenerateOptions& options,
                                   const std::string& before = "");
// Writes to stdout and flushes; false after a write error.
bool write_now(std::string_view text);

void print_load_stats(const LoadedModel& model);
void print_stats(const models::GenerateResult& result);
[[nodiscard]] std::int64_t peak_memory() noexcept;  // bytes

// The chat loop: each line of stdin is a message or a command ("/help").
int run_interactive(const RunFlags& flags, LoadedModel& model);

}  // namespace phasor::tools
