// phasor conform: passes what is right and fails on every kind of damage.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/golden_copies.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;
using json = io::Json;

TEST_F(Conform, passes_cases_and_writes_the_verdicts) {
  borrow("rope_apply", "half_llama_bf16");
  borrow("rope_apply", "vision2d_pixtral");
  borrow("worked_example", "llama_note_interleaved");
  const Outcome outcome = conform({"--json", file("verdicts.json")});
  ASSERT_EQ(outcome.exit, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("3 passed, 0 failed, 0 unsupported\n"), std::string::npos)
      << outcome.out;
  const json verdicts = json::parse(io::testing::get(at("verdicts.json")));
  EXPECT_EQ(verdicts["passed"], 3);
  EXPECT_EQ(verdicts["failed"], 0);
  EXPECT_EQ(verdicts["unsupported"], 0);
  ASSERT_EQ(verdicts["cases"].size(), 3u);
  for (const json& verdict : verdicts["cases"]) {
    EXPECT_EQ(verdict["status"], "pass");
    EXPECT_TRUE(verdict["case"].is_string());
    EXPECT_GT(verdict["max_error"].get<double>(), 0.0);
    EXPECT_GT(verdict["tolerance"].get<double>(), 0.0);
  }
}

TEST_F(Conform, a_kind_that_is_not_built_is_unsupported_until_filtered_out) {
  borrow("rerotate", "rerotate_compaction");
  borrow("rerotate", "rerotate_mrope");
  edit_description([](json& description) { description["kind"] = "weave"; });
  const Outcome outcome = conform();
  EXPECT_EQ(outcome.exit, 1);
  EXPECT_NE(outcome.out.find("1 passed, 0 failed, 1 unsupported\n"), std::string::npos)
      << outcome.out;
  for (const std::string filter :
       {"rerotate", "rerotate_c*", "rerotate/*_compaction", "*compactio?"}) {
    EXPECT_EQ(conform({"--filter", filter}).exit, 0) << filter;
  }
  EXPECT_EQ(conform({"--filter", "weave"}).exit, 1);
  EXPECT_EQ(conform({"--filter", "nothing*"}).exit, 2);
}

TEST_F(Conform, refuses_a_folder_without_cases) {
  expect_refusal(conform(), "conform", "cases");
  fs::create_directories(at("cases"));
  expect_refusal(conform(), "conform", "cases");
  const Outcome file_given = run({"conform", put_text("x.txt", "y")});
  expect_refusal(file_given, "conform", "x.txt");
}

TEST_F(Conform, json_without_a_file_is_printed) {
  const std::string golden = std::string(PHASOR_GOLDEN_DIR) + "/worked_example";
  const Outcome printed = run({"conform", golden, "--json"});
  EXPECT_EQ(printed.exit, 0) << printed.err;
  const json report = json::parse(printed.out);
  EXPECT_EQ(report["failed"], 0);
  EXPECT_EQ(report["cases"].size(), report["passed"].get<std::size_t>());
  EXPECT_EQ(run({"conform", "--json", golden}).out, printed.out);
  EXPECT_EQ(run({"conform", "--json", golden, "--filter", "*"}).out, printed.out);
  const Outcome written = run({"conform", golden, "--json", file("F.json")});
  EXPECT_EQ(io::testing::get(at("F.json")), printed.out);
  EXPECT_NE(written.out.find(" passed, 0 failed"), std::string::npos) << written.out;
}

TEST_F(Conform, one_changed_expected_value_fails) {
  borrow("rope_apply", "half_llama_contiguous");
  edit("q_out.npy", [](io::NpyArray& array) { array.as<float>()[777] += 1e-2F; });
  expect_failure("q_out[");
  EXPECT_NE(conform().out.find("1 of 4096 "), std::string::npos) << conform().out;
}

TEST_F(Conform, truth_and_scalars_are_compared_too) {
  borrow("rope_apply", "half_yarn_scaled");
  edit("k_out_f64.npy", [](io::NpyArray& array) { array.as<double>()[5] += 1e-5; });
  expect_failure("k_out_f64[");
  borrow("rope_apply", "half_yarn_scaled");
  edit_description(
      [](json& description) { description["scalars"]["attention_scaling"]["value"] = 1.0; });
  expect_failure("attention_scaling");
}

TEST_F(Conform, a_nan_anywhere_fails) {
  borrow("rope_apply", "half_llama_contiguous");
  edit("q_out_f64.npy", [](io::NpyArray& array) { array.as<double>()[0] = NAN; });
  expect_failure("nan");
  borrow("rope_apply", "half_llama_contiguous");
  edit("q.npy", [](io::NpyArray& array) { array.as<float>()[0] = NAN; });
  expect_failure("nan");
}

TEST_F(Conform, a_missing_or_broken_file_fails) {
  borrow("rope_apply", "half_llama_contiguous");
  fs::remove(case_ / "k_out.npy");
  expect_failure("k_out.npy");
  borrow("rope_apply", "half_llama_contiguous");
  fs::resize_file(case_ / "inv_freq.npy", 100);
  expect_failure("inv_freq.npy");
  borrow("rope_freqs", "default_llama2_7b");
  fs::remove_all(at("cases") / "rope_apply");
  fs::remove(case_ / "config.old.json");
  expect_failure("config.old.json");
}

TEST_F(Conform, another_dtype_or_shape_than_described_fails) {
  borrow("rope_apply", "half_llama_contiguous");
  edit("q_out.npy", [](io::NpyArray& array) {
    const std::vector<double> values = io::to_doubles(array).value_or_throw();
    array = io::make_npy(io::NpyType::f64, array.shape);
    std::copy(values.begin(), values.end(), array.as<double>());
  });
  expect_failure({"q_out.npy", "float32", "float64"});
  borrow("rope_apply", "half_llama_contiguous");
  edit("q_out.npy", [](io::NpyArray& array) { std::swap(array.shape[0], array.shape[1]); });
  expect_failure({"q_out.npy", "[2, 4, 8, 64]", "[4, 2, 8, 64]"});
}

TEST_F(Conform, a_broken_description_fails) {
  for (const std::string text :
       {"{", "", "[]", "{}", R"({"format": 2, "kind": "rope_apply"})", R"({"format": 1})",
        R"({"format": 1, "kind": "rope_apply"})", R"({"format": 1, "kind": 7})"}) {
    borrow("rope_apply", "half_llama_contiguous");
    io::testing::put(case_ / "case.json", text);
    expect_failure("half_llama_contiguous");
  }
  for (void (*change)(json&) : std::vector<void (*)(json&)>{
           [](json& description) { description["outputs"]["q_out"]["atol"] = "large"; },
           [](json& description) { description["outputs"]["q_out"]["rtol"] = -1.0; },
           [](json& description) { description["outputs"]["q_out"].erase("file"); },
           [](json& description) { description["inputs"].erase("position_ids"); },
           [](json& description) {
             description["scalars"]["surprise"] = {{"value", 1.0}, {"rtol", 1.0}};
           },
           [](json& description) { description["config"]["rope_parameters"]["surprise"] = 1; }}) {
    borrow("rope_apply", "half_llama_contiguous");
    edit_description(change);
    expect_failure("half_llama_contiguous");
  }
}

TEST_F(Conform, a_case_that_contradicts_its_config_fails) {
  borrow("rope_apply", "half_llama_contiguous");
  edit_description([](json& description) { description["layout"] = "interleaved"; });
  expect_failure({"layout", "interleaved", "half"});
  borrow("rope_apply", "half_llama_contiguous");
  edit_description([](json& description) { description["rotary_dim"] = 32; });
  expect_failure({"rotary_dim", "32", "64"});
  borrow("rope_apply", "mrope_qwen2_vl");
  fs::remove_all(at("cases") / "rope_apply" / "half_llama_contiguous");
  edit_description([](json& description) { description["mrope_axis_of_freq"][0] = 2; });
  expect_failure("frequency");
}

TEST_F(Conform, axes_may_come_in_any_order_and_without_batch) {
  borrow("rope_apply", "half_d6_tail");
  // [batch, head, seq, dim] with one batch row is [head, seq, dim]; k has one head as well.
  edit_description([](json& description) {
    for (const char* section : {"inputs", "outputs", "truth"}) {
      for (json& entry : description[section]) {
        if (entry.contains("dims") && entry["dims"].size() == 4) {
          entry["dims"].erase(0);
          entry["shape"].erase(0);
        }
      }
    }
  });
  for (const char* name : {"q", "k", "q_out", "k_out", "q_out_f64", "k_out_f64"}) {
    edit(std::string(name) + ".npy",
         [](io::NpyArray& array) { array.shape.erase(array.shape.begin()); });
  }
  const Outcome outcome = conform();
  EXPECT_EQ(outcome.exit, 0) << outcome.out;
}

TEST_F(Conform, onnx_attributes_are_read) {
  borrow("onnx_node", "rotary_interleaved");
  edit_description([](json& description) { description["attributes"]["interleaved"] = 0; });
  expect_failure("output[");
  borrow("onnx_node", "rotary_interleaved");
  edit_description([](json& description) { description["attributes"]["scale"] = 2; });
  expect_failure("scale");
  borrow("onnx_node", "rotary_3d_num_heads");
  fs::remove_all(at("cases") / "onnx_node" / "rotary_interleaved");
  edit_description([](json& description) { description["attributes"].erase("num_heads"); });
  expect_failure("num_heads");
}

}  // namespace
}  // namespace phasor::tools::testing
