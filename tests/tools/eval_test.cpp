// phasor eval as a user runs it, on a golden model and ids.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;
namespace fs = std::filesystem;

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

// Without rotation there is nothing to scale: the default list is the model's own numbers.
TEST_F(EvalCommand, ModelsWithoutRotation) {
  const std::string ids = text(100);
  for (const std::string name : {"gpt2_learned", "bloom_alibi"}) {
    const Outcome outcome = run({"eval", golden(name), "--ids", ids, "--contexts", "48", "--json"});
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
    const json page = json::parse(outcome.out);
    ASSERT_EQ(page.at("cells").size(), 1u) << name;
    EXPECT_GT(perplexity(page, "none", 48), 1.0);
    expect_refusal(
        run({"eval", golden(name), "--ids", ids, "--contexts", "48", "--scaling", "yarn"}), "eval",
        "yarn");
  }
  expect_refusal(run({"eval", golden("gpt2_learned"), "--ids", ids, "--contexts", "65"}), "eval",
                 {"64", "65"});
  EXPECT_EQ(run({"eval", golden("bloom_alibi"), "--ids", ids, "--contexts", "90"}).exit, 0);
}

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
      "last_quarter_nats,seconds,offset,angles,precision,model_key,text_key,ids_key,scaling_key\n"
      "model,none,1,16,8,12,99,"));
  const Outcome second = evaluate("16,32", "none,linear");
  EXPECT_NE(second.err.find("none, context 16: "), std::string::npos);
  const std::string all = io::testing::get(at("cells.csv"));
  EXPECT_EQ(lines(all), 5u);
  EXPECT_TRUE(all.starts_with(first));
  // Existing rows are kept: nothing runs again.
  EXPECT_EQ(evaluate("16,32", "none,linear").exit, 0);
  EXPECT_EQ(io::testing::get(at("cells.csv")), all);
  EXPECT_FALSE(exists("cells.csv.partial"));

  const std::string notes = put_text("notes.csv", "a,b\n1,2\n");
  expect_refusal(run({"eval", model, "--ids", ids, "--contexts", "16", "--csv", notes}), "eval",
                 "notes.csv");
  EXPECT_EQ(io::testing::get(at("notes.csv")), "a,b\n1,2\n");
  const std::string damaged = put_text("damaged.csv", first + "model,none,1\n");
  expect_refusal(run({"eval", model, "--ids", ids, "--contexts", "16", "--csv", damaged}), "eval",
                 {"damaged.csv", "3"});
  // Without keys nobody knows what the results are of.
  const std::string old = put_text(
      "old.csv",
      "model,scaling,factor,context,stride,windows,scored_tokens,nats,standard_error,perplexity,"
      "last_quarter_nats,seconds\nmodel,none,1,16,8,12,99,4,1,54,4,0.1\n");
  expect_refusal(run({"eval", model, "--ids", ids, "--contexts", "16", "--csv", old}), "eval",
                 {"old.csv", "model_key", "--csv"});
}

// A file of results holds those of one model, text and precision.
TEST_F(EvalCommand, CsvOfAnotherContentIsRefused) {
  const fs::path model = at("model");
  fs::copy(golden("qwen3_qk_norm"), model);
  const std::string ids = text(100), csv = file("cells.csv");
  const auto evaluate = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"eval",      model.string(), "--contexts", "16",
                                      "--scaling", "none",         "--csv",      csv};
    words.insert(words.end(), flags.begin(), flags.end());
    return run(words);
  };
  ASSERT_EQ(evaluate({"--ids", ids}).exit, 0);
  const std::string before = io::testing::get(at("cells.csv"));
  const auto refused = [&](const std::vector<std::string>& flags, const char* key) {
    expect_refusal(evaluate(flags), "eval", {"cells.csv", key, "--csv"});
    EXPECT_EQ(io::testing::get(at("cells.csv")), before);
  };

  // As many tokens, one of them another.
  io::NpyArray other = read("text.npy");
  other.bytes[8 * 50] ^= std::byte{1};
  ASSERT_TRUE(io::write_npy(at("other.npy"), other).ok());
  refused({"--ids", file("other.npy")}, "text_key");
  // The same tokens of a longer text are the same results.
  EXPECT_EQ(evaluate({"--ids", text(120, "longer.npy"), "--max-tokens", "100"}).exit, 0);
  EXPECT_EQ(io::testing::get(at("cells.csv")), before);
  refused({"--ids", ids, "--max-tokens", "90"}, "ids_key");
  refused({"--ids", ids, "--fast"}, "precision");

  // One byte of a weight, then one of the config; with the old ones the file serves again.
  for (const char* name : {"model.safetensors", "config.json"}) {
    const std::string bytes = io::testing::get(model / name);
    std::string changed = bytes;
    if (std::string_view(name) == "config.json") {
      changed += '\n';
    } else {
      changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
    }
    io::testing::put(model / name, changed);
    refused({"--ids", ids}, "model_key");
    io::testing::put(model / name, bytes);
  }
  EXPECT_EQ(evaluate({"--ids", ids}).exit, 0);
  EXPECT_EQ(io::testing::get(at("cells.csv")), before);
  // Its name does not matter.
  fs::rename(model, at("renamed"));
  EXPECT_EQ(run({"eval", file("renamed"), "--contexts", "16", "--scaling", "none", "--csv", csv,
                 "--ids", ids})
                .exit,
            0);
  EXPECT_EQ(io::testing::get(at("cells.csv")), before);
}

TEST_F(EvalCommand, CsvOfOtherFactorsIsRefused) {
  const std::string model = golden("phi3_longrope_partial"), ids = text(80);
  const json config = json::parse(io::testing::get(model + "/config.json"));
  const std::size_t pairs = config.at("rope_parameters").at("long_factor").size();
  const auto evaluate = [&](double factor) {
    const json dictionary = {{"short_factor", std::vector<double>(pairs, 1.0)},
                             {"long_factor", std::vector<double>(pairs, factor)},
                             {"original_max_position_embeddings", 32},
                             {"factor", 4.0}};
    return run({"eval", model, "--ids", ids, "--contexts", "64", "--scaling", "longrope",
                "--longrope", put_text("lists.json", dictionary.dump()), "--csv", file("l.csv")});
  };
  ASSERT_EQ(evaluate(3.0).exit, 0);
  EXPECT_EQ(evaluate(3.0).exit, 0);
  expect_refusal(evaluate(2.0), "eval", {"l.csv", "longrope", "64", "scaling_key"});
}

// Stopped or killed, and continued: the bits of a run that was not stopped.
TEST_F(EvalCommand, ContinuesAfterAnInterruption) {
  const std::string ids = text(8000);
  const auto words = [&](const std::string& csv) {
    return std::vector<std::string>{"eval",       golden("qwen3_qk_norm"),
                                    "--ids",      ids,
                                    "--contexts", "64",
                                    "--stride",   "3",
                                    "--scaling",  "none",
                                    "--csv",      file(csv)};
  };
  const auto without_seconds = [&](const std::string& csv) {
    std::string row = io::testing::get(at(csv));
    row = row.substr(row.find('\n') + 1);
    std::size_t begin = 0;
    for (int i = 0; i < 11; ++i) begin = row.find(',', begin) + 1;
    return row.erase(begin, row.find(',', begin) - begin);
  };
  ASSERT_EQ(run(words("whole.csv")).exit, 0);
  for (const int signal : {SIGINT, SIGKILL}) {
    const std::string csv = std::to_string(signal) + ".csv";
    const pid_t child = start(words(csv));
    siginfo_t ended{};
    while (!exists(csv + ".partial") && ended.si_pid == 0 &&
           ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0) {
    }
    ::kill(child, signal);
    const Outcome stopped = finish(child);
    ASSERT_EQ(stopped.exit, 128 + signal) << stopped.err;
    EXPECT_TRUE(exists(csv + ".partial"));
    if (signal == SIGINT) {  // the command that continues
      EXPECT_NE(stopped.err.find(" --stride 3 --scaling none --csv " + file(csv) + "\n"),
                std::string::npos)
          << stopped.err;
    }
    const Outcome rest = run(words(csv));
    ASSERT_EQ(rest.exit, 0) << rest.err;
    EXPECT_FALSE(exists(csv + ".partial"));
    EXPECT_EQ(without_seconds(csv), without_seconds("whole.csv"));
  }
}

TEST_F(EvalCommand, WindowsOfAnotherTextAreRefused) {
  const std::string model = golden("qwen3_qk_norm");
  const auto words = [&](const std::string& ids) {
    return std::vector<std::string>{"eval", model,       "--ids", ids,     "--contexts",
                                    "16",   "--scaling", "none",  "--csv", file("c.csv")};
  };
  ASSERT_EQ(run(words(text(100))).exit, 0);
  // The same keys in a file of windows.
  const std::string row = io::testing::get(at("c.csv"));
  const std::string keys = row.substr(row.find("exact,exact,") + 6);
  (void)put_text("c.csv.partial",
                 "scaling,context,stride,offset,angles,precision,model_key,text_key,ids_key,"
                 "scaling_key,windows,seconds,count,mean,squares,tail_count,tail_mean,"
                 "tail_squares\nnone,32,16,0,exact," +
                     keys.substr(0, keys.size() - 1) + ",1,0.5,32,4.5,3,8,4.5,1\n");
  const std::string partial = io::testing::get(at("c.csv.partial"));
  EXPECT_EQ(run(words(file("text.npy"))).exit, 0);
  EXPECT_EQ(io::testing::get(at("c.csv.partial")), partial);  // of another cell
  fs::remove(at("c.csv"));
  expect_refusal(run(words(text(90, "other.npy"))), "eval", {"c.csv.partial", "text_key"});
  (void)put_text("c.csv.partial", partial + "none,32\n");
  expect_refusal(run(words(file("text.npy"))), "eval", {"c.csv.partial", "3"});
}

TEST_F(EvalCommand, OffsetsAndAngles) {
  const std::string model = golden("qwen3_qk_norm"), ids = text(100);
  const Outcome outcome =
      run({"eval", model, "--ids", ids, "--contexts", "32", "--offset", "0,10000000", "--angles",
           "exact,float32,bfloat16_frequencies,bfloat16", "--json", "--csv", file("o.csv")});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json page = json::parse(outcome.out);
  ASSERT_EQ(page.at("cells").size(), 8u);  // of `none` alone
  const auto nats = [&](const char* angles, std::int64_t offset) {
    for (const json& cell : page.at("cells"))
      if (cell.at("angles") == angles && cell.at("offset") == offset)
        return cell.at("nats").get<double>();
    ADD_FAILURE() << angles << offset;
    return 0.0;
  };
  const double plain = nats("exact", 0);
  EXPECT_NEAR(nats("exact", 10000000), plain, 1e-6);
  EXPECT_NEAR(nats("float32", 0), plain, 1e-5);
  for (const char* angles : {"float32", "bfloat16_frequencies", "bfloat16"})
    EXPECT_GT(std::abs(nats(angles, 10000000) - plain), 1e-6) << angles;
  EXPECT_EQ(lines(io::testing::get(at("o.csv"))), 9u);
  // The flags decide, not their values.
  const Outcome plainly = run({"eval", model, "--ids", ids, "--contexts", "32", "--offset", "0",
                               "--angles", "exact", "--json"});
  ASSERT_EQ(plainly.exit, 0) << plainly.err;
  EXPECT_EQ(json::parse(plainly.out).at("cells").size(), 1u);
  // Each is its own cell of the file.
  const Outcome more = run({"eval", model, "--ids", ids, "--contexts", "32", "--angles", "float16",
                            "--offset", "60000", "--csv", file("o.csv")});
  EXPECT_EQ(more.exit, 0) << more.err;
  EXPECT_NE(more.out.find("none, float16, offset 60000"), std::string::npos) << more.out;
  EXPECT_EQ(lines(io::testing::get(at("o.csv"))), 10u);
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
  refused({"--ids", ids, "--contexts", "16", "--angles", "float64"}, {"--angles", "float64"});
  refused({"--ids", ids, "--contexts", "16", "--offset", "-5"}, {"--offset", "-5"});
  refused({"--ids", ids, "--contexts", "16", "--offset", "9007199254740992"}, "2^53");
  refused({"--ids", ids, "--contexts", "16", "--offset", "9223372036854775807"}, "--offset");
  refused({"--ids", ids, "--contexts", "16", "--offset", "65500", "--angles", "float16"}, "65504");
  refused({"--ids", ids, "--contexts", "16", "--offset", "8", "--scaling", "dynamic"}, "dynamic");
  refused({"--contexts", "16"}, {"--text", "--ids"});
  refused({"--text", file("absent.txt"), "--contexts", "16"}, "absent.txt");
  refused({"--text", put_text("t.txt", "words"), "--contexts", "16"}, "tokenizer");
}

}  // namespace
}  // namespace phasor::tools::testing
