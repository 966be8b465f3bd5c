#include "given_command.hpp"

#include <algorithm>
#include <span>
#include <string_view>

namespace phasor::tools {
namespace {

std::span<const char* const> command_words;

std::string shell_quoted(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(word);
  std::string quoted = "'";
  for (const char character : word) {
    if (character == '\'') {
      quoted += "'\\''";
    } else {
      quoted += character;
    }
  }
  return quoted + "'";
}

}  // namespace

void remember_command(int argc, const char* const* argv) noexcept {
  command_words = {argv, static_cast<std::size_t>(std::max(argc, 0))};
}

std::string given_command() {
  std::string command;
  for (const char* word : command_words) {
    if (!command.empty()) command += ' ';
    command += shell_quoted(word);
  }
  return command;
}

}  // namespace phasor::tools
