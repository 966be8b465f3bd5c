// Compares the rotation that was found with a config.
#include <algorithm>
#include <cmath>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/porting/diagnose.hpp"
#include "porting/number_text.hpp"

namespace phasor::porting {
namespace {

// The pair whose frequency exceeds its allowed error most, and by what factor.
struct Farthest {
  std::size_t pair = 0;
  double off = 0.0;
};

Farthest farthest_pair(const Diagnosis& found, std::span<const double> asked) {
  Farthest farthest;
  for (std::size_t pair = 0; pair < asked.size(); ++pair) {
    // Six standard deviations, plus the rounding of another engine's float32 frequencies.
    const double allowed = 6.0 * found.frequency_errors[pair] + 1e-6 * std::abs(asked[pair]);
    const double off = std::abs(found.measured_frequencies[pair] - asked[pair]) / allowed;
    if (off > farthest.off) farthest = {pair, off};
  }
  return farthest;
}

std::string amplitude_hint(double asked, double found) {
  constexpr double kNear = 2e-3;
  const auto is = [&](double value) { return std::abs(found / value - 1.0) < kNear; };
  if (is(1.0)) return ": the amplitude is missing";
  if (is(asked * asked)) return ": the amplitude was applied twice";
  if (is(1.0 / asked)) return ": the amplitude was divided by instead of multiplied";
  return "";
}

class Comparer {
 public:
  Comparer(const Diagnosis& found, const encodings::RopeSpec& spec,
           std::optional<std::int64_t> context)
      : found_(found), spec_(spec), asked_(encodings::resolve_frequencies(spec, context)) {}

  std::vector<ConfigDifference> run() {
    if (asked_.axis_count() > 1) {
      refuse(ErrorCode::unsupported,
             message("diagnose: the config must have one row of positions, got ",
                     asked_.axis_count(), " rows (M-RoPE or images)"));
    }
    if (found_.answer == Answer::none) {
      add("answer", "rope", "none",
          "the config specifies a rotation; the data show none: " + found_.reason);
      return std::move(differences_);
    }
    whole("head_dim", spec_.head_dim, found_.head_dim);
    if (spec_.layout && found_.layout && core::name_of(*spec_.layout) != *found_.layout) {
      differ("layout", std::string(core::name_of(*spec_.layout)), *found_.layout);
    }
    const std::int64_t rotary_dim = 2 * asked_.pairs();
    if (found_.rotary_dim) whole("rotary_dim", rotary_dim, *found_.rotary_dim);
    whole("rotary_offset", spec_.rotary_offset, found_.rotary_offset);
    if (found_.rotary_dim == rotary_dim) compare_frequencies();
    compare_amplitude();
    if (found_.inverse.value_or(false)) {
      add("inverse", "forward", "inverse",
          "the config specifies a forward rotation; the data were rotated backwards");
    }
    if (found_.positions == "found") {
      add("positions", "the given ones", "others",
          "the positions that were used are not the given ones; see the notes");
    }
    if (found_.table_dtype && *found_.table_dtype == "bfloat16_positions") {
      add("positions", "whole", "rounded to bfloat16",
          "the positions were rounded to bfloat16 before use");
    }
    return std::move(differences_);
  }

 private:
  void add(std::string field, std::string asked, std::string found, std::string text) {
    differences_.push_back({std::move(field), std::move(asked), std::move(found), std::move(text)});
  }
  void differ(const char* field, const std::string& asked, const std::string& found) {
    add(field, asked, found,
        message("the config specifies ", field, " ", asked, "; the data were rotated with ",
                found));
  }
  void whole(const char* field, std::int64_t asked, std::int64_t found) {
    if (asked != found) differ(field, message(asked), message(found));
  }

  void compare_frequencies() {
    if (found_.measured_frequencies.size() != static_cast<std::size_t>(asked_.pairs())) return;
    const Farthest farthest = farthest_pair(found_, asked_.values());
    if (farthest.off <= 1.0) return;
    const std::string type(encodings::name_of(spec_.scaling));
    bool named = false;
    const std::optional<double> base = encodings::base_of(spec_);
    if (base && found_.base && std::abs(*found_.base / *base - 1.0) > 1e-3) {
      differ("base", digits(*base), digits(*found_.base));
      named = true;
    }
    if (base && found_.scaling && found_.scaling->type != type) {
      differ("scaling", type, found_.scaling->type);
      named = true;
    }
    const double asked = asked_.values()[farthest.pair];
    const double found = found_.measured_frequencies[farthest.pair];
    std::string text = message("frequency of pair ", farthest.pair, ": the config specifies ",
                               digits(asked), ", the data were rotated with ", digits(found), " (",
                               digits(found / asked, 4), " times)");
    if (!named && base)
      text += "; base and scaling type agree, so another parameter of the scaling differs";
    add("frequencies", digits(asked, 17), digits(found, 17), std::move(text));
  }

  void compare_amplitude() {
    if (!found_.amplitude) return;
    const double allowed = std::max(1e-4, 4.0 * found_.rounding_floor);
    const double asked = asked_.amplitude();
    if (std::abs(*found_.amplitude / asked - 1.0) <= allowed) return;
    add("amplitude", digits(asked, 17), digits(*found_.amplitude, 17),
        message("the config specifies amplitude ", digits(asked), "; the data were rotated with ",
                digits(*found_.amplitude), amplitude_hint(asked, *found_.amplitude)));
  }

  const Diagnosis& found_;
  const encodings::RopeSpec& spec_;
  core::Frequencies asked_;
  std::vector<ConfigDifference> differences_;
};

}  // namespace

std::optional<std::int64_t> context_of_tokens(const Diagnosis& found,
                                              const encodings::RopeSpec& spec,
                                              std::span<const std::int64_t> shape) {
  if (!encodings::depends_on_context(spec) || !found.offset) return std::nullopt;
  std::int64_t tokens = 1;
  for (std::size_t axis = 0; axis < found.axes.size(); ++axis) {
    if (found.axes[axis] == "tokens") tokens = shape[axis];
  }
  return encodings::context_for(spec, std::nullopt,
                                static_cast<double>(*found.offset + tokens - 1));
}

std::vector<ConfigDifference> compare_with_config(const Diagnosis& found,
                                                  const encodings::RopeSpec& spec,
                                                  std::optional<std::int64_t> context) {
  return Comparer(found, spec, context).run();
}

}  // namespace phasor::porting
