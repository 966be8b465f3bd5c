#include "text/tokenizer/stages.hpp"

#include <functional>

#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

using io::Json;

[[noreturn]] void refuse_unknown(std::string_view stage, const std::string& type,
                                 std::string_view known) {
  refuse(ErrorCode::unsupported,
         message(stage, ": must be one of ", known, ", got ", io::one_line(type)));
}

std::string type_of(const Json& stage, std::string_view where) {
  if (!stage.is_object())
    refuse(message(where, ": must be an object with a type, got ", io::shown(stage)));
  const std::optional<std::string> type = text_member(stage, "type");
  if (!type) refuse(message(where, ": missing key \"type\" in ", io::shown(stage)));
  return *type;
}

void read_normalizer(const Json& root, Stages& stages) {
  for_each_stage(root, "normalizer", "normalizers", [&](const Json& stage, const auto& type) {
    if (type == "NFC") {
      stages.bytes.normaliser = Normaliser::nfc;
    } else if (type == "Prepend" && text_member(stage, "prepend") == unicode::kVisibleSpace) {
      stages.prepends = true;
      stages.characters.prefix = SpacePrefix::every_more;
    } else if (type == "Replace" && pattern_of(stage, "String") == " " &&
               text_member(stage, "content") == unicode::kVisibleSpace) {
      stages.visible_spaces = stages.normalises = true;
    } else {
      refuse_unknown("normalizer", type, "NFC, Prepend and Replace of spaces by U+2581");
    }
  });
  if (stages.prepends && !stages.visible_spaces)
    refuse("normalizer: Prepend needs Replace of spaces by U+2581");
}

void read_split(const Json& stage, Stages& stages) {
  if (pattern_of(stage, "String") == " " && stages.visible_spaces) return;  // no spaces are left
  const std::string regex = pattern_of(stage, "Regex").value_or("");
  const std::optional<SplitRule> rule = rule_of_regex(regex);
  if (!rule) {
    refuse(ErrorCode::unsupported,
           message("pre_tokenizer: Split supports the regular expressions of GPT-2, Qwen2, "
                   "Llama 3, BLOOM and Tekken, got ",
                   regex.empty() ? io::shown(stage) : "'" + io::one_line(regex, 100) + "'"));
  }
  const std::string behavior = text_member(stage, "behavior").value_or("");
  const bool inverted = flag_member(stage, "invert").value_or(false);
  // All expressions but those of digits and BLOOM match all of the text, so that removing what does not match
  // keeps every match.
  const bool covers =
      *rule != SplitRule::digits && *rule != SplitRule::digit_runs && *rule != SplitRule::bloom;
  const bool isolates = behavior == "Isolated" && (!inverted || covers);
  if (!isolates && !(behavior == "Removed" && inverted && covers)) {
    refuse(ErrorCode::unsupported,
           message("pre_tokenizer: behavior of Split must be Isolated, got ", io::shown(stage)));
  }
  stages.bytes.rules.push_back(*rule);
}

void read_metaspace(const Json& stage, Stages& stages) {
  const std::string scheme = prepend_scheme(stage);
  if (scheme == "first") {
    stages.characters.prefix = SpacePrefix::first;
  } else if (scheme == "always") {
    stages.characters.prefix = SpacePrefix::every;
  }
  stages.visible_spaces = true;
  stages.characters.split_words = flag_member(stage, "split").value_or(true);
}

void read_pre_tokenizer(const Json& root, Stages& stages) {
  std::size_t count = 0;
  for_each_stage(root, "pre_tokenizer", "pretokenizers", [&](const Json& stage, const auto& type) {
    if (stages.byte_level)
      refuse(message("pre_tokenizer: ByteLevel must be the last stage, got ", type, " after it"));
    ++count;
    if (type == "ByteLevel") {
      stages.byte_level = true;
      stages.bytes.prefix_space = flag_member(stage, "add_prefix_space").value_or(true);
      if (flag_member(stage, "use_regex").value_or(true))
        stages.bytes.rules.push_back(SplitRule::gpt2);
    } else if (type == "Digits") {
      const bool alone = flag_member(stage, "individual_digits").value_or(false);
      stages.bytes.rules.push_back(alone ? SplitRule::digits : SplitRule::digit_runs);
    } else if (type == "Split") {
      read_split(stage, stages);
    } else if (type == "Metaspace" && count == 1) {
      read_metaspace(stage, stages);
    } else {
      refuse_unknown("pre_tokenizer", type, "ByteLevel, Digits, Split and a single Metaspace");
    }
  });
  if (stages.byte_level && stages.bytes.prefix_space && count > 1)
    refuse("pre_tokenizer: add_prefix_space of ByteLevel cannot be combined with other stages");
  if (stages.byte_level && stages.visible_spaces)
    refuse("pre_tokenizer: ByteLevel cannot be combined with spaces as U+2581");
  if (!stages.byte_level && (!stages.visible_spaces || !stages.bytes.rules.empty())) {
    refuse(ErrorCode::unsupported,
           message("pre_tokenizer: must end with ByteLevel or replace spaces by U+2581, got ",
                   io::shown(root.contains("pre_tokenizer") ? root["pre_tokenizer"] : Json())));
  }
}

void read_decoder(const Json& root, Stages& stages) {
  for_each_stage(root, "decoder", "decoders", [&](const Json& stage, const auto& type) {
    if (type == "Strip") stages.characters.strip_first = true;
    if (type == "Metaspace") {
      const bool old = flag_member(stage, "add_prefix_space").value_or(true);
      const std::string scheme =
          text_member(stage, "prepend_scheme").value_or(old ? "always" : "never");
      stages.characters.strip_first = scheme != "never";
    }
  });
}

void read_post_processor(const Json& root, Stages& stages) {
  for_each_stage(root, "post_processor", "processors", [&](const Json& stage, const auto& type) {
    if (type != "TemplateProcessing") return;
    const Json* const single = member(stage, "single");
    if (single == nullptr || !single->is_array() || single->empty()) return;
    const Json& first = single->front();
    if (!first.is_object()) return;
    const Json* const special = member(first, "SpecialToken");
    if (special != nullptr && special->is_object()) stages.begin = text_member(*special, "id");
  });
}

}  // namespace

void for_each_stage(const Json& root, const char* where, const char* list,
                    const std::function<void(const Json&, const std::string&)>& act) {
  const Json* const stage = member(root, where);
  if (stage == nullptr) return;
  const std::string type = type_of(*stage, where);
  if (type != "Sequence") return act(*stage, type);
  const Json* const stages = member(*stage, list);
  if (stages == nullptr || !stages->is_array())
    refuse(message(where, ": \"", list, "\" of a Sequence is missing or not a list"));
  for (const Json& inner : *stages) act(inner, type_of(inner, where));
}

std::optional<std::string> pattern_of(const Json& stage, const char* kind) {
  const Json* const pattern = member(stage, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return std::nullopt;
  return text_member(*pattern, kind);
}

std::string prepend_scheme(const Json& stage) {
  if (text_member(stage, "replacement").value_or(std::string(unicode::kVisibleSpace)) !=
      unicode::kVisibleSpace)
    refuse(
        message("pre_tokenizer: replacement of Metaspace must be U+2581, got ", io::shown(stage)));
  const bool old = flag_member(stage, "add_prefix_space").value_or(true);
  std::string scheme = text_member(stage, "prepend_scheme").value_or(old ? "always" : "never");
  if (scheme != "first" && scheme != "always" && scheme != "never") {
    refuse(message("pre_tokenizer: prepend_scheme must be first, always or never, got '",
                   io::one_line(scheme), "'"));
  }
  return scheme;
}

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> text_member(const Json& object, const char* key) {
  const Json* const value = member(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(message(key, ": must be a string, got ", io::shown(*value)));
  return value->get<std::string>();
}

std::optional<bool> flag_member(const Json& object, const char* key) {
  const Json* const value = member(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean())
    refuse(message(key, ": must be true or false, got ", io::shown(*value)));
  return value->get<bool>();
}

AddedToken added_token(const Json& entry, std::string_view where) {
  AddedToken token;
  token.content = text_member(entry, "content").value_or("");
  if (token.content.empty())
    refuse(message(where, ": missing key \"content\" in ", io::shown(entry)));
  token.special = flag_member(entry, "special").value_or(false);
  token.left_strip = flag_member(entry, "lstrip").value_or(false);
  token.right_strip = flag_member(entry, "rstrip").value_or(false);
  token.single_word = flag_member(entry, "single_word").value_or(false);
  return token;
}

Stages read_stages(const Json& root) {
  Stages stages;
  read_normalizer(root, stages);
  read_pre_tokenizer(root, stages);
  read_decoder(root, stages);
  read_post_processor(root, stages);
  return stages;
}

}  // namespace phasor::text
