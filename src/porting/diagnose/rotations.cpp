// Finds the positions of the tokens and the frequency of each pair.
#include <algorithm>
#include <cmath>

#include "phasor/core/error.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

// All rows averaged into one, for tokens at the same position.
Gains as_one_row(const Gains& gains) {
  Gains one = gains;
  one.rows = 1;
  one.sequences = 1;
  one.sequence = {0};
  one.position = {0.0};
  one.gain.assign(static_cast<std::size_t>(gains.pairs), 0.0);
  one.weight.assign(static_cast<std::size_t>(gains.pairs), 0.0);
  for (std::int64_t row = 0; row < gains.rows; ++row) {
    for (std::int64_t pair = 0; pair < gains.pairs; ++pair) {
      const std::size_t from = gains.at(row, pair), to = one.at(0, pair);
      one.gain[to] += gains.weight[from] * gains.gain[from];
      one.weight[to] += gains.weight[from];
    }
  }
  for (std::size_t k = 0; k < one.gain.size(); ++k) {
    if (one.weight[k] > 0.0) one.gain[k] /= one.weight[k];
  }
  return one;
}

class RotationSolver {
 public:
  explicit RotationSolver(Investigation& state) : s_(state) {}

  [[nodiscard]] bool run() {
    s_.amplitude = mean_length(s_.gains);
    s_.found.amplitude = s_.amplitude;
    s_.found.positions = s_.given.empty() ? "contiguous" : "given";
    bool several = false;
    for (std::int64_t row = 1; row < s_.gains.rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      several = several || (s_.gains.sequence[r] == s_.gains.sequence[r - 1] &&
                            s_.gains.position[r] != s_.gains.position[r - 1]);
    }
    if (!several) return solve_one_position();

    s_.fit = fit_frequencies(s_.gains);
    if (s_.fit.residual > kRotatedResidual && !other_positions()) {
      s_.none(mirrored(s_).value_or(
          message("pairs are rotated (", name_of(s_.window.pairing), " layout, rotary_dim ",
                  s_.window.width, "), but the angles are not multiples of ",
                  s_.given.empty() ? "contiguous positions" : "the given positions",
                  searched_rows_ ? ", nor of any positions from 0 to 65535 with a usual base"
                                 : "; not every token was searched for its position")));
      return false;
    }
    if (s_.positions_known) return true;
    if (same_rotation_everywhere()) {
      s_.found.notes.push_back(
          "every token was rotated by the same angles, as if all were at one position");
      s_.gains = as_one_row(s_.gains);
      s_.same_everywhere = true;
      return solve_one_position();
    }
    orient();
    if (std::find(s_.fit.ambiguous.begin(), s_.fit.ambiguous.end(), 1) != s_.fit.ambiguous.end()) {
      use_base_alone(3.0 * s_.fit.residual + 1e-3);
    }
    settle_shift();
    return true;
  }

 private:
  [[nodiscard]] bool same_rotation_everywhere() const {
    double all = 0.0;
    for (std::size_t pair = 0; pair < s_.fit.value.size(); ++pair) {
      all = std::max(all, std::abs(s_.fit.value[pair]) / (s_.fit.error[pair] + 1e-9));
    }
    return all < 6.0;
  }

  // Forward rotations have positive frequencies.
  void orient() {
    double vote = 0.0;
    for (std::size_t pair = 0; pair < s_.fit.value.size(); ++pair) {
      vote += std::clamp(s_.fit.value[pair] / s_.fit.error[pair], -100.0, 100.0);
    }
    s_.found.inverse = vote < 0.0;
    if (vote >= 0.0) return;
    flip();
  }
  void flip() {
    s_.inverse = !s_.inverse;
    conjugate(s_.gains);
    for (double& value : s_.fit.value) value = -value;
    for (Complex& phase : s_.fit.phase) phase = std::conj(phase);
  }

  // Positions with wide gaps do not determine single frequencies; one base for all pairs may fit.
  bool use_base_alone(double allowed) {
    const std::optional<LawFit> law = fit_base_alone(s_.gains, s_.amplitude);
    if (!law || law->residual > allowed) return false;
    if (law->inverse) {
      if (s_.fit.value.empty()) s_.fit.phase.clear();
      flip();
    }
    s_.found.inverse = s_.inverse;
    start_from(law->base);
    s_.found.notes.push_back(
        "the positions do not determine single frequencies; they follow from one base for all "
        "pairs");
    return true;
  }

  void start_from(double base) {
    s_.fit.value = default_law(base, s_.gains.pairs);
    s_.fit.phase.assign(static_cast<std::size_t>(s_.gains.sequences * s_.gains.pairs),
                        s_.amplitude);
    s_.fit.ambiguous.assign(s_.fit.value.size(), 0);
    anchor_frequencies(s_.gains, s_.fit);
    s_.positions_known = true;
  }

  bool solve_one_position() {
    s_.fit = {};
    const double position = s_.gains.position[0];
    const double allowed = 0.02;
    if (!s_.given.empty() && !s_.same_everywhere && position != 0.0 && use_base_alone(allowed)) {
      return true;
    }
    if (recover_positions()) return true;
    const std::string why =
        s_.given.empty() || s_.same_everywhere
            ? "all tokens are at one unknown position: its angles are products of frequency and "
              "position"
            : "all tokens are at one position, and no usual formula gives its angles";
    for (const char* field : {"base", "scaling", "inverse", "offset", "table_dtype"}) {
      s_.undetermined(field, why);
    }
    s_.found.residual = s_.gains.residual;
    return false;
  }

  bool recover_positions() {
    const PositionSearch search = find_positions(s_.gains, unit_of(s_.vectors.precision));
    searched_rows_ = search.complete;
    const std::optional<FoundPositions>& recovered = search.found;
    if (!recovered) return false;
    s_.gains.position = recovered->position;
    if (recovered->inverse) {
      s_.inverse = true;
      conjugate(s_.gains);
    }
    s_.found.inverse = s_.inverse;
    start_from(recovered->base);
    describe_positions();
    return true;
  }

  // The given positions do not fit: tries rounded and contiguous ones.
  bool other_positions() {
    const std::vector<double> listed = s_.gains.position;
    for (const core::DType type : {core::DType::bf16, core::DType::f16}) {
      if (s_.given.empty()) break;
      std::vector<double> narrow = listed;
      for (double& position : narrow) position = rounded(position, type);
      if (narrow == listed) continue;
      s_.gains.position = narrow;
      FrequencyFit fit = fit_frequencies(s_.gains);
      if (fit.residual > kRotatedResidual) continue;
      s_.fit = std::move(fit);
      s_.rounded_positions = type_name(type);
      s_.found.notes.push_back(message("the positions were rounded to ", type_name(type),
                                       " before use", example_of(listed, narrow)));
      return true;
    }
    if (!s_.given.empty()) {
      for (std::size_t row = 0; row < listed.size(); ++row) {
        s_.gains.position[row] =
            static_cast<double>(static_cast<std::int64_t>(row) % s_.axes.tokens);
      }
      FrequencyFit fit = fit_frequencies(s_.gains);
      if (fit.residual <= kRotatedResidual) {
        s_.fit = std::move(fit);
        s_.contiguous_instead = true;
        return true;
      }
    }
    s_.gains.position = listed;
    return recover_positions();
  }

  static std::string example_of(const std::vector<double>& listed,
                                const std::vector<double>& used) {
    for (std::size_t k = 0; k < listed.size(); ++k) {
      if (listed[k] != used[k]) {
        return message(": ", listed[k], " became ", used[k]);
      }
    }
    return "";
  }

  // Shifts the positions of each sequence to match its phases.
  void settle_shift() {
    if (s_.positions_known) return;
    std::vector<double> frequencies = s_.fit.value, errors = s_.fit.error;
    sharpen(frequencies, errors);
    std::vector<std::optional<double>> shifts;
    std::optional<double> rival;
    const bool given = !s_.given.empty() && !s_.contiguous_instead;
    for (std::int64_t s = 0; s < s_.gains.sequences; ++s) {
      ShiftSearch search;
      if (given) {
        search = find_shift(s_.gains, s_.fit, frequencies, errors, s, ShiftRange::only_zero);
        if (!search.shift) {
          // A formula that fits by coincidence must not override the given positions.
          search =
              find_shift(s_.gains, s_.fit, s_.fit.value, s_.fit.error, s, ShiftRange::only_zero);
          if (search.shift) frequencies = s_.fit.value;
        }
      }
      if (!search.shift) {
        search = find_shift(s_.gains, s_.fit, frequencies, errors, s, ShiftRange::everywhere);
      }
      if (search.rival) rival = search.rival;
      shifts.push_back(search.shift);
    }
    const bool all = std::all_of(shifts.begin(), shifts.end(),
                                 [](const std::optional<double>& s) { return s.has_value(); });
    const std::vector<double> listed = s_.gains.position;
    const FrequencyFit free = s_.fit;
    if (all) {
      for (std::size_t row = 0; row < s_.gains.position.size(); ++row) {
        s_.gains.position[row] += *shifts[static_cast<std::size_t>(s_.gains.sequence[row])];
      }
      s_.fit.value = frequencies;
      anchor_frequencies(s_.gains, s_.fit);
    }
    if (!all || s_.fit.residual > 3.0 * free.residual + 1e-3 || by_coincidence(shifts, free)) {
      s_.gains.position = listed;
      s_.fit = free;
      s_.undetermined("offset",
                      "no integer offset from -2048 to 2^20 explains the phases of all pairs");
      s_.offset_open = true;
      return;
    }
    if (rival && !given) {
      s_.found.notes.push_back(
          message("the offset ", *rival + listed.front(), " would explain the phases as well"));
    }
    if (!s_.given.empty()) describe_shift(shifts);
    s_.positions_known = true;
  }

  // One of a million offsets may fit a few pairs by coincidence; then the frequencies with it follow
  // no formula, while those without it do.
  [[nodiscard]] bool by_coincidence(const std::vector<std::optional<double>>& shifts,
                                    const FrequencyFit& free) const {
    constexpr std::int64_t kManyPairs = 8;
    const bool moved = std::any_of(shifts.begin(), shifts.end(),
                                   [](const std::optional<double>& s) { return *s != 0.0; });
    if (!moved || s_.gains.pairs > kManyPairs) return false;
    const auto follows = [&](const FrequencyFit& fit) {
      const std::vector<double> errors = law_errors(s_, fit);
      const std::string type = fit_families({fit.value, errors, s_.window.width, s_.vectors.dim,
                                             s_.amplitude, s_.window.pairing})
                                   .front()
                                   .type;
      return type != "longrope" && type != "unknown";
    };
    return follows(free) && !follows(s_.fit);
  }

  // If the frequencies are too uncertain for far positions, a formula may give them more precisely.
  void sharpen(std::vector<double>& frequencies, std::vector<double>& errors) const {
    constexpr double kSharp = 5e-7;
    if (*std::max_element(errors.begin(), errors.end()) < kSharp) return;
    const std::vector<Family> families = fit_families(s_.family_input(law_errors(s_, s_.fit)));
    const Family& law = families.front();
    if (!law.fits || !law.base || law.type == "longrope" || law.type == "unknown") return;
    const bool written = round_number(*law.base, 1e-12 * *law.base).has_value();
    double relative =
        written || !law.base_error ? 1e-8 : std::max(1e-8, *law.base_error / *law.base);
    frequencies = law.frequencies;
    if (!written && law.type == "default" && !s_.given.empty()) {
      // Far given positions determine the base better than the angles between near tokens.
      const double near = std::max(6.0 * relative, 1e-6);
      const std::optional<LawFit> finer =
          fit_base_alone(s_.gains, s_.amplitude,
                         std::pair(std::log(*law.base) - near, std::log(*law.base) + near));
      if (finer && !finer->inverse && finer->residual < 2.0 * s_.fit.residual + 1e-6) {
        relative = 1e-8;
        for (std::size_t pair = 0; pair < frequencies.size(); ++pair) {
          frequencies[pair] = std::pow(
              finer->base, -2.0 * static_cast<double>(pair) / static_cast<double>(s_.window.width));
        }
      }
    }
    for (std::size_t pair = 0; pair < errors.size(); ++pair) {
      const double share = static_cast<double>(pair) / static_cast<double>(errors.size());
      errors[pair] = std::min(errors[pair], frequencies[pair] * (1e-8 + share * relative));
    }
  }

  void describe_shift(const std::vector<std::optional<double>>& shifts) {
    const bool none_moved = std::all_of(shifts.begin(), shifts.end(),
                                        [](const std::optional<double>& s) { return *s == 0.0; });
    if (none_moved && !s_.contiguous_instead) return;
    describe_positions();
  }

  // Describes the positions that were used, compared with the given ones.
  void describe_positions() {
    const std::vector<double>& used = s_.gains.position;
    std::vector<double> given = s_.listed;
    given.resize(used.size());
    const bool one = used.size() < s_.listed.size() || used.size() == 1;
    if (s_.given.empty()) {
      s_.found.positions = "found";
      s_.found.found_positions = used;
      if (s_.same_everywhere && one) {
        s_.found.notes.push_back(message("all tokens are at position ", used[0]));
      } else if (s_.gains.rows > 1 &&
                 !ascend_by_one(used, 0, std::min(s_.gains.rows, s_.axes.tokens))) {
        s_.found.notes.push_back(
            "the positions do not increase by one; found_positions lists those that fit");
      } else if (s_.gains.rows == 1) {
        s_.found.notes.push_back(
            message("position ", used[0], " follows from the angles, assuming a usual base"));
      }
      return;
    }
    s_.found.positions = "found";
    s_.found.found_positions = used;
    if (s_.same_everywhere) {
      s_.found.notes.push_back(
          message("the given positions were not used: all tokens are at position ", used[0]));
      return;
    }
    bool shifted = true;
    for (std::size_t k = 1; k < used.size(); ++k) {
      shifted = shifted && used[k] - given[k] == used[0] - given[0];
    }
    std::vector<double> narrow = given, reversed = given;
    for (double& position : narrow) position = rounded(position, core::DType::bf16);
    std::reverse(reversed.begin(), reversed.end());
    if (shifted) {
      const double off = used[0] - given[0];
      s_.found.notes.push_back(message("the positions that were used are the given ones ",
                                       off > 0.0 ? "plus " : "minus ", std::abs(off),
                                       std::abs(off) == 1.0 ? ": off by one" : ""));
    } else if (used == narrow) {
      s_.rounded_positions = "bfloat16";
      s_.found.positions = "given";
      s_.found.notes.push_back(
          message("the positions were rounded to bfloat16 before use", example_of(given, used)));
    } else if (used == reversed) {
      s_.found.notes.push_back("the positions that were used are the given ones in reverse order");
    } else if (s_.contiguous_instead) {
      s_.found.notes.push_back(message("the given positions were not used: the tokens are at ",
                                       used[0], ", ", used[0] + 1.0, ", ..."));
    } else {
      s_.found.notes.push_back(message("the given positions were not used", example_of(given, used),
                                       "; found_positions lists those that fit"));
    }
  }

  Investigation& s_;
  bool searched_rows_ = true;
};

}  // namespace

bool solve_rotations(Investigation& state) { return RotationSolver(state).run(); }

}  // namespace phasor::porting::diagnosis
