// Chat formats, against what the families' own templates write (rendered with Jinja2 3.1).
#include "phasor/text/tokenizer.hpp"
#include "support/errors.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace phasor::text {
namespace {

struct ChatCase {
  ChatFormat format;
  std::string with_system, without;
  std::string jinja;  // enough of the family's template to know it by
};

const std::vector<ChatMessage> kChat{
    {"system", "Be brief."}, {"user", " Hi there "}, {"assistant", " Hello! "}, {"user", "Bye\n"}};

const std::vector<ChatCase>& chat_cases() {
  static const std::vector<ChatCase> all = {
      {ChatFormat::chatml,
       "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi there "
       "<|im_end|>\n<|im_start|>assistant\n Hello! "
       "<|im_end|>\n<|im_start|>user\nBye\n<|im_end|>\n<|im_start|>assistant\n",
       "<|im_start|>user\n Hi there <|im_end|>\n<|im_start|>assistant\n Hello! "
       "<|im_end|>\n<|im_start|>user\nBye\n<|im_end|>\n<|im_start|>assistant\n",
       "{{'<|im_start|>' + message['role'] + '\\n' }}"},
      {ChatFormat::llama2,
       "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi there [/INST] Hello! </s><s>[INST] Bye [/INST]",
       "[INST] Hi there [/INST] Hello! </s><s>[INST] Bye [/INST]",
       "{% set content = '<<SYS>>\\n' + system %}{{ bos_token + '[INST] ' + content.strip() + ' "
       "[/INST]' }}"},
      {ChatFormat::llama3,
       "<|start_header_id|>system<|end_header_id|>\n\nBe "
       "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi "
       "there<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|><|start_"
       "header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_"
       "id|>\n\n",
       "<|start_header_id|>user<|end_header_id|>\n\nHi "
       "there<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|><|start_"
       "header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_"
       "id|>\n\n",
       "'<|start_header_id|>' + message['role']"},
      {ChatFormat::mistral,
       " [INST] Be brief.\n\n Hi there  [/INST]  Hello! </s> [INST] Bye\n [/INST]",
       " [INST]  Hi there  [/INST]  Hello! </s> [INST] Bye\n [/INST]",
       "{{- ' [INST] ' + message['content'] + ' [/INST]' }}"},
      {ChatFormat::mistral_v3,
       "[INST]  Hi there [/INST] Hello!</s>[INST] Be brief.\n\nBye\n[/INST]",
       "[INST]  Hi there [/INST] Hello!</s>[INST] Bye\n[/INST]",
       "{{- \"[INST] \" + message[\"content\"] + \"[/INST]\" }}"},
      {ChatFormat::gemma,
       "<start_of_turn>user\nBe brief.\n\nHi "
       "there<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n<start_of_turn>user\nBye<"
       "end_of_turn>\n<start_of_turn>model\n",
       "<start_of_turn>user\nHi "
       "there<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n<start_of_turn>user\nBye<"
       "end_of_turn>\n<start_of_turn>model\n",
       "{{ '<start_of_turn>' + role }}"},
      {ChatFormat::phi3,
       "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi there <|end|>\n<|assistant|>\n Hello! "
       "<|end|>\n<|user|>\nBye\n<|end|>\n<|assistant|>\n",
       "<|user|>\n Hi there <|end|>\n<|assistant|>\n Hello! "
       "<|end|>\n<|user|>\nBye\n<|end|>\n<|assistant|>\n",
       "{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{{ '<|assistant|>\\n' }}"},
      {ChatFormat::zephyr,
       "<|system|>\nBe brief.</s>\n<|user|>\n Hi there </s>\n<|assistant|>\n Hello! "
       "</s>\n<|user|>\nBye\n</s>\n<|assistant|>\n",
       "<|user|>\n Hi there </s>\n<|assistant|>\n Hello! "
       "</s>\n<|user|>\nBye\n</s>\n<|assistant|>\n",
       "{{ '<|user|>\\n' + message['content'] + eos_token }}{{ '<|assistant|>' }}"},
      {ChatFormat::glm4,
       "[gMASK]<sop><|system|>\nBe brief.<|user|>\n Hi there <|assistant|>\n Hello! "
       "<|user|>\nBye\n<|assistant|>",
       "[gMASK]<sop><|user|>\n Hi there <|assistant|>\n Hello! <|user|>\nBye\n<|assistant|>",
       "[gMASK]<sop><|{{ item['role'] }}|>"},
      {ChatFormat::command_r,
       "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be "
       "brief.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi "
       "there<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hello!<|END_OF_TURN_"
       "TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"
       "<|CHATBOT_TOKEN|>",
       "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi "
       "there<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hello!<|END_OF_TURN_"
       "TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"
       "<|CHATBOT_TOKEN|>",
       "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}"},
  };
  return all;
}

TEST(Chat, WritesWhatTheTemplatesWrite) {
  const std::vector<ChatMessage> plain(kChat.begin() + 1, kChat.end());
  for (const ChatCase& c : chat_cases()) {
    EXPECT_EQ(format_chat(c.format, kChat), c.with_system) << name_of(c.format);
    EXPECT_EQ(format_chat(c.format, plain), c.without) << name_of(c.format);
  }
}

TEST(Chat, KnowsFormatsByTheirMarkersAndNames) {
  for (const ChatCase& c : chat_cases()) {
    const Result<ChatFormat> found = recognise_chat_template(c.jinja);
    ASSERT_TRUE(found.ok()) << found.error().what();
    EXPECT_EQ(*found, c.format) << c.jinja;
    EXPECT_EQ(*chat_format_of(name_of(c.format)), c.format);
  }
}

TEST(Chat, RefusesTemplatesOfOthers) {
  for (const std::string jinja :
       {"{{ 'Human: ' + message['content'] }}", "", "{{ '<|im_start|>user<|im_sep|>' }}",
        "{{ '[SYSTEM_PROMPT]' }}{{ '[INST]' }}",
        "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{{ '<|assistant|>' "
        "}}"}) {
    const Result<ChatFormat> found = recognise_chat_template(jinja);
    ASSERT_FALSE(found.ok()) << jinja;
    EXPECT_NE(std::string(found.error().what()).find("--chat-format"), std::string::npos);
  }
  tests::expect_error(ErrorCode::invalid_argument, {R"('chat\nml')", "chatml"},
                      chat_format_of("chat\nml"));
}

TEST(Chat, FindsTheSystemMessageOfTheTemplate) {
  EXPECT_EQ(default_system_message(
                "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful "
                "AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"),
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  // As in Qwen2.5: first a literal that ends before the turn does.
  EXPECT_EQ(default_system_message(
                R"({{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }})"
                R"({{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You\'re )"
                R"(a helpful assistant.<|im_end|>\n' }})"),
            "You are Qwen, created by Alibaba Cloud. You're a helpful assistant.");
  EXPECT_EQ(default_system_message("{{ '<|im_start|>system\n' + x + '<|im_end|>' }}"), "");
  EXPECT_EQ(default_system_message("{{ '<|im_start|>system\nnever closed"), "");
  EXPECT_EQ(default_system_message(""), "");
}

void expect_chat_refused(ChatFormat format, const std::vector<ChatMessage>& messages,
                         std::string_view value) {
  tests::expect_error(ErrorCode::invalid_argument, {value},
                      [&] { return format_chat(format, messages); });
}

TEST(Chat, RefusesConversationsThatAreNone) {
  const ChatMessage user{"user", "a"}, assistant{"assistant", "b"}, system{"system", "c"};
  expect_chat_refused(ChatFormat::chatml, {}, "no messages");
  expect_chat_refused(ChatFormat::chatml, {{"tool\n", "x"}}, R"('tool\n')");
  expect_chat_refused(ChatFormat::chatml, {user, system, user}, "message 2");
  expect_chat_refused(ChatFormat::chatml, {user, assistant}, "got assistant");
  expect_chat_refused(ChatFormat::chatml, {system}, "got system");
  expect_chat_refused(ChatFormat::chatml, {{"user", "\xff"}}, "at offset 0");
  expect_chat_refused(ChatFormat::llama2, {user, user}, "user as message 2");
  expect_chat_refused(ChatFormat::gemma, {assistant, user}, "assistant as message 1");
  EXPECT_NO_THROW((void)format_chat(ChatFormat::chatml, {user, user}));
}

}  // namespace
}  // namespace phasor::text
