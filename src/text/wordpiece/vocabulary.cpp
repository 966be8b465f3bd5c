#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"
#include "text/unicode/unicode.hpp"
#include "text/wordpiece/wordpiece.hpp"

namespace phasor::text {
namespace {

[[nodiscard]] Error refusal(std::string_view name, std::size_t line, const std::string& what) {
  return {ErrorCode::invalid_argument, message(name, ": line ", line, " ", what)};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_wordpiece(std::string_view vocabulary,
                                                   std::string_view name, Segmentation segmentation,
                                                   LetterCase letters) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (vocabulary.starts_with(kByteOrderMark)) {
    return refusal(name, 1, "must begin with a token, got a byte order mark");
  }
  std::vector<std::string> tokens;
  std::unordered_map<std::string_view, std::size_t> lines;  // views into the vocabulary's text
  while (!vocabulary.empty()) {
    const std::size_t end = vocabulary.find('\n');
    std::string_view token = vocabulary.substr(0, end);
    vocabulary.remove_prefix(end == std::string_view::npos ? vocabulary.size() : end + 1);
    if (token.ends_with('\r')) token.remove_suffix(1);
    const std::size_t line = tokens.size() + 1;
    if (token.empty()) return refusal(name, line, "must hold a token, got nothing");
    if (unicode::find_invalid(token) != std::string_view::npos) {
      return refusal(name, line, "must be UTF-8, got other bytes");
    }
    const auto [first, added] = lines.emplace(token, line);
    if (!added) {
      return refusal(name, line,
                     message("must hold a token that no earlier line has, got '",
                             io::one_line(token), "' of line ", first->second, " again"));
    }
    tokens.emplace_back(token);
  }
  if (tokens.empty()) {
    return Error(ErrorCode::invalid_argument,
                 message(name, ": must hold one token a line, got an empty file"));
  }
  if (!lines.contains("[UNK]")) {
    return Error(ErrorCode::invalid_argument,
                 message(name, ": must hold [UNK] for words it does not have, got ", tokens.size(),
                         " other tokens"));
  }
  return std::unique_ptr<Tokenizer>(
      std::make_unique<WordPiece>(std::move(tokens), segmentation, letters));
}

}  // namespace phasor::text
