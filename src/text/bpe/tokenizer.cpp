#include "text/bpe/tokenizer.hpp"

#include "phasor/io/internal/json.hpp"

namespace phasor::text {
namespace {

PairMap merges_of(const Vocabulary& vocabulary,
                  const std::vector<std::pair<std::string, std::string>>& merges) {
  PairMap map;
  map.reserve(merges.size());
  const auto id_of = [&](const std::string& text, std::size_t merge) {
    const std::optional<std::int32_t> id = vocabulary.find(text);
    if (!id) {
      refuse(
          message("merge ", merge, ": token '", io::one_line(text), "' is not in the vocabulary"));
    }
    return *id;
  };
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    const PairMap::Value value{static_cast<std::int32_t>(i), id_of(left + right, i)};
    if (!map.insert(id_of(left, i), id_of(right, i), value)) {
      refuse(message("merge ", i, ": '", io::one_line(left), " ", io::one_line(right),
                     "' appears twice"));
    }
  }
  return map;
}

void check_specials(const SpecialTokens& specials, std::int64_t size) {
  const auto check = [&](std::string_view name, std::optional<std::int64_t> id) {
    if (id && (*id < 0 || *id >= size))
      refuse(message(name, " token must be from 0 to ", size - 1, ", got ", *id));
  };
  check("the begin", specials.begin);
  check("the end", specials.end);
  check("the padding", specials.pad);
  check("the unknown", specials.unknown);
  for (const std::int64_t stop : specials.stops) check("a stop", stop);
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : VocabularyTokenizer(Vocabulary(std::move(parts.tokens)), std::move(parts.added)),
      merges_(merges_of(vocabulary_, parts.merges)),
      description_(std::move(parts.description)) {
  check_specials(parts.specials, vocabulary_.size());
  specials_ = std::move(parts.specials);
  complete_stops(specials_, vocabulary_);
  chat_template_ = std::move(parts.chat_template);
}

void BpeTokenizer::encode_once(std::string_view word, EncodeSession& session) const {
  const auto [found, is_new] = session.words.try_emplace(word);
  std::vector<std::int64_t>& ids = session.ids;
  if (is_new) {
    const std::size_t begin = ids.size();
    encode_word(word, session);
    found->second = {begin, ids.size()};
    return;
  }
  const auto [begin, end] = found->second;
  for (std::size_t i = begin; i < end; ++i) ids.push_back(ids[i]);
}

}  // namespace phasor::text
