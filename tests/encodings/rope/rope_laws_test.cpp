#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "encodings/rope/rope_specs.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::encodings {
namespace {

using testing::spec_of;

// Blends of equal lists round a few times in 100 bits and once in 53.
constexpr double kRelative = 3e-16;

void assert_same(const core::Frequencies& got, const core::Frequencies& want) {
  RC_ASSERT(got.pairs() == want.pairs());
  RC_ASSERT(got.amplitude() == want.amplitude());
  for (std::int64_t i = 0; i < got.pairs(); ++i) {
    RC_ASSERT(std::fabs(got.values()[i] - want.values()[i]) <= kRelative * want.values()[i]);
  }
}

RopeSpec any_default() {
  const std::int64_t pairs = *rc::gen::inRange<std::int64_t>(2, 129);
  const double base = 2.0 + *rc::gen::inRange<int>(0, 10000000);
  return spec_of(2 * pairs, base);
}

RC_GTEST_PROP(RopeLaws, FactorOneIsTheDefaultForEveryScaling, ()) {
  const RopeSpec plain = any_default();
  const std::int64_t original = *rc::gen::inRange<std::int64_t>(2, 1000000);
  const core::Frequencies want = resolve_frequencies(plain);
  const std::vector<double> ones(static_cast<std::size_t>(plain.rotary_dim / 2), 1.0);
  NtkByPartsScaling parts;
  parts.original_length = original;
  YarnScaling yarn;
  yarn.original_length = original;
  yarn.truncate = *rc::gen::arbitrary<bool>();
  LongRopeScaling longrope;
  longrope.short_factor = ones;
  longrope.long_factor = ones;
  longrope.original_length = original;
  const std::vector<RopeScaling> scalings = {LinearScaling{},
                                             NtkScaling{},
                                             NtkScaling{1.0, 0.625},
                                             DynamicScaling{1.0, std::nullopt, original},
                                             DynamicScaling{1.0, 1.0, 0},
                                             parts,
                                             yarn,
                                             longrope,
                                             Llama3Scaling{1.0, 1.0, 4.0, original},
                                             ProportionalScaling{}};
  for (const RopeScaling& scaling : scalings) {
    RopeSpec spec = plain;
    spec.scaling = scaling;
    assert_same(resolve_frequencies(spec, original), want);
  }
}

RC_GTEST_PROP(RopeLaws, DefaultFrequenciesFallFromOne, ()) {
  const core::Frequencies frequencies = resolve_frequencies(any_default());
  RC_ASSERT(frequencies.values().front() == 1.0);
  RC_ASSERT(frequencies.values().back() > 0.0);
  RC_ASSERT(std::is_sorted(frequencies.values().rbegin(), frequencies.values().rend()));
}

RC_GTEST_PROP(RopeLaws, YarnStaysBetweenTheListsItBlends, ()) {
  RopeSpec spec = any_default();
  YarnScaling yarn;
  yarn.factor = 1.0 + *rc::gen::inRange<int>(0, 64);
  yarn.original_length = *rc::gen::inRange<std::int64_t>(1, 1000000);
  yarn.truncate = *rc::gen::arbitrary<bool>();
  const core::Frequencies kept = resolve_frequencies(spec);
  spec.scaling = yarn;
  const core::Frequencies blended = resolve_frequencies(spec);
  for (std::int64_t i = 0; i < kept.pairs(); ++i) {
    RC_ASSERT(blended.values()[i] <= kept.values()[i] * (1.0 + kRelative));
    RC_ASSERT(blended.values()[i] >= kept.values()[i] / yarn.factor * (1.0 - kRelative));
  }
}

RC_GTEST_PROP(RopeLaws, DynamicSlowsDownWithLength, ()) {
  RopeSpec spec = any_default();
  const std::int64_t original = *rc::gen::inRange<std::int64_t>(1, 100000);
  spec.scaling = DynamicScaling{2.0, std::nullopt, original};
  const std::int64_t shorter = *rc::gen::inRange<std::int64_t>(0, 1000000);
  const std::int64_t longer = shorter + *rc::gen::inRange<std::int64_t>(0, 1000000);
  const core::Frequencies at_shorter = resolve_frequencies(spec, shorter);
  const core::Frequencies at_longer = resolve_frequencies(spec, longer);
  for (std::int64_t i = 0; i < at_shorter.pairs(); ++i) {
    RC_ASSERT(at_longer.values()[i] <= at_shorter.values()[i]);
  }
}

RC_GTEST_PROP(RopeLaws, Float32ListStaysWithinAFewUnits, ()) {
  const core::Frequencies frequencies = resolve_frequencies(any_default());
  for (std::int64_t i = 0; i < frequencies.pairs(); ++i) {
    const double exact = frequencies.values()[i];
    // The rounded exponent is off by up to 2^-25, times ln base < 16.2.
    RC_ASSERT(std::fabs(frequencies.float32_values()[i] - exact) <= 8e-7 * exact);
  }
}

}  // namespace
}  // namespace phasor::encodings
