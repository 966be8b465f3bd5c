// The chat loop of `phasor run --interactive`.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "commands.hpp"
#include "line_editor.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
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
    reset();
  }

  // Forgets all messages; the system message stays.
  void reset() {
    messages_.clear();
    if (!style_.system.empty()) messages_.push_back({"system", style_.system});
    first_turn_ = messages_.size();
  }
  // Starts again with another system message; empty: none.
  void set_system(const std::string& system) {
    style_.system = system;
    reset();
  }
  [[nodiscard]] const std::string& system() const noexcept { return style_.system; }
  [[nodiscard]] const std::vector<text::ChatMessage>& messages() const noexcept {
    return messages_;
  }

  [[nodiscard]] models::GenerateResult turn(const std::string& line) {
    messages_.push_back({"user", line});
    const std::vector<std::int64_t> prompt = fitting_prompt();
    models::GenerateOptions options = options_;
    if (options.when_full == models::WindowFull::refuse && context() > 0)
      options.tokens =
          std::min(options.tokens, context() - static_cast<std::int64_t>(prompt.size()));
    const Interrupt interrupt;
    const Written written = write_answer(flags_, model_.tokenizer.get(), [&](const auto& on_token) {
      return generator_.generate(prompt, options, on_token);
    });
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

// The commands of a chat: a line that is a slash and a word.
class Commands {
 public:
  enum class Next : std::uint8_t { not_a_command, go_on, quit };

  explicit Commands(Conversation& conversation) : conversation_(conversation) {}

  [[nodiscard]] Next run(std::string_view line, const LineEditor& editor) {
    if (!line.starts_with('/')) return Next::not_a_command;
    const std::size_t space = line.find(' ');
    const std::string_view name = line.substr(0, space);
    const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
    if (name.size() < 2 || !std::all_of(name.begin() + 1, name.end(), is_letter))
      return Next::not_a_command;  // a path, or a comment of a program
    std::string_view rest = space == std::string_view::npos ? "" : line.substr(space + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return act(name, rest, editor);
  }

 private:
  static constexpr std::string_view kNames[] = {"/help",    "/reset", "/system",
                                                "/history", "/quit",  "/exit"};

  [[nodiscard]] Next act(std::string_view name, std::string_view rest, const LineEditor& editor) {
    if (name == "/quit" || name == "/exit") return Next::quit;
    if (name == "/help") {
      print_err(
          "/help          this list\n"
          "/reset         forget the conversation\n"
          "/system TEXT   start again with this system message; without TEXT, show it\n"
          "/history       the conversation so far\n"
          "/quit          end the chat (or Ctrl-D)\n"
          "{}",
          editor.at_terminal() ? "Up and down recall earlier lines; Ctrl-C stops an answer.\n"
                               : "");
    } else if (name == "/reset") {
      conversation_.reset();
      print_err("The conversation starts again.\n");
    } else if (name == "/system" && rest.empty()) {
      print_err("system: {}\n", conversation_.system().empty() ? "(none)" : conversation_.system());
    } else if (name == "/system") {
      conversation_.set_system(std::string(rest));
      print_err("The conversation starts again with this system message.\n");
    } else if (name == "/history") {
      for (const text::ChatMessage& one : conversation_.messages())
        print_err("{}: {}\n", one.role, one.content);
    } else {
      print_err("unknown command {}{}\n", name, hint(name));
    }
    return Next::go_on;
  }
  static std::string hint(std::string_view name) {
    const std::string close = core::did_you_mean(name, kNames);
    return close.empty() ? "; /help lists the commands" : close;
  }

  Conversation& conversation_;
};

}  // namespace

int run_interactive(const RunFlags& flags, LoadedModel& model) {
  Conversation conversation(flags, model);
  Commands commands(conversation);
  LineEditor editor("> ");
  if (flags.stats) print_load_stats(cost_of(model));
  if (editor.at_terminal())
    print_err("Each line is a message; /help lists commands. Ctrl-D ends the chat.\n");
  std::optional<std::string> line = flags.prompt;
  for (;;) {
    if (!line) line = editor.read();
    if (!line) return exit_code::done;
    const Commands::Next next = commands.run(*line, editor);
    if (next == Commands::Next::quit) return exit_code::done;
    if (next == Commands::Next::not_a_command &&
        line->find_first_not_of(" \t") != std::string::npos) {
      const models::GenerateResult result = conversation.turn(*line);
      if (flags.stats) print_stats(result);
    }
    line.reset();
  }
}

}  // namespace phasor::tools
