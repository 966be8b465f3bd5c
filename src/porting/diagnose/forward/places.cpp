// Positions that explain the data with the spec's own frequencies.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "porting/diagnose/forward/search.hpp"
#include "porting/diagnose/forward/stories.hpp"
#include "porting/share.hpp"

namespace phasor::porting::forward {
namespace {

using Row = std::vector<double>;

std::string number(double value) { return digits(value, 10); }

class PlaceFinder {
 public:
  explicit PlaceFinder(const Problem& problem) : p_(problem), d_(problem.data) {}

  std::vector<Candidate> run() {
    if (!p_.asked.axes.empty() && p_.asked.positions->axes > 1) return {};
    idle_heads();
    if (!all_.empty()) return std::move(all_);
    if (find_all()) explain();
    return std::move(all_);
  }

 private:
  [[nodiscard]] Row asked_row(std::int64_t b) const {
    Row row;
    for (std::int64_t t = 0; t < d_.tokens; ++t) {
      row.push_back(p_.asked.positions->at(0, b, t, 0) + p_.asked.shift);
    }
    return row;
  }

  // Some heads are rotated as the config says, and the others are not at all.
  void idle_heads() {
    if (d_.heads < 2) return;
    std::vector<std::uint8_t> idle(static_cast<std::size_t>(d_.heads), 0);
    std::int64_t still = 0;
    Model none = p_.asked;
    none.idle_heads.assign(idle.size(), 1);
    for (std::int64_t h = 0; h < d_.heads; ++h) {
      Sample sample;
      for (Sample::Row row : p_.some.rows) {
        row.heads = {h};
        sample.rows.push_back(row);
      }
      if (score(d_, p_.asked, sample).fits()) continue;
      if (!score(d_, none, sample).fits()) return;
      idle[static_cast<std::size_t>(h)] = 1;
      ++still;
    }
    if (still == 0 || still == d_.heads) return;
    std::string text;
    for (std::int64_t h = 0; h < d_.heads; ++h) {
      if (idle[static_cast<std::size_t>(h)] == 0) continue;
      std::int64_t last = h;
      while (last + 1 < d_.heads && idle[static_cast<std::size_t>(last + 1)] != 0) ++last;
      text += message(text.empty() ? "" : ", ", h, last > h ? message("-", last) : std::string());
      h = last;
    }
    Candidate candidate{"heads_not_rotated",
                        message(still == 1 ? "head " : "heads ", text, " of ", d_.heads,
                                still == 1 ? " is" : " are", " not rotated"),
                        {},
                        p_.asked,
                        4};
    candidate.model.idle_heads = idle;
    all_.push_back(std::move(candidate));
  }

  [[nodiscard]] bool fits_at(std::int64_t b, std::int64_t t, double position) {
    Model model = p_.asked;
    auto table = std::make_shared<PositionTable>();
    table->values = {position};
    model.positions = table;
    model.shift = 0.0;
    Sample sample;
    sample.rows.push_back({b, t, row_heads()});
    const Score s = score(d_, model, sample);
    return s.vectors == 0 || s.worst <= 1.0;
  }
  [[nodiscard]] std::vector<std::int64_t> row_heads() const {
    std::vector<std::int64_t> heads;
    const std::int64_t count = std::min<std::int64_t>(d_.heads, 4);
    for (std::int64_t k = 0; k < count; ++k) {
      heads.push_back(count == 1 ? 0 : k * (d_.heads - 1) / (count - 1));
    }
    return heads;
  }

  [[nodiscard]] std::optional<double> position_of(std::int64_t b, std::int64_t t, double asked,
                                                  const Row& before) {
    std::vector<double> guesses = {asked};
    if (!before.empty()) {
      const double last = before.back();
      const double step = before.size() > 1 ? last - before[before.size() - 2] : 1.0;
      for (const double guess : {last + step, last + 1.0, last, last + 2.0, last - 1.0}) {
        guesses.push_back(guess);
      }
    }
    for (const double guess : {0.0, asked + 1.0, asked - 1.0, rounded(asked, core::DType::bf16),
                               rounded(asked, core::DType::f16)}) {
      guesses.push_back(guess);
    }
    for (const double guess : guesses) {
      if (fits_at(b, t, guess)) return guess;
    }
    Model model = p_.asked;
    auto zero = std::make_shared<PositionTable>();
    zero->values = {0.0};
    model.positions = zero;
    model.shift = 0.0;
    const Sample::Row row{b, t, row_heads()};
    const MeasuredRow measured = measured_row(d_, model, row);
    const auto near = static_cast<std::int64_t>(asked);
    for (const double shift : likely_shifts(model, measured, row, {0, 2 * d_.tokens}, 4)) {
      if (fits_at(b, t, shift)) return shift;
    }
    constexpr int kMostSearches = 400;
    if (++searches_ > kMostSearches) return std::nullopt;
    for (const ShiftBounds bounds :
         {ShiftBounds{-2048, 1 << 16}, ShiftBounds{near - 4096, near + (1 << 16)}}) {
      for (const double shift : likely_shifts(model, measured, row, bounds, 4)) {
        if (fits_at(b, t, shift)) return shift;
      }
      if (near < 1 << 15) break;
    }
    return std::nullopt;
  }

  [[nodiscard]] bool find_all() {
    const std::int64_t rows = d_.batch;
    const Share share = Share(p_.input.progress).part(kConfigTried, 1.0);
    for (std::int64_t b = 0; b < rows; ++b) {
      const Row asked = asked_row(b);
      Row row;
      for (std::int64_t t = 0; t < d_.tokens; ++t) {
        core::throw_if_cancelled();
        share.at(static_cast<double>(b * d_.tokens + t) / static_cast<double>(rows * d_.tokens));
        const auto found = position_of(b, t, asked[static_cast<std::size_t>(t)], row);
        if (!found) return false;
        row.push_back(*found);
      }
      found_.push_back(std::move(row));
    }
    return true;
  }

  void explain() {
    auto table = std::make_shared<PositionTable>();
    table->batch = static_cast<std::int64_t>(found_.size());
    table->tokens = d_.tokens;
    for (const Row& row : found_) table->values.insert(table->values.end(), row.begin(), row.end());
    Candidate candidate{"positions", "", {}, p_.asked, 5};
    candidate.model.positions = table;
    candidate.model.shift = 0.0;
    const bool alike =
        std::all_of(found_.begin(), found_.end(), [&](const Row& row) { return row == found_[0]; });
    const bool asked_alike = p_.asked.positions->batch == 1;
    std::optional<Story> story;
    if (alike && (asked_alike || found_.size() == 1)) {
      story = story_of({found_[0], asked_row(0), p_.given});
    } else {
      story = rows_story();
    }
    if (!story) return;
    candidate.id = story->id;
    candidate.text = story->text;
    if (story->id == "positions" || story->id == "batch_row_positions") candidate.rank = kWeakRank;
    all_.push_back(std::move(candidate));
  }

  // Batch rows that differ.
  [[nodiscard]] std::optional<Story> rows_story() const {
    const std::size_t count = found_.size();
    // The offset of the rows that agree, if most do.
    std::vector<std::optional<double>> shift(count);
    for (std::size_t b = 0; b < count; ++b) {
      const Row asked = asked_row(static_cast<std::int64_t>(b));
      const double by = found_[b][0] - asked[0];
      if (shifted_by(found_[b], asked, by)) shift[b] = by;
    }
    bool runs_on = count > 1;
    for (std::size_t b = 1; b < count; ++b) {
      runs_on = runs_on && found_[b][0] == found_[b - 1].back() + 1.0;
    }
    if (runs_on && shift[0] == 0.0) {
      return Story{"positions_across_rows",
                   message("the positions run on across the batch rows: row 1 starts at ",
                           number(found_[1][0]), " instead of ", number(asked_row(1)[0]))};
    }
    const auto all_plain = std::all_of(shift.begin(), shift.end(), [](auto s) { return bool(s); });
    if (all_plain && p_.given) {
      const bool restart = std::all_of(found_.begin(), found_.end(),
                                       [&](const Row& row) { return row == found_[0]; });
      const bool padding = [&] {
        for (std::size_t b = 0; b < count; ++b) {
          const Row asked = asked_row(static_cast<std::int64_t>(b));
          if (asked.size() > 1 && asked[0] == asked[1]) return true;
        }
        return false;
      }();
      if (restart && !padding) {
        return Story{"positions_restart",
                     message("every batch row starts at position ", number(found_[0][0]),
                             ", unlike the given positions")};
      }
    }
    double usual = 0.0;
    std::size_t most = 0;
    for (const auto& s : shift) {
      const auto times = static_cast<std::size_t>(std::count(shift.begin(), shift.end(), s));
      const bool nearer = s && times == most && std::abs(*s) < std::abs(usual);
      if (s && (times > most || nearer)) {
        most = times;
        usual = *s;
      }
    }
    if (most == 0) usual = 0.0;
    std::string text, id;
    std::size_t odd = 0;
    for (std::size_t b = 0; b < count; ++b) {
      if (shift[b] && *shift[b] == (p_.given ? 0.0 : usual)) continue;
      ++odd;
      const Row asked = asked_row(static_cast<std::int64_t>(b));
      Row expected = asked;
      for (double& e : expected) e += p_.given ? 0.0 : usual;
      std::optional<Story> story = story_of({found_[b], expected, true});
      if (!story) continue;
      if (id.empty()) {
        id = story->id == "not_rotated" ? "batch_row_not_rotated"
             : story->id == "positions_one_ahead" || story->id == "positions_one_behind"
                 ? "batch_row_off_by_one"
             : story->id == "left_padding" ? "left_padding"
                                           : "batch_row_positions";
      }
      if (odd <= 3) text += message(text.empty() ? "" : "; ", "batch row ", b, ": ", story->text);
    }
    if (odd == 0) return std::nullopt;
    if (odd > 3) text += message("; and ", odd - 3, " more rows");
    return Story{id.empty() ? "batch_row_positions" : id, text};
  }

  const Problem& p_;
  const Data& d_;
  std::vector<Row> found_;
  std::vector<Candidate> all_;
  int searches_ = 0;
};

}  // namespace

std::vector<Candidate> position_mistakes(const Problem& problem) {
  return PlaceFinder(problem).run();
}

}  // namespace phasor::porting::forward
