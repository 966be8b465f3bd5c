#include "phasor/models/tokenizer.hpp"

#include "models/unicode.hpp"

namespace phasor::models {

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
  if (ids.empty())
    throw Error(ErrorCode::invalid_argument,
                "the prompt must have at least one token, got an empty text");
  return ids;
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

}  // namespace phasor::models
