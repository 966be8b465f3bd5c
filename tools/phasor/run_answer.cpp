// Streaming an answer to stdout, Ctrl-C, and the statistics.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "output.hpp"
#include "phasor/core/internal/enum_names.hpp"
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

Written write_answer(const RunFlags& flags, const text::Tokenizer* tokenizer,
                     const AnswerMaker& make, const AnswerStart& start) {
  Written written;
  text::TextStream stream;
  bool first = true, taken = true;
  const auto give = [&](std::string text) {
    if (written.text.empty() && start.space == AnswerStart::FirstSpace::drop &&
        text.starts_with(' ')) {
      text.erase(0, 1);
    }
    written.text += text;
    if (!flags.json) taken = write_now(first ? start.before + text : text);
    first = false;
  };
  const auto on_token = [&](std::int64_t id) {
    Interrupt::answering();
    if (tokenizer == nullptr) {
      give(fmt::format("{}{}", first ? "" : " ", id));
    } else if (flags.raw || !tokenizer->is_special(id)) {
      give(stream.push(tokenizer->piece(id)));
    }
    return taken && !Interrupt::asked();
  };
  written.result = make(on_token);
  give(stream.finish());
  return written;
}

namespace {

constexpr core::EnumNames<models::StopReason::cancelled> kStopReasons("tokens", "stop_token",
                                                                      "cancelled");

io::Json json_of(const models::GenerateResult& result) {
  io::Json row;
  row["ids"] = result.ids;
  row["stop"] = kStopReasons[result.reason];
  row["prompt_tokens"] = result.prompt_tokens;
  row["cached_tokens"] = result.cached_tokens;
  row["shifts"] = result.shifts;
  row["prompt_seconds"] = result.prompt_seconds;
  row["decode_seconds"] = result.decode_seconds;
  return row;
}

void print_json(const RunFlags& flags, const LoadCost& cost, io::Json answer) {
  if (flags.temperature.value_or(0.0) > 0.0) answer["seed"] = flags.seed.value_or(0);
  answer["load_seconds"] = cost.seconds;
  answer["weight_bytes"] = cost.weight_bytes;
  answer["peak_memory_bytes"] = peak_memory();
  print_out("{}\n", answer.dump());
}

}  // namespace

LoadCost cost_of(const LoadedModel& model) {
  return {model.load_seconds, model.decoder.facts().weight_bytes};
}

int finish_answer(const RunFlags& flags, const text::Tokenizer* tokenizer, const LoadCost& cost,
                  const Written& written, const std::string& before) {
  const bool stopped = Interrupt::asked();
  if (flags.json) {
    io::Json answer = json_of(written.result);
    if (tokenizer != nullptr) answer["text"] = written.text;
    print_json(flags, cost, std::move(answer));
  } else {
    const std::string& last = written.text.empty() ? before : written.text;
    if (last.empty() || last.back() != '\n') write_now("\n");
  }
  if (flags.stats) {
    print_load_stats(cost);
    print_stats(written.result);
  }
  return stopped ? Interrupt::kExitCode : exit_code::done;
}

int print_rows(const RunFlags& flags, const LoadCost& cost,
               const std::vector<models::GenerateResult>& rows) {
  io::Json answer;
  for (const models::GenerateResult& row : rows) {
    if (flags.json) {
      answer["rows"].push_back(json_of(row));
    } else {
      print_out("{}\n", fmt::join(row.ids, " "));
    }
  }
  if (flags.json) print_json(flags, cost, std::move(answer));
  return exit_code::done;
}

std::int64_t peak_memory() noexcept {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;  // Linux counts in KiB
}

void print_load_stats(const LoadCost& cost) {
  print_err("load    {:.2f} s, weights {:.0f} MiB\n", cost.seconds,
            static_cast<double>(cost.weight_bytes) / kMiB);
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
