// Golden kinds of the attention room: re-rotation of cached keys and the long-term decay.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "conform/rotary.hpp"
#include "phasor/attention/decay.hpp"
#include "phasor/attention/kv_cache.hpp"

namespace phasor::tools {
namespace {

// A case states amplitudes to full precision, or as its own attention_factor.
constexpr double kAmplitudeTolerance = 1e-12;

struct Scheme {
  core::Positions positions;
  core::Rotary rotary;
};

Scheme scheme_of(const Case& golden, const char* name, const core::HeadsView& keys) {
  const auto description = member<io::Json>(golden, name);
  const encodings::RopeSpec spec = spec_of(description, name);
  const auto array = member<std::string>(description, "positions", name);
  core::Positions positions =
      case_positions(golden.input(array), array, spec, keys.batch, keys.tokens);
  core::Rotary rotary = rotary_of(description, spec, positions, name);
  const double amplitude = rotary.frequencies.amplitude();
  const auto expected = optional_member<double>(description, "amplitude", name);
  if (expected && !(std::abs(amplitude - *expected) <= kAmplitudeTolerance * std::abs(*expected))) {
    refuse(
        message(name, ": the amplitude must be ", *expected, " as in the case, got ", amplitude));
  }
  return {std::move(positions), std::move(rotary)};
}

void rerotate(const Case& golden, Comparison& comparison) {
  CaseArray keys = golden.input("k_cached");
  const core::HeadsView view = heads_of(keys, "k_cached");
  const Scheme a = scheme_of(golden, "a", view);
  const Scheme b = scheme_of(golden, "b", view);
  attention::rerotate({a.rotary, a.positions}, {b.rotary, b.positions}, view);
  comparison.result("k_out", computed_from(keys));
}

void rope_decay(const Case& golden, Comparison& comparison) {
  const core::Frequencies frequencies = core::make_frequencies(
      {member<std::int64_t>(golden, "dim"), member<double>(golden, "theta")});
  const CaseArray& distance = golden.input("distance");
  const std::vector<double> distances = io::to_doubles(distance.data).value_or_throw();
  comparison.result("mean_abs_partial_sum", {attention::mean_partial_sums(frequencies, distances),
                                             distance.data.shape, distance.dims});
}

}  // namespace

void add_attention_kinds(Kinds& kinds) {
  kinds["rerotate"] = rerotate;
  kinds["rope_decay"] = rope_decay;
}

}  // namespace phasor::tools
