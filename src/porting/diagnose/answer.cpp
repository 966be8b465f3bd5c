// The formula of the frequencies, the precision of the rotation, and other explanations of the data.
#include <algorithm>
#include <cmath>

#include "phasor/core/error.hpp"
#include "porting/diagnose/parts.hpp"

namespace phasor::porting::diagnosis {
namespace {

class Describer {
 public:
  explicit Describer(Investigation& state) : s_(state) {}

  void run() {
    const std::vector<double> errors = law_errors(s_, s_.fit);
    std::vector<Family> families = fit_families(s_.family_input(errors));
    widen_window(errors, families);
    Family& law = families.front();
    s_.found.measured_frequencies = s_.fit.value;
    s_.found.frequency_errors = law_errors(s_, s_.fit);
    s_.found.scaling = law.scaling;
    s_.found.effective_base = law.effective_base;
    s_.found.base = law.base;
    s_.found.readings = law.readings;
    s_.found.notes.insert(s_.found.notes.end(), law.notes.begin(), law.notes.end());
    prefer_dynamic(law);
    s_.found.frequencies = law.frequencies;
    if (!s_.found.inverse) s_.found.inverse = s_.inverse;
    drop_uncertain_base(law);
    describe_offset();
    if (s_.offset_open) {
      s_.found.residual = s_.fit.residual;
      s_.undetermined("table_dtype", "unknown without the offset");
      return;
    }
    s_.amplitude = fit_amplitude(s_.gains, law.frequencies);
    s_.found.amplitude = s_.amplitude;
    describe_growth();
    describe_precision(law);
    describe_runner_up(families);
    if (*s_.found.residual > 20.0 * s_.found.rounding_floor && *s_.found.residual > 0.01) {
      s_.found.notes.push_back(
          message("the residual ", digits(*s_.found.residual, 3),
                  " is far above the rounding of the tensors: something else was applied as well"));
    }
  }

 private:
  // An unusual base that dynamic NTK computes from a usual one.
  void prefer_dynamic(Family& law) {
    if (law.type != "default" || law.readings.empty()) return;
    const Reading dynamic = law.readings.front();
    const auto width = static_cast<double>(s_.window.width);
    const double grown =
        *dynamic.base * std::pow(dynamic.scaling.numbers.front().second, width / (width - 2.0));
    law.base = s_.found.effective_base = grown;
    for (std::size_t pair = 0; pair < law.frequencies.size(); ++pair) {
      law.frequencies[pair] = std::pow(grown, -2.0 * static_cast<double>(pair) / width);
    }
    s_.found.readings.front() =
        Reading{message("unscaled frequencies of base ", *law.base), law.base, {"default", {}, {}}};
    s_.found.base = dynamic.base;
    s_.found.scaling = dynamic.scaling;
    s_.found.notes.push_back(dynamic.text);
  }

  // Removes a base that the data do not determine.
  void drop_uncertain_base(const Family& law) {
    if (law.type == "unknown" && s_.window.width > 2) {
      s_.undetermined("base", "no known formula gives the measured frequencies");
    }
    if (s_.window.width == 2) {
      s_.found.base.reset();
      s_.found.effective_base.reset();
      s_.undetermined("base", "a single pair rotates by 1 radian per position for every base");
    } else if (law.base && law.base_error && *law.base_error > 0.5 * *law.base) {
      s_.found.base.reset();
      s_.found.effective_base.reset();
      s_.undetermined("base", message("too uncertain: ", digits(*law.base, 3), " within ",
                                      digits(*law.base_error, 3)));
    }
  }

  // Interleaved pairs that rotate by less than the tensors' rounding look unchanged: the window may
  // be wider than the features that changed. The width that makes the base a usual number is taken.
  void widen_window(const std::vector<double>& errors, std::vector<Family>& families) {
    const Family& law = families.front();
    const std::int64_t widest = s_.vectors.dim - s_.window.first;
    if (s_.window.pairing != Pairing::interleaved || s_.window.width >= widest ||
        !law.effective_base || law.type != "default") {
      return;
    }
    const double farthest = farthest_position(s_.gains);
    const double slope = std::log(*law.effective_base) / static_cast<double>(s_.window.pairs());
    const double next = std::exp(-slope * static_cast<double>(s_.window.pairs())) * farthest;
    if (next > 4.0 * unit_of(s_.vectors.precision)) return;
    if (round_number(*law.effective_base, 1e-12 * *law.effective_base)) return;
    const std::int64_t seen = s_.window.width;
    Window wider{s_.window.pairing, s_.window.first, widest};
    const double scale = static_cast<double>(widest) / static_cast<double>(seen);
    const double base = std::pow(*law.effective_base, scale);
    const double error = base * scale * law.base_error.value_or(0.0) / *law.effective_base;
    if (!round_base(base, 4.0 * error)) {
      s_.undetermined("rotary_dim",
                      message("pairs after feature ", s_.window.first + seen - 1,
                              " would rotate by less than the rounding of the tensors"));
      return;
    }
    s_.window = wider;
    const std::vector<double> positions = s_.gains.position;
    diagnosis::measure(s_);
    s_.found.rotary_dim = widest;
    for (std::int64_t pair = seen / 2; pair < widest / 2; ++pair) {
      s_.fit.value.push_back(0.0);
    }
    if (s_.inverse) conjugate(s_.gains);
    anchor_again(positions);
    std::vector<double> wide_errors = errors;
    wide_errors.insert(wide_errors.end(),
                       s_.fit.error.begin() + static_cast<std::ptrdiff_t>(errors.size()),
                       s_.fit.error.end());
    families = fit_families(s_.family_input(wide_errors));
    s_.found.notes.push_back(
        message("features from ", s_.window.first + seen,
                " on rotate by less than the rounding of the tensors; rotary_dim ", widest,
                " gives a usual base"));
  }
  void anchor_again(const std::vector<double>& positions) {
    s_.gains.position = positions;
    s_.fit.phase.assign(static_cast<std::size_t>(s_.gains.sequences * s_.gains.pairs),
                        s_.amplitude);
    anchor_frequencies(s_.gains, s_.fit);
  }

  void describe_offset() {
    if (s_.offset_open) return;
    if (s_.gains.sequences == 1) {
      if (s_.gains.rows >= 1 && ascend_by_one(s_.gains.position, 0, s_.gains.rows)) {
        s_.found.offset = static_cast<std::int64_t>(s_.gains.position[0]);
      }
      return;
    }
    bool same = true, contiguous = true;
    std::string offsets;
    for (std::int64_t s = 0; s < s_.gains.sequences; ++s) {
      const std::int64_t first = s * s_.axes.tokens;
      contiguous = contiguous && ascend_by_one(s_.gains.position, first, s_.axes.tokens);
      const double start = s_.gains.position[static_cast<std::size_t>(first)];
      same = same && start == s_.gains.position[0];
      if (s < 8) offsets += (s == 0 ? "" : ", ") + digits(start, 12);
    }
    if (!contiguous) return;
    if (same) {
      s_.found.offset = static_cast<std::int64_t>(s_.gains.position[0]);
    } else {
      s_.undetermined("offset",
                      "batch rows start at " + offsets + (s_.gains.sequences > 8 ? ", ..." : ""));
    }
  }

  // xPos: the length of each pair grows or shrinks with the position.
  void describe_growth() {
    double mean_position = 0.0;
    for (const double position : s_.gains.position) mean_position += position;
    mean_position /= static_cast<double>(s_.gains.rows);
    double strongest = 0.0;
    std::size_t significant = 0;
    for (std::int64_t pair = 0; pair < s_.gains.pairs; ++pair) {
      double slope = 0.0, spread = 0.0, mean = 0.0, left = 0.0;
      for (std::int64_t row = 0; row < s_.gains.rows; ++row) {
        mean += std::log(std::abs(s_.gains.gain[s_.gains.at(row, pair)]) + 1e-300);
      }
      mean /= static_cast<double>(s_.gains.rows);
      for (std::int64_t row = 0; row < s_.gains.rows; ++row) {
        const double d = s_.gains.position[static_cast<std::size_t>(row)] - mean_position;
        const double l = std::log(std::abs(s_.gains.gain[s_.gains.at(row, pair)]) + 1e-300) - mean;
        slope += d * l;
        spread += d * d;
      }
      if (spread <= 0.0) return;
      slope /= spread;
      for (std::int64_t row = 0; row < s_.gains.rows; ++row) {
        const double d = s_.gains.position[static_cast<std::size_t>(row)] - mean_position;
        const double l = std::log(std::abs(s_.gains.gain[s_.gains.at(row, pair)]) + 1e-300) - mean;
        left += (l - slope * d) * (l - slope * d);
      }
      const double error = std::sqrt(left / static_cast<double>(s_.gains.rows) / spread) + 1e-300;
      if (std::abs(slope) > 12.0 * error && std::abs(slope) * std::sqrt(spread) > 1e-4) {
        ++significant;
        strongest = std::abs(slope) > std::abs(strongest) ? slope : strongest;
      }
    }
    if (2 * significant > static_cast<std::size_t>(s_.gains.pairs)) {
      s_.found.notes.push_back(message(
          "the lengths of the pairs ", strongest > 0.0 ? "grow" : "shrink",
          " with the position, as with xPos (by up to e^", digits(strongest, 3), " per position)"));
    }
  }

  void describe_precision(const Family& law) {
    RotationModel model{s_.window, law.frequencies, {}, s_.amplitude, s_.inverse};
    for (std::int64_t v = 0; v < s_.vectors.count; ++v) {
      const auto at = static_cast<std::size_t>(v);
      std::size_t row = 0;
      if (s_.gains.rows > 1 || !s_.same_everywhere) {
        row = static_cast<std::size_t>(
            (s_.gains.sequences > 1 ? s_.axes.batch_of[at] * s_.axes.tokens : 0) +
            s_.axes.token_of[at]);
      }
      model.position.push_back(s_.gains.position[std::min(row, s_.gains.position.size() - 1)]);
    }
    PrecisionVerdict verdict = find_precision(s_.vectors, model);
    // Least squares never give exactly 1: it is taken if it explains the data as well.
    constexpr double kNearOne = 1e-3;
    if (s_.amplitude != 1.0 && std::abs(s_.amplitude - 1.0) < kNearOne) {
      model.amplitude = 1.0;
      const PrecisionVerdict plain = find_precision(s_.vectors, model);
      if (plain.residual <= 1.01 * verdict.residual) {
        verdict = plain;
        s_.amplitude = 1.0;
        s_.found.amplitude = 1.0;
      }
    }
    s_.found.residual = verdict.residual;
    s_.found.table_dtype = verdict.table;
    if (!s_.rounded_positions.empty()) s_.found.table_dtype = s_.rounded_positions + "_positions";
    if (!law.rounded_to.empty()) s_.found.table_dtype = law.rounded_to + "_frequencies";
    const bool narrow =
        s_.vectors.precision == core::DType::f16 || s_.vectors.precision == core::DType::bf16;
    if (narrow) s_.found.arithmetic = verdict.arithmetic;
    if (verdict.table != "exact") {
      s_.found.notes.push_back(message("with exact cos and sin the residual would be ",
                                       digits(verdict.exact_residual, 3), " instead of ",
                                       digits(verdict.residual, 3)));
    } else if (!verdict.decided) {
      s_.found.notes.push_back(
          message("at these positions and this precision the data do not distinguish ",
                  verdict.table, " from ", verdict.runner_up));
    }
  }

  void describe_runner_up(const std::vector<Family>& families) {
    const std::string layout(name_of(s_.window.pairing));
    const auto offer = [&](RunnerUp candidate) {
      if (!s_.found.runner_up || candidate.residual < s_.found.runner_up->residual) {
        s_.found.runner_up = std::move(candidate);
      }
    };
    const double own = s_.layouts.front().residual;
    for (const LayoutScore& other : s_.layouts) {
      // A window with additional pairs that do not rotate is the same model.
      const bool same =
          other.window.pairing == s_.window.pairing && other.residual < 10.0 * own + 1e-12;
      if (same || other.window.width == 2) continue;
      offer({message("a rotation in ", name_of(other.window.pairing), " layout, rotary_dim ",
                     other.window.width),
             std::string(name_of(other.window.pairing)), "", other.residual});
      break;
    }
    const Family& law = families.front();
    for (std::size_t k = 1; k < families.size(); ++k) {
      const Family& other = families[k];
      // Linear with a factor of 1 is the same model.
      if (other.fits || other.frequencies.size() != law.frequencies.size()) continue;
      const double amplitude = fit_amplitude(s_.gains, other.frequencies);
      const double residual = model_residual(s_.gains, other.frequencies, amplitude);
      offer({message("the same layout with ", other.type, " frequencies",
                     other.base ? ", base " + digits(*other.base) : ""),
             layout, other.type, residual});
    }
  }

  Investigation& s_;
};

}  // namespace

void describe_answer(Investigation& state) { Describer(state).run(); }

}  // namespace phasor::porting::diagnosis
