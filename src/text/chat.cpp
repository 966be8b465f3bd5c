#include "phasor/text/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

constexpr core::EnumNames<ChatFormat::command_r> kFormats("chatml", "llama2", "llama3", "mistral",
                                                          "mistral_v3", "gemma", "phi3", "zephyr",
                                                          "glm4", "command_r");

std::string all_names() { return core::list_text(kFormats.all()); }

std::string trimmed(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t after = begin;
    if (!unicode::is_space(unicode::next(text, after))) break;
    begin = after;
  }
  std::size_t end = begin;
  for (std::size_t offset = begin; offset < text.size();)
    if (!unicode::is_space(unicode::next(text, offset))) end = offset;
  return std::string(text.substr(begin, end - begin));
}

// The formats in which user and assistant must alternate.
bool alternates(ChatFormat format) noexcept {
  switch (format) {
    case ChatFormat::llama2:
    case ChatFormat::mistral:
    case ChatFormat::mistral_v3:
    case ChatFormat::gemma:
    case ChatFormat::command_r:
      return true;
    default:
      return false;
  }
}

void check(ChatFormat format, const std::vector<ChatMessage>& messages) {
  if (messages.empty()) refuse("format_chat: the conversation has no messages");
  std::optional<std::string_view> last;
  for (const ChatMessage& message_of : messages) {
    const std::string& role = message_of.role;
    if (role != "system" && role != "user" && role != "assistant") {
      refuse(message("format_chat: role must be system, user or assistant, got ",
                     unicode::quoted(role)));
    }
    unicode::require_utf8(message_of.content, "format_chat");
    if (role == "system" && &message_of != &messages.front())
      refuse(message("format_chat: a system message must be the first, got message ",
                     &message_of - messages.data() + 1));
    if (alternates(format) && role != "system") {
      const bool is_right = last == "user" ? role == "assistant" : role == "user";
      if (!is_right)
        refuse(message("format_chat: user and assistant must alternate in ", name_of(format),
                       ", starting with user, got ", role, " as message ",
                       &message_of - messages.data() + 1));
      last = role;
    }
  }
  if (messages.back().role != "user")
    refuse(message("format_chat: the last message must be from user, got ", messages.back().role));
}

std::string chatml(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& m : messages)
    text += "<|im_start|>" + m.role + "\n" + m.content + "<|im_end|>\n";
  return text + "<|im_start|>assistant\n";
}

std::string llama3(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& m : messages) {
    text += "<|start_header_id|>" + m.role + "<|end_header_id|>\n\n" + trimmed(m.content) +
            "<|eot_id|>";
  }
  return text + "<|start_header_id|>assistant<|end_header_id|>\n\n";
}

std::string phi3(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& m : messages) text += "<|" + m.role + "|>\n" + m.content + "<|end|>\n";
  return text + "<|assistant|>\n";
}

std::string zephyr(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& m : messages) text += "<|" + m.role + "|>\n" + m.content + "</s>\n";
  return text + "<|assistant|>\n";
}

std::string glm4(const std::vector<ChatMessage>& messages) {
  std::string text = "[gMASK]<sop>";
  for (const ChatMessage& m : messages) text += "<|" + m.role + "|>\n" + m.content;
  return text + "<|assistant|>";
}

std::string command_r(const std::vector<ChatMessage>& messages) {
  const std::string turn = "<|START_OF_TURN_TOKEN|>";
  const std::string end = "<|END_OF_TURN_TOKEN|>";
  std::string text;
  for (const ChatMessage& m : messages) {
    if (m.role == "system") text += turn + "<|SYSTEM_TOKEN|>" + m.content + end;
    if (m.role == "user") text += turn + "<|USER_TOKEN|>" + trimmed(m.content) + end;
    if (m.role == "assistant") text += turn + "<|CHATBOT_TOKEN|>" + trimmed(m.content) + end;
  }
  return text + turn + "<|CHATBOT_TOKEN|>";
}

// The next four have no system turn: its message is part of a user turn.
std::string llama2(const std::vector<ChatMessage>& messages) {
  std::string text, system;
  for (const ChatMessage& m : messages) {
    if (m.role == "system") {
      system = "<<SYS>>\n" + m.content + "\n<</SYS>>\n\n";
    } else if (m.role == "user") {
      text += (text.empty() ? "[INST] " : "<s>[INST] ") + trimmed(system + m.content) + " [/INST]";
      system.clear();
    } else {
      text += " " + trimmed(m.content) + " </s>";
    }
  }
  return text;
}

std::string mistral(const std::vector<ChatMessage>& messages) {
  std::string text, system;
  for (const ChatMessage& m : messages) {
    if (m.role == "system") {
      system = m.content + "\n\n";
    } else if (m.role == "user") {
      text += " [INST] " + system + m.content + " [/INST]";
      system.clear();
    } else {
      text += " " + m.content + "</s>";
    }
  }
  return text;
}

std::string mistral_v3(const std::vector<ChatMessage>& messages) {
  std::string text, system;
  for (const ChatMessage& m : messages) {
    if (m.role == "system") {
      system = m.content + "\n\n";
    } else if (m.role == "user") {
      // The system message is part of the last question, not of the first.
      const bool is_last = &m == &messages.back();
      text += "[INST] " + (is_last ? system : "") + m.content + "[/INST]";
    } else {
      text += " " + trimmed(m.content) + "</s>";
    }
  }
  return text;
}

std::string gemma(const std::vector<ChatMessage>& messages) {
  std::string text, system;
  for (const ChatMessage& m : messages) {
    if (m.role == "system") {
      system = m.content + "\n\n";
      continue;
    }
    const std::string role = m.role == "assistant" ? "model" : "user";
    text += "<start_of_turn>" + role + "\n" + system + trimmed(m.content) + "<end_of_turn>\n";
    system.clear();
  }
  return text + "<start_of_turn>model\n";
}

// A piece of a string literal in Jinja, without its escapes.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char next = text[++i];
    if (next == 'n') {
      out += '\n';
    } else if (next == 't') {
      out += '\t';
    } else {
      out += next;
    }
  }
  return out;
}

}  // namespace

std::string_view name_of(ChatFormat format) noexcept { return kFormats[format]; }

Result<ChatFormat> chat_format_of(std::string_view name) {
  if (const std::optional<ChatFormat> format = kFormats.find(name)) return *format;
  return Error(ErrorCode::invalid_argument, message("unknown chat format ", unicode::quoted(name),
                                                    "; it must be ", all_names()));
}

Result<ChatFormat> recognise_chat_template(std::string_view jinja) {
  const auto has = [&](std::string_view marker) {
    return jinja.find(marker) != std::string_view::npos;
  };
  // Phi-4 and SmolVLM start turns as ChatML does but continue differently.
  if (has("<|im_start|>") && !has("<|im_sep|>") && !has("<end_of_utterance>"))
    return ChatFormat::chatml;
  if (has("<|start_header_id|>")) return ChatFormat::llama3;
  if (has("<start_of_turn>")) return ChatFormat::gemma;
  if (has("<|START_OF_TURN_TOKEN|>") && has("<|CHATBOT_TOKEN|>")) return ChatFormat::command_r;
  if (has("[gMASK]")) return ChatFormat::glm4;
  if (has("<<SYS>>")) return ChatFormat::llama2;
  // Later Mistral models have a system turn, or no spaces around the user's message.
  if (has("[INST]") && !has("[SYSTEM_PROMPT]")) {
    if (has(" [/INST]")) return ChatFormat::mistral;
    if (has("[INST] ")) return ChatFormat::mistral_v3;
  }
  // Phi-4 mini has the markers of Phi-3 without its line ends.
  const bool has_line_ends = has("\\n") || has("<|user|>\n") || has("'\n'");
  if (has("<|end|>") && has("<|assistant|>") && has_line_ends && !has("<|tool|>"))
    return ChatFormat::phi3;
  if (has("<|user|>") && has("<|assistant|>") && has("eos_token") && !has("<|end|>"))
    return ChatFormat::zephyr;
  return Error(ErrorCode::unsupported, message("unknown chat template ", unicode::quoted(jinja),
                                               "; choose a format (--chat-format): ", all_names()));
}

std::string default_system_message(std::string_view jinja) {
  constexpr std::string_view kOpen = "<|im_start|>system", kClose = "<|im_end|>";
  for (std::size_t at = jinja.find(kOpen); at != std::string_view::npos;
       at = jinja.find(kOpen, at + 1)) {
    if (at == 0 || (jinja[at - 1] != '\'' && jinja[at - 1] != '"')) continue;
    const char quote = jinja[at - 1];
    std::string_view rest = jinja.substr(at + kOpen.size());
    const std::size_t newline = rest.starts_with('\n') ? 1 : rest.starts_with("\\n") ? 2 : 0;
    if (newline == 0) continue;
    rest.remove_prefix(newline);
    const std::string_view body = rest.substr(0, rest.find(kClose));
    // If the literal ends before the turn does, the rest comes from the conversation.
    bool is_whole = body.size() < rest.size();
    for (std::size_t i = 0; i < body.size() && is_whole; ++i) {
      if (body[i] == '\\') {
        ++i;
      } else if (body[i] == quote) {
        is_whole = false;
      }
    }
    if (is_whole && !body.empty()) return unescaped(body);
  }
  return {};
}

ChatStyle chat_style(const Tokenizer& tokenizer, const std::optional<std::string>& format) {
  const std::string& jinja = tokenizer.chat_template();
  if (jinja.empty() && !format)
    refuse(
        ErrorCode::unsupported,
        message("the model has no chat template; choose a format (--chat-format): ", all_names()));
  return {.format = format ? chat_format_of(*format).value_or_throw()
                           : recognise_chat_template(jinja).value_or_throw(),
          .system = default_system_message(jinja)};
}

std::string format_chat(ChatFormat format, const std::vector<ChatMessage>& messages) {
  check(format, messages);
  // In the order of ChatFormat.
  static constexpr std::array kWriters = {chatml, llama2, llama3, mistral, mistral_v3,
                                          gemma,  phi3,   zephyr, glm4,    command_r};
  static_assert(kWriters.size() == kFormats.all().size());
  return kWriters[static_cast<std::size_t>(format)](messages);
}

}  // namespace phasor::text
