#include "porting/runs/names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <tuple>

namespace phasor::porting {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <std::size_t kCount>
bool is_one_of(std::string_view word, const std::array<std::string_view, kCount>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Leading words that wrap a whole model.
constexpr std::array<std::string_view, 6> kWrappers{"model", "module",  "transformer",
                                                    "base",  "decoder", "backbone"};
constexpr std::array<std::string_view, 5> kLayerWords{"layer", "h", "block", "blocks", "blk"};
constexpr std::array<std::string_view, 3> kQueryWords{"q", "query", "queries"};
constexpr std::array<std::string_view, 3> kKeyWords{"k", "key", "keys"};
constexpr std::array<std::string_view, 6> kBeforeWords{"before", "pre",       "prerope",
                                                       "raw",    "unrotated", "norope"};
constexpr std::array<std::string_view, 8> kAfterWords{"after",   "post",   "rot",      "rope",
                                                      "rotated", "rotary", "postrope", "roped"};

std::string plain_number(std::string_view digits) {
  const std::size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  return std::string(digits.substr(first));
}

// Where tensors of one layer are in its forward pass, by the words of their names.
int rank_of(std::string_view name) {
  if (const std::optional<RotationRole> role = role_of(name))
    return role->stage == RotationStage::after ? 4 : 3;
  struct Word {
    std::string_view word;
    int rank;
  };
  constexpr std::array<Word, 22> kRanks{
      {{"logits", 12}, {"mlp", 9},       {"ffn", 9},     {"feed", 9},      {"ids", 0},
       {"tokens", 0},  {"positions", 0}, {"embed", 1},   {"embedding", 1}, {"embeddings", 1},
       {"input", 2},   {"in", 2},        {"norm", 2},    {"ln", 2},        {"v", 3},
       {"scores", 5},  {"probs", 6},     {"softmax", 6}, {"attn", 7},      {"attention", 7},
       {"context", 7}, {"o", 8}}};
  for (const std::string& part : name_parts(name)) {
    for (const Word& known : kRanks) {
      if (part == known.word) return known.rank;
    }
  }
  return 10;
}

// Texts with numbers compared as numbers: layer 2 is before layer 10.
bool natural_less(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::lexicographical_compare(
      a.begin(), a.end(), b.begin(), b.end(), [](const std::string& x, const std::string& y) {
        const bool numbers = is_digit(x.front()) && is_digit(y.front());
        return numbers && x.size() != y.size() ? x.size() < y.size() : x < y;
      });
}

constexpr int kLastRankOfInputs = 4;

struct Place {
  std::int64_t layer = 0;
  std::size_t listed = 0;
  int rank = 0;
  std::vector<std::string> parts;
};

// Tensors without a number: before the layers if they are listed before them, or look like inputs.
std::vector<Place> places_of(const std::vector<RunTensor>& tensors, RunOrder order) {
  std::vector<Place> places;
  bool in_layers = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].name;
    const std::optional<std::int64_t> layer = layer_of(name);
    in_layers = in_layers || layer.has_value();
    const int rank = rank_of(name);
    const bool is_first = order == RunOrder::as_listed ? !in_layers : rank <= kLastRankOfInputs;
    places.push_back({layer.value_or(is_first ? -1 : std::numeric_limits<std::int64_t>::max()),
                      order == RunOrder::as_listed ? i : 0, rank, name_parts(name)});
  }
  return places;
}

}  // namespace

std::vector<std::string> name_parts(std::string_view name) {
  std::vector<std::string> parts;
  std::string word;
  const auto finish = [&] {
    if (word.empty()) return;
    parts.push_back(is_digit(word.front()) ? plain_number(word) : word);
    word.clear();
  };
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      finish();
      continue;
    }
    // layer3: layer, 3. Other digits belong to their word: bf16, x1.
    if (is_digit(c) && (word == "layers" || is_one_of(word, kLayerWords))) finish();
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  finish();
  while (parts.size() > 1 && is_one_of(parts.front(), kWrappers)) parts.erase(parts.begin());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::string& part = parts[i];
    const bool is_numbered = i + 1 < parts.size() && is_digit(parts[i + 1].front());
    if (is_numbered && is_one_of(part, kLayerWords)) part = "layers";
    if (is_one_of(part, kQueryWords)) part = "q";
    if (is_one_of(part, kKeyWords)) part = "k";
  }
  return parts;
}

std::string normal_name(std::string_view name) {
  std::string text;
  for (const std::string& part : name_parts(name)) text += text.empty() ? part : "." + part;
  return text;
}

std::optional<std::int64_t> layer_of(std::string_view name) {
  for (const std::string& part : name_parts(name)) {
    if (!is_digit(part.front())) continue;
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (status == std::errc{}) return value;
  }
  return std::nullopt;
}

std::optional<RotationRole> role_of(std::string_view name) {
  RotationRole role;
  bool has_before = false, has_after = false, is_query_or_key = false;
  for (const std::string& part : name_parts(name)) {
    const bool before = is_one_of(part, kBeforeWords), after = is_one_of(part, kAfterWords);
    has_before = has_before || before;
    has_after = has_after || after;
    is_query_or_key = is_query_or_key || part == "q" || part == "k";
    if (!before && !after) role.group += role.group.empty() ? part : "." + part;
  }
  if (!is_query_or_key) return std::nullopt;
  // q_pre_rope has words of both: it is before.
  role.stage = has_before  ? RotationStage::before
               : has_after ? RotationStage::after
                           : RotationStage::unknown;
  return role;
}

MatchedNames match_names(const std::vector<RunTensor>& a, const std::vector<RunTensor>& b,
                         RunOrder order) {
  MatchedNames matched;
  std::map<std::string, std::size_t> exact;
  std::map<std::string, std::vector<std::size_t>> normal_a, normal_b;
  for (std::size_t i = 0; i < b.size(); ++i) exact.emplace(b[i].name, i);
  std::vector<bool> taken_a(a.size()), taken_b(b.size());
  const auto match = [&](std::size_t i, std::size_t j) {
    matched.pairs.emplace_back(i, j);
    taken_a[i] = taken_b[j] = true;
  };
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (const auto found = exact.find(a[i].name); found != exact.end()) match(i, found->second);
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!taken_a[i]) normal_a[normal_name(a[i].name)].push_back(i);
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (!taken_b[i]) normal_b[normal_name(b[i].name)].push_back(i);
  }
  // A name that several tensors of one run share says nothing.
  for (const auto& [name, of_a] : normal_a) {
    const auto of_b = normal_b.find(name);
    if (of_a.size() == 1 && of_b != normal_b.end() && of_b->second.size() == 1)
      match(of_a.front(), of_b->second.front());
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!taken_a[i]) matched.only_a.push_back(i);
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (!taken_b[i]) matched.only_b.push_back(i);
  }
  const std::vector<Place> places = places_of(a, order);
  std::sort(matched.pairs.begin(), matched.pairs.end(), [&](const auto& x, const auto& y) {
    const Place &p = places[x.first], &q = places[y.first];
    const auto key = [](const Place& place) {
      return std::tuple(place.layer, place.listed, place.rank);
    };
    return key(p) != key(q) ? key(p) < key(q) : natural_less(p.parts, q.parts);
  });
  return matched;
}

}  // namespace phasor::porting
