// The command on several ranks of MPI: the results of one rank, and one line for an error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools {
namespace {

using testing::Outcome;

class Ranks : public testing::Phasor {
 protected:
  [[nodiscard]] Outcome run_on(int ranks, const std::vector<std::string>& arguments,
                               const std::string& input = {}) const {
    return run_program(ranks, PHASOR_BINARY, arguments, input);
  }
  [[nodiscard]] Outcome run_program(int ranks, const std::string& program,
                                    const std::vector<std::string>& arguments,
                                    const std::string& input = {}) const {
    std::vector<std::string> words = {PHASOR_RANKS, std::to_string(ranks), program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return finish(spawn(words, input));
  }
  [[nodiscard]] std::vector<float> numbers(const char* name) const {
    const io::NpyArray array = read(name);
    std::vector<float> values(array.bytes.size() / sizeof(float));
    std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
    return values;
  }
  static void expect_one_line(const Outcome& outcome, const std::string& line) {
    EXPECT_EQ(outcome.exit, 2);
    EXPECT_EQ(outcome.err, line + "\n");
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
  }
};

TEST_F(Ranks, RunGivesTheTextOfOneRank) {
  const std::vector<std::string> words = {
      "run", "--embedded", "-p", "It is a truth universally acknowledged, that a", "-n", "40"};
  const Outcome one = run(words);
  ASSERT_EQ(one.exit, 0) << one.err;
  for (const int ranks : {2, 3}) {
    const Outcome many = run_on(ranks, words);
    EXPECT_EQ(many.exit, 0) << many.err;
    EXPECT_EQ(many.out, one.out);
  }
  std::vector<std::string> sampled = words;
  sampled.insert(sampled.end(), {"--temperature", "0.8", "--seed", "7"});
  EXPECT_EQ(run_on(2, sampled).out, run(sampled).out);
}

TEST_F(Ranks, LogitsAreThoseOfOneRank) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 67; ++i) ids.push_back((i * i + 3 * i) % 250);
  const std::string input = put_array("ids.npy", io::NpyType::i64, {67}, ids);
  const std::vector<std::string> words = {"logits", PHASOR_EMBEDDED_DIR, "--ids", input, "-o"};
  const auto to = [&](const char* name) {
    std::vector<std::string> all = words;
    all.push_back(file(name));
    return all;
  };
  ASSERT_EQ(run(to("one.npy")).exit, 0);
  const Outcome many = run_on(2, to("many.npy"));
  ASSERT_EQ(many.exit, 0) << many.err;
  EXPECT_EQ(std::count(many.out.begin(), many.out.end(), '\n'), 1) << many.out;
  const std::vector<float> expected = numbers("one.npy"), got = numbers("many.npy");
  ASSERT_EQ(got.size(), expected.size());
  float largest = 0.0F, difference = 0.0F;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(got[i] - expected[i]));
  }
  EXPECT_LE(difference, 1e-5F * largest);
}

TEST_F(Ranks, EvalGivesTheNatsOfOneRankAndContinuesItsFile) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The number " + std::to_string(i * i) + " is a square. ";
  const std::string path = put_text("text.txt", text);
  const std::vector<std::string> words = {
      "eval",      PHASOR_EMBEDDED_DIR, "--text",       path,  "--contexts", "64,200",
      "--scaling", "none,dynamic",      "--max-tokens", "500", "--json"};
  const auto cells = [](const Outcome& outcome) { return io::parse_object(outcome.out)["cells"]; };
  const Outcome one = run(words);
  ASSERT_EQ(one.exit, 0) << one.err;
  std::vector<std::string> kept = words;
  kept.insert(kept.end(), {"--csv", file("eval.csv")});
  const Outcome many = run_on(3, kept);
  ASSERT_EQ(many.exit, 0) << many.err;
  const io::Json expected = cells(one), got = cells(many);
  ASSERT_EQ(got.size(), 4U);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double nats = expected[i]["nats"].get<double>();
    EXPECT_NEAR(got[i]["nats"].get<double>(), nats, 1e-6 * nats);
  }
  // Everything is in the file: another number of ranks computes nothing.
  const Outcome again = run_on(2, kept);
  EXPECT_EQ(again.exit, 0) << again.err;
  EXPECT_EQ(cells(again)[3]["nats"], got[3]["nats"]);
  EXPECT_FALSE(exists("eval.csv.partial"));
}

TEST_F(Ranks, StdinIsThatOfRankZero) {
  const std::string prompt = put_text("prompt.txt", "Once upon a time");
  const std::vector<std::string> words = {"run", "--embedded", "--prompt-file", "-", "-n", "8"};
  EXPECT_EQ(run_on(2, words, prompt).out, run(words, prompt).out);
}

TEST_F(Ranks, AnErrorOfAllRanksIsOneLine) {
  expect_one_line(run_on(3, {"logits", PHASOR_EMBEDDED_DIR, "--ids", file("none.npy"), "-o", "-"}),
                  "phasor logits: cannot open " + file("none.npy") + ": no such file or directory");
  expect_one_line(run_on(2, {"explain", PHASOR_EMBEDDED_DIR}),
                  "phasor explain: runs on one rank, got 2: start it without mpirun");
  const Outcome shifts = run_on(2, {"run", "--embedded", "-p", "a", "--shift"});
  expect_refusal(shifts, "run", {"--shift", "got 2"});
}

// Ranks read files of their own: each looks for ids.npy in the folder of its rank.
TEST_F(Ranks, AnErrorOfOneRankNamesIt) {
  const std::string script =
      put_text("own.sh", "#!/bin/sh\nmkdir -p " + file("r") + "$OMPI_COMM_WORLD_RANK\ncd " +
                             file("r") + "$OMPI_COMM_WORLD_RANK\nexec " PHASOR_BINARY " \"$@\"\n");
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const auto put_ids = [&](int rank, std::vector<std::int64_t> ids) {
    const std::string folder = "r" + std::to_string(rank);
    std::filesystem::create_directories(at(folder));
    (void)put_array(folder + "/ids.npy", io::NpyType::i64, {static_cast<std::int64_t>(ids.size())},
                    ids);
  };
  const std::vector<std::string> words = {"logits", PHASOR_EMBEDDED_DIR, "--ids", "ids.npy",
                                          "-o",     file("L.npy")};
  put_ids(0, {1, 2, 3});
  put_ids(1, {1, 2, 3});
  expect_one_line(run_program(3, script, words),
                  "phasor: rank 2: cannot open ids.npy: no such file or directory");
  put_ids(2, {1, 2, 4, 5});
  const Outcome differ = run_program(3, script, words);
  expect_refusal(differ, "logits", {"rank 0", "3 tokens", "rank 2", "4 tokens"}, "L.npy");
  EXPECT_EQ(std::count(differ.err.begin(), differ.err.end(), '\n'), 1) << differ.err;
}

TEST_F(Ranks, WithoutPhasorMpiRankZeroSaysSo) {
  std::filesystem::copy_file(PHASOR_BINARY, at("phasor"));
  expect_one_line(
      run_program(2, file("phasor"), {"eval"}),
      "phasor: started on 2 ranks, but this phasor was built without MPI: cmake -DPHASOR_MPI=ON");
}

}  // namespace
}  // namespace phasor::tools
