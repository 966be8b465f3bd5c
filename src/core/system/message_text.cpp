#include "phasor/core/internal/message_text.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "phasor/core/error.hpp"

namespace phasor::core {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string shape_text(const ConstHeadsView& view) {
  return shape_text(std::array{view.batch, view.tokens, view.heads, view.head_dim});
}

std::string list_text(std::span<const std::string_view> words, Quotes quotes) {
  const std::string_view mark = quotes == Quotes::around ? "\"" : "";
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += message(mark, words[i], mark);
  }
  return text;
}

namespace {

// Insertions, deletions, substitutions and swaps of neighbours that make `a` into `b`.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

constexpr std::size_t kLongestWord = 80;  // longer words are not typing mistakes

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > kLongestWord) return "";
  std::string_view best;
  std::size_t least = std::max<std::size_t>(1, word.size() / 4) + 1;  // one mistake in four letters
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : message("; did you mean \"", best, "\"?");
}

}  // namespace phasor::core
