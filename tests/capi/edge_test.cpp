// No exception passes the C edge, whatever its type.
#include "capi/edge.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace phasor::capi {
namespace {

TEST(CapiEdge, EveryCodeHasItsStatus) {
  const struct {
    ErrorCode code;
    phasor_status status;
  } cases[] = {
      {ErrorCode::invalid_argument, PHASOR_INVALID_ARGUMENT},
      {ErrorCode::shape_mismatch, PHASOR_SHAPE_MISMATCH},
      {ErrorCode::out_of_range, PHASOR_OUT_OF_RANGE},
      {ErrorCode::unsupported, PHASOR_UNSUPPORTED},
      {ErrorCode::io, PHASOR_IO},
      {ErrorCode::internal, PHASOR_INTERNAL},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(guarded([&] { throw Error(c.code, "the text"); }), c.status);
    EXPECT_STREQ(phasor_last_error(), "the text");
  }
}

TEST(CapiEdge, MemoryHasItsOwnMessage) {
  EXPECT_EQ(guarded([] { throw std::bad_alloc(); }), PHASOR_INTERNAL);
  EXPECT_STREQ(phasor_last_error(), "phasor: out of memory");
}

TEST(CapiEdge, OtherExceptionsStopToo) {
  EXPECT_EQ(guarded([] { throw std::logic_error("odd"); }), PHASOR_INTERNAL);
  EXPECT_STREQ(phasor_last_error(), "odd");
  EXPECT_EQ(guarded([] { throw 7; }), PHASOR_INTERNAL);
  EXPECT_STRNE(phasor_last_error(), "odd");
}

TEST(CapiEdge, ASuccessKeepsTheLastFailure) {
  EXPECT_EQ(guarded([] { throw Error(ErrorCode::io, "before"); }), PHASOR_IO);
  EXPECT_EQ(guarded([] {}), PHASOR_OK);
  EXPECT_STREQ(phasor_last_error(), "before");
}

}  // namespace
}  // namespace phasor::capi
