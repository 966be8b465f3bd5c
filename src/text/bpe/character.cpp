#include <algorithm>
#include <array>
#include <unordered_map>

#include "text/bpe/tokenizer.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

// Two parts may meet at any place in a token: reading it takes time quadratic in its length.
constexpr std::size_t kMaxTokenBytes = 1024;

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t begin = 0;;) {
    const std::size_t found = text.find(from, begin);
    out.append(text.substr(begin, found - begin));
    if (found == std::string_view::npos) return out;
    out.append(to);
    begin = found + from.size();
  }
}

// A space after another character: a merge would cross into the next word.
bool crosses_words(std::string_view text) {
  for (std::size_t at = text.find(unicode::kVisibleSpace); at != std::string_view::npos;
       at = text.find(unicode::kVisibleSpace, at + unicode::kVisibleSpace.size())) {
    if (at >= unicode::kVisibleSpace.size() &&
        text.substr(at - unicode::kVisibleSpace.size(), unicode::kVisibleSpace.size()) ==
            unicode::kVisibleSpace)
      continue;
    if (at != 0) return true;
  }
  return false;
}

class CharacterBpe final : public BpeTokenizer {
 public:
  CharacterBpe(BpeParts parts, CharacterSettings settings)
      : BpeTokenizer(std::move(parts)), settings_(std::move(settings)) {
    for (std::size_t byte = 0; byte < bytes_.size(); ++byte)
      bytes_[byte] = vocabulary_.find_byte(static_cast<unsigned char>(byte)).value_or(-1);
    if (!settings_.scores.empty()) merge_by_scores();
    crosses_ = settings_.ignore_merges;
    for (std::int32_t id = 0; id < vocabulary_.size() && !crosses_; ++id)
      crosses_ = merges_into(id) && crosses_words(vocabulary_[id].text);
  }

  [[nodiscard]] std::string piece(std::int64_t id) const override {
    const Token& token = at(id);
    switch (token.kind) {
      case TokenKind::byte:
        if (const std::optional<unsigned char> byte = byte_of(token.text))
          return {static_cast<char>(*byte)};
        return token.text;
      case TokenKind::control:
      case TokenKind::unknown:
        return token.text;
      default:
        return from_visible_spaces(token.text);
    }
  }

  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const override {
    std::string text = Tokenizer::decode(ids);
    if (settings_.strip_first && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

 private:
  // Control tokens and bytes never result from characters.
  [[nodiscard]] bool merges_into(std::int32_t id) const noexcept {
    const TokenKind kind = vocabulary_[id].kind;
    return kind == TokenKind::normal || kind == TokenKind::user_defined ||
           kind == TokenKind::unused;
  }
  [[nodiscard]] std::int32_t symbol_of(std::string_view text) const {
    if (const auto id = vocabulary_.find(text); id && merges_into(*id)) return *id;
    const auto found = extra_.find(std::string(text));
    return found == extra_.end() ? -1 : found->second;
  }

  // Characters that occur in tokens but are not tokens get ids after the vocabulary, so that merges
  // can start from them.
  void number_characters() {
    for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
      const std::string& text = vocabulary_[id].text;
      if (!merges_into(id)) continue;
      for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
        (void)unicode::next(text, end);
        std::string character = text.substr(begin, end - begin);
        if (symbol_of(character) < 0) {
          const auto extra = static_cast<std::int32_t>(extra_.size());
          extra_.emplace(std::move(character), vocabulary_.size() + extra);
        }
      }
    }
  }

  void merge_by_scores() {
    number_characters();
    std::vector<float> order = settings_.scores;
    std::sort(order.begin(), order.end(), std::greater<>());
    order.erase(std::unique(order.begin(), order.end()), order.end());
    for (std::int32_t id = 0; id < vocabulary_.size(); ++id) {
      const std::string_view text = vocabulary_[id].text;
      if (!merges_into(id)) continue;
      if (text.size() > kMaxTokenBytes) {
        refuse(message("token ", id, " must have at most ", kMaxTokenBytes, " bytes, got ",
                       text.size()));
      }
      const float score = settings_.scores[static_cast<std::size_t>(id)];
      const auto rank = static_cast<std::int32_t>(
          std::lower_bound(order.begin(), order.end(), score, std::greater<>()) - order.begin());
      for (std::size_t middle = 0;;) {
        (void)unicode::next(text, middle);
        if (middle >= text.size()) break;
        const std::int32_t left = symbol_of(text.substr(0, middle));
        if (left < 0) continue;
        const std::int32_t right = symbol_of(text.substr(middle));
        if (right < 0) continue;
        merges_.insert(left, right, {rank, id});
        if (vocabulary_[id].kind != TokenKind::unused) used_.insert(left, right, {rank, id});
        has_unused_ = has_unused_ || vocabulary_[id].kind == TokenKind::unused;
      }
    }
    if (!has_unused_) used_ = {};
  }

  [[nodiscard]] bool normalises() const noexcept override { return true; }
  [[nodiscard]] std::string normalise(std::string_view text, Place place) const override {
    std::string out = to_visible_spaces(text);
    const SpacePrefix prefix = settings_.prefix;
    if (prefix == SpacePrefix::none || (prefix == SpacePrefix::first && place == Place::later))
      return out;
    if (prefix == SpacePrefix::every_more || !out.starts_with(unicode::kVisibleSpace))
      out.insert(0, unicode::kVisibleSpace);
    return out;
  }

  void encode_plain(std::string_view text, Place /*place*/, EncodeSession& session) const override {
    if (crosses_ && !settings_.split_words) return encode_once(text, session);
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin;
      // A run of spaces starts one word, unless every space starts its own.
      if (!settings_.split_words)
        while (text.substr(end, unicode::kVisibleSpace.size()) == unicode::kVisibleSpace)
          end += unicode::kVisibleSpace.size();
      end = std::min(text.find(unicode::kVisibleSpace, std::max(end, begin + 1)), text.size());
      encode_once(text.substr(begin, end - begin), session);
      begin = end;
    }
  }

  void encode_word(std::string_view word, EncodeSession& session) const override {
    if (settings_.ignore_merges) {
      if (const auto whole = vocabulary_.find(word)) {
        session.ids.push_back(*whole);
        return;
      }
    }
    fill_symbols(word, session);
    merge_symbols(merges_, session.symbols, session.room);
    if (has_unused_) split_unused(word, session);
    const std::size_t first_id = session.ids.size();
    for (std::size_t i = 0; i < session.symbols.size(); ++i) {
      const std::int32_t id = session.symbols[i].id;
      if (id >= 0 && id < vocabulary_.size()) {
        session.ids.push_back(id);
      } else {
        append_bytes(text_of(word, session.symbols, i), first_id, session.ids);
      }
    }
  }

  [[nodiscard]] static std::string_view text_of(std::string_view word,
                                                const std::vector<Symbol>& symbols, std::size_t i) {
    const std::size_t end = i + 1 == symbols.size() ? word.size() : symbols[i + 1].begin;
    return word.substr(symbols[i].begin, end - symbols[i].begin);
  }

  void fill_symbols(std::string_view word, EncodeSession& session) const {
    session.symbols.clear();
    for (std::size_t begin = 0, end = 0; begin < word.size(); begin = end) {
      (void)unicode::next(word, end);
      session.symbols.push_back(
          {symbol_of(word.substr(begin, end - begin)), static_cast<std::uint32_t>(begin)});
    }
  }

  // An unused token may be an intermediate result of merges but not the final one: its text is
  // merged again without such tokens.
  void split_unused(std::string_view word, EncodeSession& session) const {
    const std::vector<Symbol> merged = session.symbols;
    std::vector<Symbol> result;
    for (std::size_t i = 0; i < merged.size(); ++i) {
      const std::int32_t id = merged[i].id;
      if (id < 0 || id >= vocabulary_.size() || vocabulary_[id].kind != TokenKind::unused) {
        result.push_back(merged[i]);
        continue;
      }
      fill_symbols(text_of(word, merged, i), session);
      merge_symbols(used_, session.symbols, session.room);
      for (const Symbol& symbol : session.symbols)
        result.push_back({symbol.id, merged[i].begin + symbol.begin});
    }
    session.symbols = std::move(result);
  }

  void append_bytes(std::string_view text, std::size_t first_id,
                    std::vector<std::int64_t>& ids) const {
    const auto id_of = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
    if (std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) >= 0; })) {
      for (const char c : text) ids.push_back(id_of(c));
      return;
    }
    if (!specials_.unknown) {
      refuse(message("encode: the vocabulary has no token for '", text,
                     "', none for its bytes and no unknown token"));
    }
    const bool follows = ids.size() > first_id && ids.back() == *specials_.unknown;
    if (!follows || !settings_.fuse_unknown) ids.push_back(*specials_.unknown);
  }

  CharacterSettings settings_;
  std::array<std::int32_t, 256> bytes_{};
  std::unordered_map<std::string, std::int32_t> extra_;  // characters that are not tokens
  PairMap used_;                                         // merges_ without unused tokens
  bool has_unused_ = false;
  bool crosses_ = false;  // a merge may cross into the next word
};

}  // namespace

std::string to_visible_spaces(std::string_view text) {
  return replaced(text, " ", unicode::kVisibleSpace);
}
std::string from_visible_spaces(std::string_view text) {
  return replaced(text, unicode::kVisibleSpace, " ");
}

std::unique_ptr<Tokenizer> make_character_bpe(BpeParts parts, CharacterSettings settings) {
  if (!settings.scores.empty() && settings.scores.size() != parts.tokens.size()) {
    refuse(message("scores must have one entry per token, ", parts.tokens.size(), ", got ",
                   settings.scores.size()));
  }
  return std::make_unique<CharacterBpe>(std::move(parts), std::move(settings));
}

}  // namespace phasor::text
