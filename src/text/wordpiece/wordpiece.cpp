#include "text/wordpiece/wordpiece.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "phasor/core/error.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

constexpr std::string_view kContinues = "##";

[[nodiscard]] bool is_ideograph(char32_t c) noexcept {
  struct Range {
    char32_t first, last;
  };
  // Unified and compatibility ideographs. Kana and Hangul are written in words, so that BERT does
  // not cut them.
  static constexpr std::array kRanges = {Range{0x3400, 0x4dbf},   Range{0x4e00, 0x9fff},
                                         Range{0xf900, 0xfaff},   Range{0x20000, 0x2a6df},
                                         Range{0x2a700, 0x2b73f}, Range{0x2b740, 0x2b81f},
                                         Range{0x2b820, 0x2ceaf}, Range{0x2f800, 0x2fa1f}};
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [&](const Range& range) { return c >= range.first && c <= range.last; });
}

// Text that is written without spaces: ideographs, kana, Hangul, their punctuation and full-width forms.
[[nodiscard]] bool is_set_without_spaces(char32_t c) noexcept {
  return is_ideograph(c) || (c >= 0x3000 && c <= 0x30ff) || (c >= 0xac00 && c <= 0xd7a3) ||
         (c >= 0xff00 && c <= 0xffef);
}

// All of ASCII that is neither letter nor digit counts ("$", "+"), in addition to Unicode's category.
[[nodiscard]] bool is_punctuation(char32_t c) noexcept {
  const bool ascii = c > ' ' && c < 0x7f;
  const bool alphanumeric =
      (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  return ascii ? !alphanumeric : unicode::is_punctuation(c);
}

// Control and format characters, which are removed first. Tab and line ends are spaces.
[[nodiscard]] bool is_dropped(char32_t c) noexcept {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const unicode::Category category = unicode::category_of(c);
  return c == 0xfffd || category == unicode::Category::control ||
         category == unicode::Category::format || category == unicode::Category::private_use;
}

[[nodiscard]] bool continues_word(std::string_view token) noexcept {
  return token.size() > kContinues.size() && token.starts_with(kContinues);
}

// Where each character of UTF-8 text begins, and the end.
[[nodiscard]] std::vector<std::size_t> character_offsets(std::string_view text) {
  std::vector<std::size_t> offsets = {0};
  for (std::size_t offset = 0; offset < text.size();) {
    (void)unicode::next(text, offset);
    offsets.push_back(offset);
  }
  return offsets;
}

// 0 when there is another character.
[[nodiscard]] std::size_t count_ideographs(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t offset = 0; offset < text.size(); ++count) {
    if (!is_ideograph(unicode::next(text, offset))) return 0;
  }
  return count;
}

[[nodiscard]] char32_t last_character(std::string_view text) {
  std::size_t start = text.size() - 1;
  while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
  return unicode::next(text, start);
}

[[nodiscard]] bool is_space_between(char32_t before, char32_t after) noexcept {
  constexpr std::u32string_view kOpening = U"([{'", kClosing = U".,!?;:)]}'";
  return !is_set_without_spaces(before) && !is_set_without_spaces(after) &&
         kOpening.find(before) == std::u32string_view::npos &&
         kClosing.find(after) == std::u32string_view::npos;
}

}  // namespace

WordPiece::WordPiece(std::vector<std::string> tokens, Segmentation segmentation, LetterCase letters)
    : tokens_(std::move(tokens)), segmentation_(segmentation), letters_(letters) {
  ids_.reserve(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    ids_.emplace(tokens_[id], static_cast<std::int64_t>(id));
    longest_word_ = std::max(longest_word_, count_ideographs(tokens_[id]));
  }
  longest_word_ = std::min(longest_word_, kMaxWordCharacters);
  specials_.pad = find("[PAD]");
  specials_.unknown = find("[UNK]");
  specials_.classify = find("[CLS]");
  specials_.separate = find("[SEP]");
  specials_.mask = find("[MASK]");
  for (const auto& id :
       {specials_.pad, specials_.unknown, specials_.classify, specials_.separate, specials_.mask}) {
    if (id) parsed_.push_back(*id);
  }
}

std::vector<std::int64_t> WordPiece::encode(std::string_view text, SpecialText special) const {
  unicode::require_utf8(text, "encode");
  Ids out;
  if (special == SpecialText::as_text) {
    encode_text(text, out);
    return out;
  }
  std::size_t plain = 0;
  for (std::size_t at = text.find('['); at != std::string_view::npos; at = text.find('[', at)) {
    const auto named = std::find_if(parsed_.begin(), parsed_.end(), [&](std::int64_t id) {
      return text.substr(at).starts_with(tokens_[static_cast<std::size_t>(id)]);
    });
    if (named == parsed_.end()) {
      ++at;
      continue;
    }
    encode_text(text.substr(plain, at - plain), out);
    out.push_back(*named);
    at += tokens_[static_cast<std::size_t>(*named)].size();
    plain = at;
  }
  encode_text(text.substr(plain), out);
  return out;
}

std::string bert_normalised(std::string_view text, LetterCase letters) {
  std::string clean;
  clean.reserve(text.size());
  for (std::size_t offset = 0; offset < text.size();) {
    const char32_t c = unicode::next(text, offset);
    if (is_dropped(c)) continue;
    unicode::append(clean, unicode::is_space(c) ? U' ' : c);
  }
  if (letters == LetterCase::keep) return clean;
  const std::string decomposed = unicode::to_nfd(clean);
  std::string lower;
  lower.reserve(decomposed.size());
  for (std::size_t offset = 0; offset < decomposed.size();) {
    const char32_t c = unicode::next(decomposed, offset);
    if (unicode::category_of(c) == unicode::Category::nonspacing_mark) continue;
    unicode::append_lower(lower, c);
  }
  return lower;
}

void split_bert_words(std::string_view all,
                      const std::function<void(std::string_view, BertWord)>& take) {
  BertWord open = BertWord::word;
  std::size_t start = 0, end = 0;  // of the open word; empty: none
  const auto close = [&] {
    if (start != end) take(all.substr(start, end - start), open);
    start = end;
  };
  for (std::size_t offset = 0; offset < all.size();) {
    const std::size_t at = offset;
    const char32_t c = unicode::next(all, offset);
    if (c == U' ') {
      close();
      continue;
    }
    const BertWord kind = is_punctuation(c) ? BertWord::punctuation
                          : is_ideograph(c) ? BertWord::ideographs
                                            : BertWord::word;
    if (at != end || kind != open || kind == BertWord::punctuation) {
      close();
      open = kind;
      start = at;
    }
    end = offset;
  }
  close();
}

void WordPiece::encode_text(std::string_view text, Ids& out) const {
  split_bert_words(bert_normalised(text, letters_), [&](std::string_view word, BertWord kind) {
    if (kind == BertWord::ideographs) {
      encode_run(word, out);
    } else {
      encode_word(word, out);
    }
  });
}

// The longest matching piece first, then the longest that continues from there; [UNK] for the whole
// word when no piece matches.
void WordPiece::encode_word(std::string_view word, Ids& out) const {
  const std::vector<std::size_t> offsets = character_offsets(word);
  const std::size_t characters = offsets.size() - 1;
  const std::size_t kept = out.size();
  bool known = characters <= kMaxWordCharacters;
  std::string candidate;
  for (std::size_t first = 0; known && first < characters;) {
    std::size_t last = characters;
    std::optional<std::int64_t> id;
    for (; last > first && !id; --last) {
      candidate = first == 0 ? "" : kContinues;
      candidate += word.substr(offsets[first], offsets[last] - offsets[first]);
      id = find(candidate);
    }
    known = id.has_value();
    if (known) out.push_back(*id);
    first = last + 1;
  }
  if (known) return;
  out.resize(kept);
  out.push_back(*specials_.unknown);
}

// A run of ideographs. RoFormer's reference asks jieba for words, whose dictionary of frequencies a
// checkpoint does not carry; here the vocabulary's own words decide: the cut with the fewest unknown
// characters, then the fewest pieces, then the longest first word, and so on for the rest.
void WordPiece::encode_run(std::string_view run, Ids& out) const {
  const std::vector<std::size_t> offsets = character_offsets(run);
  const std::size_t characters = offsets.size() - 1;
  const std::size_t longest = segmentation_ == Segmentation::roformer ? longest_word_ : 1;
  struct Cut {
    std::size_t unknown = 0, pieces = 0, length = 0;  // length: of the first piece
    std::int64_t id = 0;
  };
  std::vector<Cut> best(characters + 1);  // of the text from each character
  for (std::size_t first = characters; first-- > 0;) {
    for (std::size_t length = std::min(longest, characters - first); length > 0; --length) {
      const auto id = find(run.substr(offsets[first], offsets[first + length] - offsets[first]));
      if (!id && length > 1) continue;
      const Cut& rest = best[first + length];
      const Cut cut{rest.unknown + (id ? 0 : 1), rest.pieces + 1, length,
                    id.value_or(*specials_.unknown)};
      const bool better =
          best[first].length == 0 ||
          std::tie(cut.unknown, cut.pieces) < std::tie(best[first].unknown, best[first].pieces);
      if (better) best[first] = cut;
    }
  }
  for (std::size_t first = 0; first < characters; first += best[first].length) {
    out.push_back(best[first].id);
  }
}

void WordPiece::require_id(std::int64_t id) const {
  if (id >= 0 && id < size()) return;
  refuse(ErrorCode::out_of_range,
         message("wordpiece: id must be in the vocabulary, from 0 to ", size() - 1, ", got ", id));
}

std::string WordPiece::piece(std::int64_t id) const {
  require_id(id);
  const std::string& token = tokens_[static_cast<std::size_t>(id)];
  return continues_word(token) ? token.substr(kContinues.size()) : token;
}

bool WordPiece::is_special(std::int64_t id) const {
  require_id(id);
  // [UNK] stays, to show that text is missing.
  return id != specials_.unknown && std::find(parsed_.begin(), parsed_.end(), id) != parsed_.end();
}

std::string WordPiece::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const std::int64_t id : ids) {
    if (is_special(id)) continue;
    const std::string& token = tokens_[static_cast<std::size_t>(id)];
    std::size_t start = 0;
    if (!text.empty() && !continues_word(token) &&
        is_space_between(last_character(text), unicode::next(token, start))) {
      text += ' ';
    }
    text += piece(id);
  }
  return text;
}

std::int64_t WordPiece::size() const { return static_cast<std::int64_t>(tokens_.size()); }

std::optional<std::int64_t> WordPiece::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::string WordPiece::description() const {
  return segmentation_ == Segmentation::roformer ? "wordpiece/roformer" : "wordpiece/bert";
}

}  // namespace phasor::text
