#include "phasor/text/tokenizer.hpp"

#include "text/unicode/unicode.hpp"

namespace phasor::text {

std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const std::int64_t id : ids)
    if (!is_special(id)) text += piece(id);
  return unicode::replace_invalid(text);
}

std::vector<std::int64_t> prompt_ids(const Tokenizer& tokenizer, std::string_view text,
                                     BeginToken begin) {
  std::vector<std::int64_t> ids = tokenizer.encode(text);
  const SpecialTokens& specials = tokenizer.specials();
  // A chat template may have written the begin token itself.
  if (begin == BeginToken::as_wanted && specials.add_begin && specials.begin &&
      (ids.empty() || ids.front() != *specials.begin))
    ids.insert(ids.begin(), *specials.begin);
  if (ids.empty()) refuse("the prompt is empty: it must have at least one token");
  return ids;
}

PairIds encode_pair(const Tokenizer& tokenizer, std::string_view a, std::string_view b) {
  const SpecialTokens& specials = tokenizer.specials();
  if (!specials.classify || !specials.separate) {
    refuse(message("encode_pair: the vocabulary has no ", specials.classify ? "[SEP]" : "[CLS]",
                   " token"));
  }
  PairIds pair;
  pair.ids.push_back(*specials.classify);
  const auto append = [&](std::string_view text, std::int64_t type) {
    const std::vector<std::int64_t> ids = tokenizer.encode(text);
    pair.ids.insert(pair.ids.end(), ids.begin(), ids.end());
    pair.ids.push_back(*specials.separate);
    pair.token_types.resize(pair.ids.size(), type);
  };
  append(a, 0);
  if (!b.empty()) append(b, 1);
  return pair;
}

std::string TextStream::push(std::string_view piece) {
  std::string all = pending_;
  all += piece;
  const std::size_t ready = all.size() - unicode::open_end(all);
  std::string out = unicode::replace_invalid(std::string_view(all).substr(0, ready));
  all.erase(0, ready);
  pending_.swap(all);
  return out;
}

std::string TextStream::finish() {
  std::string out = unicode::replace_invalid(pending_);
  pending_.clear();
  return out;
}

}  // namespace phasor::text
