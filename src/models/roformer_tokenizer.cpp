#include <array>
#include <system_error>
#include <utility>

#include "config/json_reader.hpp"
#include "phasor/io/file.hpp"
#include "phasor/models/roformer.hpp"
#include "phasor/models/tokenizer.hpp"

namespace phasor::models {
namespace {

using config::ObjectReader;

struct SpecialName {
  std::string_view key, token;
};
constexpr std::array kSpecialNames = {
    SpecialName{"pad_token", "[PAD]"}, SpecialName{"unk_token", "[UNK]"},
    SpecialName{"cls_token", "[CLS]"}, SpecialName{"sep_token", "[SEP]"},
    SpecialName{"mask_token", "[MASK]"}};

// A special token is a text, or an object whose content is that text.
void require_special_names(const ObjectReader& top) {
  for (const SpecialName& special : kSpecialNames) {
    if (!top.has(special.key)) continue;
    const bool is_object = top.value(special.key).is_object();
    const std::string got = is_object ? top.object(special.key)->text("content").value_or("")
                                      : top.text(special.key).value_or("");
    if (got != special.token) {
      top.refuse_as(ErrorCode::unsupported, special.key,
                    message("expected ", special.token, ", got ", got));
    }
  }
}

[[nodiscard]] LetterCase letters_of(const ObjectReader& top) {
  const bool lower = top.flag("do_lower_case").value_or(true);
  const bool strips = top.flag("strip_accents").value_or(lower);
  if (strips != lower) {
    top.refuse_as(ErrorCode::unsupported, "strip_accents",
                  message("expected the same as do_lower_case, got ", strips ? "true" : "false"));
  }
  return lower ? LetterCase::lower : LetterCase::keep;
}

[[nodiscard]] LetterCase read_letters(const std::filesystem::path& settings) {
  std::error_code ignored;
  if (!std::filesystem::exists(settings, ignored)) return LetterCase::lower;
  const std::string text = io::read_text(settings).value_or_throw();
  try {
    const io::Json json = io::parse_object(text);
    const ObjectReader top(json);
    require_special_names(top);
    return letters_of(top);
  } catch (const Error& error) {
    throw Error(error.code(), message(io::one_line(settings.string(), 200), ": ", error.what()));
  }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> read_roformer_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "vocab.txt";
  const Result<std::string> vocabulary = io::read_text(file);
  if (!vocabulary) return vocabulary.error();
  try {
    const LetterCase letters = read_letters(folder / "tokenizer_config.json");
    return parse_wordpiece(*vocabulary, io::one_line(file.string(), 200), Segmentation::roformer,
                           letters);
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace phasor::models
