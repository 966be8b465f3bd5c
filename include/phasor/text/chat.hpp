// Chat templates: a conversation as the text a model was trained on.
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

// The formats that Phasor writes; the Jinja of a checkpoint is recognised, not run.
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
// The format whose markers a checkpoint's template writes.
//
// refuses  a template with markers of none of them
[[nodiscard]] PHASOR_API Result<ChatFormat> recognise_chat_template(std::string_view jinja);
// What the template puts before a conversation that has no system message ("You are a helpful AI
// assistant named SmolLM, ..." of SmolLM2); empty: nothing.
[[nodiscard]] PHASOR_API std::string default_system_message(std::string_view jinja);

// How a checkpoint's conversations are written: the format, and the system message that opens one
// that has none; empty: no message.
struct ChatStyle {
  ChatFormat format = ChatFormat::chatml;
  std::string system;
};
class Tokenizer;
// The style of the template that came with the tokenizer, `format` in place of its own where given.
//
// throws   Error(unsupported) for a tokenizer without a template where no format is named; what
//          chat_format_of() and recognise_chat_template() refuse
[[nodiscard]] PHASOR_API ChatStyle
chat_style(const Tokenizer& tokenizer, const std::optional<std::string>& format = std::nullopt);

// The conversation, open for the assistant's answer, as the families' own templates write it, but
// without the begin token that some put first: SpecialTokens::add_begin says whether the ids start
// with it. What stands in a message stands in the text, be it the text of a special token.
//
// throws   Error(invalid_argument): no message, an unknown role, a system message that is not the
//          first, a conversation that does not end with the user, turns that do not alternate
//          where the format wants them to
[[nodiscard]] PHASOR_API std::string format_chat(ChatFormat format,
                                                 const std::vector<ChatMessage>& messages);

}  // namespace phasor::text
