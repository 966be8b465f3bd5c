// phasor diagnose --runs: dumps of two engines, in files and in folders.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/io/tensors.hpp"
#include "run_phasor.hpp"

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;
using io::NpyType;
using json = io::Json;

class DiagnoseRuns : public testing::Phasor {
 protected:
  DiagnoseRuns() {
    config_ = put_text("config.json", R"({"head_dim": 32, "base": 10000, "layout": "half"})");
    // A: half, as the config says. B: interleaved from layer 1 on.
    for (const std::string run_name : {"A", "B"}) {
      for (int layer = 0; layer < 3; ++layer) {
        fs::create_directories(at(run_name + "/layers_" + std::to_string(layer)));
        const std::string folder = run_name + "/layers_" + std::to_string(layer) + "/";
        std::mt19937 engine(static_cast<unsigned>(layer));
        std::normal_distribution<float> normal;
        std::vector<float> values(40 * 2 * 32);
        for (float& value : values) value = normal(engine);
        (void)put_array(folder + "q_before.npy", NpyType::f32, {40, 2, 32}, values);
        const bool wrong = run_name == "B" && layer > 0;
        EXPECT_EQ(run({"rotate", "--config", config_, "-i", file(folder + "q_before.npy"), "-o",
                       file(folder + "q_after.npy"), "--layout", wrong ? "interleaved" : "half"})
                      .exit,
                  0);
      }
    }
  }

  // The arrays of a folder as one file of safetensors.
  [[nodiscard]] std::string packed(const std::string& run_name, const std::string& name) const {
    std::vector<io::NpyArray> arrays;
    std::vector<io::Tensor> tensors;
    for (int layer = 0; layer < 3; ++layer) {
      for (const std::string stage : {"q_before", "q_after"}) {
        const std::string start = "layers_" + std::to_string(layer) + "/";
        arrays.push_back(read(run_name + "/" + start + stage + ".npy"));
        tensors.push_back({.name = "model.layers." + std::to_string(layer) + "." + stage,
                           .shape = arrays.back().shape});
      }
    }
    for (std::size_t i = 0; i < arrays.size(); ++i) tensors[i].bytes = arrays[i].bytes;
    EXPECT_TRUE(io::write_safetensors(at(name), tensors).ok());
    return file(name);
  }

  std::string config_;
};

TEST_F(DiagnoseRuns, FoldersThatAreEqual) {
  const auto outcome = run({"diagnose", "--runs", file("A"), file("A")});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  const json page = json::parse(run({"diagnose", "--runs", file("A"), file("A"), "--json"}).out);
  EXPECT_EQ(page.at("equal"), true);
  EXPECT_EQ(page.at("tensors").size(), 6U);
}

TEST_F(DiagnoseRuns, TheFirstLayerThatDiffersAndTheEngineThatIsWrong) {
  const std::string a = packed("A", "a.safetensors"), b = packed("B", "b.safetensors");
  for (const auto& [first, second, wrong] :
       {std::tuple{file("A"), file("B"), "rotation_b"}, std::tuple{b, a, "rotation_a"},
        std::tuple{a, file("B"), "rotation_b"}}) {
    const auto outcome = run({"diagnose", "--runs", first, second, "--config", config_, "--json"});
    ASSERT_EQ(outcome.exit, 1) << outcome.err;
    const json page = json::parse(outcome.out);
    const std::string name = page.at("first_difference").at("name").get<std::string>();
    EXPECT_NE(name.find("1.q_after"), std::string::npos) << name;
    for (const std::string key : {"rotation_a", "rotation_b"})
      EXPECT_EQ(page.at(key).at("as_the_config_says"), key != wrong) << key;
    EXPECT_EQ(page.at("later_differing"), 1);
    const auto text = run({"diagnose", "--runs", first, second, "--config", config_});
    EXPECT_EQ(text.exit, 1);
    EXPECT_NE(text.out.find("interleaved"), std::string::npos) << text.out;
  }
}

TEST_F(DiagnoseRuns, FilesOfTorchAndNumpy) {
  const std::string folder = std::string(PHASOR_IO_DATA_DIR) + "/arrays/";
  const auto same = run({"diagnose", "--runs", folder + "nested.pt", folder + "protocol4.pt"});
  EXPECT_EQ(same.exit, 0) << same.err << same.out;
  const auto stored =
      run({"diagnose", "--runs", folder + "arrays.npz", folder + "arrays_deflated.npz"});
  EXPECT_EQ(stored.exit, 0) << stored.err << stored.out;
  // q, k and ids are in both; the rest is listed.
  const json page = json::parse(
      run({"diagnose", "--runs", folder + "arrays.npz", folder + "nested.pt", "--json"}).out);
  EXPECT_EQ(page.at("only_a"), (std::vector<std::string>{"q", "k", "layers.0.v"}));
  EXPECT_EQ(page.at("equal"), true);
}

TEST_F(DiagnoseRuns, Refusals) {
  fs::create_directories(at("empty"));
  expect_refusal(run({"diagnose", "--runs", file("A"), file("empty")}), "diagnose", {"empty"});
  expect_refusal(run({"diagnose", "--runs", file("A")}), "diagnose", {"AFTER"});
  expect_refusal(run({"diagnose", "--runs", file("A"), file("absent")}), "diagnose", {"absent"});
  expect_refusal(run({"diagnose", "--runs", file("A"), file("B"), "--positions", "0:4"}),
                 "diagnose", {"--positions", "--runs"});
  const std::string other = put_array<float>("other.npy", NpyType::f32, {2}, {1.0F, 2.0F});
  expect_refusal(run({"diagnose", "--runs", file("A"), other}), "diagnose", {"layers_0.q_after"});
}

}  // namespace
}  // namespace phasor::tools
