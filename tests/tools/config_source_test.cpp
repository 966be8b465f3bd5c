// Configs and models as people give them: JSON itself, flags, org/name of the Hugging Face cache.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "hub_cache.hpp"
#include "phasor/io/internal/json.hpp"
#include "support/errors.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;
using io::NpyType;
using json = io::Json;

// An environment variable during a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class ConfigSource : public Phasor {
 protected:
  // The frequencies of a request, as JSON.
  [[nodiscard]] json freqs(std::vector<std::string> words) const {
    words.insert(words.begin(), {"freqs", "--json"});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    return json::parse(outcome.out);
  }
  // A download in `hub`, as huggingface_hub makes one: files are links.
  void download(const std::string& folder, const std::string& commit, const std::string& name,
                const std::string& text) const {
    const fs::path snapshot = at("hub") / folder / "snapshots" / commit;
    fs::create_directories(snapshot);
    fs::create_directories(at("hub") / folder / "blobs");
    fs::create_directories(at("hub") / folder / "refs");
    io::testing::put(at("hub") / folder / "blobs" / name, text);
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
  }
  void refer(const std::string& folder, const std::string& branch,
             const std::string& commit) const {
    io::testing::put(at("hub") / folder / "refs" / branch, commit);
  }
};

TEST_F(ConfigSource, AConfigMayBeJsonItself) {
  const json answer = freqs({"--config", std::string(kPlainSpec)});
  EXPECT_EQ(answer["frequencies"], (std::vector<double>{1.0, 0.1, 0.01, 0.001}));
  EXPECT_EQ(freqs({"--config", R"( {"model_type": "llama", "hidden_size": 16,
                                    "num_attention_heads": 2, "rope_theta": 10000})"})["count"],
            4);
  expect_refusal(run({"freqs", "--json", "--config", R"({"head_dim": 8, "bas": 5})"}), "freqs",
                 {"bas", "\"base\""});
  expect_refusal(run({"freqs", "--json", "--config", "{"}), "freqs", "JSON");
  for (const char* verb : {"explain", "plan", "diff"}) {
    std::vector<std::string> words = {verb};
    if (std::string(verb) != "explain") words.emplace_back("--config");
    words.emplace_back(
        R"({"head_dim": 8, "base": 10000, "layout": "half", "max_position_embeddings": 2048})");
    if (std::string(verb) == "plan") words.insert(words.end(), {"--to", "8k"});
    const Outcome outcome = run(words);
    EXPECT_NE(outcome.exit, 2) << outcome.err;
  }
}

TEST_F(ConfigSource, AConfigMayComeFromStdin) {
  const std::string spec = put_text("spec.json", kPlainSpec);
  const Outcome by_stdin = run({"freqs", "--json", "--config", "-"}, spec);
  EXPECT_EQ(by_stdin.exit, 0) << by_stdin.err;
  EXPECT_EQ(by_stdin.out, run({"freqs", "--json", "--config", spec}).out);
  EXPECT_EQ(run({"explain", "-", "--json"}, spec).out, run({"explain", spec, "--json"}).out);
  expect_refusal(run({"freqs", "--config", "-"}, put_text("bad", "{}")), "freqs", "stdin");
}

TEST_F(ConfigSource, TextsMayGoToStdout) {
  const std::string config =
      put_text("config.json", R"({"model_type": "llama", "head_dim": 64, "rope_theta": 10000,
                                  "max_position_embeddings": 4096})");
  const Outcome to_stdout = run({"plan", "--config", config, "--to", "8k", "--csv", "-"});
  EXPECT_EQ(to_stdout.exit, 0) << to_stdout.err;
  ASSERT_EQ(run({"plan", "--config", config, "--to", "8k", "--csv", file("F.csv")}).exit, 0);
  EXPECT_EQ(to_stdout.out, io::testing::get(at("F.csv")));
  EXPECT_NE(to_stdout.err, "");  // the page
}

TEST_F(ConfigSource, ARotationByFlagsIsThatOfTheSameSpec) {
  const json by_flags =
      freqs({"--head-dim", "64", "--base", "500000", "--rotary-dim", "32", "--layout", "half",
             "--scaling", "yarn:factor=4,original_max_position_embeddings=8k,truncate=false"});
  const json by_spec =
      freqs({"--config",
             R"({"head_dim": 64, "base": 500000, "rotary_dim": 32, "layout": "half", "scaling":
           {"type": "yarn", "factor": 4, "original_max_position_embeddings": 8192,
            "truncate": false}})"});
  EXPECT_EQ(by_flags.dump(), by_spec.dump());
  EXPECT_EQ(freqs({"--head-dim", "64", "--scaling", R"({"type": "linear", "factor": 2})"}).dump(),
            freqs({"--head-dim", "64", "--scaling", "linear:factor=2"}).dump());
  EXPECT_EQ(freqs({"--head-dim", "64", "--scaling", "none"})["scaling"], "default");
}

TEST_F(ConfigSource, FlagsReplaceNumbersOfAConfig) {
  const std::string config =
      put_text("config.json", R"({"model_type": "llama", "head_dim": 64, "rope_theta": 10000,
                                  "max_position_embeddings": 4096})");
  const Outcome outcome = run(
      {"freqs", "--json", "--config", config, "--base", "500000", "--scaling", "yarn:factor=4"});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["frequencies"],
            freqs({"--head-dim", "64", "--base", "500000", "--scaling",
                   "yarn:factor=4,original_max_position_embeddings=4096"})["frequencies"]);
  // Each replacement is noted, with both values.
  for (const char* text : {"--base", "500000", "10000", "yarn"})
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  // The config's own number needs no note.
  EXPECT_EQ(run({"freqs", "--json", "--config", config, "--base", "10000"}).err, "");
}

TEST_F(ConfigSource, FlagsThatDoNotFitAreRefused) {
  expect_refusal(run({"freqs", "--json"}), "freqs", {"--config", "--head-dim"});
  expect_refusal(run({"freqs", "--base", "5"}), "freqs", "--head-dim");
  expect_refusal(run({"freqs", "--head-dim", "63"}), "freqs", "63");
  expect_refusal(run({"freqs", "--head-dim", "64", "--rotary-dim", "66"}), "freqs", "66");
  expect_refusal(run({"freqs", "--head-dim", "64", "--layer", "0"}), "freqs", "--layer");
  expect_refusal(run({"freqs", "--head-dim", "64", "--layout", "hafl"}), "freqs", "\"half\"");
  expect_refusal(run({"freqs", "--head-dim", "64", "--scaling", "yarm:factor=4"}), "freqs",
                 {"yarm", "\"yarn\""});
  expect_refusal(run({"freqs", "--head-dim", "64", "--scaling", "linear:factor=4,facter=2"}),
                 "freqs", {"facter", "\"factor\""});
  for (const char* bad : {":factor=4", "linear:factor", "linear:=4",
                          "linear:factor=", "linear:factor=2,factor=3", "{", "linear:factor=x"})
    expect_refusal(run({"freqs", "--head-dim", "64", "--scaling", bad}), "freqs", "");
}

TEST_F(ConfigSource, VerbsRotateByFlags) {
  const std::string x =
      put_array<float>("X.npy", NpyType::f32, {2, 1, 8}, std::vector<float>(16, 1.0F));
  const std::string spec = put_text("spec.json", kPlainSpec);
  const auto same = [&](std::vector<std::string> words, const std::vector<std::string>& by_flags,
                        const std::vector<std::string>& by_file) {
    std::vector<std::string> other = words;
    words.insert(words.end(), by_flags.begin(), by_flags.end());
    other.insert(other.end(), by_file.begin(), by_file.end());
    words.insert(words.end(), {"-o", file("A.npy")});
    other.insert(other.end(), {"-o", file("B.npy")});
    const Outcome first = run(words), second = run(other);
    ASSERT_EQ(first.exit, 0) << first.err;
    ASSERT_EQ(second.exit, 0) << second.err;
    EXPECT_EQ(io::testing::get(file("A.npy")), io::testing::get(file("B.npy")));
  };
  const std::vector<std::string> flags = {"--head-dim", "8", "--layout", "interleaved"};
  same({"rotate", "-i", x, "--offset", "3"}, flags, {"--config", spec});
  same({"table", "--positions", "0:4"}, flags, {"--config", spec});
  // The heads say how wide they are.
  same({"attend", "-q", x, "-k", x, "-v", x}, {"--layout", "interleaved"}, {"--encoding", spec});
  same({"attend", "-q", x, "-k", x, "-v", x}, {"--encoding", R"({"encoding": "alibi"})"},
       {"--encoding", put_text("alibi.json", R"({"encoding": "alibi"})")});
  expect_refusal(run({"attend", "-q", x, "-k", x, "-v", x, "-o", file("Y.npy"), "--encoding",
                      R"({"encoding": "alibi"})", "--base", "5"}),
                 "attend", {"--base", "alibi"});
  expect_refusal(run({"attend", "-q", x, "-k", x, "-v", x, "-o", file("Y.npy")}), "attend",
                 "--encoding");
}

TEST_F(ConfigSource, RangesMayHaveASuffix) {
  ASSERT_EQ(run({"table", "--head-dim", "8", "--positions", "1k:1025", "-o", file("T.npy")}).exit,
            0);
  EXPECT_EQ(read("T.npy").shape, (std::vector<std::int64_t>{2, 1, 4}));
  expect_refusal(run({"table", "--head-dim", "8", "--positions", "0:1kk", "-o", file("Y.npy")}),
                 "table", "0:1kk");
}

TEST_F(ConfigSource, AModelOfTheHub) {
  const Variable hub("HF_HUB_CACHE", file("hub"));
  download("models--org--name", "abc123", "config.json", std::string(kPlainSpec));
  refer("models--org--name", "main", "abc123");
  EXPECT_EQ(freqs({"--config", "org/name"})["count"], 4);
  EXPECT_EQ(freqs({"--config", "org/name/config.json"})["count"], 4);
  EXPECT_EQ(freqs({"--config", "org/name@abc123"})["count"], 4);
  EXPECT_EQ(run({"explain", "org/name"}).exit, 0);
  EXPECT_EQ(hub_name_of(model_path("org/name")), "org/name");

  // Where it looked, and how to download it.
  expect_refusal(run({"freqs", "--json", "--config", "org/other"}), "freqs",
                 {"org/other", file("hub/models--org--other"), "hf download org/other"});
  expect_refusal(run({"run", "org/other", "-p", "x"}), "run", "hf download org/other");
  expect_refusal(run({"freqs", "--json", "--config", "org/name@v2"}), "freqs", "--revision v2");
  // A path to a file is a path.
  EXPECT_EQ(run({"freqs", "--json", "--config", "org/absent.json"}).err.find("hf download"),
            std::string::npos);
  EXPECT_EQ(run({"freqs", "--json", "--config", file("absent")}).err.find("hf download"),
            std::string::npos);
}

TEST_F(ConfigSource, ALocalPathWins) {
  const Variable hub("HF_HUB_CACHE", file("hub"));
  const fs::path before = fs::current_path();
  fs::current_path(at(""));
  fs::create_directories(at("org/name"));
  EXPECT_EQ(model_path("org/name"), "org/name");
  fs::current_path(before);
}

TEST_F(ConfigSource, WhereTheHubIs) {
  ::unsetenv("HF_HUB_CACHE");
  ::unsetenv("HUGGINGFACE_HUB_CACHE");
  {
    const Variable home("HF_HOME", "/a/");
    EXPECT_EQ(hub_folder(), "/a/hub");
  }
  ::unsetenv("HF_HOME");
  {
    const Variable cache("XDG_CACHE_HOME", "/c");
    EXPECT_EQ(hub_folder(), "/c/huggingface/hub");
  }
  ::unsetenv("XDG_CACHE_HOME");
  const Variable user("HOME", "/u");
  EXPECT_EQ(hub_folder(), "/u/.cache/huggingface/hub");
}

TEST_F(ConfigSource, TheOnlyGgufFileIsTheModel) {
  const Variable hub("HF_HUB_CACHE", file("hub"));
  download("models--small", "c1", "m.gguf", "GGUF");
  refer("models--small", "main", "c1\n");
  EXPECT_TRUE(model_path("small").ends_with("snapshots/c1/m.gguf"));
  EXPECT_EQ(model_path("unknown"), "unknown");
  EXPECT_EQ(model_path("../x"), "../x");
  EXPECT_EQ(model_path("a/b/../../x"), "a/b/../../x");
  download("models--small", "c1", "n.gguf", "GGUF");
  expect_refusal(run({"inspect", "small"}), "inspect", {"m.gguf", "n.gguf"});
}

}  // namespace
}  // namespace phasor::tools::testing
