#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"
#include "text/unicode/unicode.hpp"
#include "text/wordpiece/wordpiece.hpp"

namespace phasor::text {
namespace {

[[nodiscard]] Error line_error(std::string_view name, std::size_t line, std::string_view what) {
  return {ErrorCode::invalid_argument, message(name, ": line ", line, ": ", what)};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_wordpiece(std::string_view vocabulary,
                                                   std::string_view name, Segmentation segmentation,
                                                   LetterCase letters) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (vocabulary.starts_with(kByteOrderMark)) {
    return line_error(name, 1, "the file starts with a byte order mark; save it without one");
  }
  std::vector<std::string> tokens;
  std::unordered_map<std::string_view, std::size_t> lines;  // views into the vocabulary's text
  while (!vocabulary.empty()) {
    const std::size_t end = vocabulary.find('\n');
    std::string_view token = vocabulary.substr(0, end);
    vocabulary.remove_prefix(end == std::string_view::npos ? vocabulary.size() : end + 1);
    if (token.ends_with('\r')) token.remove_suffix(1);
    const std::size_t line = tokens.size() + 1;
    if (token.empty()) return line_error(name, line, "the line is empty");
    if (unicode::find_invalid(token) != std::string_view::npos) {
      return line_error(name, line, message("must be UTF-8, got ", unicode::quoted(token)));
    }
    const auto [first, added] = lines.emplace(token, line);
    if (!added) {
      return line_error(name, line,
                        message("'", io::one_line(token), "' is a repeat of line ", first->second));
    }
    tokens.emplace_back(token);
  }
  if (tokens.empty()) {
    return Error(ErrorCode::invalid_argument, message(name, ": the vocabulary is empty"));
  }
  if (!lines.contains("[UNK]")) {
    return Error(ErrorCode::invalid_argument,
                 message(name, ": the vocabulary of ", tokens.size(), " tokens has no [UNK]"));
  }
  return std::unique_ptr<Tokenizer>(
      std::make_unique<WordPiece>(std::move(tokens), segmentation, letters));
}

}  // namespace phasor::text
