#include "text/tokenizer/settings.hpp"

#include <algorithm>
#include <utility>

#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "text/tokenizer/stages.hpp"

namespace phasor::text {
namespace {

using io::Json;

// A token is a string, or an object with the string in "content".
std::optional<std::string> token_member(const Json& root, const char* key) {
  const Json* const value = member(root, key);
  if (value == nullptr) return std::nullopt;
  return value->is_object() ? text_member(*value, "content") : text_member(root, key);
}

std::int32_t checked_id(const Json& value, const char* where) {
  if (!value.is_number_integer()) refuse(message(where, ": must be an id, got ", io::shown(value)));
  if (value.get<double>() < 0.0 || value.get<double>() >= static_cast<double>(kMaxVocabulary)) {
    refuse(message(where, ": an id must be from 0 to ", kMaxVocabulary - 1, ", got ",
                   io::shown(value)));
  }
  return value.get<std::int32_t>();
}

void read_added(const Json& root, TokenizerSettings& settings) {
  const Json* const added = member(root, "added_tokens_decoder");
  if (added == nullptr) return;
  if (!added->is_object())
    refuse(message("added_tokens_decoder: must be an object, got ", io::shown(*added)));
  for (const io::JsonMember* const member : added->sorted_items()) {
    const auto& [key, entry] = *member;
    const bool is_number =
        !key.empty() && key.size() <= 8 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || !entry.is_object()) {
      refuse(
          message("added_tokens_decoder: must map ids to tokens, got '", io::one_line(key), "'"));
    }
    AddedToken& token = settings.added.emplace_back(added_token(entry, "added_tokens_decoder"));
    token.id = checked_id(Json(std::stol(key)), "added_tokens_decoder");
  }
}

// One template, or a list of templates with names, of which "default" is the one for chats.
void read_template(const Json& root, TokenizerSettings& settings) {
  const Json* const value = member(root, "chat_template");
  if (value == nullptr) return;
  if (value->is_string()) {
    settings.chat_template = value->get<std::string>();
    return;
  }
  if (!value->is_array())
    refuse(message("chat_template: must be a string or a list, got ", io::shown(*value)));
  for (const Json& entry : *value) {
    if (!entry.is_object())
      refuse(message("chat_template: must be a list of objects, got ", io::shown(entry)));
    if (text_member(entry, "name") == "default")
      settings.chat_template = text_member(entry, "template").value_or("");
  }
}

void read_tokenizer_config(const Json& root, TokenizerSettings& settings) {
  settings.begin = token_member(root, "bos_token");
  settings.end = token_member(root, "eos_token");
  settings.pad = token_member(root, "pad_token");
  settings.unknown = token_member(root, "unk_token");
  settings.mask = token_member(root, "mask_token");
  settings.classify = token_member(root, "cls_token");
  settings.separate = token_member(root, "sep_token");
  settings.add_begin = flag_member(root, "add_bos_token");
  settings.lower_case = flag_member(root, "do_lower_case");
  settings.legacy = flag_member(root, "legacy");
  read_added(root, settings);
  read_template(root, settings);
}

void read_generation_config(const Json& root, TokenizerSettings& settings) {
  const Json* const ends = member(root, "eos_token_id");
  if (ends == nullptr) return;
  if (!ends->is_array()) return settings.stops.push_back(checked_id(*ends, "eos_token_id"));
  for (const Json& end : *ends) settings.stops.push_back(checked_id(end, "eos_token_id"));
}

// Text -> id, of added tokens that need not be control tokens.
void read_added_tokens(const Json& root, TokenizerSettings& settings) {
  for (const io::JsonMember* const entry : root.sorted_items()) {
    const bool is_known =
        std::any_of(settings.added.begin(), settings.added.end(),
                    [&](const AddedToken& token) { return token.content == entry->key; });
    if (is_known) continue;
    settings.added.push_back({entry->key, checked_id(entry->value, "added_tokens.json"), true});
  }
}

using ReadJson = void (*)(const Json&, TokenizerSettings&);
void read_if_present(const std::filesystem::path& path, ReadJson read,
                     TokenizerSettings& settings) {
  if (!std::filesystem::exists(path)) return;
  const std::string text = io::read_text(path).value_or_throw();
  try {
    read(io::parse_object(text), settings);
  } catch (const Error& error) {
    throw io::in_file(io::shown(path), error);
  }
}

}  // namespace

TokenizerSettings read_settings(const std::filesystem::path& folder) {
  TokenizerSettings settings;
  read_if_present(folder / "tokenizer_config.json", read_tokenizer_config, settings);
  read_if_present(folder / "added_tokens.json", read_added_tokens, settings);
  read_if_present(folder / "generation_config.json", read_generation_config, settings);
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path))
    settings.chat_template = io::read_text(path).value_or_throw();
  return settings;
}

TokenizerSettings parse_settings(std::string_view tokenizer_config) {
  TokenizerSettings settings;
  read_tokenizer_config(io::parse_object(tokenizer_config), settings);
  return settings;
}

void apply_settings(const TokenizerSettings& settings, const FindToken& find, std::int64_t size,
                    SpecialTokens& specials) {
  const auto set = [&](std::optional<std::int64_t>& id, const std::optional<std::string>& text) {
    if (!text) return;
    if (const std::optional<std::int64_t> found = find(*text)) id = found;
  };
  set(specials.begin, settings.begin);
  set(specials.end, settings.end);
  set(specials.pad, settings.pad);
  set(specials.unknown, settings.unknown);
  set(specials.mask, settings.mask);
  set(specials.classify, settings.classify);
  set(specials.separate, settings.separate);
  for (const auto& token : {settings.begin, settings.end}) {
    if (token && !find(*token)) {
      refuse(message("tokenizer_config.json: a special token must be in the vocabulary, got '",
                     io::one_line(*token), "'"));
    }
  }
  if (settings.add_begin) specials.add_begin = *settings.add_begin && specials.begin.has_value();
  for (const std::int64_t stop : settings.stops) {
    if (stop >= size) {
      refuse(message("generation_config.json: eos_token_id must be below ", size, ", got ", stop));
    }
    specials.stops.push_back(stop);
  }
}

}  // namespace phasor::text
