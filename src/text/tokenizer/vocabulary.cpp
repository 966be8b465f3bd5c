#include "text/tokenizer/vocabulary.hpp"

#include <algorithm>
#include <array>

#include "phasor/io/internal/json.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

// Whether the character before or after `offset` is a word character.
bool word_before(std::string_view text, std::size_t offset) noexcept {
  if (offset == 0) return false;
  std::size_t begin = offset - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return unicode::is_word(unicode::next(text, begin));
}
bool word_after(std::string_view text, std::size_t offset) noexcept {
  return offset < text.size() && unicode::is_word(unicode::next(text, offset));
}

std::size_t spaces_begin(std::string_view text, std::size_t end, std::size_t least) noexcept {
  while (end > least) {
    std::size_t begin = end - 1;
    while (begin > least && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    std::size_t after = begin;
    if (!unicode::is_space(unicode::next(text, after))) break;
    end = begin;
  }
  return end;
}
std::size_t spaces_after(std::string_view text, std::size_t begin) noexcept {
  while (begin < text.size()) {
    std::size_t after = begin;
    if (!unicode::is_space(unicode::next(text, after))) break;
    begin = after;
  }
  return begin;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  const auto count = static_cast<std::int64_t>(tokens_.size());
  if (count < 1 || count >= kMaxVocabulary)
    refuse(message("a vocabulary must have 1 to ", kMaxVocabulary - 1, " tokens, got ", count));
  ids_.reserve(tokens_.size());
  for (std::int32_t id = 0; id < size(); ++id) {
    const Token& token = (*this)[id];
    if (unicode::find_invalid(token.text) != std::string_view::npos)
      refuse(message("token ", id, " must be UTF-8, got ", unicode::quoted(token.text)));
    if (token.text.empty()) continue;
    const auto [found, is_new] = ids_.try_emplace(token.text, id);
    if (!is_new && token.kind != TokenKind::unused) {
      refuse(message("token '", io::one_line(token.text), "' has two ids, ", found->second, " and ",
                     id));
    }
  }
}

std::optional<std::int32_t> Vocabulary::find(std::string_view text) const noexcept {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::int32_t> Vocabulary::find_byte(unsigned char byte) const noexcept {
  const std::optional<std::int32_t> id = find(byte_token(byte));
  return id && (*this)[*id].kind == TokenKind::byte ? id : std::nullopt;
}

std::optional<unsigned char> byte_of(std::string_view text) noexcept {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : text.substr(3, 2)) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'A' || c > 'F')) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(is_digit ? c - '0' : c - 'A' + 10);
  }
  return static_cast<unsigned char>(value);
}

std::string byte_token(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

void AddedMatcher::add(AddedToken token) {
  if (token.content.empty()) return;
  if (ends_.empty()) ends_.push_back(-1);
  std::int32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<unsigned char>(c);
    if (const PairMap::Value* const edge = edges_.find(node, byte)) {
      node = edge->id;
      continue;
    }
    const auto made = static_cast<std::int32_t>(ends_.size());
    edges_.insert(node, byte, {0, made});
    ends_.push_back(-1);
    node = made;
  }
  heads_[static_cast<unsigned char>(token.content.front())] = true;
  ends_[static_cast<std::size_t>(node)] = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

AddedMatcher::Match AddedMatcher::next(std::string_view text, std::size_t from) const noexcept {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!heads_[static_cast<unsigned char>(text[begin])]) continue;
    Match longest;
    std::int32_t node = 0;
    for (std::size_t end = begin; end < text.size(); ++end) {
      const PairMap::Value* const edge = edges_.find(node, static_cast<unsigned char>(text[end]));
      if (edge == nullptr) break;
      node = edge->id;
      const std::int32_t token = ends_[static_cast<std::size_t>(node)];
      if (token >= 0) longest = {begin, end + 1, &tokens_[static_cast<std::size_t>(token)]};
    }
    if (longest.token != nullptr) return longest;
  }
  return {};
}

void AddedMatcher::split(std::string_view text, SpecialText special,
                         const std::function<void(std::string_view, std::size_t)>& plain,
                         const std::function<void(std::int32_t)>& token) const {
  std::size_t done = 0;  // the end of what was emitted
  std::size_t from = 0;
  for (Match match; !empty() && (match = next(text, from)).token != nullptr;) {
    const AddedToken& found = *match.token;
    from = match.end;
    if (found.special && special == SpecialText::as_text) continue;
    if (found.single_word && (word_before(text, match.begin) || word_after(text, match.end)))
      continue;
    std::size_t begin = std::max(match.begin, done), end = match.end;
    if (found.left_strip) begin = spaces_begin(text, begin, done);
    if (found.right_strip) end = spaces_after(text, end);
    if (begin > done) plain(text.substr(done, begin - done), done);
    token(found.id);
    done = end;
    from = std::max(from, done);
  }
  if (done < text.size()) plain(text.substr(done), done);
}

VocabularyTokenizer::VocabularyTokenizer(Vocabulary vocabulary, std::vector<AddedToken> added)
    : vocabulary_(std::move(vocabulary)) {
  for (AddedToken& token : added) (token.normalized ? normalised_ : raw_).add(std::move(token));
}

std::string VocabularyTokenizer::normalise(std::string_view text, Place /*place*/) const {
  return std::string(text);
}

std::vector<std::int64_t> VocabularyTokenizer::encode(std::string_view text,
                                                      SpecialText special) const {
  if (text.size() > kMaxTextBytes) {
    refuse(message("encode: text must have at most ", kMaxTextBytes, " bytes, got ", text.size()));
  }
  unicode::require_utf8(text, "encode");
  EncodeSession session;
  session.ids.reserve(text.size() / 3);
  const auto take = [&](std::int32_t id) { session.ids.push_back(id); };
  raw_.split(
      text, special,
      [&](std::string_view part, std::size_t offset) {
        const Place place = offset == 0 ? Place::text_start : Place::later;
        if (normalises()) part = session.kept.emplace_back(normalise(part, place));
        normalised_.split(
            part, special,
            [&](std::string_view plain, std::size_t inner) {
              encode_plain(plain, inner == 0 ? place : Place::later, session);
            },
            take);
      },
      take);
  return std::move(session.ids);
}

bool VocabularyTokenizer::is_special(std::int64_t id) const {
  const TokenKind kind = at(id).kind;
  return kind == TokenKind::control || kind == TokenKind::unknown;
}

std::optional<std::int64_t> VocabularyTokenizer::find(std::string_view token) const {
  return vocabulary_.find(token);
}

const Token& VocabularyTokenizer::at(std::int64_t id) const {
  if (id < 0 || id >= size()) {
    refuse(ErrorCode::out_of_range, message("tokenizer: id must be in the vocabulary, from 0 to ",
                                            size() - 1, ", got ", id));
  }
  return vocabulary_[id];
}

void complete_stops(SpecialTokens& specials, const Vocabulary& vocabulary) {
  const auto add = [&](std::int64_t id) {
    if (std::find(specials.stops.begin(), specials.stops.end(), id) == specials.stops.end())
      specials.stops.push_back(id);
  };
  if (specials.end) add(*specials.end);
  const auto add_named = [&](std::string_view name) {
    const std::optional<std::int32_t> id = vocabulary.find(name);
    if (!id) return;
    const TokenKind kind = vocabulary[*id].kind;
    if (kind == TokenKind::control || kind == TokenKind::user_defined) add(*id);
  };
  for (const std::string_view name :
       {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>", "<EOT>", "</s>"}) {
    add_named(name);
  }
  // GLM ends its turn by starting the next one.
  if (vocabulary.find("[gMASK]"))
    for (const std::string_view name : {"<|user|>", "<|observation|>"}) add_named(name);
}

}  // namespace phasor::text
