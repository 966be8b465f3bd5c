// convert as a shell sees it: the page, the files, and a run that the system stops.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;
using json = io::Json;

const std::string kLlama = std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3/model";

class ConvertVerb : public Phasor {
 protected:
  [[nodiscard]] std::map<std::string, std::string> contents(std::string_view folder) const {
    std::map<std::string, std::string> all;
    for (const fs::directory_entry& entry : fs::directory_iterator(at(folder))) {
      all[entry.path().filename().string()] = io::testing::get(entry.path());
    }
    return all;
  }

  // Runs with a limit on the size of files, which stops the writing in the middle.
  [[nodiscard]] Outcome run_limited(const std::vector<std::string>& arguments, rlim_t bytes) const {
    rlimit before{}, core{};
    getrlimit(RLIMIT_FSIZE, &before);
    getrlimit(RLIMIT_CORE, &core);
    const rlimit limit{bytes, before.rlim_max};
    const rlimit no_core{0, core.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    setrlimit(RLIMIT_CORE, &no_core);
    const auto handler = std::signal(SIGXFSZ, SIG_DFL);
    const Outcome outcome = run(arguments);  // the child inherits all three
    std::signal(SIGXFSZ, handler);
    setrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_CORE, &core);
    return outcome;
  }
};

TEST_F(ConvertVerb, SaysWhatItDid) {
  const Outcome there = run({"convert", kLlama, file("there"), "--to", "interleaved"});
  ASSERT_EQ(there.exit, 0) << there.err;
  for (const char* value : {"llama: half -> interleaved\n", "6 tensors", "3 layers"}) {
    EXPECT_NE(there.out.find(value), std::string::npos) << there.out;
  }
  EXPECT_TRUE(there.err.empty()) << there.err;  // no progress bar unless stderr is a terminal
  const json sidecar = json::parse(contents("there").at("phasor_layout.json"));
  EXPECT_EQ(sidecar["layout"], "interleaved");
  EXPECT_EQ(sidecar["converted_from"], "half");

  const Outcome back = run({"convert", file("there"), file("back"), "--to", "half", "--json"});
  ASSERT_EQ(back.exit, 0) << back.err;
  const json summary = json::parse(back.out);
  EXPECT_EQ(summary["to"], "half");
  EXPECT_TRUE(summary["sidecar"].is_null());
  EXPECT_EQ(contents("back").at("model.safetensors"),
            io::testing::get(kLlama + "/model.safetensors"));
  EXPECT_EQ(contents("back").size(), 2U);
}

TEST_F(ConvertVerb, OtherVerbsReadTheNewLayout) {
  ASSERT_EQ(run({"convert", kLlama, file("there"), "--to", "interleaved"}).exit, 0);
  // Pair 0 of a head of ones at position 1 rotates by one radian in either layout.
  const std::string x =
      put_array("X.npy", io::NpyType::f32, {1, 1, 16}, std::vector<float>(16, 1.0F));
  const auto second = [&](const std::string& config) {
    EXPECT_EQ(
        run({"rotate", "--config", config, "-i", x, "-o", file("Y.npy"), "--offset", "1"}).exit, 0);
    return io::to_doubles(read("Y.npy")).value_or_throw()[1];
  };
  // Feature 1 is the second of pair 0 when interleaved, the first of pair 1 in half order.
  EXPECT_NEAR(second(file("there")), 0.540302 + 0.841471, 1e-5);
  EXPECT_LT(second(kLlama), 1.0);
}

TEST_F(ConvertVerb, RefusesInOneLine) {
  ASSERT_EQ(run({"convert", kLlama, file("there"), "--to", "interleaved"}).exit, 0);
  expect_refusal(run({"convert", file("there"), file("new"), "--to", "interleaved"}), "convert",
                 {"there", "interleaved"}, "new");
  expect_refusal(run({"convert", kLlama, file("there"), "--to", "interleaved"}), "convert", "there",
                 "new");
  expect_refusal(run({"convert", kLlama, file("new"), "--to", "sideways"}), "convert",
                 {"--to", "interleaved", "half", "sideways"}, "new");
  expect_refusal(run({"convert", kLlama, file("new")}), "convert", "--to", "new");
  expect_refusal(run({"convert", file("missing"), file("new"), "--to", "half"}), "convert",
                 "missing", "new");
  expect_refusal(run({"convert", kLlama, kLlama, "--to", "interleaved"}), "convert", kLlama, "new");
}

TEST_F(ConvertVerb, RefusesDamagedFiles) {
  fs::copy(kLlama, at("damaged"));
  std::string bytes = contents("damaged").at("model.safetensors");
  bytes.pop_back();
  (void)put_text("damaged/model.safetensors", bytes);
  expect_refusal(run({"convert", file("damaged"), file("new"), "--to", "interleaved"}), "convert",
                 "model.safetensors", "new");
}

// The signal of the limit kills a program that does not ignore it.
TEST_F(ConvertVerb, ContinuesAfterWritesThatFailed) {
  ASSERT_EQ(run({"convert", kLlama, file("whole"), "--to", "interleaved"}).exit, 0);
  const std::vector<std::string> cut = {"convert", kLlama, file("cut"), "--to", "interleaved"};
  for (const rlim_t limit : {5000, 33333, 77777, 123456}) {
    const Outcome failed = run_limited(cut, limit);
    expect_refusal(failed, "convert", "model.safetensors", "cut/config.json");
    EXPECT_EQ(fs::file_size(at("cut/.model.safetensors.partial")), limit);
  }
  const Outcome resumed = run(cut);
  ASSERT_EQ(resumed.exit, 0) << resumed.err;
  EXPECT_EQ(contents("cut"), contents("whole"));
}

}  // namespace
}  // namespace phasor::tools::testing
