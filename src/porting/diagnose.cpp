#include "phasor/porting/diagnose.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <numeric>
#include <sstream>

#include "phasor/core/error.hpp"
#include "porting/diagnose_parts.hpp"
#include "porting/rounding.hpp"

namespace phasor::porting {
namespace {

using namespace detective;

// Engines keep frequencies in float32: that much off, relative, is no other law.
constexpr double kFrequencyRounding = 1.2e-7;

std::string digits(double value, int count = 6) {
  std::ostringstream out;
  out << std::setprecision(count) << value;
  return out.str();
}

// Root mean square of after - before over that of after.
double change_of(const Vectors& vectors) {
  double moved = 0.0, energy = 0.0;
  for (std::int64_t v = 0; v < vectors.count; ++v) {
    if (vectors.usable[static_cast<std::size_t>(v)] == 0) continue;
    for (std::int64_t j = 0; j < vectors.dim; ++j) {
      const auto at = static_cast<std::size_t>(v * vectors.dim + j);
      moved += (vectors.after[at] - vectors.before[at]) * (vectors.after[at] - vectors.before[at]);
      energy += vectors.after[at] * vectors.after[at];
    }
  }
  return energy > 0.0 ? std::sqrt(moved / energy) : 0.0;
}

std::vector<double> given_positions(const DiagnoseInput& input) {
  if (input.positions == nullptr) return {};
  const io::NpyArray& array = *input.positions;
  if (array.type == io::NpyType::boolean) {
    throw Error(ErrorCode::invalid_argument,
                "diagnose: positions must be integers or floats, got bool");
  }
  const bool one_row = array.shape.size() == 1 || array.shape.size() == 2;
  if (!one_row || array.size() == 0) {
    throw Error(ErrorCode::shape_mismatch,
                message("diagnose: positions must be [tokens] or [batch, tokens], got ",
                        array.shape.size(), " axes and ", array.size(), " values"));
  }
  std::vector<double> positions = io::to_doubles(array).value_or_throw();
  for (const double position : positions) {
    if (!(std::abs(position) < 0x1p53)) {
      throw Error(ErrorCode::out_of_range,
                  message("diagnose: positions must be within 2^53 of 0, got ", position));
    }
  }
  return positions;
}

bool ascend_by_one(const std::vector<double>& positions, std::int64_t first, std::int64_t count) {
  for (std::int64_t k = 1; k < count; ++k) {
    const auto at = static_cast<std::size_t>(first + k);
    if (positions[at] != positions[at - 1] + 1.0) return false;
  }
  return positions[static_cast<std::size_t>(first)] ==
         std::round(positions[static_cast<std::size_t>(first)]);
}

// All rows taken for one: their positions are the same.
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

class Detective {
 public:
  explicit Detective(const DiagnoseInput& input) : input_(input) {}

  Diagnosis run() {
    given_ = given_positions(input_);
    vectors_ = read_vectors(input_, found_.notes);
    found_.head_dim = vectors_.dim;
    found_.tensor_dtype = type_name(vectors_.stored);
    found_.rounding_floor = rounding_floor(vectors_.precision);
    if (auto reason = not_finite(vectors_)) return none(*reason);
    const std::vector<std::uint8_t> changed = changed_features(vectors_);
    if (auto reason = plain_reason(vectors_, changed)) return none(*reason);
    layouts_ = rank_layouts(vectors_, changed);
    const LayoutScore& best = layouts_.front();
    const double change = change_of(vectors_);
    // What a turn leaves is rounding; a small addition leaves as much as it moves.
    const bool explains = best.residual < kTurnedResidual && best.residual < 0.3 * change;
    if (!explains) return none(other_reason(vectors_, best.residual));
    window_ = best.window;
    std::vector<std::string> order;
    axes_ = find_axes(vectors_, window_, input_, order);
    found_.axes = axes_.names;
    found_.axes.emplace_back("dim");
    measure();
    if (gains_.residual > kTurnedResidual) return none(mirrored().value_or(turned_apart()));
    found_.answer = Answer::rope;
    describe_window();
    if (solve()) describe();
    found_.notes.insert(found_.notes.end(), order.begin(), order.end());
    return found_;
  }

 private:
  Diagnosis none(std::string reason) {
    found_.answer = Answer::none;
    found_.reason = std::move(reason);
    found_.layout.reset();
    found_.rotary_dim.reset();
    found_.undetermined.clear();
    if (!layouts_.empty()) {
      const LayoutScore& best = layouts_.front();
      found_.residual = best.residual;
      found_.runner_up = RunnerUp{message("a turn in ", name_of(best.window.pairing),
                                          " layout, rotary_dim ", best.window.width),
                                  std::string(name_of(best.window.pairing)), "", best.residual};
    }
    return found_;
  }

  void undetermined(const char* field, std::string reason) {
    found_.undetermined.push_back({field, std::move(reason)});
  }

  void measure() {
    const bool per_batch = input_.positions != nullptr && input_.positions->shape.size() == 2 &&
                           input_.positions->shape[0] > 1;
    const std::vector<double> coherence = coherence_by_axis(vectors_, window_);
    const auto batch = std::find(axes_.names.begin(), axes_.names.end(), "batch");
    const bool batch_varies =
        batch != axes_.names.end() && axes_.batch > 1 &&
        1.0 - coherence[static_cast<std::size_t>(batch - axes_.names.begin())] > 1e-4;
    const bool apart = per_batch || batch_varies;
    std::vector<double> positions = given_;
    if (positions.empty()) {
      positions.resize(static_cast<std::size_t>(axes_.tokens));
      std::iota(positions.begin(), positions.end(), 0.0);
    }
    while (apart && static_cast<std::int64_t>(positions.size()) < axes_.batch * axes_.tokens) {
      positions.insert(positions.end(), positions.begin(), positions.begin() + axes_.tokens);
    }
    listed_ = positions;
    gains_ = measure_gains(vectors_, window_, axes_, positions,
                           apart ? BatchRows::apart : BatchRows::pooled);
  }

  std::optional<std::string> mirrored() const {
    // y = g conj(x): each pair mirrored at a line.
    Vectors mirrored = vectors_;
    for (std::int64_t v = 0; v < vectors_.count; ++v) {
      for (std::int64_t pair = 0; pair < window_.pairs(); ++pair) {
        const PairFeatures at = features_of(window_, pair);
        double& b = mirrored.before[static_cast<std::size_t>(v * mirrored.dim + at.read_b)];
        b = -b;
      }
    }
    const Gains reflection = measure_gains(mirrored, window_, axes_, listed_, BatchRows::pooled);
    if (reflection.residual < kTurnedResidual) {
      return message("each pair is mirrored, not turned (", name_of(window_.pairing),
                     " layout): a sign of sin or of rotate_half is wrong");
    }
    return std::nullopt;
  }

  std::string turned_apart() const {
    return message("the lengths of the pairs are kept (", name_of(window_.pairing),
                   " layout), but vectors of one token are not turned alike: they differ by ",
                   digits(gains_.residual, 3));
  }

  void describe_window() {
    found_.layout = std::string(name_of(window_.pairing));
    found_.rotary_dim = window_.width;
    found_.rotary_offset = window_.first;
    if (window_.width == 2) {
      found_.layout.reset();
      undetermined("layout", "one pair alone is the same in every layout");
    }
  }

  // ---- positions and frequencies

  // False when the answer is complete without them.
  bool solve() {
    amplitude_ = mean_length(gains_);
    found_.amplitude = amplitude_;
    found_.positions = given_.empty() ? "contiguous" : "given";
    bool several = false;
    for (std::int64_t row = 1; row < gains_.rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      several = several || (gains_.sequence[r] == gains_.sequence[r - 1] &&
                            gains_.position[r] != gains_.position[r - 1]);
    }
    if (!several) return solve_one_position();

    fit_ = fit_frequencies(gains_);
    if (fit_.residual > kTurnedResidual && !other_positions()) {
      none(mirrored().value_or(
          message("pairs are turned (", name_of(window_.pairing), " layout, rotary_dim ",
                  window_.width, "), but by angles that are no multiple of ",
                  given_.empty() ? "positions that ascend by one" : "the positions given",
                  ", nor of any from 0 to 65535 under a usual base")));
      return false;
    }
    if (positions_known_) return true;
    if (turned_alike()) {
      found_.notes.push_back("every token was turned alike, as if all stood at one position");
      gains_ = as_one_row(gains_);
      same_everywhere_ = true;
      return solve_one_position();
    }
    orient();
    if (std::find(fit_.ambiguous.begin(), fit_.ambiguous.end(), 1) != fit_.ambiguous.end()) {
      use_base_alone(3.0 * fit_.residual + 1e-3);
    }
    settle_shift();
    return true;
  }

  [[nodiscard]] bool turned_alike() const {
    double all = 0.0;
    for (std::size_t pair = 0; pair < fit_.value.size(); ++pair) {
      all = std::max(all, std::abs(fit_.value[pair]) / (fit_.error[pair] + 1e-9));
    }
    return all < 6.0;
  }

  // Forward turns have positive frequencies.
  void orient() {
    double vote = 0.0;
    for (std::size_t pair = 0; pair < fit_.value.size(); ++pair) {
      vote += std::clamp(fit_.value[pair] / fit_.error[pair], -100.0, 100.0);
    }
    found_.inverse = vote < 0.0;
    if (vote >= 0.0) return;
    flip();
  }
  void flip() {
    inverse_ = !inverse_;
    conjugate(gains_);
    for (double& value : fit_.value) value = -value;
    for (Complex& phase : fit_.phase) phase = std::conj(phase);
  }

  // Positions with wide gaps leave single frequencies open; a law over all pairs need not.
  bool use_base_alone(double allowed) {
    const std::optional<LawFit> law = fit_base_alone(gains_, amplitude_);
    if (!law || law->residual > allowed) return false;
    if (law->inverse) {
      if (fit_.value.empty()) fit_.phase.clear();
      flip();
    }
    found_.inverse = inverse_;
    start_from(law->base);
    found_.notes.push_back(
        "the positions leave single frequencies open; they follow from one law over all pairs");
    return true;
  }

  void start_from(double base) {
    fit_.value.clear();
    for (std::int64_t pair = 0; pair < gains_.pairs; ++pair) {
      // RoFormer (15)
      fit_.value.push_back(
          std::pow(base, -static_cast<double>(pair) / static_cast<double>(gains_.pairs)));
    }
    fit_.phase.assign(static_cast<std::size_t>(gains_.sequences * gains_.pairs), amplitude_);
    fit_.ambiguous.assign(fit_.value.size(), 0);
    anchor_frequencies(gains_, fit_);
    positions_known_ = true;
  }

  bool solve_one_position() {
    fit_ = {};
    const double position = gains_.position[0];
    const double allowed = 0.02;
    if (!given_.empty() && !same_everywhere_ && position != 0.0 && use_base_alone(allowed)) {
      return true;
    }
    if (recover_positions()) return true;
    const std::string why =
        given_.empty() || same_everywhere_
            ? "one position alone, and not known which: its angles are products of frequency and "
              "position"
            : "one position alone, and no usual law of frequencies gives its angles";
    for (const char* field : {"base", "scaling", "inverse", "offset", "table_dtype"}) {
      undetermined(field, why);
    }
    found_.residual = gains_.residual;
    return false;
  }

  bool recover_positions() {
    const std::optional<FoundPositions> recovered =
        find_positions(gains_, unit_of(vectors_.precision));
    if (!recovered) return false;
    gains_.position = recovered->position;
    if (recovered->inverse) {
      inverse_ = true;
      conjugate(gains_);
    }
    found_.inverse = inverse_;
    start_from(recovered->base);
    describe_positions();
    return true;
  }

  // Of positions that do not fit, what else was used.
  bool other_positions() {
    const std::vector<double> listed = gains_.position;
    for (const core::DType type : {core::DType::bf16, core::DType::f16}) {
      if (given_.empty()) break;
      std::vector<double> narrow = listed;
      for (double& position : narrow) position = rounded(position, type);
      if (narrow == listed) continue;
      gains_.position = narrow;
      FrequencyFit fit = fit_frequencies(gains_);
      if (fit.residual > kTurnedResidual) continue;
      fit_ = std::move(fit);
      rounded_positions_ = type_name(type);
      found_.notes.push_back(message("the positions were rounded to ", type_name(type),
                                     " before use", example_of(listed, narrow)));
      return true;
    }
    if (!given_.empty()) {
      for (std::size_t row = 0; row < listed.size(); ++row) {
        gains_.position[row] = static_cast<double>(static_cast<std::int64_t>(row) % axes_.tokens);
      }
      FrequencyFit fit = fit_frequencies(gains_);
      if (fit.residual <= kTurnedResidual) {
        fit_ = std::move(fit);
        contiguous_instead_ = true;
        return true;
      }
    }
    gains_.position = listed;
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

  // Adds to each sequence's positions what its phases ask for.
  void settle_shift() {
    if (positions_known_) return;
    std::vector<double> frequencies = fit_.value, errors = fit_.error;
    sharpen(frequencies, errors);
    std::vector<std::optional<double>> shifts;
    std::optional<double> rival;
    const bool given = !given_.empty() && !contiguous_instead_;
    for (std::int64_t s = 0; s < gains_.sequences; ++s) {
      ShiftSearch search;
      if (given) {
        search = find_shift(gains_, fit_, frequencies, errors, s, ShiftRange::only_zero);
      }
      if (!search.shift) {
        search = find_shift(gains_, fit_, frequencies, errors, s, ShiftRange::everywhere);
      }
      if (search.rival) rival = search.rival;
      shifts.push_back(search.shift);
    }
    const bool all = std::all_of(shifts.begin(), shifts.end(),
                                 [](const std::optional<double>& s) { return s.has_value(); });
    const std::vector<double> listed = gains_.position;
    const FrequencyFit free = fit_;
    if (all) {
      for (std::size_t row = 0; row < gains_.position.size(); ++row) {
        gains_.position[row] += *shifts[static_cast<std::size_t>(gains_.sequence[row])];
      }
      fit_.value = frequencies;
      anchor_frequencies(gains_, fit_);
    }
    if (!all || fit_.residual > 3.0 * free.residual + 1e-3 || by_accident(shifts, free)) {
      gains_.position = listed;
      fit_ = free;
      undetermined("offset", "no whole offset from -2048 to 2^20 explains the phases of all pairs");
      offset_open_ = true;
      return;
    }
    if (rival && !given) {
      found_.notes.push_back(
          message("the offset ", *rival + listed.front(), " would explain the phases as well"));
    }
    if (!given_.empty()) describe_shift(shifts);
    positions_known_ = true;
  }

  // Among a million offsets one fits a few pairs by chance; the frequencies it asks for then follow
  // no law, while those measured without it do.
  [[nodiscard]] bool by_accident(const std::vector<std::optional<double>>& shifts,
                                 const FrequencyFit& free) const {
    constexpr std::int64_t kManyPairs = 8;
    const bool moved = std::any_of(shifts.begin(), shifts.end(),
                                   [](const std::optional<double>& s) { return *s != 0.0; });
    if (!moved || gains_.pairs > kManyPairs) return false;
    const auto follows = [&](const FrequencyFit& fit) {
      std::vector<double> errors = fit.error;
      for (std::size_t k = 0; k < errors.size(); ++k) {
        errors[k] = std::hypot(errors[k], kFrequencyRounding * fit.value[k]);
      }
      const std::string type = fit_families({fit.value, errors, window_.width, vectors_.dim,
                                             amplitude_, window_.pairing})
                                   .front()
                                   .type;
      return type != "longrope" && type != "unknown";
    };
    return follows(free) && !follows(fit_);
  }

  // Where the frequencies are not known well enough to count far turns, a law may know them better.
  void sharpen(std::vector<double>& frequencies, std::vector<double>& errors) const {
    constexpr double kSharp = 5e-7;
    if (*std::max_element(errors.begin(), errors.end()) < kSharp) return;
    const std::vector<Family> families = fit_families(family_input(errors));
    const Family& law = families.front();
    if (!law.fits || !law.base || law.type == "longrope" || law.type == "unknown") return;
    const bool written = round_number(*law.base, 1e-12 * *law.base).has_value();
    const double relative =
        written || !law.base_error ? 1e-8 : std::max(1e-8, *law.base_error / *law.base);
    frequencies = law.frequencies;
    for (std::size_t pair = 0; pair < errors.size(); ++pair) {
      const double share = static_cast<double>(pair) / static_cast<double>(errors.size());
      errors[pair] = std::min(errors[pair], frequencies[pair] * (1e-8 + share * relative));
    }
  }

  void describe_shift(const std::vector<std::optional<double>>& shifts) {
    const bool none_moved = std::all_of(shifts.begin(), shifts.end(),
                                        [](const std::optional<double>& s) { return *s == 0.0; });
    if (none_moved && !contiguous_instead_) return;
    describe_positions();
  }

  // What the positions in use are, beside the ones given.
  void describe_positions() {
    const std::vector<double>& used = gains_.position;
    std::vector<double> given = listed_;
    given.resize(used.size());
    const bool one = used.size() < listed_.size() || used.size() == 1;
    if (given_.empty()) {
      found_.positions = "found";
      found_.found_positions = used;
      if (same_everywhere_ && one) {
        found_.notes.push_back(message("all tokens stand at position ", used[0]));
      } else if (gains_.rows > 1 && !ascend_by_one(used, 0, std::min(gains_.rows, axes_.tokens))) {
        found_.notes.push_back(
            "the positions do not ascend by one; found_positions lists those that fit");
      } else if (gains_.rows == 1) {
        found_.notes.push_back(
            message("position ", used[0], " follows from the angles, if the base is a usual one"));
      }
      return;
    }
    found_.positions = "found";
    found_.found_positions = used;
    if (same_everywhere_) {
      found_.notes.push_back(
          message("the given positions were not used: all tokens stand at position ", used[0]));
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
      found_.notes.push_back(message("the positions in use are the given ones ",
                                     off > 0.0 ? "plus " : "minus ", std::abs(off),
                                     std::abs(off) == 1.0 ? ": off by one" : ""));
    } else if (used == narrow) {
      rounded_positions_ = "bfloat16";
      found_.positions = "given";
      found_.notes.push_back(
          message("the positions were rounded to bfloat16 before use", example_of(given, used)));
    } else if (used == reversed) {
      found_.notes.push_back("the positions in use are the given ones in reverse order");
    } else if (contiguous_instead_) {
      found_.notes.push_back(message("the given positions were not used: the tokens stand at ",
                                     used[0], ", ", used[0] + 1.0, ", ..."));
    } else {
      found_.notes.push_back(message("the given positions were not used", example_of(given, used),
                                     "; found_positions lists those that fit"));
    }
  }

  // ---- the answer

  [[nodiscard]] FamilyInput family_input(const std::vector<double>& errors) const {
    return {fit_.value, errors, window_.width, vectors_.dim, amplitude_, window_.pairing};
  }

  void describe() {
    std::vector<double> errors = fit_.error;
    for (std::size_t pair = 0; pair < errors.size(); ++pair) {
      errors[pair] = std::hypot(errors[pair], kFrequencyRounding * fit_.value[pair]);
    }
    std::vector<Family> families = fit_families(family_input(errors));
    widen_window(errors, families);
    Family& law = families.front();
    found_.measured_frequencies = fit_.value;
    found_.frequency_errors = fit_.error;
    found_.scaling = law.scaling;
    found_.effective_base = law.effective_base;
    found_.base = law.base;
    found_.readings = law.readings;
    found_.notes.insert(found_.notes.end(), law.notes.begin(), law.notes.end());
    prefer_dynamic(law);
    found_.frequencies = law.frequencies;
    if (!found_.inverse) found_.inverse = inverse_;
    check_base(law);
    describe_offset();
    if (offset_open_) {
      found_.residual = fit_.residual;
      undetermined("table_dtype", "needs the offset");
      return;
    }
    amplitude_ = fit_amplitude(gains_, law.frequencies);
    found_.amplitude = amplitude_;
    describe_growth(law.frequencies);
    describe_precision(law);
    describe_runner_up(families);
    if (*found_.residual > 20.0 * found_.rounding_floor && *found_.residual > 0.01) {
      found_.notes.push_back(message("the residual ", digits(*found_.residual, 3),
                                     " is far above the rounding of the tensors: something else "
                                     "was done as well"));
    }
  }

  // A base nobody writes that dynamic NTK would make of one that somebody does.
  void prefer_dynamic(Family& law) {
    if (law.type != "default" || law.readings.empty()) return;
    const Reading dynamic = law.readings.front();
    const auto width = static_cast<double>(window_.width);
    const double grown =
        *dynamic.base * std::pow(dynamic.scaling.numbers.front().second, width / (width - 2.0));
    law.base = found_.effective_base = grown;
    for (std::size_t pair = 0; pair < law.frequencies.size(); ++pair) {
      law.frequencies[pair] = std::pow(grown, -2.0 * static_cast<double>(pair) / width);
    }
    found_.readings.front() =
        Reading{message("plain frequencies of base ", *law.base), law.base, {"default", {}, {}}};
    found_.base = dynamic.base;
    found_.scaling = dynamic.scaling;
    found_.notes.push_back(dynamic.text);
  }

  void check_base(const Family& law) {
    if (law.type == "unknown" && window_.width > 2) {
      undetermined("base", "no known law gives the frequencies that were measured");
    }
    if (window_.width == 2) {
      found_.base.reset();
      found_.effective_base.reset();
      undetermined("base", "one pair alone turns by 1 radian per position whatever the base");
    } else if (law.base && law.base_error && *law.base_error > 0.5 * *law.base) {
      found_.base.reset();
      found_.effective_base.reset();
      undetermined("base", message("too uncertain: ", digits(*law.base, 3), " within ",
                                   digits(*law.base_error, 3)));
    }
  }

  // Interleaved pairs that turn by less than the tensors' rounding look untouched: the window may
  // be wider than what changed. A base that somebody writes tells.
  void widen_window(const std::vector<double>& errors, std::vector<Family>& families) {
    const Family& law = families.front();
    const std::int64_t widest = vectors_.dim - window_.first;
    if (window_.pairing != Pairing::interleaved || window_.width >= widest || !law.effective_base ||
        law.type != "default") {
      return;
    }
    double farthest = 0.0;
    for (const double position : gains_.position) {
      farthest = std::max(farthest, std::abs(position));
    }
    const double slope = std::log(*law.effective_base) / static_cast<double>(window_.pairs());
    const double next = std::exp(-slope * static_cast<double>(window_.pairs())) * farthest;
    if (next > 4.0 * unit_of(vectors_.precision)) return;
    if (round_number(*law.effective_base, 1e-12 * *law.effective_base)) return;
    const std::int64_t seen = window_.width;
    Window wider{window_.pairing, window_.first, widest};
    const double scale = static_cast<double>(widest) / static_cast<double>(seen);
    const double base = std::pow(*law.effective_base, scale);
    const double error = base * scale * law.base_error.value_or(0.0) / *law.effective_base;
    if (!round_base(base, 4.0 * error)) {
      undetermined("rotary_dim", message("pairs behind feature ", window_.first + seen - 1,
                                         " would turn by less than the rounding of the tensors"));
      return;
    }
    window_ = wider;
    used_positions_ = gains_.position;
    measure();
    found_.rotary_dim = widest;
    for (std::int64_t pair = seen / 2; pair < widest / 2; ++pair) {
      fit_.value.push_back(0.0);
    }
    if (inverse_) conjugate(gains_);
    anchor_again();
    std::vector<double> wide_errors = errors;
    wide_errors.insert(wide_errors.end(),
                       fit_.error.begin() + static_cast<std::ptrdiff_t>(errors.size()),
                       fit_.error.end());
    families = fit_families(family_input(wide_errors));
    found_.notes.push_back(
        message("features from ", window_.first + seen,
                " on show no turn within the rounding of the tensors; rotary_dim ", widest,
                " makes the base a usual one"));
  }
  void anchor_again() {
    const std::vector<double> positions = used_positions_;
    if (positions.size() == gains_.position.size()) gains_.position = positions;
    fit_.phase.assign(static_cast<std::size_t>(gains_.sequences * gains_.pairs), amplitude_);
    anchor_frequencies(gains_, fit_);
  }

  void describe_offset() {
    if (offset_open_) return;
    if (gains_.sequences == 1) {
      if (gains_.rows >= 1 && ascend_by_one(gains_.position, 0, gains_.rows)) {
        found_.offset = static_cast<std::int64_t>(gains_.position[0]);
      }
      return;
    }
    bool same = true, contiguous = true;
    std::string offsets;
    for (std::int64_t s = 0; s < gains_.sequences; ++s) {
      const std::int64_t first = s * axes_.tokens;
      contiguous = contiguous && ascend_by_one(gains_.position, first, axes_.tokens);
      const double start = gains_.position[static_cast<std::size_t>(first)];
      same = same && start == gains_.position[0];
      if (s < 8) offsets += (s == 0 ? "" : ", ") + digits(start, 12);
    }
    if (!contiguous) return;
    if (same) {
      found_.offset = static_cast<std::int64_t>(gains_.position[0]);
    } else {
      undetermined("offset",
                   "batch rows start at " + offsets + (gains_.sequences > 8 ? ", ..." : ""));
    }
  }

  // xPos: lengths that grow or shrink with the position, each pair at its own rate.
  void describe_growth(const std::vector<double>& frequencies) {
    std::vector<double> by_pair;
    (void)model_residual(gains_, frequencies, amplitude_, &by_pair);
    double mean_position = 0.0;
    for (const double position : gains_.position) mean_position += position;
    mean_position /= static_cast<double>(gains_.rows);
    double strongest = 0.0;
    std::size_t significant = 0;
    for (std::int64_t pair = 0; pair < gains_.pairs; ++pair) {
      double slope = 0.0, spread = 0.0, mean = 0.0, left = 0.0;
      for (std::int64_t row = 0; row < gains_.rows; ++row) {
        mean += std::log(std::abs(gains_.gain[gains_.at(row, pair)]) + 1e-300);
      }
      mean /= static_cast<double>(gains_.rows);
      for (std::int64_t row = 0; row < gains_.rows; ++row) {
        const double d = gains_.position[static_cast<std::size_t>(row)] - mean_position;
        const double l = std::log(std::abs(gains_.gain[gains_.at(row, pair)]) + 1e-300) - mean;
        slope += d * l;
        spread += d * d;
      }
      if (spread <= 0.0) return;
      slope /= spread;
      for (std::int64_t row = 0; row < gains_.rows; ++row) {
        const double d = gains_.position[static_cast<std::size_t>(row)] - mean_position;
        const double l = std::log(std::abs(gains_.gain[gains_.at(row, pair)]) + 1e-300) - mean;
        left += (l - slope * d) * (l - slope * d);
      }
      const double error = std::sqrt(left / static_cast<double>(gains_.rows) / spread) + 1e-300;
      if (std::abs(slope) > 12.0 * error && std::abs(slope) * std::sqrt(spread) > 1e-4) {
        ++significant;
        strongest = std::abs(slope) > std::abs(strongest) ? slope : strongest;
      }
    }
    if (2 * significant > static_cast<std::size_t>(gains_.pairs)) {
      found_.notes.push_back(message("the pairs' lengths ", strongest > 0.0 ? "grow" : "shrink",
                                     " with the position, as xPos makes them (by up to e^",
                                     digits(strongest, 3), " per position)"));
    }
  }

  void describe_precision(const Family& law) {
    Explanation explanation{window_, law.frequencies, {}, amplitude_, inverse_};
    for (std::int64_t v = 0; v < vectors_.count; ++v) {
      const auto at = static_cast<std::size_t>(v);
      std::size_t row = 0;
      if (gains_.rows > 1 || !same_everywhere_) {
        row = static_cast<std::size_t>(
            (gains_.sequences > 1 ? axes_.batch_of[at] * axes_.tokens : 0) + axes_.token_of[at]);
      }
      explanation.position.push_back(gains_.position[std::min(row, gains_.position.size() - 1)]);
    }
    PrecisionVerdict verdict = find_precision(vectors_, explanation);
    // What somebody wrote is seldom what least squares find: 1, where it explains no worse.
    constexpr double kNearOne = 1e-3;
    if (amplitude_ != 1.0 && std::abs(amplitude_ - 1.0) < kNearOne) {
      explanation.amplitude = 1.0;
      const PrecisionVerdict plain = find_precision(vectors_, explanation);
      if (plain.residual <= 1.01 * verdict.residual) {
        verdict = plain;
        amplitude_ = 1.0;
        found_.amplitude = 1.0;
      }
    }
    found_.residual = verdict.residual;
    found_.table_dtype = verdict.table;
    if (!rounded_positions_.empty()) found_.table_dtype = rounded_positions_ + "_positions";
    if (!law.rounded_to.empty()) found_.table_dtype = law.rounded_to + "_frequencies";
    const bool narrow =
        vectors_.precision == core::DType::f16 || vectors_.precision == core::DType::bf16;
    if (narrow) found_.arithmetic = verdict.arithmetic;
    if (verdict.table != "exact") {
      found_.notes.push_back(message("exact cos and sin would leave ",
                                     digits(verdict.exact_residual, 3), " instead of ",
                                     digits(verdict.residual, 3)));
    } else if (!verdict.decided) {
      found_.notes.push_back(message("at these positions and this precision the data do not tell ",
                                     verdict.table, " from ", verdict.runner_up));
    }
  }

  void describe_runner_up(const std::vector<Family>& families) {
    const std::string layout(name_of(window_.pairing));
    const auto offer = [&](RunnerUp candidate) {
      if (!found_.runner_up || candidate.residual < found_.runner_up->residual) {
        found_.runner_up = std::move(candidate);
      }
    };
    const double own = layouts_.front().residual;
    for (const LayoutScore& other : layouts_) {
      // A window that also holds pairs that stand still is no other explanation.
      const bool same =
          other.window.pairing == window_.pairing && other.residual < 10.0 * own + 1e-12;
      if (same || other.window.width == 2) continue;
      offer({message("a turn in ", name_of(other.window.pairing), " layout, rotary_dim ",
                     other.window.width),
             std::string(name_of(other.window.pairing)), "", other.residual});
      break;
    }
    const Family& law = families.front();
    for (std::size_t k = 1; k < families.size(); ++k) {
      const Family& other = families[k];
      // Linear with a factor of 1 is no other explanation.
      if (other.fits || other.frequencies.size() != law.frequencies.size()) continue;
      const double amplitude = fit_amplitude(gains_, other.frequencies);
      const double residual = model_residual(gains_, other.frequencies, amplitude);
      offer({message("the same layout with ", other.type, " frequencies",
                     other.base ? ", base " + digits(*other.base) : ""),
             layout, other.type, residual});
    }
  }

  const DiagnoseInput& input_;
  Diagnosis found_;
  std::vector<double> given_, listed_, used_positions_;
  Vectors vectors_;
  std::vector<LayoutScore> layouts_;
  Window window_;
  Axes axes_;
  Gains gains_;
  FrequencyFit fit_;
  double amplitude_ = 1.0;
  bool inverse_ = false;
  bool positions_known_ = false, same_everywhere_ = false, contiguous_instead_ = false;
  bool offset_open_ = false;
  std::string rounded_positions_;
};

}  // namespace

Diagnosis diagnose(const DiagnoseInput& input) { return Detective(input).run(); }

}  // namespace phasor::porting
