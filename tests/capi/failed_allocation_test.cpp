// Memory that runs out inside a call: a status, *out as it was, and nothing lost. Rotation allocates
// nothing.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "capi/support.hpp"
#include "support/allocations.hpp"

namespace phasor::capi {
namespace {

using testing::make_rope;
using testing::Rope;
using testing::Tensor;
using testing::untouched;

// Calls `create` with each of its allocations failing once.
template <class Handle>
void expect_out_untouched(const char* name, const std::function<phasor_status(Handle**)>& create,
                          void (*destroy)(Handle*)) {
  SCOPED_TRACE(name);
  Handle* out = untouched<Handle>();
  phasor_status status = PHASOR_OK;
  const std::int64_t refusals = test::fail_each_allocation(
      [&] { status = create(&out); },
      [&](std::int64_t index) {
        EXPECT_EQ(status, PHASOR_INTERNAL) << index;
        EXPECT_EQ(out, untouched<Handle>()) << index;
        EXPECT_STREQ(phasor_last_error(), "phasor: out of memory") << index;
      });
  EXPECT_GT(refusals, 0);
  ASSERT_EQ(status, PHASOR_OK) << phasor_last_error();
  destroy(out);
}

TEST(CapiOutOfMemory, LeavesOutAsItWas) {
  // Room for the message itself, which is kept for the thread.
  EXPECT_EQ(phasor_rope_create(nullptr, 0, nullptr), PHASOR_INVALID_ARGUMENT);
  phasor_rope_spec spec;
  ASSERT_EQ(phasor_rope_spec_init(&spec, sizeof(spec)), PHASOR_OK);
  spec.head_dim = 8;
  spec.layout = PHASOR_HALF;
  expect_out_untouched<phasor_rope>(
      "rope", [&](phasor_rope** out) { return phasor_rope_create(&spec, 0, out); },
      phasor_rope_destroy);
  const Rope rope = make_rope(8);
  expect_out_untouched<phasor_table>(
      "table",
      [&](phasor_table** out) {
        return phasor_table_create(rope.get(), 0, 4, PHASOR_ANGLES_EXACT, 1, out);
      },
      phasor_table_destroy);
  phasor_cache_spec cache{};
  cache.struct_size = sizeof(cache);
  cache.dtype = PHASOR_F32;
  cache.batch = cache.key_heads = 1;
  cache.head_dim = cache.value_dim = 8;
  cache.capacity = 4;
  cache.rope = rope.get();
  expect_out_untouched<phasor_cache>(
      "cache", [&](phasor_cache** out) { return phasor_cache_create(&cache, out); },
      phasor_cache_destroy);
  expect_out_untouched<phasor_linear_state>(
      "linear state",
      [&](phasor_linear_state** out) { return phasor_linear_state_create(1, 1, 8, 8, out); },
      phasor_linear_state_destroy);
}

// libstdc++ 12 crashes when the memory for a name runs out that is appended to a path with '/' at its end.
TEST(CapiOutOfMemory, ReadsAFolderWhoseNameEndsWithASlash) {
  EXPECT_EQ(phasor_rope_create(nullptr, 0, nullptr), PHASOR_INVALID_ARGUMENT);
  const std::string folder = std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3/model/";
  expect_out_untouched<phasor_config>(
      "config", [&](phasor_config** out) { return phasor_config_read(folder.c_str(), out); },
      phasor_config_destroy);
}

// The header promises it; the last attempt of each call has no failed allocation and must still succeed.
TEST(CapiOutOfMemory, LeavesCachesAndStatesAsTheyWere) {
  EXPECT_EQ(phasor_rope_create(nullptr, 0, nullptr), PHASOR_INVALID_ARGUMENT);
  const Rope rope = make_rope(8), other = make_rope(8, 500000.0);
  phasor_cache_spec spec{};
  spec.struct_size = sizeof(spec);
  spec.dtype = PHASOR_F32;
  spec.batch = spec.key_heads = 1;
  spec.head_dim = spec.value_dim = 8;
  spec.capacity = 64;
  spec.rope = rope.get();
  phasor_cache* raw = nullptr;
  ASSERT_EQ(phasor_cache_create(&spec, &raw), PHASOR_OK);
  const testing::Cache cache(raw);
  const Tensor k(4, 1, 0.1F), v(4, 1, 0.2F);
  ASSERT_EQ(phasor_cache_append(raw, &k.c, &v.c, nullptr, 1), PHASOR_OK);
  const auto keys = [&] {
    phasor_heads view;
    EXPECT_EQ(phasor_cache_views(raw, &view, nullptr), PHASOR_OK);
    const auto* const first = static_cast<const float*>(view.data);
    return std::vector<float>(first, first + view.tokens * 8);
  };
  const std::vector<std::function<phasor_status()>> changes = {
      [&] { return phasor_cache_append(raw, &k.c, &v.c, nullptr, 1); },
      [&] { return phasor_cache_shift(raw, 1, 4, 3, 1); },
      [&] { return phasor_cache_rerotate(raw, other.get(), nullptr, 1); },
      [&] { return phasor_cache_evict(raw, 0, 2); }, [&] { return phasor_cache_truncate(raw, 3); }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const std::vector<float> before = keys();
    phasor_status status = PHASOR_OK;
    test::fail_each_allocation([&] { status = changes[i](); },
                               [&](std::int64_t index) {
                                 EXPECT_EQ(status, PHASOR_INTERNAL) << i << ", " << index;
                                 EXPECT_EQ(keys(), before) << i << ", " << index;
                               });
    EXPECT_EQ(status, PHASOR_OK) << phasor_last_error();
  }

  phasor_linear_state* state = nullptr;
  ASSERT_EQ(phasor_linear_state_create(1, 1, 8, 8, &state), PHASOR_OK);
  const testing::LinearState owned(state);
  phasor_linear_options options{};
  options.struct_size = sizeof(options);
  options.causality = PHASOR_CAUSAL;
  options.threads = 1;
  const Tensor out(4, 1, 0.3F), expected(4, 1, 0.4F);
  ASSERT_EQ(phasor_linear_attend(rope.get(), &k.c, &k.c, &v.c, &expected.c, &options), PHASOR_OK);
  phasor_status status = PHASOR_OK;
  test::fail_each_allocation(
      [&] {
        status = phasor_linear_continue(state, rope.get(), &k.c, &k.c, &v.c, &out.c, &options);
      },
      [&](std::int64_t index) {
        EXPECT_EQ(status, PHASOR_INTERNAL) << index;
        EXPECT_EQ(phasor_linear_state_tokens(state), 0) << index;
      });
  ASSERT_EQ(status, PHASOR_OK) << phasor_last_error();
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    EXPECT_NEAR(out.values[i], expected.values[i], 1e-6) << i;  // nothing was counted twice
  }
}

TEST(CapiRotate, AllocatesNothing) {
  const Rope rope = make_rope(8);
  const Tensor x(16, 2, 0.1F);
  const phasor_positions positions = phasor_positions_from(3);
  ASSERT_EQ(phasor_rotate_in_place(rope.get(), &positions, &x.c, &x.c, nullptr),
            PHASOR_INVALID_ARGUMENT);  // overlap; the thread's message has its room now
  const Tensor y(16, 2, 0.1F);
  ASSERT_EQ(phasor_rotate_in_place(rope.get(), &positions, &x.c, &y.c, nullptr), PHASOR_OK)
      << phasor_last_error();
  const std::int64_t before = test::allocation_count();
  ASSERT_EQ(phasor_rotate_in_place(rope.get(), &positions, &x.c, &y.c, nullptr), PHASOR_OK);
  EXPECT_EQ(test::allocation_count() - before, 0);
}

}  // namespace
}  // namespace phasor::capi
