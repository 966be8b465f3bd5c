// The chat loop of `phasor run --interactive`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <new>

#include "commands.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "run_parts.hpp"

namespace phasor::tools {
namespace {

class Conversation {
 public:
  Conversation(const RunFlags& flags, LoadedModel& model)
      : flags_(flags),
        model_(model),
        style_(chat_style(flags, *model.tokenizer)),
        options_(generate_options(flags, model)),
        generator_(model.decoder, cache_options(flags)) {
    if (!style_.system.empty()) messages_.push_back({"system", style_.system});
    first_turn_ = messages_.size();
  }

  [[nodiscard]] models::GenerateResult turn(const std::string& line) {
    messages_.push_back({"user", line});
    const std::vector<std::int64_t> prompt = fitting_prompt();
    models::GenerateOptions options = options_;
    if (options.when_full == models::WindowFull::refuse && context() > 0)
      options.tokens =
          std::min(options.tokens, context() - static_cast<std::int64_t>(prompt.size()));
    const Interrupt interrupt;
    const Written written = write_answer(model_, generator_, prompt, flags_, options);
    write_now("\n");
    messages_.push_back({"assistant", written.text});
    return written.result;
  }

 private:
  [[nodiscard]] std::int64_t context() const { return context_of(flags_, model_.decoder); }

  // The conversation's ids, without its oldest turns when they do not fit the context.
  [[nodiscard]] std::vector<std::int64_t> fitting_prompt() {
    for (;;) {
      std::vector<std::int64_t> ids =
          prompt_ids(flags_, *model_.tokenizer, text::format_chat(style_.format, messages_));
      if (context() == 0 || static_cast<std::int64_t>(ids.size()) < context()) return ids;
      if (messages_.size() < first_turn_ + 3)
        refuse(ErrorCode::out_of_range,
               message("the message has ", ids.size(), " tokens, the context holds ", context()));
      // A turn is the user's message and its answer.
      const auto oldest = messages_.begin() + static_cast<std::ptrdiff_t>(first_turn_);
      messages_.erase(oldest, oldest + 2);
      print_err("(dropped the oldest message and answer: the conversation had {} tokens)\n",
                ids.size());
    }
  }

  const RunFlags& flags_;
  LoadedModel& model_;
  text::ChatStyle style_;
  models::GenerateOptions options_;
  models::Generator generator_;
  std::vector<text::ChatMessage> messages_;
  std::size_t first_turn_ = 0;
};

}  // namespace

int run_interactive(const RunFlags& flags, LoadedModel& model) {
  Conversation conversation(flags, model);
  if (flags.stats) print_load_stats(model);
  const bool at_terminal = ::isatty(STDIN_FILENO) != 0;
  if (at_terminal)
    print_err("Each line is a message. Ctrl-C stops an answer, Ctrl-D ends the chat.\n");
  std::optional<std::string> line = flags.prompt;
  for (;;) {
    if (!line) {
      if (at_terminal) write_now("> ");
      std::string read;
      if (!std::getline(std::cin, read)) {
        if (std::cin.bad()) throw std::bad_alloc();  // a stream keeps it to itself
        if (at_terminal) write_now("\n");
        return exit_code::done;
      }
      if (!read.empty() && read.back() == '\r') read.pop_back();
      line = std::move(read);
    }
    if (line->find_first_not_of(" \t") != std::string::npos) {
      const models::GenerateResult result = conversation.turn(*line);
      if (flags.stats) print_stats(result);
    }
    line.reset();
  }
}

}  // namespace phasor::tools
