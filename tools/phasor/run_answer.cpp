// Streaming an answer to stdout, Ctrl-C, and the statistics.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "output.hpp"
#include "run_parts.hpp"

namespace phasor::tools {
namespace {

volatile sig_atomic_t g_answering = 0;
volatile sig_atomic_t g_asked = 0;
struct sigaction g_before = {};

constexpr double kMiB = 1024.0 * 1024.0;

// Only calls that a signal handler may make.
void on_interrupt(int) {
  if (g_answering == 0 || g_asked != 0) {
    [[maybe_unused]] const ssize_t unused = ::write(STDOUT_FILENO, "\n", 1);
    ::_exit(Interrupt::kExitCode);
  }
  g_asked = 1;
}

}  // namespace

Interrupt::Interrupt() {
  g_answering = 0;
  g_asked = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &g_before);
}
Interrupt::~Interrupt() { ::sigaction(SIGINT, &g_before, nullptr); }
void Interrupt::answering() noexcept { g_answering = 1; }
bool Interrupt::asked() noexcept { return g_asked != 0; }

bool write_now(std::string_view text) { return write_out(text) && std::fflush(stdout) == 0; }

Written write_answer(LoadedModel& model, models::Generator& generator,
                     const std::vector<std::int64_t>& prompt, const RunFlags& flags,
                     const models::GenerateOptions& options, const std::string& before) {
  Written written;
  text::TextStream stream;
  bool first = true, taken = true;
  const auto give = [&](const std::string& text) {
    written.text += text;
    if (!flags.json) taken = write_now(first ? before + text : text);
    first = false;
  };
  const auto on_token = [&](std::int64_t id) {
    Interrupt::answering();
    if (!model.tokenizer) {
      give(fmt::format("{}{}", first ? "" : " ", id));
    } else if (flags.raw || !model.tokenizer->is_special(id)) {
      give(stream.push(model.tokenizer->piece(id)));
    }
    return taken && !Interrupt::asked();
  };
  written.result = generator.generate(prompt, options, on_token);
  give(stream.finish());
  return written;
}

std::int64_t peak_memory() noexcept {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;  // Linux counts in KiB
}

void print_load_stats(const LoadedModel& model) {
  print_err("load    {:.2f} s, weights {:.0f} MiB\n", model.load_seconds,
            static_cast<double>(model.decoder.facts().weight_bytes) / kMiB);
}

void print_stats(const models::GenerateResult& result) {
  const auto rate = [](std::int64_t tokens, double seconds) {
    return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const auto ran = result.prompt_tokens - result.cached_tokens;
  // The first token comes from the prompt's logits, so decoding ran one step less.
  const auto decoded = std::max<std::int64_t>(0, static_cast<std::int64_t>(result.ids.size()) - 1);
  print_err("prompt  {} tokens ({} cached), {:.1f} tokens/s\n", result.prompt_tokens,
            result.cached_tokens, rate(ran, result.prompt_seconds));
  print_err("answer  {} tokens, {:.1f} tokens/s{}\n", result.ids.size(),
            rate(decoded, result.decode_seconds),
            result.shifts > 0 ? fmt::format(", context shifted {} times", result.shifts) : "");
  print_err("memory  {:.0f} MiB peak\n", static_cast<double>(peak_memory()) / kMiB);
}

}  // namespace phasor::tools
