// Finds the mistake that explains why the data are not as the config says.
#include <algorithm>
#include <cmath>
#include <set>

#include "phasor/core/error.hpp"
#include "porting/diagnose/forward/search.hpp"

namespace phasor::porting::forward {
namespace {

// A cause that does not fit within rounding must still explain this part of the difference.
constexpr double kExplained = 0.2;

class CauseFinder {
 public:
  explicit CauseFinder(Problem problem)
      : p_(std::move(problem)), glance_(sample_of(p_.data, 3, 2)) {}

  std::optional<Verdict> run() {
    const double asked = score(p_.data, p_.asked, p_.few).relative();
    from_the_start();
    if (fitting_.empty() && !p_.given) {
      if (const auto shift = part_shift()) {
        p_.asked.shift = *shift;
        from_the_start();
      }
    }
    const Candidate as_config{"asked", "", {}, p_.asked, 0};
    if (fitting_.empty() && p_.given) {
      evaluate(as_config, ShiftBounds{-kLowestOffset, kHighestOffset});
    }
    if (fitting_.empty()) {
      for (Candidate& candidate : position_mistakes(p_)) {
        if (!p_.given && candidate.rank < kWeakRank) candidate.rank += 10;
        evaluate(candidate, std::nullopt);
      }
    }
    const bool doubtful = !p_.given && !fitting_.empty() && fitting_.front().rank >= 10;
    if (fitting_.empty() || doubtful) with_shifts();
    if (fitting_.empty()) {
      fit();
    } else if (encodings::depends_on_context(p_.spec)) {
      for (const Candidate& candidate : fitted_candidates(p_, p_.asked, Fit::context_only)) {
        evaluate(candidate, std::nullopt);
      }
    }
    if (!fitting_.empty()) return choose(p_, std::move(fitting_));
    return rough_cause(asked);
  }

 private:
  void from_the_start() {
    evaluate({"asked", "", {}, p_.asked, 0}, std::nullopt);
    plain_ = plain_candidates(p_);
    for (const Candidate& candidate : plain_) evaluate(candidate, std::nullopt);
  }
  void with_shifts() {
    const bool open = fitting_.empty();
    const ShiftBounds bounds{-256, p_.given ? 4096 : 1 << 16};
    for (Candidate candidate : plain_) {
      if (!(candidate.model.types == Types{}) || (!open && candidate.rank > 10)) continue;
      candidate.model.shift = 0.0;
      evaluate(candidate, bounds);
    }
  }
  // The offset that holds for some heads, batch rows or tokens, or roughly for all.
  std::optional<double> part_shift() const {
    const Data& d = p_.data;
    const auto of = [&](auto wanted_row, auto wanted_head) -> std::optional<double> {
      Sample part;
      for (const Sample::Row& row : p_.some.rows) {
        Sample::Row kept{row.b, row.t, {}};
        for (std::int64_t h = 0; h < d.heads; ++h) {
          if (wanted_head(h) && d.usable(d.vector_at(row.b, row.t, h))) kept.heads.push_back(h);
        }
        if (wanted_row(row) && !kept.heads.empty()) part.rows.push_back(std::move(kept));
      }
      if (part.rows.size() < 3) return std::nullopt;
      const std::vector<double> shifts =
          fitting_shifts(d, p_.asked, part, {-kLowestOffset, 1 << 16});
      return shifts.empty() ? std::nullopt : std::optional(shifts.front());
    };
    const auto any_row = [](const Sample::Row&) { return true; };
    const auto any_head = [](std::int64_t) { return true; };
    for (const std::int64_t h : {std::int64_t{0}, d.heads - 1, d.heads / 2}) {
      if (d.heads < 2) break;
      if (auto shift = of(any_row, [&](std::int64_t x) { return x == h; })) return shift;
    }
    for (const std::int64_t b : {std::int64_t{0}, d.batch - 1, d.batch / 2}) {
      if (d.batch < 2) break;
      if (auto shift = of([&](const Sample::Row& row) { return row.b == b; }, any_head)) {
        return shift;
      }
    }
    if (auto shift = of([&](const Sample::Row& row) { return 3 * row.t < d.tokens; }, any_head)) {
      return shift;
    }
    return rough_shift(d, p_.asked, p_.few, {-kLowestOffset, 1 << 16});
  }
  // A cause that explains most of the difference, though not all within rounding.
  std::optional<Verdict> rough_cause(double asked) const {
    const double now = score(p_.data, p_.asked, p_.few).relative();
    if (const auto type = table_type(p_.data, p_.asked, p_.some);
        type && now < 4.0 * diagnosis::unit_of(*type)) {
      return Verdict{kWeakRank - 1,
                     {message(type_name(*type), "_table"),
                      message("the cos/sin table was rounded to ", type_name(*type)),
                      now,
                      {}}};
    }
    if (nearest_.id.empty() || !(nearest_.residual < kExplained * asked)) return std::nullopt;
    return Verdict{kWeakRank + 100,
                   nearest_,
                   {},
                   std::nullopt,
                   {message("the cause explains all but ", digits(nearest_.residual, 2),
                            " of the tensor's size, more than the rounding of the tensors")}};
  }

  // Adds the candidate if it fits all vectors; tries its amplitude and the shifts within bounds.
  void evaluate(const Candidate& candidate, std::optional<ShiftBounds> bounds) {
    const auto keep = [&](Candidate c) {
      if (!fits_everywhere(p_, c.model, &c.whole)) return false;
      fitting_.push_back(c);
      return true;
    };
    // Another amplitude: the part of the data along the model.
    const auto is_scaled = [&](const Score& s) {
      const double gain = s.gain();
      return s.square > 0.0 && candidate.model.types == Types{} &&
             std::abs(gain - 1.0) > 8.0 * p_.data.vectors->unit && gain > 0.05 && gain < 20.0 &&
             s.left - (s.product - s.square) * (gain - 1.0) < 0.05 * s.left;
    };
    Score s = score(p_.data, candidate.model, glance_);
    constexpr double kNear = 0.3;
    if (s.fits() || s.relative() < kNear || is_scaled(s)) {
      s = score(p_.data, candidate.model, p_.few);
      if (s.fits() && keep(candidate)) return;
      if (candidate.rank < kWeakRank && s.relative() < nearest_.residual) {
        nearest_ = {candidate.id, candidate.text, s.relative(), candidate.fields};
      }
      if (is_scaled(s)) {
        const double gain = s.gain();
        Candidate other = candidate;
        other.model.amplitude *= gain;
        other.rank += 50;
        const bool alone = candidate.id == "asked";
        const std::string text =
            message("amplitude: ", digits(candidate.model.amplitude, 6), " in the config, ",
                    digits(other.model.amplitude, known_digits(p_.data)), " in the data");
        other.text = alone ? text : message(candidate.text, "; and ", text);
        if (alone) other.id = "amplitude";
        other.fields.push_back({"amplitude", digits(candidate.model.amplitude, 10),
                                digits(other.model.amplitude, 6), text});
        if (keep(other)) return;
      }
    }
    if (!bounds) return;
    if (p_.given && candidate.id == "not_rotated") return;
    for (const double shift : fitting_shifts(p_.data, candidate.model, p_.few, *bounds)) {
      Candidate moved = candidate;
      moved.model.shift = shift;
      moved.shift = shift;
      moved.rank += p_.given ? 100 : 2;
      if (p_.given) {
        const std::string off = message("the positions are off by ", digits(shift, 10));
        moved.text = candidate.id == "asked" ? off : message(candidate.text, "; and ", off);
        if (candidate.id == "asked") {
          moved.id = shift == 1.0    ? "positions_one_ahead"
                     : shift == -1.0 ? "positions_one_behind"
                                     : "positions_offset";
        }
      }
      if (keep(moved)) return;
    }
  }

  void fit() {
    std::vector<Model> likes = {p_.asked};
    Model back = p_.asked;
    back.form = Form::inverse;
    likes.push_back(back);
    for (const Candidate& candidate : form_mistakes(p_)) {
      if (candidate.id == "layout" && candidate.model.form == Form::rotation) {
        likes.push_back(candidate.model);
      }
    }
    for (std::size_t k = 0; k < likes.size(); ++k) {
      for (Candidate& candidate : fitted_candidates(p_, likes[k], Fit::everything)) {
        if (k == 1) candidate.text += "; and rotated backwards";
        if (k > 1) candidate.text += "; and in the other layout";
        evaluate(candidate, p_.given ? std::nullopt : std::optional(ShiftBounds{-256, 1 << 16}));
      }
      if (!fitting_.empty()) return;
    }
  }

  Problem p_;
  Sample glance_;  // enough to reject most candidates
  std::vector<Candidate> plain_, fitting_;
  FoundCause nearest_{"", "", HUGE_VAL, {}};
};

}  // namespace

std::vector<Candidate> plain_candidates(const Problem& problem) {
  std::vector<Candidate> all = precision_mistakes(problem);
  for (auto* const make : {form_mistakes, axis_mistakes, width_mistakes, frequency_candidates}) {
    std::vector<Candidate> more = make(problem);
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  return all;
}

// The simplest, unless the data lean to another.
Verdict choose(const Problem& problem, std::vector<Candidate> fitting) {
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const Candidate& a, const Candidate& b) { return a.rank < b.rank; });
  std::size_t best = 0;
  for (std::size_t k = 1; k < fitting.size(); ++k) {
    const Lean found = lean(problem.data, fitting[best].model, fitting[k].model, problem.some);
    if (found.evidence > kEvidence && found.towards > kLean) best = k;
  }
  std::set<std::string> told = {fitting[best].id};
  std::vector<FoundCause> others;
  for (std::size_t k = 0; k < fitting.size(); ++k) {
    if (k == best || told.count(fitting[k].id) != 0 || fitting[k].rank > fitting[best].rank + 3 ||
        others.size() == 3) {
      continue;
    }
    const Lean found = lean(problem.data, fitting[best].model, fitting[k].model, problem.some);
    if (found.evidence > kEvidence) continue;
    told.insert(fitting[k].id);
    others.push_back(
        {fitting[k].id, fitting[k].text, fitting[k].whole.relative(), fitting[k].fields});
  }
  const Candidate& cause = fitting[best];
  Verdict verdict{
      cause.rank, {cause.id, cause.text, cause.whole.relative(), cause.fields}, std::move(others)};
  if (cause.shift && !problem.given) {
    verdict.offset = static_cast<std::int64_t>(std::llround(*cause.shift));
  }
  return verdict;
}

std::optional<Verdict> find_cause(const Problem& problem) { return CauseFinder(problem).run(); }

}  // namespace phasor::porting::forward
