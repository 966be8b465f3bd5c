// The KV cache through phasor.h: the room's own bits, and what it refuses.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "capi/c_only.h"
#include "capi/support.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::capi {
namespace {

using testing::Cache;
using testing::Encoding;
using testing::expect_status;
using testing::kDim;
using testing::kHeads;
using testing::kKeyHeads;
using testing::make_rope;
using testing::parse_encoding;
using testing::Rope;
using testing::Tensor;
using testing::untouched;
using testing::Values;

constexpr std::int64_t kCapacity = 12, kValueDim = 6;

core::Rotary rotary_of_base(double base) {
  return {core::make_frequencies({kDim, base}), core::PairLayout::half, kDim};
}

class CapiCache : public ::testing::Test {
 protected:
  CapiCache() : theirs_(cpp_spec()) {
    phasor_cache_spec spec = c_spec();
    phasor_cache* cache = nullptr;
    EXPECT_EQ(phasor_cache_create(&spec, &cache), PHASOR_OK) << phasor_last_error();
    ours_.reset(cache);
    options_.struct_size = sizeof(options_);
    options_.causality = PHASOR_CAUSAL;
    options_.threads = 1;
  }

  [[nodiscard]] phasor_cache_spec c_spec() const {
    phasor_cache_spec spec{};
    spec.struct_size = sizeof(spec);
    spec.dtype = PHASOR_F32;
    spec.batch = 1;
    spec.key_heads = kKeyHeads;
    spec.head_dim = kDim;
    spec.value_dim = kValueDim;
    spec.capacity = kCapacity;
    spec.rope = rope_.get();
    spec.mode = PHASOR_CACHE_DRIFT_FREE;
    return spec;
  }
  static attention::CacheSpec cpp_spec() {
    attention::CacheSpec spec;
    spec.key_heads = kKeyHeads;
    spec.head_dim = kDim;
    spec.value_dim = kValueDim;
    spec.capacity = kCapacity;
    spec.rotary = rotary_of_base(10000.0);
    spec.mode = attention::CacheMode::drift_free;
    return spec;
  }
  [[nodiscard]] phasor_cache_info info() const { return info_of(ours_.get()); }
  static phasor_cache_info info_of(const phasor_cache* cache) {
    phasor_cache_info info{};
    info.struct_size = sizeof(info);
    EXPECT_EQ(phasor_cache_describe(cache, &info), PHASOR_OK) << phasor_last_error();
    return info;
  }
  // Both caches get the same tokens.
  void append(std::int64_t tokens, float phase) {
    const Tensor k(tokens, kKeyHeads, phase), v(tokens, kKeyHeads, phase + 1.0F, kValueDim);
    ASSERT_EQ(phasor_cache_append(ours_.get(), &k.c, &v.c, nullptr, 1), PHASOR_OK)
        << phasor_last_error();
    theirs_.append(k.cpp, v.cpp, std::nullopt, 1);
  }
  // Keys, values and positions, bit by bit.
  void expect_same() { expect_same(ours_.get(), theirs_); }
  static void expect_same(const phasor_cache* ours, const attention::KVCache& theirs) {
    ASSERT_EQ(info_of(ours).tokens, theirs.tokens());
    EXPECT_EQ(info_of(ours).next_position, theirs.next_position());
    phasor_heads keys, values;
    ASSERT_EQ(phasor_cache_views(ours, &keys, &values), PHASOR_OK);
    expect_same(keys, theirs.keys());
    expect_same(values, theirs.values());
    std::vector<double> positions(static_cast<std::size_t>(theirs.tokens()));
    ASSERT_EQ(phasor_cache_positions(ours, positions.data(), positions.size()), PHASOR_OK);
    EXPECT_EQ(positions, theirs.positions());
  }
  static void expect_same(const phasor_heads& ours, const core::ConstHeadsView& theirs) {
    ASSERT_EQ(ours.tokens, theirs.tokens);
    ASSERT_EQ(ours.head_dim, theirs.head_dim);
    for (std::int64_t t = 0; t < ours.tokens; ++t) {
      for (std::int64_t h = 0; h < ours.heads; ++h) {
        for (std::int64_t d = 0; d < ours.head_dim; ++d) {
          const auto at = t * ours.token_stride + h * ours.head_stride + d;
          ASSERT_EQ(static_cast<const float*>(ours.data)[at],
                    static_cast<const float*>(
                        theirs.data)[t * theirs.token_stride + h * theirs.head_stride + d]);
        }
      }
    }
  }

  Rope rope_ = make_rope(kDim);
  Cache ours_;
  attention::KVCache theirs_;
  phasor_attend_options options_{};
};

TEST_F(CapiCache, ACProgramWalksThrough) { EXPECT_STREQ(phasor_c_cache_walk(), nullptr); }

TEST_F(CapiCache, KeepsTheRoomsOwnBitsThroughEveryCall) {
  EXPECT_EQ(info().tokens, 0);
  EXPECT_EQ(info().capacity, kCapacity);
  EXPECT_EQ(info().rotates, 1);
  EXPECT_EQ(info().mode, PHASOR_CACHE_DRIFT_FREE);
  EXPECT_EQ(info().axis_count, 1);
  append(5, 0.1F);
  append(4, 0.2F);
  expect_same();
  ASSERT_EQ(phasor_cache_evict(ours_.get(), 1, 3), PHASOR_OK) << phasor_last_error();
  theirs_.evict(1, 3);
  expect_same();
  ASSERT_EQ(phasor_cache_shift(ours_.get(), 1, 7, -2, 1), PHASOR_OK) << phasor_last_error();
  theirs_.shift(1, 7, -2, 1);
  expect_same();
  ASSERT_EQ(phasor_cache_truncate(ours_.get(), 6), PHASOR_OK) << phasor_last_error();
  theirs_.truncate(6);
  expect_same();
  const Rope other = make_rope(kDim, 500000.0);
  const phasor_positions moved = phasor_positions_from(40);
  ASSERT_EQ(phasor_cache_rerotate(ours_.get(), other.get(), &moved, 1), PHASOR_OK)
      << phasor_last_error();
  theirs_.rerotate(rotary_of_base(500000.0), core::positions_from(40), 1);
  expect_same();
}

TEST_F(CapiCache, AppendsAtPositionsThatAreGiven) {
  const Tensor k(2, kKeyHeads, 0.1F), v(2, kKeyHeads, 0.2F, kValueDim);
  const std::int64_t at[] = {7, 30};
  const phasor_positions positions = phasor_positions_integers(at, 1, 0, 2);
  ASSERT_EQ(phasor_cache_append(ours_.get(), &k.c, &v.c, &positions, 1), PHASOR_OK)
      << phasor_last_error();
  theirs_.append(k.cpp, v.cpp, core::positions_per_token(std::span<const std::int64_t>(at)), 1);
  expect_same();
  EXPECT_EQ(info().next_position, 31);
}

TEST_F(CapiCache, AttendsLikeTheRoom) {
  append(9, 0.3F);
  const Tensor q(2, kHeads, 0.4F), out(2, kHeads, 0.5F, kValueDim),
      expected(2, kHeads, 0.6F, kValueDim);
  encodings::ScoreTerms terms = encodings::resolve(
      encodings::NoEncoding{}, {kHeads, kKeyHeads, kDim, kValueDim, 2, theirs_.tokens()});
  terms.rotation = theirs_.spec().rotary;
  attention::AttentionOptions options;
  options.causality = attention::Causality::bottom_right;
  options.threads = 1;
  theirs_.attend(terms, q.cpp, expected.cpp, options);
  ASSERT_EQ(phasor_cache_attend(ours_.get(), nullptr, &q.c, &out.c, &options_), PHASOR_OK)
      << phasor_last_error();
  EXPECT_EQ(out.values, expected.values);

  // The same rope by its JSON is the same; a padding mask counts.
  const Encoding rope = parse_encoding(R"({"encoding": "rope", "head_dim": 8, "layout": "half"})");
  ASSERT_EQ(phasor_cache_attend(ours_.get(), rope.get(), &q.c, &out.c, &options_), PHASOR_OK)
      << phasor_last_error();
  EXPECT_EQ(out.values, expected.values);
  const std::vector<std::uint8_t> padding = {0, 1, 1, 1, 1, 1, 1, 1, 1};
  options_.key_padding = padding.data();
  options_.key_padding_count = padding.size();
  options.key_padding = padding;
  theirs_.attend(terms, q.cpp, expected.cpp, options);
  ASSERT_EQ(phasor_cache_attend(ours_.get(), nullptr, &q.c, &out.c, &options_), PHASOR_OK);
  EXPECT_EQ(out.values, expected.values);
  // Alibi is added to the rotation.
  const Encoding alibi = parse_encoding(R"({"encoding": "alibi"})");
  ASSERT_EQ(phasor_cache_attend(ours_.get(), alibi.get(), &q.c, &out.c, &options_), PHASOR_OK)
      << phasor_last_error();
  EXPECT_NE(out.values, expected.values);
}

TEST_F(CapiCache, ForksAreIndependent) {
  append(4, 0.3F);
  phasor_cache* raw = nullptr;
  ASSERT_EQ(phasor_cache_fork(ours_.get(), 0, &raw), PHASOR_OK) << phasor_last_error();
  const Cache same(raw);
  ASSERT_EQ(phasor_cache_fork(ours_.get(), 20, &raw), PHASOR_OK);
  const Cache larger(raw);
  EXPECT_EQ(info_of(same.get()).capacity, kCapacity);
  EXPECT_EQ(info_of(larger.get()).capacity, 20);
  ASSERT_EQ(phasor_cache_truncate(ours_.get(), 0), PHASOR_OK);
  expect_same(same.get(), theirs_);
  expect_same(larger.get(), theirs_);
  raw = untouched<phasor_cache>();
  expect_status(phasor_cache_fork(same.get(), 3, &raw), PHASOR_OUT_OF_RANGE, "3");
  EXPECT_EQ(raw, untouched<phasor_cache>());
}

TEST_F(CapiCache, SixteenBitsAndNoRope) {
  phasor_cache_spec spec = c_spec();
  spec.dtype = PHASOR_BF16;
  spec.rope = nullptr;
  phasor_cache* raw = nullptr;
  ASSERT_EQ(phasor_cache_create(&spec, &raw), PHASOR_OK) << phasor_last_error();
  const Cache cache(raw);
  std::vector<std::uint16_t> k(kKeyHeads * kDim, phasor_float_to_bf16(1.5F));
  std::vector<std::uint16_t> v(kKeyHeads * kValueDim, phasor_float_to_bf16(-2.0F));
  const phasor_heads k_view = phasor_dense_heads(k.data(), PHASOR_BF16, 1, 1, kKeyHeads, kDim);
  const phasor_heads v_view = phasor_dense_heads(v.data(), PHASOR_BF16, 1, 1, kKeyHeads, kValueDim);
  ASSERT_EQ(phasor_cache_append(cache.get(), &k_view, &v_view, nullptr, 1), PHASOR_OK)
      << phasor_last_error();
  EXPECT_EQ(info_of(cache.get()).rotates, 0);
  phasor_heads keys;
  ASSERT_EQ(phasor_cache_views(cache.get(), &keys, nullptr), PHASOR_OK);
  EXPECT_EQ(keys.dtype, PHASOR_BF16);
  EXPECT_EQ(static_cast<const std::uint16_t*>(keys.data)[0], k[0]);
}

TEST_F(CapiCache, AFailedCallLeavesItAsItWas) {
  append(5, 0.3F);
  const Tensor k(9, kKeyHeads, 0.1F), v(9, kKeyHeads, 0.2F, kValueDim),
      narrow(1, kKeyHeads, 0.3F, 6);
  expect_status(phasor_cache_append(ours_.get(), &k.c, &v.c, nullptr, 1), PHASOR_OUT_OF_RANGE,
                "12");
  expect_status(phasor_cache_append(ours_.get(), &narrow.c, &v.c, nullptr, 1),
                PHASOR_SHAPE_MISMATCH, "");
  expect_status(phasor_cache_append(ours_.get(), &k.c, &v.c, nullptr, -1), PHASOR_INVALID_ARGUMENT,
                {"threads", "-1"});
  phasor_positions bad = phasor_positions_from(0);
  bad.kind = 9;
  expect_status(phasor_cache_append(ours_.get(), &k.c, &v.c, &bad, 1), PHASOR_INVALID_ARGUMENT,
                {"positions.kind", "3", "9"});
  expect_status(phasor_cache_truncate(ours_.get(), 6), PHASOR_OUT_OF_RANGE, "6");
  expect_status(phasor_cache_evict(ours_.get(), 2, 6), PHASOR_OUT_OF_RANGE, "6");
  expect_status(phasor_cache_shift(ours_.get(), 0, 5, std::numeric_limits<std::int64_t>::max(), 1),
                PHASOR_OUT_OF_RANGE, "");
  const Rope narrow_rope = make_rope(4);
  expect_status(phasor_cache_rerotate(ours_.get(), narrow_rope.get(), nullptr, 1),
                PHASOR_SHAPE_MISMATCH, "");
  expect_same();
  double positions[4] = {7.0, 7.0, 7.0, 7.0};
  expect_status(phasor_cache_positions(ours_.get(), positions, 4), PHASOR_SHAPE_MISMATCH,
                {"count", "5", "4"});
  EXPECT_EQ(positions[0], 7.0);
}

TEST_F(CapiCache, RefusesWhatACacheCannotDo) {
  append(5, 0.3F);
  const Tensor q(1, kHeads, 0.4F), out(1, kHeads, 0.5F, kValueDim);
  const std::vector<float> before = out.values;
  const auto expect = [&](phasor_status status, const Values& values,
                          const phasor_encoding* encoding = nullptr) {
    expect_status(phasor_cache_attend(ours_.get(), encoding, &q.c, &out.c, &options_), status,
                  values);
    EXPECT_EQ(out.values, before);
    options_ = {};
    options_.struct_size = sizeof(options_);
  };
  float sums[kHeads];
  options_.log_sum_exp = sums;
  options_.log_sum_exp_count = kHeads;
  expect(PHASOR_UNSUPPORTED, "log_sum_exp");
  options_.probabilities = sums;
  expect(PHASOR_UNSUPPORTED, "probabilities");
  options_.key_state = PHASOR_KEYS_ROTATED;
  expect(PHASOR_UNSUPPORTED, "key_state");
  const phasor_positions positions = phasor_positions_from(0);
  options_.key_positions = &positions;
  expect(PHASOR_INVALID_ARGUMENT, {"key", "positions"});
  options_.angles = PHASOR_ANGLES_FLOAT32;
  expect(PHASOR_INVALID_ARGUMENT, "float32");
  const Encoding other =
      parse_encoding(R"({"encoding": "rope", "head_dim": 8, "layout": "interleaved"})");
  expect(PHASOR_INVALID_ARGUMENT, "layout", other.get());

  phasor_cache* none = untouched<phasor_cache>();
  phasor_cache_spec spec = c_spec();
  spec.dtype = PHASOR_F64;
  expect_status(phasor_cache_create(&spec, &none), PHASOR_UNSUPPORTED, "f64");
  spec = c_spec();
  spec.capacity = 0;
  expect_status(phasor_cache_create(&spec, &none), PHASOR_INVALID_ARGUMENT, "capacity");
  spec = c_spec();
  spec.mode = 2;
  expect_status(phasor_cache_create(&spec, &none), PHASOR_INVALID_ARGUMENT, {"mode", "1", "2"});
  EXPECT_EQ(none, untouched<phasor_cache>());
}

TEST_F(CapiCache, RefusesNull) {
  phasor_cache* cache = untouched<phasor_cache>();
  phasor_cache_info info{};
  info.struct_size = sizeof(info);
  phasor_heads view;
  const phasor_cache_spec spec = c_spec();
  const Tensor k(1, kKeyHeads, 0.1F), v(1, kKeyHeads, 0.2F, kValueDim), q(1, kHeads, 0.4F);
  phasor_cache* const ours = ours_.get();
  const phasor_status all[] = {
      phasor_cache_create(nullptr, &cache),
      phasor_cache_create(&spec, nullptr),
      phasor_cache_fork(nullptr, 0, &cache),
      phasor_cache_fork(ours, 0, nullptr),
      phasor_cache_describe(nullptr, &info),
      phasor_cache_describe(ours, nullptr),
      phasor_cache_positions(nullptr, nullptr, 0),
      phasor_cache_positions(ours, nullptr, 1),
      phasor_cache_views(nullptr, &view, &view),
      phasor_cache_append(nullptr, &k.c, &v.c, nullptr, 0),
      phasor_cache_append(ours, nullptr, &v.c, nullptr, 0),
      phasor_cache_append(ours, &k.c, nullptr, nullptr, 0),
      phasor_cache_truncate(nullptr, 0),
      phasor_cache_evict(nullptr, 0, 0),
      phasor_cache_shift(nullptr, 0, 0, 1, 0),
      phasor_cache_rerotate(nullptr, rope_.get(), nullptr, 0),
      phasor_cache_rerotate(ours, nullptr, nullptr, 0),
      phasor_cache_attend(nullptr, nullptr, &q.c, &q.c, nullptr),
      phasor_cache_attend(ours, nullptr, nullptr, &q.c, nullptr),
      phasor_cache_attend(ours, nullptr, &q.c, nullptr, nullptr),
  };
  for (std::size_t i = 0; i < std::size(all); ++i) EXPECT_EQ(all[i], PHASOR_INVALID_ARGUMENT) << i;
  EXPECT_EQ(cache, untouched<phasor_cache>());
  phasor_cache_destroy(nullptr);
}

}  // namespace
}  // namespace phasor::capi
