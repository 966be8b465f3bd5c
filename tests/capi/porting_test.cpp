// The porting tools through phasor.h: the text that C++ gives, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "capi/c_only.h"
#include "capi/support.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/porting/config_reports.hpp"
#include "phasor/porting/diagnose.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::capi {
namespace {

using testing::Config;
using testing::expect_status;
using testing::Rope;
using testing::taken;
using testing::Tensor;
using testing::untouched;

constexpr std::string_view kYarn = R"({"model_type": "llama", "hidden_size": 256,
  "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 4096,
  "rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
  "original_max_position_embeddings": 1024}})";
constexpr std::string_view kPlain =
    R"({"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,
        "num_hidden_layers": 2, "max_position_embeddings": 4096, "rope_theta": 10000.0})";
const std::string kGolden = std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3/model";

Config parse(std::string_view text) {
  phasor_config* config = nullptr;
  EXPECT_EQ(phasor_config_parse(text.data(), text.size(), &config), PHASOR_OK)
      << phasor_last_error();
  return Config(config);
}

class CapiPorting : public io::testing::TemporaryFolder {
 protected:
  // The text of a call that must succeed.
  template <class Call>
  static std::string text_of(Call call) {
    phasor_text* text = nullptr;
    EXPECT_EQ(call(&text), PHASOR_OK) << phasor_last_error();
    return taken(text);
  }

  Config yarn_ = parse(kYarn), plain_ = parse(kPlain);
};

TEST_F(CapiPorting, ACProgramWalksThrough) { EXPECT_STREQ(phasor_c_text_walk(), nullptr); }

TEST_F(CapiPorting, EveryFunctionOfTheHeaderIsLinkedFromC) {
  int marks = 0;
  for (const auto& file : std::filesystem::directory_iterator(PHASOR_TEST_HEADERS)) {
    const std::string header = io::testing::get(file.path());
    for (std::size_t at = header.find("\nPHASOR_API "); at != std::string::npos;
         at = header.find("\nPHASOR_API ", at + 1)) {
      ++marks;
    }
  }
  EXPECT_EQ(phasor_c_function_count(), marks) << "kFunctions of c_only.c lists them all";
}

TEST_F(CapiPorting, ExplainsDiffsAndPlansAsCppDoes) {
  const porting::ReadableConfig config = porting::parse_readable_config(kYarn).value_or_throw();
  EXPECT_EQ(text_of([&](phasor_text** out) { return phasor_explain_json(yarn_.get(), 0, out); }),
            porting::explain_json(porting::explain(config).value_or_throw()));
  EXPECT_EQ(text_of([&](phasor_text** out) { return phasor_explain_json(yarn_.get(), 9000, out); }),
            porting::explain_json(porting::explain(config, 9000).value_or_throw()));
  EXPECT_EQ(text_of([&](phasor_text** out) { return phasor_diff_json(yarn_.get(), nullptr, out); }),
            porting::diff_json(porting::diff(config, {}).value_or_throw()));
  phasor_diff_options options{};
  options.struct_size = sizeof(options);
  options.between = "hf,llama.cpp";
  options.context = 2048;
  options.max_length = 8192;
  options.shifts = 2;
  options.layer = "0";
  EXPECT_EQ(
      text_of([&](phasor_text** out) { return phasor_diff_json(yarn_.get(), &options, out); }),
      porting::diff_json(porting::diff(config, {.between = {"hf", "llama.cpp"},
                                                .context = 2048,
                                                .max_length = 8192,
                                                .shifts = 2,
                                                .layer = "0"})
                             .value_or_throw()));
  EXPECT_EQ(text_of([&](phasor_text** out) { return phasor_dialects_json(out); }),
            porting::dialects_json());
  porting::PlanOptions wanted;
  wanted.to = 16384;
  const porting::ReadableConfig plain = porting::parse_readable_config(kPlain).value_or_throw();
  EXPECT_EQ(text_of([&](phasor_text** out) {
              return phasor_plan_json(plain_.get(), 16384, 0, nullptr, out);
            }),
            porting::plan_json(porting::plan(plain, wanted).value_or_throw()));
}

TEST_F(CapiPorting, ARopeFromAConfigIsThatOfItsText) {
  phasor_rope* raw = nullptr;
  ASSERT_EQ(phasor_rope_from_config(yarn_.get(), "1", PHASOR_LAYOUT_UNSET, 0, &raw), PHASOR_OK)
      << phasor_last_error();
  const Rope by_config(raw);
  ASSERT_EQ(phasor_rope_from_config_text(kYarn.data(), kYarn.size(), nullptr, PHASOR_LAYOUT_UNSET,
                                         0, &raw),
            PHASOR_OK);
  const Rope by_text(raw);
  std::vector<double> ours(32), theirs(32);
  ASSERT_EQ(phasor_rope_frequencies(by_config.get(), ours.data(), 32), PHASOR_OK);
  ASSERT_EQ(phasor_rope_frequencies(by_text.get(), theirs.data(), 32), PHASOR_OK);
  EXPECT_EQ(ours, theirs);
}

TEST_F(CapiPorting, DiagnosesStridedTensors) {
  constexpr std::int64_t kTokens = 24, kHeads = 2, kDim = 64;
  // Random, since diagnose() uses statistics.
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Tensor before(kTokens, kHeads, 0.0F, kDim);
  for (float& value : before.values) value = normal(random);
  Tensor after(kTokens, kHeads, 0.0F, kDim);
  const Rope rope = testing::make_rope(kDim);
  const phasor_positions positions = phasor_positions_from(5);
  const phasor_rotation rotation{&before.c, &after.c, PHASOR_QUERY};
  ASSERT_EQ(phasor_rotate(rope.get(), &positions, &rotation, 1, nullptr), PHASOR_OK);

  const auto array_of = [&](const Tensor& tensor) {
    io::NpyArray array = io::make_npy(io::NpyType::f32, {1, kTokens, kHeads, kDim});
    std::copy(tensor.values.begin(), tensor.values.end(), array.as<float>());
    return array;
  };
  const io::NpyArray first = array_of(before), second = array_of(after);
  io::NpyArray at = io::make_npy(io::NpyType::f64, {kTokens});
  for (std::int64_t t = 0; t < kTokens; ++t) at.as<double>()[t] = static_cast<double>(5 + t);
  const std::vector<std::string> axes = {"batch", "tokens", "heads", "dim"};
  const porting::Diagnosis found = porting::diagnose({&first, &second, &at, axes});
  EXPECT_EQ(found.layout, "half");
  EXPECT_EQ(text_of([&](phasor_text** out) {
              return phasor_diagnose_json(&before.c, &after.c, &positions, nullptr, nullptr, 0,
                                          out);
            }),
            porting::diagnose_json(found));
  // Unknown positions are searched for; with a config the result is that they agree.
  const encodings::RopeSpec spec{
      .head_dim = kDim, .rotary_dim = kDim, .layout = core::PairLayout::half};
  const porting::ConfigDiagnosis searched =
      porting::diagnose({&first, &second, nullptr, axes}, spec);
  EXPECT_TRUE(searched.check.agrees);
  const Config config = parse(R"({"head_dim": 64, "layout": "half"})");
  EXPECT_EQ(text_of([&](phasor_text** out) {
              return phasor_diagnose_json(&before.c, &after.c, nullptr, config.get(), nullptr, 0,
                                          out);
            }),
            porting::diagnose_json(searched.found, &searched.check));

  // The same tensors, heads before tokens in memory.
  std::vector<float> moved[2];
  phasor_heads views[2];
  for (int i = 0; i < 2; ++i) {
    const Tensor& tensor = i == 0 ? before : after;
    moved[i].resize(tensor.values.size());
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t h = 0; h < kHeads; ++h) {
        std::copy_n(tensor.values.begin() + (t * kHeads + h) * kDim, kDim,
                    moved[i].begin() + (h * kTokens + t) * kDim);
      }
    }
    views[i] = phasor_dense_heads(moved[i].data(), PHASOR_F32, 1, kTokens, kHeads, kDim);
    views[i].token_stride = kDim;
    views[i].head_stride = kTokens * kDim;
  }
  EXPECT_EQ(text_of([&](phasor_text** out) {
              return phasor_diagnose_json(&views[0], &views[1], &positions, nullptr, nullptr, 0,
                                          out);
            }),
            porting::diagnose_json(found));
}

TEST_F(CapiPorting, AuditsAsCppDoes) {
  constexpr std::int64_t kRows = 16, kPairs = 32;
  const encodings::RopeSpec spec =
      config::select_layer(config::parse_config(kPlain).value_or_throw(), "")
          .value_or_throw()
          .rope.value();
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec);
  std::vector<float> cos(kRows * kPairs), sin(cos.size());
  std::vector<double> positions(kRows);
  for (std::int64_t r = 0; r < kRows; ++r) {
    positions[static_cast<std::size_t>(r)] = 1000.0 + static_cast<double>(r);
    for (std::int64_t i = 0; i < kPairs; ++i) {
      // Pairs across rows, so that the strides are read.
      const auto at = static_cast<std::size_t>(i * kRows + r);
      const auto angle = static_cast<float>(1000 + r) *
                         static_cast<float>(frequencies.values()[static_cast<std::size_t>(i)]);
      cos[at] = std::cos(angle);
      sin[at] = std::sin(angle);
    }
  }
  std::vector<double> wide_cos, wide_sin;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kPairs; ++i) {
      wide_cos.push_back(cos[static_cast<std::size_t>(i * kRows + r)]);
      wide_sin.push_back(sin[static_cast<std::size_t>(i * kRows + r)]);
    }
  }
  const porting::ForeignTable table{wide_cos, wide_sin, positions, kRows, core::DType::f32};
  const porting::AuditOptions options{std::nullopt, 1e-3};
  phasor_cos_sin_rows rows{.cos = cos.data(),
                           .sin = sin.data(),
                           .dtype = PHASOR_F32,
                           .pairs = kPairs,
                           .batch_stride = 0,
                           .token_stride = 1,
                           .pair_stride = kRows};
  EXPECT_EQ(text_of([&](phasor_text** out) {
              return phasor_audit_json(plain_.get(), nullptr, &rows, kRows, positions.data(),
                                       positions.size(), 0, 1e-3, out);
            }),
            porting::audit_json(porting::audit(spec, table, options), table, options));

  phasor_text* text = untouched<phasor_text>();
  expect_status(
      phasor_audit_json(plain_.get(), nullptr, &rows, kRows, positions.data(), 3, 0, 1e-3, &text),
      PHASOR_SHAPE_MISMATCH, {"position_count", "16", "3"});
  expect_status(phasor_audit_json(plain_.get(), nullptr, &rows, kRows, nullptr, 0, 0, -1.0, &text),
                PHASOR_INVALID_ARGUMENT, {"threshold", "-1"});
  rows.pairs = 31;
  expect_status(phasor_audit_json(plain_.get(), nullptr, &rows, kRows, nullptr, 0, 0, 1e-3, &text),
                PHASOR_SHAPE_MISMATCH, "");
  rows.pairs = -1;
  expect_status(phasor_audit_json(plain_.get(), nullptr, &rows, kRows, nullptr, 0, 0, 1e-3, &text),
                PHASOR_SHAPE_MISMATCH, "-1");
  EXPECT_EQ(text, untouched<phasor_text>());
}

TEST_F(CapiPorting, ReadsAndConvertsCheckpoints) {
  phasor_config* raw = nullptr;
  ASSERT_EQ(phasor_config_read(kGolden.c_str(), &raw), PHASOR_OK) << phasor_last_error();
  const Config config(raw);
  EXPECT_EQ(text_of([&](phasor_text** out) { return phasor_explain_json(config.get(), 0, out); }),
            porting::explain_json(
                porting::explain(porting::read_readable_config(kGolden).value_or_throw())
                    .value_or_throw()));
  EXPECT_EQ(
      text_of([&](phasor_text** out) { return phasor_weight_order_json(kGolden.c_str(), out); }),
      porting::weight_order_json(porting::infer_weight_order(kGolden).value_or_throw()));
  const std::string described =
      text_of([&](phasor_text** out) { return phasor_describe_json(kGolden.c_str(), out); });
  EXPECT_NE(described.find("\"runs_as\": \"decoder\""), std::string::npos) << described;
  const std::string page = text_of([&](phasor_text** out) {
    return phasor_convert_checkpoint(kGolden.c_str(), at("converted").c_str(), PHASOR_INTERLEAVED,
                                     PHASOR_LAYOUT_UNSET, out);
  });
  EXPECT_NE(page.find("interleaved"), std::string::npos) << page;
  phasor_rope* rope = nullptr;
  ASSERT_EQ(
      phasor_rope_from_config_file(at("converted").c_str(), nullptr, PHASOR_LAYOUT_UNSET, 0, &rope),
      PHASOR_OK);
  const Rope owned(rope);
  phasor_rope_info info{};
  info.struct_size = sizeof(info);
  ASSERT_EQ(phasor_rope_describe(rope, &info), PHASOR_OK);
  EXPECT_EQ(info.layout, PHASOR_INTERLEAVED);
}

TEST_F(CapiPorting, RefusesAndLeavesOutAsItWas) {
  auto* const same = untouched<phasor_text>();
  phasor_text* text = same;
  phasor_config* config = untouched<phasor_config>();
  phasor_rope* rope = untouched<phasor_rope>();
  Tensor x(4, 1, 0.1F), y(4, 1, 0.2F, 6);
  expect_status(phasor_config_parse("{", 1, &config), PHASOR_INVALID_ARGUMENT, "config");
  expect_status(phasor_config_read(at("nowhere").c_str(), &config), PHASOR_IO, "nowhere");
  expect_status(phasor_explain_json(plain_.get(), -1, &text), PHASOR_INVALID_ARGUMENT, "context");
  expect_status(phasor_plan_json(plain_.get(), 5, 0, nullptr, &text), PHASOR_INVALID_ARGUMENT, "5");
  expect_status(phasor_plan_json(plain_.get(), 9999, -2, nullptr, &text), PHASOR_INVALID_ARGUMENT,
                {"trained", "-2"});
  phasor_diff_options options{};
  options.struct_size = sizeof(options);
  options.between = "hf,nobody";
  expect_status(phasor_diff_json(plain_.get(), &options, &text), PHASOR_INVALID_ARGUMENT, "nobody");
  expect_status(phasor_rope_from_config(plain_.get(), "9", PHASOR_LAYOUT_UNSET, 0, &rope),
                PHASOR_INVALID_ARGUMENT, "9");
  expect_status(phasor_diagnose_json(&x.c, &y.c, nullptr, nullptr, nullptr, 0, &text),
                PHASOR_SHAPE_MISMATCH, "");
  const std::int64_t three[] = {0, 1, 2};
  const phasor_positions wrong = phasor_positions_integers(three, 1, 0, 3);
  expect_status(phasor_diagnose_json(&x.c, &x.c, &wrong, nullptr, nullptr, 0, &text),
                PHASOR_SHAPE_MISMATCH, {"positions", "[3]", "4"});
  const std::int64_t late[] = {1, 4};
  const phasor_positions packed = phasor_positions_packed(late, 1, 0);
  expect_status(phasor_diagnose_json(&x.c, &x.c, &packed, nullptr, nullptr, 0, &text),
                PHASOR_SHAPE_MISMATCH, {"boundaries", "1", "4"});
  expect_status(phasor_convert_checkpoint(kGolden.c_str(), at("never").c_str(), PHASOR_LAYOUT_UNSET,
                                          PHASOR_LAYOUT_UNSET, &text),
                PHASOR_INVALID_ARGUMENT, {"to", "PHASOR_LAYOUT_UNSET"});
  EXPECT_FALSE(std::filesystem::exists(at("never")));
  const phasor_cos_sin_rows rows{};
  const phasor_config* const plain = plain_.get();
  const phasor_status null[] = {
      phasor_config_parse(nullptr, 0, &config),
      phasor_config_parse("{}", 2, nullptr),
      phasor_config_read(nullptr, &config),
      phasor_config_read("x", nullptr),
      phasor_rope_from_config(nullptr, nullptr, PHASOR_HALF, 0, &rope),
      phasor_rope_from_config(plain, nullptr, PHASOR_HALF, 0, nullptr),
      phasor_explain_json(nullptr, 0, &text),
      phasor_explain_json(plain, 0, nullptr),
      phasor_diff_json(nullptr, nullptr, &text),
      phasor_diff_json(plain, nullptr, nullptr),
      phasor_dialects_json(nullptr),
      phasor_plan_json(nullptr, 9999, 0, nullptr, &text),
      phasor_plan_json(plain, 9999, 0, nullptr, nullptr),
      phasor_diagnose_json(nullptr, &x.c, nullptr, nullptr, nullptr, 0, &text),
      phasor_diagnose_json(&x.c, nullptr, nullptr, nullptr, nullptr, 0, &text),
      phasor_diagnose_json(&x.c, &x.c, nullptr, nullptr, nullptr, 0, nullptr),
      phasor_audit_json(nullptr, nullptr, &rows, 1, nullptr, 0, 0, 0.1, &text),
      phasor_audit_json(plain, nullptr, nullptr, 1, nullptr, 0, 0, 0.1, &text),
      phasor_audit_json(plain, nullptr, &rows, 1, nullptr, 0, 0, 0.1, &text),
      phasor_audit_json(plain, nullptr, &rows, 1, nullptr, 0, 0, 0.1, nullptr),
      phasor_weight_order_json(nullptr, &text),
      phasor_weight_order_json("x", nullptr),
      phasor_describe_json(nullptr, &text),
      phasor_describe_json("x", nullptr),
      phasor_convert_checkpoint(nullptr, "x", PHASOR_HALF, PHASOR_HALF, &text),
      phasor_convert_checkpoint("x", nullptr, PHASOR_HALF, PHASOR_HALF, &text),
      phasor_convert_checkpoint("x", "y", PHASOR_HALF, PHASOR_HALF, nullptr),
  };
  for (std::size_t i = 0; i < std::size(null); ++i) {
    EXPECT_EQ(null[i], PHASOR_INVALID_ARGUMENT) << i;
  }
  EXPECT_EQ(text, same);
  EXPECT_EQ(config, untouched<phasor_config>());
  EXPECT_EQ(rope, untouched<phasor_rope>());
}

}  // namespace
}  // namespace phasor::capi
