// Chat templates: a conversation as the text a model was trained on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::models {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// The formats that Phasor writes; the Jinja of a checkpoint is recognised, not run.
enum class ChatFormat : unsigned char {
  chatml,
  llama2,
  llama3,
  mistral,
  gemma,
  phi3,
  zephyr,
  glm4,
  command_r,
};
[[nodiscard]] std::string_view name_of(ChatFormat format) noexcept;
// "chatml", "llama3", ...
[[nodiscard]] Result<ChatFormat> chat_format_of(std::string_view name);
// The format whose markers a checkpoint's template writes.
//
// refuses  a template with markers of none of them: "name one with --chat-format"
[[nodiscard]] Result<ChatFormat> recognise_chat_template(std::string_view jinja);
// What the template puts before a conversation that has no system message ("You are a helpful AI
// assistant named SmolLM, ..." of SmolLM2); empty: nothing.
[[nodiscard]] std::string default_system_message(std::string_view jinja);

// The conversation, open for the assistant's answer.
//
// throws   Error(invalid_argument): no message, an unknown role, a system message that is not the
//          first, a conversation that does not end with the user; Error(unsupported): a system
//          message where the format has none
[[nodiscard]] std::string format_chat(ChatFormat format, const std::vector<ChatMessage>& messages);

}  // namespace phasor::models
