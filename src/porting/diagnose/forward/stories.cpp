#include "porting/diagnose/forward/stories.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "phasor/core/error.hpp"
#include "porting/diagnose/forward/search.hpp"

namespace phasor::porting::forward {
namespace {

using TokenPositions = std::vector<double>;

// Positions with a constant step of -1, 0 or 1.
struct Run {
  double first, last;
  std::size_t start, count;
  double step = 1.0;
};

std::vector<Run> runs_of(const TokenPositions& positions) {
  std::vector<Run> runs;
  for (std::size_t t = 0; t < positions.size(); ++t) {
    if (!runs.empty()) {
      Run& run = runs.back();
      const double step = positions[t] - run.last;
      const bool first_step = run.count == 1 && (step == 0.0 || step == 1.0 || step == -1.0);
      if (first_step || (run.count > 1 && step == run.step)) {
        run.step = step;
        run.last = positions[t];
        ++run.count;
        continue;
      }
    }
    runs.push_back({positions[t], positions[t], t, 1});
  }
  return runs;
}

std::string position_text(double value) { return digits(value, 10); }

std::string run_text(const Run& run) {
  if (run.count == 1) return position_text(run.first);
  if (run.step == 0.0) return message(position_text(run.first), " (", run.count, " times)");
  return position_text(run.first) + "-" + position_text(run.last) +
         (run.step < 0.0 ? " (descending)" : "");
}

double largest_of(const TokenPositions& row) { return *std::max_element(row.begin(), row.end()); }

bool counts_up(const TokenPositions& row) {
  for (std::size_t t = 1; t < row.size(); ++t) {
    if (row[t] != row[t - 1] + 1.0) return false;
  }
  return true;
}

// found[t] = rule(asked[t]) for every token.
template <class Rule>
bool follows(const PositionRow& row, const Rule& rule) {
  for (std::size_t t = 0; t < row.found.size(); ++t) {
    if (row.found[t] != rule(row.asked[t])) return false;
  }
  return true;
}

// ---- the rules: each names one mistake, or says nothing ---------------------------------------------

std::optional<Story> offset(const PositionRow& row) {
  const double shift = row.found[0] - row.asked[0];
  if (!shifted_by(row.found, row.asked, shift)) return std::nullopt;
  if (shift == 1.0) {
    return Story{"positions_one_ahead", "the positions are off by one: each is one too large"};
  }
  if (shift == -1.0) {
    return Story{"positions_one_behind", "the positions are off by one: each is one too small"};
  }
  return Story{"positions_offset", message("the positions are off by ", position_text(shift), ": ",
                                           position_text(row.found[0]), " instead of ",
                                           position_text(row.asked[0]), " at the first token")};
}

std::optional<Story> all_equal(const PositionRow& row) {
  const double first = row.found[0];
  if (!follows(row, [&](double) { return first; })) return std::nullopt;
  if (first == 0.0) return Story{"not_rotated", "every token is at position 0: not rotated"};
  return Story{
      "positions_all_equal",
      message("every token is rotated alike, by the angles of position ", position_text(first))};
}

std::optional<Story> clipped(const PositionRow& row) {
  const double largest = largest_of(row.found);
  if (!follows(row, [&](double e) { return std::min(e, largest); })) return std::nullopt;
  return Story{"positions_clipped",
               message("the positions are clipped at ", position_text(largest),
                       " (largest given: ", position_text(largest_of(row.asked)), ")")};
}

std::optional<Story> rounded_to_16_bits(const PositionRow& row) {
  for (const core::DType type : {core::DType::bf16, core::DType::f16}) {
    if (!follows(row, [&](double e) { return rounded(e, type); })) continue;
    return Story{message(type_name(type), "_positions"),
                 message("the positions were rounded to ", type_name(type))};
  }
  return std::nullopt;
}

std::optional<Story> reversed(const PositionRow& row) {
  const double ends = largest_of(row.asked) + *std::min_element(row.asked.begin(), row.asked.end());
  if (!follows(row, [&](double e) { return ends - e; })) return std::nullopt;
  return Story{"positions_reversed", "the positions are in reverse order"};
}

std::optional<Story> negated(const PositionRow& row) {
  if (!follows(row, [](double e) { return -e; })) return std::nullopt;
  return Story{"turned_backwards", "the positions are negated: rotated backwards"};
}

std::optional<Story> other_step(const PositionRow& row) {
  const TokenPositions& found = row.found;
  const TokenPositions& asked = row.asked;
  const double step = (found[1] - found[0]) / (asked[1] == asked[0] ? 1.0 : asked[1] - asked[0]);
  if (step == 1.0 || step == 0.0) return std::nullopt;
  if (!follows(row, [&](double e) { return found[0] + step * (e - asked[0]); })) {
    return std::nullopt;
  }
  if (step == -1.0) {
    return Story{"positions_reversed",
                 message("the positions are in reverse order, from ", position_text(found[0]),
                         " to ", position_text(found.back()))};
  }
  return Story{"positions_step",
               message("the positions advance in steps of ", position_text(step), ": ",
                       position_text(found[0]), ", ", position_text(found[1]), ", ... instead of ",
                       position_text(asked[0]), ", ", position_text(asked[1]), ", ...")};
}

// Right, but for some tokens that were not rotated. At the end of the row these are decoding steps.
std::optional<Story> tokens_not_rotated(const PositionRow& row) {
  const std::size_t count = row.found.size();
  TokenPositions idle;
  for (std::size_t t = 0; t < count; ++t) {
    if (row.found[t] == 0.0 && row.asked[t] != 0.0) {
      idle.push_back(static_cast<double>(t));
    } else if (row.found[t] != row.asked[t]) {
      return std::nullopt;
    }
  }
  const auto end = static_cast<double>(count);
  const bool tail = idle.size() > 1 && idle.back() == end - 1.0 &&
                    idle.front() + static_cast<double>(idle.size()) == end;
  if (idle.empty() || tail) return std::nullopt;
  return Story{
      "tokens_not_rotated",
      message(idle.size() == 1 ? "token " : message(idle.size(), " tokens: "), positions_text(idle),
              " of ", count, idle.size() == 1 ? " is" : " are", " not rotated (position 0)")};
}

std::optional<Story> restart_every(const PositionRow& row) {
  const double period = largest_of(row.found) + 1.0;
  const bool possible =
      period >= 2.0 && period <= largest_of(row.asked) && period == std::round(period);
  if (!possible || !follows(row, [&](double e) { return std::fmod(e, period); })) {
    return std::nullopt;
  }
  return Story{"positions_restart",
               message("the positions restart at 0 every ", position_text(period), " tokens")};
}

// Tokens in front that share a position, if the row counts up after them; or 0.
std::size_t padding_of(const TokenPositions& row) {
  std::size_t pad = 0;
  while (pad + 1 < row.size() && row[pad] == row[pad + 1]) ++pad;
  const bool one_more = pad > 0 && pad + 1 < row.size() && row[pad] != 0.0 && row[pad + 1] == 0.0;
  const std::size_t first = one_more ? pad + 1 : pad;
  for (std::size_t t = first + 1; t < row.size(); ++t) {
    if (row[t] != row[t - 1] + 1.0) return 0;
  }
  return first;
}

std::optional<Story> padding_not_counted(const PositionRow& row) {
  if (!counts_up(row.found) || padding_of(row.asked) == 0) return std::nullopt;
  return Story{"left_padding",
               message("left padding is not accounted for: the positions count from the first "
                       "token of the row (",
                       positions_text(row.found), "), not from the first real token (",
                       positions_text(row.asked), ")")};
}

std::optional<Story> padding_not_given(const PositionRow& row) {
  if (!counts_up(row.asked) || padding_of(row.found) == 0) return std::nullopt;
  return Story{
      "left_padding",
      message("the positions count from the first real token (", positions_text(row.found),
              "): left padding is not in the given positions (", positions_text(row.asked), ")")};
}

// Right until a token, then something else.
std::optional<Story> other_from_a_token_on(const PositionRow& row) {
  const TokenPositions& found = row.found;
  std::size_t border = 0;
  while (border < found.size() && found[border] == found[0] + static_cast<double>(border)) ++border;
  const TokenPositions rest(found.begin() + static_cast<std::ptrdiff_t>(border), found.end());
  if (!counts_up(row.asked) || rest.empty()) return std::nullopt;
  const double expected = found[0] + static_cast<double>(border);
  const std::string where = positions_text(found);
  const bool still =
      std::all_of(rest.begin(), rest.end(), [&](double position) { return position == rest[0]; });
  if (rest.size() > 1 && still) {
    return Story{"decode_positions",
                 message("all tokens from token ", border, " on are at position ",
                         position_text(rest[0]), ": ", where)};
  }
  if (!counts_up(rest)) return std::nullopt;
  if (rest[0] == expected - 1.0) {
    return Story{"position_repeated",
                 message(where, ": position ", position_text(rest[0]), " is repeated")};
  }
  if (rest[0] == expected + 1.0) {
    return Story{"position_skipped",
                 message(where, ": position ", position_text(expected), " is skipped")};
  }
  if (rest[0] == 0.0 || rest[0] == found[0]) {
    return Story{"positions_restart",
                 message("the positions restart at token ", border, ": ", where)};
  }
  return Story{"positions_jump",
               message(where, ": the positions jump from ", position_text(expected - 1.0), " to ",
                       position_text(rest[0]))};
}

bool has_few_runs(const PositionRow& row, const std::vector<Run>& runs) {
  return runs.size() <= std::max<std::size_t>(4, row.found.size() / 8);
}

std::optional<Story> restart_in_segments(const PositionRow& row) {
  const std::vector<Run> runs = runs_of(row.found);
  const bool restarts = std::all_of(runs.begin(), runs.end(), [&](const Run& run) {
    return run.first == runs[0].first && run.step == 1.0;
  });
  if (!has_few_runs(row, runs) || !restarts || runs.size() < 2) return std::nullopt;
  return Story{"positions_restart",
               message("the positions restart in each segment: ", positions_text(row.found))};
}

std::optional<Story> segments_not_restarted(const PositionRow& row) {
  if (!counts_up(row.found)) return std::nullopt;
  return Story{"positions_not_restarted",
               message("the positions run on (", positions_text(row.found),
                       ") where the given ones restart (", positions_text(row.asked), ")")};
}

std::optional<Story> other_positions(const PositionRow& row) {
  return Story{"positions", message("other positions were used: ", positions_text(row.found),
                                    " instead of ", positions_text(row.asked))};
}

// The first that holds tells the story: the simplest first.
constexpr std::optional<Story> (*kRules[])(const PositionRow&) = {offset,
                                                                  all_equal,
                                                                  clipped,
                                                                  rounded_to_16_bits,
                                                                  reversed,
                                                                  negated,
                                                                  other_step,
                                                                  tokens_not_rotated,
                                                                  restart_every,
                                                                  padding_not_counted,
                                                                  padding_not_given,
                                                                  other_from_a_token_on,
                                                                  restart_in_segments,
                                                                  segments_not_restarted,
                                                                  other_positions};

}  // namespace

bool shifted_by(const std::vector<double>& found, const std::vector<double>& asked, double by) {
  return std::equal(found.begin(), found.end(), asked.begin(), asked.end(),
                    [&](double f, double a) { return f == a + by; });
}

std::optional<Story> story_of(const PositionRow& row) {
  const double shift = row.found[0] - row.asked[0];
  if ((shift == 0.0 || !row.given) && shifted_by(row.found, row.asked, shift)) return std::nullopt;
  for (const auto& rule : kRules) {
    if (std::optional<Story> story = rule(row)) return story;
  }
  return std::nullopt;
}

std::string positions_text(const std::vector<double>& positions) {
  constexpr std::size_t kShown = 6;
  const std::vector<Run> runs = runs_of(positions);
  std::string text;
  for (std::size_t k = 0; k < runs.size(); ++k) {
    if (k == kShown) return text + message(", ... (", runs.size(), " runs)");
    text += (k == 0 ? "" : k == 1 && runs.size() == 2 ? ", then " : ", ") + run_text(runs[k]);
  }
  return text;
}

}  // namespace phasor::porting::forward
