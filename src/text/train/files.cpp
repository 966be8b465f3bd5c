// The files of a trained tokenizer.
#include <array>
#include <optional>

#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/text/internal/trainer.hpp"
#include "text/tokenizer/settings.hpp"

namespace phasor::text {
namespace {

namespace fs = std::filesystem;
using io::Json;

struct Role {
  const char *text, *key;
};
// What each special token is for, by its usual name.
constexpr std::array kRoles = {
    Role{"<pad>", "pad_token"}, Role{"<unk>", "unk_token"}, Role{"<mask>", "mask_token"},
    Role{"<s>", "bos_token"},   Role{"<s>", "cls_token"},   Role{"</s>", "eos_token"},
    Role{"</s>", "sep_token"},  Role{"[PAD]", "pad_token"}, Role{"[UNK]", "unk_token"},
    Role{"[CLS]", "cls_token"}, Role{"[SEP]", "sep_token"}, Role{"[MASK]", "mask_token"},
    Role{"[BOS]", "bos_token"}, Role{"[EOS]", "eos_token"}, Role{"<|endoftext|>", "eos_token"},
};

std::optional<std::int64_t> special_id(const TrainedTokenizer& trained, std::string_view text) {
  for (std::size_t id = 0; id < trained.specials; ++id)
    if (trained.tokens[id] == text) return static_cast<std::int64_t>(id);
  return std::nullopt;
}

// An object of tokens and ids, one to a line. Built as text: adding members to a Json of this size one
// by one would take time quadratic in it.
std::string vocabulary_json(const TrainedTokenizer& trained, std::string_view margin) {
  std::string out = "{";
  for (std::size_t id = 0; id < trained.tokens.size(); ++id) {
    out += message(id == 0 ? "\n" : ",\n", margin, "  ", Json(trained.tokens[id]).dump(), ": ", id);
  }
  return out + message("\n", margin, "}");
}

Json added_tokens(const TrainedTokenizer& trained) {
  Json list = Json::array();
  for (std::size_t id = 0; id < trained.specials; ++id) {
    list.push_back({{"id", id},
                    {"content", trained.tokens[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

// [CLS] a [SEP], and [CLS] a [SEP] b [SEP] with token type 1 from b on.
Json bert_template(const TrainedTokenizer& trained) {
  const auto classify = special_id(trained, "[CLS]"), separate = special_id(trained, "[SEP]");
  if (!classify || !separate) return {};
  const auto special = [](const char* text, int type) {
    Json entry;
    entry["SpecialToken"]["id"] = text;
    entry["SpecialToken"]["type_id"] = type;
    return entry;
  };
  const auto sequence = [](const char* name, int type) {
    Json entry;
    entry["Sequence"]["id"] = name;
    entry["Sequence"]["type_id"] = type;
    return entry;
  };
  Json made;
  made["type"] = "TemplateProcessing";
  for (const char* const kind : {"single", "pair"}) {
    Json list = Json::array();
    list.push_back(special("[CLS]", 0));
    list.push_back(sequence("A", 0));
    list.push_back(special("[SEP]", 0));
    if (kind == std::string_view("pair")) {
      list.push_back(sequence("B", 1));
      list.push_back(special("[SEP]", 1));
    }
    made[kind] = std::move(list);
  }
  for (const auto& [text, id] : {std::pair{"[CLS]", *classify}, {"[SEP]", *separate}}) {
    Json& entry = made["special_tokens"][text];
    entry["id"] = text;
    entry["ids"] = std::vector<std::int64_t>{id};
    entry["tokens"] = std::vector<std::string>{text};
  }
  return made;
}

Json byte_level_stage(bool uses_words) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", uses_words}};
}

std::string merge_lines(const TrainedTokenizer& trained) {
  std::string out = "#version: 0.2\n";
  for (const auto& [left, right] : trained.merges) out += message(left, " ", right, "\n");
  return out;
}

std::string tokenizer_json(const TrainedTokenizer& trained) {
  const bool bert = trained.kind == TokenizerKind::wordpiece;
  Json root, model;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = added_tokens(trained);
  if (bert) {
    root["normalizer"] = {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", true},
                          {"strip_accents", nullptr},
                          {"lowercase", trained.letters == LetterCase::lower}};
    root["pre_tokenizer"]["type"] = "BertPreTokenizer";
    root["post_processor"] = bert_template(trained);
    root["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
    model = {{"type", "WordPiece"},
             {"unk_token", "[UNK]"},
             {"continuing_subword_prefix", "##"},
             {"max_input_chars_per_word", 100}};
  } else {
    root["normalizer"] = nullptr;
    root["pre_tokenizer"] = byte_level_stage(trained.kind == TokenizerKind::bpe);
    root["post_processor"] = nullptr;
    root["decoder"] = byte_level_stage(true);
    model = {{"type", "BPE"},          {"dropout", nullptr},
             {"unk_token", nullptr},   {"continuing_subword_prefix", nullptr},
             {"fuse_unk", false},      {"end_of_word_suffix", nullptr},
             {"byte_fallback", false}, {"ignore_merges", false}};
    Json merges = Json::array();
    for (const auto& [left, right] : trained.merges) merges.push_back(message(left, " ", right));
    model["merges"] = std::move(merges);
  }
  root["model"] = std::move(model);
  // The vocabulary goes before the last two braces: that of the model, that of the root.
  std::string text = root.dump(2);
  text.resize(text.rfind('}', text.rfind('}') - 1));
  text.resize(text.find_last_not_of(" \n") + 1);
  return text + ",\n    \"vocab\": " + vocabulary_json(trained, "    ") + "\n  }\n}\n";
}

std::string tokenizer_config(const TrainedTokenizer& trained) {
  Json root;
  root["tokenizer_class"] = "PreTrainedTokenizerFast";
  for (const Role& role : kRoles)
    if (special_id(trained, role.text) && !root.contains(role.key)) root[role.key] = role.text;
  if (trained.kind == TokenizerKind::wordpiece)
    root["do_lower_case"] = trained.letters == LetterCase::lower;
  root["clean_up_tokenization_spaces"] = false;
  return root.dump(2) + "\n";
}

std::string vocabulary_lines(const TrainedTokenizer& trained) {
  std::string lines;
  for (const std::string& token : trained.tokens) lines += token + "\n";
  return lines;
}

}  // namespace

std::vector<TokenizerFile> tokenizer_files(const TrainedTokenizer& trained) {
  std::vector<TokenizerFile> files;
  if (trained.kind == TokenizerKind::wordpiece) {
    files.push_back({"vocab.txt", vocabulary_lines(trained)});
  } else {
    files.push_back({"vocab.json", vocabulary_json(trained, "") + "\n"});
    files.push_back({"merges.txt", merge_lines(trained)});
  }
  files.push_back({"tokenizer_config.json", tokenizer_config(trained)});
  files.push_back({"tokenizer.json", tokenizer_json(trained)});
  return files;
}

std::unique_ptr<Tokenizer> tokenizer_of(const TrainedTokenizer& trained) {
  if (trained.kind == TokenizerKind::wordpiece) {
    return parse_wordpiece(vocabulary_lines(trained), "vocab.txt", Segmentation::bert,
                           trained.letters)
        .value_or_throw();
  }
  return tokenizer_of_json(tokenizer_json(trained), parse_settings(tokenizer_config(trained)));
}

Result<Done> save_tokenizer(const TrainedTokenizer& trained, const fs::path& folder) {
  const fs::path into = io::as_folder(folder);
  std::error_code error;
  fs::create_directories(into, error);
  if (error) return io::system_error(io::shown(into), "create", error.value());
  for (const TokenizerFile& file : tokenizer_files(trained)) {
    const std::array pieces = {std::as_bytes(std::span(file.content))};
    if (Result<Done> written = io::replace_file(into / file.name, pieces); !written) return written;
  }
  return Done{};
}

}  // namespace phasor::text
