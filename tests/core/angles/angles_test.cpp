#include "phasor/core/rotate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "support/errors.hpp"
#include "support/truth.hpp"

namespace phasor::core {
namespace {

using tests::CosSin;
using tests::Real;

// The positions p > 0 up to `limit` at which p * frequency comes closest to a multiple of pi/2:
// denominators of the convergents of frequency / (pi/2). There cos or sin is nearly zero and every
// lost bit shows.
std::vector<double> near_zero_positions(double frequency, double limit) {
  std::vector<double> positions;
  Real x = Real(frequency) / tests::half_pi();
  double before = 0.0, now = 1.0;  // denominators
  for (int term = 0; term < 80; ++term) {
    Real whole;
    mpfr_floor(whole.get(), x.get());
    const Real rest = x - whole;
    if (mpfr_zero_p(rest.get()) != 0) break;
    x = Real(1.0) / rest;
    Real next_whole;
    mpfr_floor(next_whole.get(), x.get());
    const double next = next_whole.rounded() * now + before;
    if (next > limit) break;
    positions.push_back(next);
    before = now;
    now = next;
  }
  return positions;
}

std::vector<double> spread_positions() {
  std::vector<double> positions = {0.0, 1.0, -1.0, 2.0, 3.0, 131071.0, -131071.0};
  for (int power = 4; power <= 40; power += 3) {
    for (const double delta : {-1.0, 0.0, 1.0}) positions.push_back(std::ldexp(1.0, power) + delta);
  }
  positions.push_back(static_cast<double>(kExactPosition));
  positions.push_back(-static_cast<double>(kExactPosition));
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    const auto magnitude = static_cast<double>(random() >> (24 + random() % 38));
    positions.push_back(i % 2 == 0 ? magnitude : -magnitude);
  }
  return positions;
}

struct Worst {
  double f32 = 0.0, f64 = 0.0;
};

// The largest errors over all frequencies at one position, at every level that this CPU has.
void measure(const Frequencies& frequencies, double position, Worst& worst) {
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  std::vector<CosSin> truth;
  truth.reserve(pairs);
  for (const double frequency : frequencies.values()) {
    truth.push_back(tests::cos_sin_of(Real(position) * Real(frequency)));
  }
  std::vector<float> cos(pairs), sin(pairs);
  std::vector<double> cos64(pairs), sin64(pairs);
  for (const InstructionSet isa : available_instruction_sets()) {
    cos_sin(frequencies, {&position, 1}, cos, sin, AngleMode::exact, isa);
    cos_sin(frequencies, {&position, 1}, cos64, sin64, isa);
    for (std::size_t i = 0; i < pairs; ++i) {
      const double f32 =
          std::fmax(tests::ulps(cos[i], truth[i].cos), tests::ulps(sin[i], truth[i].sin));
      const double f64 =
          std::fmax(tests::ulps(cos64[i], truth[i].cos), tests::ulps(sin64[i], truth[i].sin));
      ASSERT_LE(f32, kCosSinErrorUlp) << name_of(isa) << " position " << position << " pair " << i;
      ASSERT_LE(f64, kCosSinErrorUlp64)
          << name_of(isa) << " position " << position << " pair " << i;
      worst.f32 = std::fmax(worst.f32, f32);
      worst.f64 = std::fmax(worst.f64, f64);
    }
  }
}

class AnglesOfBase : public testing::TestWithParam<std::pair<double, std::int64_t>> {};

TEST_P(AnglesOfBase, AreCorrectlyRoundedUpTo2To40) {
  const auto [base, dim] = GetParam();
  const Frequencies frequencies = make_frequencies({dim, base});
  Worst worst;
  for (const double position : spread_positions()) {
    measure(frequencies, position, worst);
    if (HasFatalFailure()) return;
  }
  RecordProperty("worst_f32_ulp", std::to_string(worst.f32));
  RecordProperty("worst_f64_ulp", std::to_string(worst.f64));
}

TEST_P(AnglesOfBase, AreCorrectlyRoundedNextToZeros) {
  const auto [base, dim] = GetParam();
  const Frequencies frequencies = make_frequencies({dim, base});
  Worst worst;
  std::size_t hard = 0;
  for (const double frequency : frequencies.values()) {
    const Frequencies one({frequency});
    for (const double position :
         near_zero_positions(frequency, static_cast<double>(kExactPosition))) {
      measure(one, position, worst);
      measure(one, -position, worst);
      if (HasFatalFailure()) return;
      ++hard;
    }
  }
  EXPECT_GT(hard, frequencies.values().size() * 10);
  RecordProperty("worst_f32_ulp", std::to_string(worst.f32));
  RecordProperty("worst_f64_ulp", std::to_string(worst.f64));
}

INSTANTIATE_TEST_SUITE_P(Bases, AnglesOfBase,
                         testing::Values(std::pair{10000.0, std::int64_t{128}},
                                         std::pair{500000.0, std::int64_t{64}},
                                         std::pair{1.0e6, std::int64_t{22}},
                                         std::pair{100.0, std::int64_t{6}},
                                         std::pair{0.5, std::int64_t{8}}));

TEST(Angles, HoldForFrequenciesChosenToHitMultiplesOfHalfPi) {
  // The double nearest to k (pi/2) / m: the product misses the multiple by rounding alone.
  std::mt19937_64 random(11);
  Worst worst;
  for (int i = 0; i < 400; ++i) {
    const auto position = static_cast<double>((random() >> 24) | 1U);
    const auto quarter = static_cast<double>(random() >> (26 + random() % 30));
    const double frequency = (Real(quarter) * tests::half_pi() / Real(position)).rounded();
    if (frequency <= 0.0 || frequency > 1.0) continue;
    measure(Frequencies({frequency}), position, worst);
    if (HasFatalFailure()) return;
  }
}

TEST(Angles, HoldForPositionsThatAreNotIntegersAndBeyond2To40) {
  const Frequencies frequencies = make_frequencies({32, 10000.0});
  Worst worst;
  for (const double position :
       {0.5, -0.1, 1e-300, 1e-5, 12345.678, 0x1.fffffffffffffp39, 0x1p47, 0x1.8p47 + 1.0}) {
    measure(frequencies, position, worst);
    if (HasFatalFailure()) return;
  }
}

TEST(Angles, StayWithin1e7OfTheMathematicallyExactFrequency) {
  double worst = 0.0;
  for (const auto& [base, dim] :
       {std::pair{10000.0, 128}, std::pair{500000.0, 128}, std::pair{5e6, 64}}) {
    const Frequencies frequencies = make_frequencies({dim, base});
    const auto pairs = static_cast<std::size_t>(frequencies.pairs());
    std::vector<float> cos(pairs), sin(pairs);
    for (const double position : {1.0, 4095.0, 131071.0, 1048577.0, 16777215.0, 16777216.0}) {
      cos_sin(frequencies, {&position, 1}, cos, sin);
      for (std::size_t i = 0; i < pairs; ++i) {
        const CosSin truth = tests::cos_sin_of(
            Real(position) * tests::exact_frequency(base, dim, static_cast<std::int64_t>(i)));
        worst = std::fmax(worst, std::fabs((Real(cos[i]) - truth.cos).rounded()));
        worst = std::fmax(worst, std::fabs((Real(sin[i]) - truth.sin).rounded()));
      }
    }
  }
  EXPECT_LE(worst, kCosSinErrorExactFrequency);
}

TEST(Angles, ReadThePositionOfEachFrequencysAxis) {
  const Frequencies both({1.0, 1.0, 0.5}, 1.0, {1, 0, 2});
  const std::vector<double> positions = {3.0, 5.0, 7.0};
  std::vector<double> cos(3), sin(3);
  for (const InstructionSet isa : available_instruction_sets()) {
    cos_sin(both, positions, cos, sin, isa);
    EXPECT_NEAR(cos[0], std::cos(5.0), 1e-15);
    EXPECT_NEAR(cos[1], std::cos(3.0), 1e-15);
    EXPECT_NEAR(sin[2], std::sin(3.5), 1e-15);
  }
}

TEST(Angles, CarryTheAmplitude) {
  const Frequencies frequencies({0.3}, 1.25);
  std::vector<float> cos(1), sin(1);
  const double position = 4.0;
  cos_sin(frequencies, {&position, 1}, cos, sin);
  EXPECT_FLOAT_EQ(cos[0], static_cast<float>(1.25 * std::cos(1.2)));
  EXPECT_FLOAT_EQ(sin[0], static_cast<float>(1.25 * std::sin(1.2)));
}

TEST(Angles, RefuseWhatCannotBeExact) {
  const Frequencies one({1.0});
  const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> values,
                           const std::vector<double>& positions, std::size_t size = 1) {
    std::vector<float> cos(size), sin(size);
    phasor::tests::expect_error(code, values, [&] { cos_sin(one, positions, cos, sin); });
  };
  refused(ErrorCode::invalid_argument, {"nan"}, {std::nan("")});
  refused(ErrorCode::invalid_argument, {"inf"}, {std::numeric_limits<double>::infinity()});
  refused(ErrorCode::out_of_range, {"2^53", "9007199254740992"}, {0x1p53});
  refused(ErrorCode::out_of_range, {"2^48", "1125899906842624", "frequency 1"}, {0x1p50});
  refused(ErrorCode::shape_mismatch, {"positions", "1", "2"}, {1.0, 2.0});
  refused(ErrorCode::shape_mismatch, {"cos and sin", "1 entries", "2 and 2"}, {1.0}, 2);
}

}  // namespace
}  // namespace phasor::core
