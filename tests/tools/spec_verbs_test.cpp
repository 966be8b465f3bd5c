// Plain specs as --config of the verbs that rotate.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using io::NpyType;
using json = io::Json;

class SpecVerbs : public Phasor {
 protected:
  [[nodiscard]] static std::vector<float> counting(std::size_t count) {
    std::vector<float> numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = 0.25F * static_cast<float>(i) - 1.0F;
    return numbers;
  }
};

TEST_F(SpecVerbs, every_section_has_a_row_of_positions) {
  (void)put_array("X.npy", NpyType::f32, {2, 1, 8}, counting(16));
  const std::string three =
      put_array<std::int64_t>("P3.npy", NpyType::i64, {3, 2}, {5, 6, 7, 8, 100, 200});
  const std::string four =
      put_array<std::int64_t>("P4.npy", NpyType::i64, {4, 2}, {5, 6, 7, 8, 100, 200, 9, 9});
  const auto verbs = [&](const std::string& sections, const std::string& positions) {
    const std::string config =
        put_text("rows.json",
                 R"({"head_dim": 8, "layout": "half", "mrope": {"sections": )" + sections + "}}");
    return std::vector<Outcome>{
        run({"rotate", "--config", config, "-i", file("X.npy"), "-o", file("Y.npy"), "--positions",
             positions}),
        run({"table", "--config", config, "--positions", positions, "-o", file("T.npy")}),
        run({"audit", file("T.npy"), "--config", config, "--positions", positions})};
  };
  for (const auto& [sections, rows, other] : {std::tuple{"[1, 3, 0]", three, four},
                                              {"[4, 0, 0]", three, four},
                                              {"[1, 3, 0, 0]", four, three},
                                              {"[1, 1, 1, 1]", four, three}}) {
    for (const Outcome& outcome : verbs(sections, rows))
      EXPECT_EQ(outcome.exit, 0) << sections << outcome.err;
    for (const Outcome& outcome : verbs(sections, other)) EXPECT_EQ(outcome.exit, 2) << sections;
  }
}

TEST_F(SpecVerbs, a_list_of_frequencies_is_a_config) {
  const std::string config = put_text(
      "list.json", R"({"frequencies": [1, 0.1, 0.01, 0.001], "amplitude": 2, "layout": "half"})");
  (void)put_array("X.npy", NpyType::f32, {2, 1, 8}, counting(16));
  const std::string powers = put_text("powers.json", R"({"head_dim": 8, "layout": "half"})");
  ASSERT_EQ(
      run({"rotate", "--config", powers, "-i", file("X.npy"), "-o", file("Y.npy"), "--offset", "3"})
          .exit,
      0);
  const std::vector<double> plain = io::to_doubles(read("Y.npy")).value_or_throw();
  const Outcome outcome = run(
      {"rotate", "--config", config, "-i", file("X.npy"), "-o", file("Y.npy"), "--offset", "3"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const std::vector<double> listed = io::to_doubles(read("Y.npy")).value_or_throw();
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(listed[i], 2.0 * plain[i], 1e-5);
  const Outcome freqs = run({"freqs", "--config", config, "--json"});
  ASSERT_EQ(freqs.exit, 0) << freqs.err;
  const json answer = json::parse(freqs.out);
  EXPECT_EQ(answer["base"], nullptr);
  EXPECT_EQ(answer["amplitude"], 2.0);
  EXPECT_EQ(answer["frequencies"], (std::vector<double>{1.0, 0.1, 0.01, 0.001}));
  EXPECT_EQ(run({"freqs", "--config", config, "-o", file("F.npy")}).exit, 0);
  ASSERT_EQ(run({"table", "--config", config, "--positions", "0:4", "-o", file("T.npy")}).exit, 0);
  EXPECT_EQ(run({"audit", file("T.npy"), "--config", config}).exit, 0);
  EXPECT_EQ(run({"diff", "--config", config}).exit, 0);
  expect_refusal(run({"plan", "--config", config, "--to", "64", "--trained", "16"}), "plan",
                 "frequencies", "plan.npy");
}

}  // namespace
}  // namespace phasor::tools::testing
