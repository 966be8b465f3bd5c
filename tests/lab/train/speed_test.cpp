#include "phasor/lab/internal/speed.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "lab/nn/networks.hpp"
#include "support/errors.hpp"

namespace phasor::lab {
namespace {

TEST(MeasureSpeed, EveryArchitecture) {
  for (const Architecture architecture :
       {Architecture::encoder, Architecture::decoder, Architecture::encoder_decoder}) {
    const Speed speed = measure_speed(tests::small_spec(architecture, EncodingName::rope),
                                      {.rows = 2, .tokens = 7, .steps = 3, .threads = 1});
    ASSERT_EQ(speed.seconds.size(), 3U);
    EXPECT_EQ(speed.cpu_seconds.size(), 3U);
    EXPECT_GT(speed.parameters, 0);
    for (std::size_t part = 0; part < kTimedParts; ++part) {
      EXPECT_GT(speed.parts[part], 0.0) << name_of(static_cast<Part>(part));
    }
    // No time is counted twice.
    EXPECT_LE(std::accumulate(speed.parts.begin(), speed.parts.end(), 0.0),
              std::accumulate(speed.seconds.begin(), speed.seconds.end(), 0.0));
  }
}

TEST(MeasureSpeed, RefusesWhatCannotBeMeasured) {
  const ModelSpec spec = tests::small_spec(Architecture::decoder, EncodingName::learned);
  phasor::tests::expect_error(ErrorCode::invalid_argument, {"0"}, [&] {
    return measure_speed(spec, {.rows = 1, .tokens = 4, .steps = 0});
  });
  phasor::tests::expect_error(ErrorCode::out_of_range, {"9", "10"}, [&] {
    return measure_speed(spec, {.rows = 1, .tokens = 10, .steps = 1});
  });
}

}  // namespace
}  // namespace phasor::lab
