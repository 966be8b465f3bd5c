// tokenizer.json: a BPE, WordPiece or Unigram model and the stages around it.
#include <algorithm>
#include <utility>

#include "text/sentencepiece/unigram.hpp"
#include "text/tokenizer/settings.hpp"
#include "text/tokenizer/stages.hpp"
#include "text/unicode/unicode.hpp"
#include "text/wordpiece/wordpiece.hpp"

namespace phasor::text {
namespace {

using io::Json;

// The limit of ids in a file with this many tokens: some ids may be unused, most may not.
std::int64_t most_ids(std::size_t tokens) { return 2 * static_cast<std::int64_t>(tokens) + 1024; }

void place(std::vector<Token>& tokens, const Json& id, Token token, std::int64_t limit) {
  if (!id.is_number_integer() || id.get<double>() < 0.0 ||
      id.get<double>() >= static_cast<double>(limit)) {
    refuse(message("the id of '", io::one_line(token.text), "' must be from 0 to ", limit - 1,
                   ", got ", io::shown(id)));
  }
  const auto at = id.get<std::size_t>();
  if (at >= tokens.size()) tokens.resize(at + 1, Token{"", TokenKind::unused});
  if (!tokens[at].text.empty() && tokens[at].text != token.text) {
    refuse(message("id ", at, " belongs to two tokens, '", io::one_line(tokens[at].text), "' and '",
                   io::one_line(token.text), "'"));
  }
  tokens[at] = std::move(token);
}

std::vector<AddedToken> read_added(const Json& root) {
  std::vector<AddedToken> added;
  const Json* const list = member(root, "added_tokens");
  if (list == nullptr) return added;
  if (!list->is_array()) refuse(message("added_tokens: must be a list, got ", io::shown(*list)));
  for (const Json& entry : *list) {
    if (!entry.is_object())
      refuse(message("added_tokens: must be a list of objects, got ", io::shown(entry)));
    AddedToken& token = added.emplace_back(added_token(entry, "added_tokens"));
    token.normalized = flag_member(entry, "normalized").value_or(!token.special);
  }
  return added;
}

// Ids of added tokens, where the model's vocabulary is a list.
void read_added_ids(const Json& root, std::vector<AddedToken>& added) {
  for (std::size_t i = 0; i < added.size(); ++i) {
    const Json* const id = member((*member(root, "added_tokens"))[i], "id");
    const bool fits = id != nullptr && id->is_number_integer() && id->get<double>() >= 0.0 &&
                      id->get<double>() < static_cast<double>(kMaxVocabulary);
    if (!fits) {
      refuse(message("added_tokens: the id of '", io::one_line(added[i].content),
                     "' must be from 0 to ", kMaxVocabulary - 1, ", got ",
                     id == nullptr ? "null" : io::shown(*id)));
    }
    added[i].id = id->get<std::int32_t>();
  }
}

std::vector<Token> read_tokens(const Json& root, const Json& model,
                               std::vector<AddedToken>& added) {
  const Json* const vocab = member(model, "vocab");
  if (vocab == nullptr || !vocab->is_object())
    refuse("model: \"vocab\" is missing or not an object of tokens and ids");
  const std::int64_t limit = std::min(most_ids(vocab->size() + added.size()), kMaxVocabulary);
  const bool has_bytes = flag_member(model, "byte_fallback").value_or(false);
  std::vector<Token> tokens;
  for (const io::JsonMember* const entry : vocab->sorted_items()) {
    const auto& [text, id] = *entry;
    const bool is_byte = has_bytes && byte_of(text).has_value();
    place(tokens, id, {text, is_byte ? TokenKind::byte : TokenKind::normal}, limit);
  }
  for (std::size_t i = 0; i < added.size(); ++i) {
    const Json* const id = member((*member(root, "added_tokens"))[i], "id");
    if (id == nullptr)
      refuse(message("added_tokens: missing key \"id\" of '", io::one_line(added[i].content), "'"));
    const auto known = vocab->find(added[i].content);
    if (known != vocab->end() && *known != *id) {
      refuse(message("added_tokens: '", io::one_line(added[i].content), "' must have id ",
                     io::shown(*known), ", as in the vocabulary, got ", io::shown(*id)));
    }
    const TokenKind kind = added[i].special ? TokenKind::control : TokenKind::user_defined;
    place(tokens, *id, {added[i].content, kind}, limit);
    added[i].id = id->get<std::int32_t>();
  }
  return tokens;
}

// "a b", or ["a", "b"].
std::vector<std::pair<std::string, std::string>> read_merges(const Json& model) {
  const Json* const list = member(model, "merges");
  if (list == nullptr || !list->is_array()) refuse("model: \"merges\" is missing or not a list");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(list->size());
  for (const Json& entry : *list) {
    if (entry.is_string()) {
      const auto& line = entry.text();
      const std::size_t space = line.find(' ');
      if (space != std::string::npos && line.find(' ', space + 1) == std::string::npos) {
        merges.emplace_back(line.substr(0, space), line.substr(space + 1));
        continue;
      }
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
               entry[1].is_string()) {
      merges.emplace_back(entry[0].get<std::string>(), entry[1].get<std::string>());
      continue;
    }
    refuse(message("model: merges must be pairs of tokens, got ", io::shown(entry)));
  }
  return merges;
}

void check_model(const Json& model) {
  const std::string type = text_member(model, "type").value_or("BPE");
  if (type != "BPE") {
    refuse(ErrorCode::unsupported,
           message("model: type must be BPE, WordPiece or Unigram, got ", io::one_line(type)));
  }
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_member(model, key).value_or("").empty()) {
      refuse(ErrorCode::unsupported,
             message("model: ", key, " must be empty, got ", io::shown(*member(model, key))));
    }
  }
  const Json* const dropout = member(model, "dropout");
  if (dropout != nullptr && *dropout != 0.0) {
    refuse(ErrorCode::unsupported,
           message("model: dropout must be null, got ", io::shown(*dropout)));
  }
}

// BERT's form: its normalizer, its pre_tokenizer, "##".
std::unique_ptr<Tokenizer> wordpiece_of_json(const Json& root, const Json& model,
                                             Segmentation segmentation) {
  const Json* const normalizer = member(root, "normalizer");
  const Json* const words = member(root, "pre_tokenizer");
  const auto type_of = [](const Json* stage) {
    return stage == nullptr || !stage->is_object() ? std::string("none")
                                                   : text_member(*stage, "type").value_or("none");
  };
  const auto need = [](std::string_view key, const std::string& wanted, const std::string& got) {
    if (wanted == got) return;
    refuse(ErrorCode::unsupported,
           message("WordPiece: ", key, " must be ", wanted, ", got ", io::one_line(got)));
  };
  need("normalizer", "BertNormalizer", type_of(normalizer));
  need("pre_tokenizer", "BertPreTokenizer", type_of(words));
  need("unk_token", "[UNK]", text_member(model, "unk_token").value_or("[UNK]"));
  need("continuing_subword_prefix", "##",
       text_member(model, "continuing_subword_prefix").value_or("##"));
  const Json* const longest = member(model, "max_input_chars_per_word");
  need("max_input_chars_per_word", "100", longest == nullptr ? "100" : io::shown(*longest));
  const bool lower = flag_member(*normalizer, "lowercase").value_or(true);
  const auto flag = [&](const char* key, bool wanted) {
    const bool got = flag_member(*normalizer, key).value_or(wanted);
    need(key, wanted ? "true" : "false", got ? "true" : "false");
  };
  flag("clean_text", true);
  flag("handle_chinese_chars", true);
  flag("strip_accents", lower);  // null: as lowercase

  std::vector<AddedToken> added = read_added(root);
  std::vector<std::string> tokens;
  for (Token& token : read_tokens(root, model, added)) {
    if (token.text.empty()) refuse(message("WordPiece: id ", tokens.size(), " has no token"));
    tokens.push_back(std::move(token.text));
  }
  if (std::find(tokens.begin(), tokens.end(), "[UNK]") == tokens.end())
    refuse(message("WordPiece: the vocabulary of ", tokens.size(), " tokens has no [UNK]"));
  return std::make_unique<WordPiece>(std::move(tokens), segmentation,
                                     lower ? LetterCase::lower : LetterCase::keep);
}

void set_specials(const Json& model, const Stages& stages, const TokenizerSettings& settings,
                  BpeParts& parts) {
  const Json& vocab = *member(model, "vocab");
  const FindToken find = [&](const std::string& text) -> std::optional<std::int64_t> {
    if (const auto found = vocab.find(text); found != vocab.end())
      return found->get<std::int64_t>();
    for (const AddedToken& token : parts.added)
      if (token.content == text) return token.id;
    return std::nullopt;
  };
  if (const auto unknown = text_member(model, "unk_token")) parts.specials.unknown = find(*unknown);
  if (stages.begin) parts.specials.begin = find(*stages.begin);
  parts.specials.add_begin = parts.specials.begin.has_value();
  apply_settings(settings, find, static_cast<std::int64_t>(parts.tokens.size()), parts.specials);
  parts.chat_template = settings.chat_template;
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_json(std::string_view text,
                                             const TokenizerSettings& settings) {
  const Json root = io::parse_object(text);
  const Json* const model = member(root, "model");
  if (model == nullptr || !model->is_object()) refuse("\"model\" is missing or not an object");
  if (text_member(*model, "type") == "WordPiece")
    return wordpiece_of_json(root, *model, settings.segmentation);
  if (text_member(*model, "type") == "Unigram") {
    TokenizerSettings all = settings;
    std::vector<AddedToken> added = read_added(root);
    read_added_ids(root, added);
    return tokenizer_of_sentencepiece(serialised(unigram_of_json(root, added, all)), all);
  }
  check_model(*model);
  Stages stages = read_stages(root);

  BpeParts parts;
  parts.added = read_added(root);
  parts.tokens = read_tokens(root, *model, parts.added);
  parts.merges = read_merges(*model);
  set_specials(*model, stages, settings, parts);
  const bool ignore_merges = flag_member(*model, "ignore_merges").value_or(false);
  if (stages.byte_level) {
    stages.bytes.ignore_merges = ignore_merges;
    for (AddedToken& token : parts.added)
      if (token.normalized && stages.bytes.normaliser == Normaliser::nfc)
        token.content = unicode::to_nfc(token.content);
    parts.description = "bpe/byte-level";
    return make_byte_level_bpe(std::move(parts), std::move(stages.bytes));
  }
  if (stages.bytes.normaliser != Normaliser::none) {
    refuse(ErrorCode::unsupported, "normalizer: NFC is supported with ByteLevel only");
  }
  for (AddedToken& token : parts.added) {
    // With a pre-tokenizer alone, normalised text is the text itself.
    token.normalized = token.normalized && stages.normalises;
    if (token.normalized)
      token.content = to_visible_spaces((stages.prepends ? " " : "") + token.content);
  }
  stages.characters.ignore_merges = ignore_merges;
  stages.characters.fuse_unknown = flag_member(*model, "fuse_unk").value_or(false);
  parts.description = "bpe/sentencepiece";
  return make_character_bpe(std::move(parts), std::move(stages.characters));
}

Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(std::string_view text,
                                                        std::string_view name) {
  try {
    return tokenizer_of_json(text, {});
  } catch (const Error& error) {
    return io::in_file(name, error);
  }
}

}  // namespace phasor::text
