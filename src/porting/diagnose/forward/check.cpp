// Applies a config to the data, and finds the mistake that explains the difference.
#include <algorithm>
#include <cmath>
#include <set>
#include <variant>

#include "phasor/core/cancellation.hpp"
#include "phasor/core/error.hpp"
#include "porting/diagnose/forward/search.hpp"
#include "porting/share.hpp"

namespace phasor::porting {
namespace forward {
namespace {

using diagnosis::Vectors;

class Checker {
 public:
  Checker(const DiagnoseInput& input, const encodings::RopeSpec& spec, const CheckOptions& options)
      : input_(input), spec_(spec), options_(options), share_(input.progress) {}

  ConfigCheck run() {
    vectors_ = diagnosis::read_vectors(input_, result_.notes);
    diagnosis::leave_out_not_finite(vectors_, result_.notes);
    share_.at(0.4);
    if (vectors_.dim != spec_.head_dim) {
      const std::string text =
          message("head_dim: ", spec_.head_dim, " in the config, ", vectors_.dim, " in the data");
      const ConfigDifference field{"head_dim", message(spec_.head_dim), message(vectors_.dim),
                                   text};
      differs(Verdict{0, FoundCause{"head_dim", text, 0.0, {field}}});
      return std::move(result_);
    }
    const int axes = encodings::axis_count(spec_.axes);
    check_positions();
    const std::vector<Reading> readings = readings_of(vectors_, input_, options_, axes);
    if (std::find(vectors_.usable.begin(), vectors_.usable.end(), 1) == vectors_.usable.end()) {
      const std::string text = "no vector is finite both before and after";
      differs(Verdict{0, FoundCause{"not_finite", text, 0.0, {}}});
      return std::move(result_);
    }
    // The config first: every reading, layout and role it allows.
    for (const Reading& reading : readings) {
      if (reading.contradicted && !readings.front().contradicted) continue;
      for (Problem& problem : problems_of(reading)) {
        if (as_asked(problem, reading)) return std::move(result_);
      }
    }
    share_.at(kConfigTried);
    std::optional<std::pair<Verdict, Problem>> best;
    for (const Reading& reading : readings) {
      if (reading.contradicted && !readings.front().contradicted) continue;
      for (Problem& problem : problems_of(reading)) {
        std::optional<Verdict> found = find_cause(problem);
        if (!found || (best && best->first.rank <= found->rank)) continue;
        best.emplace(std::move(*found), problem);
        if (best->first.rank < kWeakRank) break;
      }
      if (best && best->first.rank < kWeakRank) break;
    }
    if (best) {
      describe(best->second);
      differs(best->first);
    } else {
      unexplained(readings);
    }
    return std::move(result_);
  }

 private:
  void check_positions() const {
    if (input_.positions == nullptr) return;
    const io::NpyArray& array = *input_.positions;
    if (array.type == io::NpyType::boolean) {
      refuse(ErrorCode::invalid_argument,
             "diagnose: positions must be integers or floats, got bool");
    }
    for (const double position : io::to_doubles(array).value_or_throw()) {
      if (!(std::abs(position) < 0x1p53)) {
        refuse(ErrorCode::out_of_range,
               message("diagnose: positions must be below 2^53, got ", position));
      }
    }
  }

  std::vector<Problem> problems_of(const Reading& reading) {
    std::vector<Problem> problems;
    const Positions positions =
        positions_of(input_, reading.data, encodings::axis_count(spec_.axes));
    const bool given = input_.positions != nullptr;
    std::optional<std::int64_t> context = options_.context;
    if (!context) {
      context = encodings::context_for(spec_, std::nullopt, largest_position(*positions));
    }
    for (const core::PairLayout layout : {core::PairLayout::half, core::PairLayout::interleaved,
                                          core::PairLayout::interleaved_to_half}) {
      if (spec_.layout ? layout != *spec_.layout
                       : layout == core::PairLayout::interleaved_to_half) {
        continue;
      }
      for (const core::Role role : {core::Role::query, core::Role::key}) {
        if (options_.role ? role != *options_.role
                          : role == core::Role::key && !spec_.xpos.has_value()) {
          continue;
        }
        Problem problem{spec_, input_, options_, reading.data, layout, context, role, given};
        problem.asked = model_of(spec_, layout, context, positions, role);
        problem.few = sample_of(problem.data, 12, 3);
        problem.some = sample_of(problem.data, 64, 4);
        problem.all = everything(problem.data);
        problems.push_back(std::move(problem));
      }
    }
    return problems;
  }

  // ---- the config fits --------------------------------------------------------------------------

  // Sets problem.asked to the positions that fit. False if none do.
  bool settle(Problem& problem) {
    Score whole;
    if (fits_everywhere(problem, problem.asked, &whole)) {
      result_.residual = whole.relative();
      return true;
    }
    if (problem.given) return false;
    for (const auto& context : contexts(problem)) {
      Model model = problem.asked;
      if (context != problem.context) {
        model = model_of(spec_, problem.layout, context, problem.asked.positions, problem.role);
      }
      for (const ShiftBounds bounds : {ShiftBounds{-kLowestOffset, kHighestOffset},
                                       ShiftBounds{kHighestOffset + 1, kFarthestOffset}}) {
        for (const double shift : fitting_shifts(problem.data, model, problem.few, bounds)) {
          if (!consistent(problem, context, shift)) continue;
          model.shift = shift;
          if (!fits_everywhere(problem, model, &whole)) continue;
          problem.asked = model;
          problem.context = context;
          result_.residual = whole.relative();
          return true;
        }
        if (context != problem.context) break;
      }
    }
    return settle_dynamic(problem);
  }
  [[nodiscard]] std::optional<std::int64_t> context_at(const Problem& problem, double shift) const {
    if (options_.context) return options_.context;
    return encodings::context_for(spec_, std::nullopt,
                                  largest_position(*problem.asked.positions) + shift);
  }
  // Whether the context that was assumed has the frequencies of the context at this shift.
  bool consistent(const Problem& problem, std::optional<std::int64_t> context, double shift) {
    if (!encodings::depends_on_context(spec_) || options_.context) return true;
    const auto there = context_at(problem, shift);
    return encodings::resolve_frequencies(spec_, there)
               .same_values(encodings::resolve_frequencies(spec_, context)) ||
           spec_.xpos.has_value();
  }
  std::vector<std::optional<std::int64_t>> contexts(const Problem& problem) const {
    std::vector<std::optional<std::int64_t>> list = {problem.context};
    if (options_.context || !encodings::depends_on_context(spec_)) return list;
    if (const auto original = encodings::original_length(spec_.scaling)) {
      list.emplace_back(*original);
      list.emplace_back(*original + 1);
    }
    return list;
  }
  // Dynamic scaling: the offset decides the base.
  bool settle_dynamic(Problem& problem) {
    const auto* const dynamic = std::get_if<encodings::DynamicScaling>(&spec_.scaling);
    if (dynamic == nullptr || dynamic->alpha || options_.context || problem.few.rows.empty()) {
      return false;
    }
    const Sample::Row& row = problem.few.rows.back();
    const MeasuredRow measured = measured_row(problem.data, problem.asked, row);
    const auto width = static_cast<double>(spec_.rotary_dim);
    const double last = largest_position(*problem.asked.positions);
    const double at = problem.asked.positions->at(0, row.b, row.t, 0);
    const auto original = static_cast<double>(dynamic->original_length);
    struct Match {
      double shift, agreement;
    };
    std::vector<Match> matches;
    const std::size_t entries = problem.asked.frequencies.size();
    for (std::int64_t shift = 0; shift <= 1 << 17; ++shift) {
      const double length = std::max(last + static_cast<double>(shift) + 1.0, original);
      const double growth = dynamic->factor * length / original - (dynamic->factor - 1.0);
      const double log_base = std::log(spec_.base) + width / (width - 2.0) * std::log(growth);
      const auto agreement_of = [&](std::size_t step) {
        double sum = 0.0, count = 0.0;
        for (std::size_t i = 0; i < entries; i += step) {
          const double angle = (at + static_cast<double>(shift)) *
                               std::exp(-2.0 * static_cast<double>(i) / width * log_base);
          sum += measured.direction[i].real() * std::cos(angle) +
                 measured.direction[i].imag() * std::sin(angle);
          count += measured.weight[i];
        }
        return count > 0.0 ? sum / count : 0.0;
      };
      if (agreement_of(std::max<std::size_t>(1, entries / 4)) < 0.7) continue;
      const double agreement = agreement_of(1);
      if (agreement > 0.9) matches.push_back({static_cast<double>(shift), agreement});
    }
    std::sort(matches.begin(), matches.end(),
              [](const Match& a, const Match& b) { return a.agreement > b.agreement; });
    for (std::size_t k = 0; k < std::min<std::size_t>(matches.size(), 8); ++k) {
      const auto context = context_at(problem, matches[k].shift);
      Model model = model_of(spec_, problem.layout, context, problem.asked.positions, problem.role);
      model.shift = matches[k].shift;
      if (!fits_everywhere(problem, model)) continue;
      problem.asked = model;
      problem.context = context;
      return true;
    }
    return false;
  }

  // The config explains the data, and nothing else explains them better.
  bool as_asked(Problem& problem, const Reading& reading) {
    if (!settle(problem)) return false;
    describe(problem);
    if (wrong_axes(problem, reading)) return true;
    std::vector<Candidate> better;
    for (Candidate& candidate : plain_candidates(problem)) {
      candidate.model.shift = problem.asked.shift;
      if (!score(problem.data, candidate.model, problem.few).fits()) continue;
      const Lean found = lean(problem.data, problem.asked, candidate.model, problem.some);
      if (found.evidence < kEvidence || found.towards < kLean) continue;
      // Roundings count when they exceed the tensors' own.
      if (!(candidate.model.types == Types{}) &&
          apart(problem.data, problem.asked, candidate.model, problem.some) < 0.3) {
        continue;
      }
      if (!fits_everywhere(problem, candidate.model, &candidate.whole)) continue;
      better.push_back(std::move(candidate));
    }
    if (!better.empty()) {
      differs(choose(problem, std::move(better)));
      return true;
    }
    result_.agrees = true;
    result_.text = "as the config says";
    notes_of_rounding(problem);
    return true;
  }
  void notes_of_rounding(const Problem& problem) {
    if (problem.some.rows.empty()) return;
    const double precise = score(problem.data, problem.asked, problem.some).relative();
    const double rough = 4.0 * vectors_.unit;
    result_.angles = "exact";
    if (precise > rough) {
      result_.angles = "float32";
      result_.notes.push_back(
          message("the angles are those of float32 frequencies or angles: they differ from the "
                  "exact ones by ",
                  digits(precise, 2), " of the tensor's size, as in ordinary engines"));
    }
  }

  // Another order of the axes than [batch, tokens, heads, dim] explains the data. True when it is not
  // believed: vectors that did not change are many tokens rather than the heads of one at position 0,
  // unless there are as many as models have heads.
  bool wrong_axes(const Problem& problem, const Reading& reading) {
    if (reading.usual || !input_.axes.empty()) return false;
    const std::int64_t heads = problem.data.heads;
    const bool known = input_.positions != nullptr || options_.heads == heads ||
                       options_.key_heads == heads || heads == 12 ||
                       (heads >= 4 && heads <= 128 && (heads & (heads - 1)) == 0);
    if (!known && problem.data.tokens == 1 && problem.asked.shift == 0.0) {
      const std::string text = "the tensor was not rotated: after equals before";
      differs(Verdict{0, FoundCause{"not_rotated", text, result_.residual, {}}});
      return true;
    }
    std::string order;
    for (const std::string& name : problem.data.axes) order += name + ", ";
    result_.notes.push_back("the axes are [" + order + "dim], found from the data");
    return false;
  }

  void describe(const Problem& problem) {
    result_.layout = std::string(core::name_of(problem.layout));
    result_.axes = problem.data.axes;
    result_.axes.emplace_back("dim");
    result_.context = problem.context;
    result_.role = problem.role;
    result_.positions = problem.given ? "given" : "contiguous";
    if (!problem.given) {
      result_.offset = static_cast<std::int64_t>(std::llround(problem.asked.shift));
    }
  }

  // ---- the config does not fit ------------------------------------------------------------------

  void differs(const Verdict& verdict) {
    result_.agrees = false;
    result_.text = verdict.cause.text;
    result_.differences = verdict.cause.fields;
    for (ConfigDifference& field : result_.differences) {
      if (field.text.empty()) field.text = verdict.cause.text;
    }
    if (result_.differences.empty()) {
      result_.differences.push_back(
          {verdict.cause.id, "as the config says", verdict.cause.id, verdict.cause.text});
    }
    result_.residual = verdict.cause.residual;
    result_.cause = verdict.cause;
    result_.alternatives = verdict.others;
    if (verdict.offset) result_.offset = verdict.offset;
    result_.notes.insert(result_.notes.end(), verdict.notes.begin(), verdict.notes.end());
  }

  void unexplained(const std::vector<Reading>& readings) {
    // The reading of the axes that comes nearest.
    std::optional<Problem> nearest;
    double least = HUGE_VAL;
    for (const Reading& reading : readings) {
      if (reading.contradicted && !readings.front().contradicted) continue;
      for (Problem& problem : problems_of(reading)) {
        const double left = score(problem.data, problem.asked, problem.some).relative();
        if (nearest && !(left < least)) continue;
        nearest.emplace(problem);
        least = left;
      }
    }
    const Problem& problem = *nearest;
    describe(problem);
    const Score whole = score(problem.data, problem.asked, problem.all);
    result_.residual = whole.relative();
    result_.agrees = false;
    result_.text =
        message("after differs from the config's rotation by ", digits(whole.relative(), 3),
                " of the tensor's size; no known mistake explains it");
  }

  const DiagnoseInput& input_;
  const encodings::RopeSpec& spec_;
  const CheckOptions& options_;
  Share share_;
  Vectors vectors_;
  ConfigCheck result_;
};

}  // namespace
}  // namespace forward

ConfigCheck check_config(const DiagnoseInput& input, const encodings::RopeSpec& spec,
                         const CheckOptions& options) {
  // Several readings of the axes may search all positions: the share does not go back.
  double most = 0.0;
  DiagnoseInput told = input;
  told.progress = [&](double share) {
    if (!input.progress || share <= most) return;
    most = share;
    input.progress(share);
  };
  ConfigCheck found = forward::Checker(told, spec, options).run();
  told.progress(1.0);
  return found;
}

}  // namespace phasor::porting
