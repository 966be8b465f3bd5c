// phasor audit on the tables that engines dump: every form, right tables found right, wrong ones wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/io/tensors.hpp"
#include "run_phasor.hpp"

namespace phasor::tools {
namespace {

using io::NpyType;
using json = io::Json;

constexpr std::int64_t kRows = 40, kPairs = 4;

// A table that an engine might have: exact, of another base, or with one bad entry.
enum class Fault { none, base, entry };

class AuditForms : public testing::Phasor {
 protected:
  AuditForms() { config_ = put_text("spec.json", testing::kPlainSpec); }

  static double angle(std::int64_t row, std::int64_t pair, Fault fault) {
    const double base = fault == Fault::base ? 9000.0 : 10000.0;
    const double exact = static_cast<double>(row) *
                         std::pow(base, -static_cast<double>(pair) / static_cast<double>(kPairs));
    return fault == Fault::entry && row == 17 && pair == 2 ? exact + 0.3 : exact;
  }

  struct Numbers {
    std::vector<float> cos, sin;
  };
  // features: of a row, each given by its pair.
  static Numbers numbers(Fault fault, const std::vector<std::int64_t>& features) {
    Numbers made;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (const std::int64_t pair : features) {
        made.cos.push_back(static_cast<float>(std::cos(angle(row, pair, fault))));
        made.sin.push_back(static_cast<float>(std::sin(angle(row, pair, fault))));
      }
    }
    return made;
  }
  static std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  std::string put_safetensors(const std::string& name, const Numbers& made,
                              const std::vector<std::int64_t>& shape) const {
    const std::vector<io::Tensor> tensors = {
        {.name = "rotary.cos_cached", .shape = shape, .bytes = std::as_bytes(std::span(made.cos))},
        {.name = "rotary.sin_cached", .shape = shape, .bytes = std::as_bytes(std::span(made.sin))}};
    EXPECT_TRUE(io::write_safetensors(at(name), tensors).ok());
    return file(name);
  }

  // One form in every container that can hold it; the arguments that name the table.
  std::vector<std::vector<std::string>> put_two(Fault fault,
                                                const std::vector<std::int64_t>& features) const {
    const Numbers made = numbers(fault, features);
    const auto width = static_cast<std::int64_t>(features.size());
    const std::string cos = put_array("cos.npy", NpyType::f32, {1, kRows, width}, made.cos);
    const std::string sin = put_array("sin.npy", NpyType::f32, {1, kRows, width}, made.sin);
    const std::string both =
        put_array("both.npy", NpyType::f32, {2, kRows, width}, joined(made.cos, made.sin));
    const std::string named = put_safetensors("named.safetensors", made, {1, 1, kRows, width});
    return {{cos, sin}, {both}, {named}};
  }

  [[nodiscard]] json audited(std::vector<std::string> table, int exit) const {
    table.insert(table.begin(), "audit");
    table.insert(table.end(), {"--config", config_, "--json"});
    const auto outcome = run(table);
    EXPECT_EQ(outcome.exit, exit) << outcome.err << table[1];
    return outcome.exit == 2 ? json() : json::parse(outcome.out);
  }

  std::string config_;
};

TEST_F(AuditForms, CosAndSin) {
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> forms = {
      {"pairs", {0, 1, 2, 3}},
      {"concatenated", {0, 1, 2, 3, 0, 1, 2, 3}},
      {"interleaved", {0, 0, 1, 1, 2, 2, 3, 3}}};
  for (const auto& [form, features] : forms) {
    for (const Fault fault : {Fault::none, Fault::base, Fault::entry}) {
      for (const std::vector<std::string>& table : put_two(fault, features)) {
        const json answer = audited(table, fault == Fault::none ? 0 : 1);
        EXPECT_EQ(answer["form"], form);
        if (fault == Fault::none) {
          EXPECT_LE(answer["max_ulp"].get<double>(), 1.0);
        }
        if (fault == Fault::entry) {
          EXPECT_NEAR(answer["max_angle_error"].get<double>(), 0.3, 1e-5);
          EXPECT_EQ(answer["worst_angle"]["position"], 17.0);
          EXPECT_EQ(answer["worst_angle"]["pair"], 2);
        }
      }
    }
  }
}

TEST_F(AuditForms, OneArray) {
  for (const Fault fault : {Fault::none, Fault::base, Fault::entry}) {
    const Numbers made = numbers(fault, {0, 1, 2, 3});
    std::vector<float> last, halves, swapped;
    for (std::size_t i = 0; i < made.cos.size(); ++i) {
      last.push_back(made.cos[i]);
      last.push_back(made.sin[i]);
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      for (const auto* const part : {&made.cos, &made.sin})
        halves.insert(halves.end(), part->begin() + static_cast<std::ptrdiff_t>(row * kPairs),
                      part->begin() + static_cast<std::ptrdiff_t>((row + 1) * kPairs));
      for (const auto* const part : {&made.sin, &made.cos})
        swapped.insert(swapped.end(), part->begin() + static_cast<std::ptrdiff_t>(row * kPairs),
                       part->begin() + static_cast<std::ptrdiff_t>((row + 1) * kPairs));
    }
    io::NpyArray complex = io::make_npy(NpyType::c64, {kRows, kPairs});
    std::memcpy(complex.bytes.data(), last.data(), complex.bytes.size());
    ASSERT_TRUE(io::write_npy(at("freqs_cis.npy"), complex).ok());
    const int exit = fault == Fault::none ? 0 : 1;
    EXPECT_EQ(audited({file("freqs_cis.npy")}, exit)["form"], "complex");
    EXPECT_EQ(
        audited({put_array("last.npy", NpyType::f32, {kRows, kPairs, 2}, last)}, exit)["form"],
        "last_axis");
    EXPECT_EQ(
        audited({put_array("halves.npy", NpyType::f32, {kRows, 2 * kPairs}, halves)}, exit)["form"],
        "cos_sin");
    const std::string sin_first =
        put_array("swapped.npy", NpyType::f32, {kRows, 2 * kPairs}, swapped);
    EXPECT_EQ(audited({sin_first, "--form", "sin_cos"}, exit)["form"], "sin_cos");
    // Without the flag it is cos first, and that table is wrong.
    (void)audited({sin_first}, 1);
  }
}

TEST_F(AuditForms, SixteenBits) {
  for (const Fault fault : {Fault::none, Fault::base}) {
    const Numbers made = numbers(fault, {0, 1, 2, 3, 0, 1, 2, 3});
    std::vector<std::uint16_t> half, brain;
    for (const float value : joined(made.cos, made.sin)) {
      half.push_back(core::to_half(value).bits);
      brain.push_back(core::to_bfloat16(value).bits);
    }
    for (const auto& [type, values] :
         {std::pair{NpyType::f16, &half}, {NpyType::bf16, &brain}, {NpyType::u16, &brain}}) {
      const std::string table = put_array("T.npy", type, {2, kRows, 2 * kPairs}, *values);
      const json answer = audited({table}, fault == Fault::none ? 0 : 1);
      EXPECT_EQ(answer["form"], "concatenated");
      if (fault == Fault::none) {
        EXPECT_LE(answer["max_ulp"].get<double>(), 1.0);
      }
    }
  }
}

TEST_F(AuditForms, CopiesThatDifferAreADifference) {
  Numbers made = numbers(Fault::none, {0, 1, 2, 3, 0, 1, 2, 3});
  made.cos[9 * 8 + 6] = 0.0F;  // the second copy; the first one is exact
  const std::string cos = put_array("cos.npy", NpyType::f32, {kRows, 8}, made.cos);
  const std::string sin = put_array("sin.npy", NpyType::f32, {kRows, 8}, made.sin);
  const auto outcome = run({"audit", cos, sin, "--config", config_, "--json"});
  EXPECT_EQ(outcome.exit, 1);
  EXPECT_EQ(json::parse(outcome.out)["differing_copies"], 1);
  EXPECT_NE(outcome.err.find("row 9"), std::string::npos) << outcome.err;
}

TEST_F(AuditForms, Refusals) {
  const Numbers made = numbers(Fault::none, {0, 1, 2, 3, 0, 1, 2, 3});
  const std::string cos = put_array("cos.npy", NpyType::f32, {kRows, 8}, made.cos);
  expect_refusal(run({"audit", cos, "--config", config_}), "audit", {"cos.npy"});
  const std::string none =
      put_array<float>("none.npy", NpyType::f32, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::string two = put_text("two.json", R"({"head_dim": 4, "layout": "half"})");
  expect_refusal(run({"audit", none, "--config", two}), "audit", {"--form", "last_axis"});
  expect_refusal(run({"audit", cos, "--config", config_, "--form", "other"}), "audit", {"other"});
}

}  // namespace
}  // namespace phasor::tools
