// Chat templates: format a conversation as the text that a model was trained on.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/export.h"

namespace phasor::text {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// The supported formats. The Jinja template of a checkpoint is recognised, not executed.
enum class ChatFormat : unsigned char {
  chatml,
  llama2,
  llama3,
  mistral,     // Mistral 7B v0.1 and v0.2, Mixtral
  mistral_v3,  // Mistral 7B v0.3
  gemma,
  phi3,
  zephyr,
  glm4,
  command_r,
};
[[nodiscard]] PHASOR_API std::string_view name_of(ChatFormat format) noexcept;
// "chatml", "llama3", ...
[[nodiscard]] PHASOR_API Result<ChatFormat> chat_format_of(std::string_view name);
// The format of a checkpoint's template, by its markers.
//
// error    Error(unsupported): no format has the markers of the template
[[nodiscard]] PHASOR_API Result<ChatFormat> recognise_chat_template(std::string_view jinja);
// The system message that the template adds to a conversation without one ("You are a helpful AI
// assistant named SmolLM, ..." of SmolLM2); empty: none.
[[nodiscard]] PHASOR_API std::string default_system_message(std::string_view jinja);

// The format of a checkpoint's conversations, and the system message for a conversation without one;
// empty: none.
struct ChatStyle {
  ChatFormat format = ChatFormat::chatml;
  std::string system;
};
class Tokenizer;
// The style of the tokenizer's template; `format` overrides its format.
//
// throws   Error(unsupported): no template and no format; the errors of chat_format_of() and
//          recognise_chat_template()
[[nodiscard]] PHASOR_API ChatStyle
chat_style(const Tokenizer& tokenizer, const std::optional<std::string>& format = std::nullopt);

// The conversation as the families' own templates write it, up to the start of the assistant's answer,
// without the begin token: SpecialTokens::add_begin says whether the ids start with it. Messages are
// not escaped: the text of a special token in a message becomes that token.
//
// throws   Error(invalid_argument): no message, an unknown role, a system message that is not the
//          first, a last message that is not from user, turns that do not alternate in a format
//          that needs it
[[nodiscard]] PHASOR_API std::string format_chat(ChatFormat format,
                                                 const std::vector<ChatMessage>& messages);

}  // namespace phasor::text
