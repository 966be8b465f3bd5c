// phasor eval as a user runs it, on a golden model and ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;

class EvalCommand : public Phasor {
 protected:
  // qwen3's config has no scaling of its own and 128 positions.
  static std::string golden(const std::string& name) {
    return std::string(PHASOR_GOLDEN_DIR) + "/models/" + name + "/model";
  }
  [[nodiscard]] std::string text(std::size_t count, std::string_view name = "text.npy") const {
    std::vector<std::int64_t> ids;
    std::uint32_t seed = 7;
    for (std::size_t i = 0; i < count; ++i) {
      seed = seed * 1664525U + 1013904223U;
      ids.push_back((seed >> 16U) % 97);
    }
    return put_array(name, io::NpyType::i64, {static_cast<std::int64_t>(count)}, ids);
  }
  static std::size_t lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  static double perplexity(const json& page, const std::string& scaling, std::int64_t context) {
    for (const json& cell : page.at("cells"))
      if (cell.at("scaling") == scaling && cell.at("context") == context)
        return cell.at("perplexity").get<double>();
    ADD_FAILURE() << scaling << " at " << context;
    return 0.0;
  }
};

TEST_F(EvalCommand, TableOfScalingsAndContexts) {
  const std::string ids = text(300);
  const Outcome outcome = run({"eval", golden("qwen3_qk_norm"), "--ids", ids, "--contexts",
                               "256,64", "--scaling", "none,linear,ntk,dynamic,yarn", "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json page = json::parse(outcome.out);
  EXPECT_EQ(page.at("cells").size(), 10u);
  EXPECT_EQ(page.at("tokens"), 300);
  for (const json& cell : page.at("cells")) EXPECT_EQ(cell.at("scored_tokens"), 299);
  const auto trained = page.at("trained").get<std::int64_t>();
  ASSERT_GE(trained, 64);
  ASSERT_LT(trained, 256);
  // Within the trained length a factor is 1 and all are the same; beyond, each is its own.
  std::vector<double> beyond;
  for (const char* name : {"none", "linear", "ntk", "dynamic", "yarn"}) {
    EXPECT_EQ(perplexity(page, name, 64), perplexity(page, "none", 64));
    beyond.push_back(perplexity(page, name, 256));
  }
  std::sort(beyond.begin(), beyond.end());
  EXPECT_EQ(std::unique(beyond.begin(), beyond.end()), beyond.end());
  EXPECT_NE(page.at("note").get<std::string>().find(std::to_string(trained)), std::string::npos);
  EXPECT_NE(page.at("summary").get<std::string>().find("none at 64"), std::string::npos)
      << page.at("summary");

  const Outcome plain = run({"eval", golden("qwen3_qk_norm"), "--ids", ids, "--contexts", "64",
                             "--scaling", "none,yarn"});
  EXPECT_EQ(plain.exit, 0);
  EXPECT_NE(plain.out.find("\nyarn "), std::string::npos) << plain.out;
  EXPECT_NE(plain.err.find("yarn, context 64: "), std::string::npos) << plain.err;
}

TEST_F(EvalCommand, CsvIsResumed) {
  const std::string model = golden("qwen3_qk_norm"), ids = text(100);
  const auto evaluate = [&](const std::string& contexts, const std::string& scalings) {
    return run({"eval", model, "--ids", ids, "--contexts", contexts, "--scaling", scalings, "--csv",
                file("cells.csv")});
  };
  ASSERT_EQ(evaluate("16", "none").exit, 0);
  const std::string first = io::testing::get(at("cells.csv"));
  EXPECT_EQ(lines(first), 2u);
  EXPECT_TRUE(first.starts_with(
      "model,scaling,factor,context,stride,windows,scored_tokens,nats,standard_error,perplexity,"
      "last_quarter_nats,seconds\nmodel,none,1,16,8,12,99,"));
  const Outcome second = evaluate("16,32", "none,linear");
  EXPECT_NE(second.err.find("none, context 16: "), std::string::npos);
  const std::string all = io::testing::get(at("cells.csv"));
  EXPECT_EQ(lines(all), 5u);
  EXPECT_TRUE(all.starts_with(first));
  // Existing rows are kept: nothing runs again.
  EXPECT_EQ(evaluate("16,32", "none,linear").exit, 0);
  EXPECT_EQ(io::testing::get(at("cells.csv")), all);

  // A row without a result, of a version that did not check its models, runs again.
  const std::size_t row = first.find("99,") + 3;
  const std::string lost = first.substr(0, row) + "-nan" + first.substr(first.find(',', row));
  (void)put_text("cells.csv", lost);
  EXPECT_EQ(evaluate("16", "none").exit, 0);
  const std::string again = io::testing::get(at("cells.csv"));
  EXPECT_EQ(again.substr(0, again.rfind(',')), first.substr(0, first.rfind(',')));  // the seconds
  (void)put_text("cells.csv", all);

  // Another text, another model, an unrelated file: refused and unchanged.
  const std::string other = text(90, "other.npy");
  const Outcome mixed =
      run({"eval", model, "--ids", other, "--contexts", "16", "--csv", file("cells.csv")});
  expect_refusal(mixed, "eval", {"cells.csv", "90", "100"});
  EXPECT_EQ(io::testing::get(at("cells.csv")), all);
  const std::string notes = put_text("notes.csv", "a,b\n1,2\n");
  expect_refusal(run({"eval", model, "--ids", ids, "--contexts", "16", "--csv", notes}), "eval",
                 "notes.csv");
  EXPECT_EQ(io::testing::get(at("notes.csv")), "a,b\n1,2\n");
  const std::string damaged = put_text("damaged.csv", first + "model,none,1\n");
  expect_refusal(run({"eval", model, "--ids", ids, "--contexts", "16", "--csv", damaged}), "eval",
                 {"damaged.csv", "3"});
}

TEST_F(EvalCommand, LongropeLists) {
  const std::string model = golden("phi3_longrope_partial"), ids = text(80);
  // The lists of the model's own config are what `none` has.
  const Outcome outcome = run({"eval", model, "--ids", ids, "--contexts", "64", "--scaling",
                               "none,longrope", "--longrope", model + "/config.json", "--json"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json page = json::parse(outcome.out);
  EXPECT_DOUBLE_EQ(perplexity(page, "none", 64), perplexity(page, "longrope", 64));
  // A dictionary alone: other lists, other numbers.
  const json config = json::parse(io::testing::get(model + "/config.json"));
  const std::size_t pairs = config.at("rope_parameters").at("long_factor").size();
  const json lists = {{"short_factor", std::vector<double>(pairs, 1.0)},
                      {"long_factor", std::vector<double>(pairs, 3.0)},
                      {"original_max_position_embeddings", 32},
                      {"factor", 4.0}};
  const std::string dictionary = put_text("lists.json", lists.dump());
  const Outcome given = run({"eval", model, "--ids", ids, "--contexts", "64", "--scaling",
                             "none,longrope", "--longrope", dictionary, "--json"});
  ASSERT_EQ(given.exit, 0) << given.err;
  EXPECT_NE(perplexity(json::parse(given.out), "none", 64),
            perplexity(json::parse(given.out), "longrope", 64));
}

TEST_F(EvalCommand, Refusals) {
  const std::string model = golden("qwen3_qk_norm"), ids = text(40);
  const auto refused = [&](std::vector<std::string> flags, const Values& values) {
    flags.insert(flags.begin(), {"eval", model});
    expect_refusal(run(flags), "eval", values);
  };
  refused({"--ids", ids, "--contexts", "0"}, {"--contexts", "0"});
  refused({"--ids", ids, "--contexts", "16,x"}, "--contexts");
  refused({"--ids", ids, "--contexts", "40"}, {"41", "40"});
  refused({"--ids", ids, "--contexts", "16", "--max-tokens", "16"}, {"17", "16"});
  refused({"--ids", ids, "--contexts", "16", "--scaling", "none,yarm"}, "yarm");
  refused({"--ids", ids, "--contexts", "16", "--scaling", "longrope"}, "--longrope");
  refused({"--ids", ids, "--contexts", "16", "--stride", "17"}, "--stride");
  refused({"--ids", ids, "--contexts", "16", "--stride", "0"}, "--stride");
  refused({"--ids", ids, "--contexts", "16", "--csv", file("no/such/e.csv")}, "e.csv");
  refused({"--contexts", "16"}, {"--text", "--ids"});
  refused({"--text", file("absent.txt"), "--contexts", "16"}, "absent.txt");
  refused({"--text", put_text("t.txt", "words"), "--contexts", "16"}, "tokenizer");
}

}  // namespace
}  // namespace phasor::tools::testing
