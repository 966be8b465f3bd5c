// phasor lab as a user runs it: every built-in experiment at a tiny size, stops, reports, refusals.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/lab/internal/checkpoint.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;
using json = io::Json;
using Words = std::vector<std::string>;

const Words kTinySettings = {
    "training.steps=3",      "training.batch=2",     "training.context=16",
    "model.hidden=16",       "model.heads=2",        "model.layers=1",
    "model.intermediate=24", "evaluation.batches=1", "evaluation.test_batches=1"};

class LabCommand : public Phasor {
 protected:
  LabCommand() {
    std::string text;
    for (int work = 0; work < 4; ++work) {
      text.clear();
      for (int line = 0; line < 60; ++line) {
        text += "The work " + std::to_string(work) + " has a line " + std::to_string(line) + ".\n";
      }
      for (const char* const corpus : {"english", "novels", "chapters", "chinese"}) {
        for (const char* const part : {"train", "valid", "test"}) {
          put("corpora/" + std::string(corpus) + "/" + part + "/" + std::to_string(work) + ".txt",
              text);
        }
      }
    }
    std::string labelled, pairs;
    for (int row = 0; row < 8; ++row) {
      const std::string number = std::to_string(row);
      labelled +=
          R"({"text": "a review )" + number + R"(", "label": )" + std::to_string(row % 2) + "}\n";
      pairs +=
          R"({"source": "the number )" + number + R"(", "target": "die Zahl )" + number + "\"}\n";
    }
    for (const char* const part : {"train", "valid", "test"}) {
      for (const char* const set : {"chinese-sentiment", "novel-passages"}) {
        put("corpora/" + std::string(set) + "/" + part + ".jsonl", labelled);
      }
      put("corpora/english-german/" + std::string(part) + ".jsonl", pairs);
    }
  }

  void put(const std::string& name, std::string_view text) const {
    fs::create_directories(at(name).parent_path());
    io::testing::put(at(name), text);
  }
  [[nodiscard]] Words lab_run(const std::string& experiment, const std::string& out,
                              const Words& more = {}) const {
    Words words = {"lab",    "run",           experiment,  "--out", file(out),
                   "--data", file("corpora"), "--threads", "1"};
    for (const std::string& setting : kTinySettings) {
      words.emplace_back("--set");
      words.push_back(setting);
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(LabCommand, every_built_in_experiment_runs) {
  const Outcome list = run({"lab", "list", "--json"});
  ASSERT_EQ(list.exit, 0) << list.err;
  std::size_t count = 0;
  for (const json& entry : json::parse(list.out)) {
    ++count;
    const std::string name = entry["name"].text();
    Words more = {"--set", "evaluation.sentences=3", "--set", "evaluation.longest=4", "--jobs", "2",
                  "--json"};
    if (name == "finetune" || name.starts_with("mlm") || name == "long-match") {
      more.insert(more.end(), {"--set", "tokenizer.vocabulary=120", "--set",
                               "tokenizer.min_character_frequency=1"});
    }
    if (name == "finetune" || name == "long-match") {
      for (const char* const setting : {"steps=2", "batch=2", "context=16"}) {
        more.insert(more.end(), {"--set", std::string("pretraining.training.") + setting});
      }
    }
    if (name == "translation") more.insert(more.end(), {"--set", "tokenizer.vocabulary=280"});
    if (name == "long-match") more.insert(more.end(), {"--set", "data.longest=16"});
    if (name == "extrapolation" || name == "worked-model") {
      more.insert(more.end(),
                  {"--set", "evaluation.contexts=[16,40]", "--set", "evaluation.tokens=80"});
    }
    const Outcome outcome = run(lab_run(name, name, more));
    ASSERT_EQ(outcome.exit, 0) << name << ": " << outcome.err;
    const json results = json::parse(outcome.out);
    EXPECT_EQ(results.size(), entry["variants"].size()) << name;
    for (const json& result : results) {
      EXPECT_EQ(result["steps"], json(3));
      EXPECT_TRUE(std::isfinite(result["validation_loss"].get<double>())) << name;
      EXPECT_TRUE(std::isfinite(result["test_loss"].get<double>())) << name;
      if (name == "extrapolation") {
        const bool rotates = result["variant"] == json("rope");
        EXPECT_EQ(result["contexts"].size(), rotates ? 10U : 2U) << result["variant"];
      }
    }
  }
  EXPECT_GE(count, 7U);
  EXPECT_TRUE(exists("finetune/rope-s1/pretraining/result.json"));
  const std::string answers = io::testing::get(at("translation/rope-s1/hypotheses.txt"));
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '\n'), 3);

  // What they wrote is what other verbs read.
  const Outcome logits =
      run({"logits", file("worked-model/rope-s1/model"), "--ids", "5,6,7", "-o", file("a.npy")});
  EXPECT_EQ(logits.exit, 0) << logits.err;
  EXPECT_EQ(read("a.npy").shape, (std::vector<std::int64_t>{3, 260}));
  const Outcome run_text =
      run({"run", file("worked-model/rope-s1/model"), "--prompt", "The", "--tokens", "3"});
  EXPECT_EQ(run_text.exit, 0) << run_text.err;
  const Outcome fill =
      run({"fill", file("mlm-convergence/rope-s1/model"), "--text", "The [MASK] has"});
  EXPECT_EQ(fill.exit, 0) << fill.err;
  const Outcome own =
      run({"logits", file("extrapolation/alibi-s1/model"), "--ids", "5,6,7", "-o", file("b.npy")});
  EXPECT_EQ(own.exit, 0) << own.err;
  EXPECT_EQ(read("b.npy").shape, (std::vector<std::int64_t>{3, 260}));

  const Outcome report =
      run({"lab", "report", file("extrapolation"), file("translation"), "-o", file("page")});
  EXPECT_EQ(report.exit, 0) << report.err;
  const Outcome as_json =
      run({"lab", "report", file("extrapolation"), "-o", file("json"), "--json"});
  EXPECT_FALSE(io::Json::parse(as_json.out)["runs"].empty());
  const std::string page = io::testing::get(at("page/report.md"));
  EXPECT_NE(page.find("## extrapolation"), std::string::npos);
  EXPECT_NE(page.find("| rope + yarn |"), std::string::npos);
  EXPECT_TRUE(exists("page/extrapolation-contexts.csv"));
}

// The command, training and a float64 network read the same checkpoint.
TEST_F(LabCommand, logits_of_an_encoder_decoder_are_those_of_training) {
  constexpr std::int64_t kRows = 2, kTokens = 7, kSourceTokens = 5, kVocabulary = 23;
  for (const char* const encoding : {"rope", "t5"}) {
    SCOPED_TRACE(encoding);
    const lab::ModelSpec spec = lab::parse_model_spec(io::parse_object(
        R"({"architecture": "encoder-decoder", "style": "llama", "vocabulary": 23, "hidden": 12,
            "layers": 2, "heads": 3, "intermediate": 20, "context": 9, "encoding": ")" +
        std::string(encoding) + "\"}"));
    lab::Network<float> network(spec, {.threads = 1});
    network.initialise(3);
    double angle = 0.0;
    for (float& value : network.parameters()) {
      value += static_cast<float>(0.3 * std::sin(angle += 1.0));
    }
    lab::Batch batch;
    batch.rows = kRows;
    batch.tokens = kTokens;
    batch.source_tokens = kSourceTokens;
    for (int i = 0; i < kRows * kTokens; ++i) {
      batch.ids.push_back(i * i % kVocabulary);
      batch.labels.push_back(i % 3 == 0 ? lab::kNoLabel : i * 5 % kVocabulary);
    }
    for (int i = 0; i < kRows * kSourceTokens; ++i) {
      batch.source_ids.push_back(i * 7 % kVocabulary);
      batch.source_mask.push_back(i + 1 < kRows * kSourceTokens ? 1 : 0);
    }
    ASSERT_TRUE(lab::save_checkpoint(network, {}, at("both")).ok());
    const auto ids = [&](const char* name, const auto& values) {
      return put_array<std::int64_t>(name, io::NpyType::i64,
                                     {kRows, static_cast<std::int64_t>(values.size()) / kRows},
                                     std::vector<std::int64_t>(values.begin(), values.end()));
    };
    const Words words = {"logits", file("both"),
                         "--ids",  ids("ids.npy", batch.source_ids),
                         "--mask", ids("mask.npy", batch.source_mask),
                         "-o",     file("L.npy")};
    Words with_decoder = words;
    with_decoder.insert(with_decoder.end(), {"--decoder-ids", ids("steps.npy", batch.ids)});
    const Outcome outcome = run(with_decoder);
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
    const io::NpyArray got = read("L.npy");
    ASSERT_EQ(got.shape, (std::vector<std::int64_t>{kRows, kTokens, kVocabulary}));

    double loss = 0.0;
    for (std::size_t at = 0; at < batch.labels.size(); ++at) {
      if (batch.labels[at] == lab::kNoLabel) continue;
      const float* const row = got.as<float>() + static_cast<std::int64_t>(at) * kVocabulary;
      double sum = 0.0;
      for (std::int64_t i = 0; i < kVocabulary; ++i) sum += std::exp(double{row[i]});
      loss += std::log(sum) - double{row[batch.labels[at]]};
    }
    EXPECT_NEAR(network.train(batch).plain_sum, loss, 1e-5 * loss);

    lab::Network<double> exact(spec, {.threads = 1});
    std::copy(network.parameters().begin(), network.parameters().end(), exact.parameters().begin());
    const std::vector<double> expected = exact.logits(batch);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(got.as<float>()[i], expected[i], 2e-5 * (1.0 + std::abs(expected[i]))) << i;
    }

    const auto refused = [&](Words more, const Values& values) {
      more.insert(more.begin(), words.begin(), words.end());
      more[7] = file("Y.npy");
      expect_refusal(run(more), "logits", values);
    };
    refused({}, "--decoder-ids");
    refused({"--decoder-ids", "1,2"}, {"1", "2"});  // rows
    refused({"--decoder-ids", ids("steps.npy", std::vector<int>{1, 23})}, {"23", "decoder"});
    refused({"--decoder-ids", ids("steps.npy", std::vector<int>{1, 2}), "--token-types",
             file("ids.npy")},
            "--token-types");
  }
}

TEST_F(LabCommand, a_run_that_was_killed_goes_on_to_the_same_curve) {
  const Words settings = {"--variants", "rope",
                          "--set",      "tokenizer.vocabulary=120",
                          "--set",      "training.steps=150",
                          "--set",      "training.checkpoint_every=3"};
  const auto words = [&](const std::string& out, const Words& more) {
    Words all = lab_run("mlm-convergence", out, settings);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(run(words("whole", {})).exit, 0);
  for (const int signal : {SIGINT, SIGKILL}) {
    const std::string name = "stopped-" + std::to_string(signal);
    const pid_t child = start(words(name, {}));
    while (!exists(name + "/rope-s1/checkpoints/step-00000003/state.json") &&
           !exists(name + "/rope-s1/checkpoints/step-00000006/state.json")) {
      std::this_thread::yield();
      if (::waitpid(child, nullptr, WNOHANG) != 0) break;
    }
    ::kill(child, signal);
    const Outcome outcome = finish(child);
    EXPECT_EQ(outcome.exit, 128 + signal) << outcome.err;
    if (signal == SIGINT) {
      EXPECT_NE(outcome.err.find("lab run mlm-convergence"), std::string::npos) << outcome.err;
    }
    // Other settings are refused with the difference.
    expect_refusal(run(words(name, {"--set", "training.batch=4"})), "lab",
                   {"training.batch", "2", "4"});
    ASSERT_EQ(run(words(name, {})).exit, 0);
    EXPECT_EQ(io::testing::get(at(name + "/rope-s1/log.csv")),
              io::testing::get(at("whole/rope-s1/log.csv")));
  }
}

TEST_F(LabCommand, refuses_what_it_does_not_know) {
  const auto refused = [&](const Words& words, const Values& values) {
    expect_refusal(run(words), "lab", values, "out");
  };
  refused({"lab", "runn"}, "run");
  refused({"lab", "run", "mlm-convergense", "--out", file("out")}, "mlm-convergence");
  refused({"lab", "run", "mlm-convergence"}, "--out");
  refused({"lab", "run", "--out", file("out")}, "0");
  refused(lab_run("mlm-convergence", "out", {"--size", "huge"}), {"huge", "quick", "full"});
  refused(lab_run("mlm-convergence", "out", {"--variants", "ropes"}), {"ropes", "rope"});
  refused(lab_run("mlm-convergence", "out", {"--set", "training.stepz=3"}), {"stepz", "steps"});
  refused({"lab", "report", file("none")}, "none");
  refused({"lab", "tokenizer", "--out", file("out")}, "file");
  refused({"lab", "list", "all"}, "all");
  const std::string broken =
      put_text("broken.json", R"({"name": "x", "task": "causal_lm", "modle": {}})");
  refused({"lab", "run", broken, "--out", file("out")}, {"broken.json", "modle"});
}

TEST_F(LabCommand, makes_tokenizers) {
  const std::string text = put_text("text.txt", "the cat and the hat and the mat\n");
  for (const auto& [kind, size] : {std::pair{"bytes", 260}, {"bpe", 264}, {"wordpiece", 30}}) {
    const Outcome outcome = run({"lab", "tokenizer", text, "--kind", kind, "--vocabulary",
                                 std::to_string(size), "--out", file(kind), "--json"});
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
    EXPECT_LE(json::parse(outcome.out)["vocabulary"].get<int>(), size) << kind;
    const Outcome ids = run({"tokenize", file(kind), "--text", "the cat"});
    EXPECT_EQ(ids.exit, 0) << ids.err;
  }
}

TEST_F(LabCommand, tokenizers_leave_out_what_is_rare) {
  const std::string text = put_text("text.txt", "The cat and the hat, the cat and the zoo\n");
  const auto words = [&](const std::string& kind, const Words& more) {
    Words all = {"lab",          "tokenizer", text,    "--kind",    kind,
                 "--vocabulary", "300",       "--out", file("out"), "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto made = [&](const std::string& kind, const Words& more) {
    const Outcome outcome = run(words(kind, more));
    EXPECT_EQ(outcome.exit, 0) << outcome.err;
    return json::parse(outcome.out);
  };
  const auto piece_ids = [&](const std::string& given) {
    return run({"tokenize", file("out"), "--text", given}).out;
  };
  // Without a limit, the whole vocabulary is used; "the cat and" occurs twice.
  const int all = made("bpe", {"--min-frequency", "1"})["merges"].get<int>();
  const int frequent = made("bpe", {})["merges"].get<int>();
  EXPECT_LT(frequent, all);
  EXPECT_LT(made("bpe", {"--min-frequency", "3"})["merges"].get<int>(), frequent);
  // z occurs once: its word is unknown.
  made("wordpiece", {});
  EXPECT_NE(piece_ids("zoo"), piece_ids("[UNK]"));
  EXPECT_NE(piece_ids("The"), piece_ids("the"));
  made("wordpiece", {"--min-character-frequency", "2", "--lowercase"});
  EXPECT_EQ(piece_ids("zoo"), piece_ids("[UNK]"));
  EXPECT_EQ(piece_ids("The"), piece_ids("the"));
  fs::remove_all(at("out"));
  const auto refused = [&](const std::string& kind, const Words& more, const Values& values) {
    expect_refusal(run(words(kind, more)), "lab", values, "out");
  };
  refused("bpe", {"--lowercase"}, {"--lowercase", "wordpiece", "bpe"});
  refused("bpe", {"--min-character-frequency", "2"}, {"wordpiece", "bpe"});
  refused("bytes", {"--min-frequency", "2"}, {"--min-frequency", "bytes"});
  refused("bpe", {"--min-frequency", "0"}, {"--min-frequency", "0"});
}

TEST_F(LabCommand, measures_speed) {
  put("model.json",
      R"({"vocabulary": 30, "hidden": 16, "layers": 1, "heads": 2, "intermediate": 20})");
  const Words command = {"lab",     "speed", file("model.json"), "--rows", "2", "--tokens", "8",
                         "--steps", "2",     "--threads",        "1"};
  Words with_json = command;
  with_json.insert(with_json.end(), {"--set", "encoding=t5", "--json"});
  const Outcome outcome = run(with_json);
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const json page = json::parse(outcome.out);
  EXPECT_EQ(page["model"]["encoding"]["name"], json("t5"));
  EXPECT_EQ(page["model"]["context"], json(8));
  EXPECT_EQ(page["step_seconds"].size(), 2U);
  EXPECT_GT(page["tokens_per_second"].get<double>(), 0.0);
  EXPECT_GT(page["peak_bytes"].get<double>(), 0.0);
  double sum = 0.0;
  for (const auto& [name, share] : page["parts"].items()) sum += share.get<double>();
  EXPECT_NEAR(sum, 1.0, 1e-9);

  const Outcome text = run(command);
  EXPECT_EQ(text.exit, 0) << text.err;
  for (const char* const part : {"tokens/s", "MiB", "products", "attention", "optimiser"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  }
  Words wrong = command;
  wrong.insert(wrong.end(), {"--set", "encodng=t5"});
  const Outcome refused = run(wrong);
  EXPECT_NE(refused.exit, 0);
  EXPECT_NE(refused.err.find("encodng"), std::string::npos) << refused.err;
}

TEST_F(LabCommand, an_experiment_is_a_file_too) {
  const std::string path = put_text("mine.json", R"({"name": "mine", "task": "causal_lm",
      "data": {"corpus": "english"}, "tokenizer": {"kind": "bytes"},
      "model": {"hidden": 8, "layers": 1, "heads": 1, "intermediate": 8, "encoding": "alibi"},
      "training": {"accumulation": 2}})");
  const Outcome outcome = run(lab_run(path, "mine"));
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_TRUE(exists("mine/run-s1/result.json"));
  // Finished runs are skipped.
  const auto before = fs::last_write_time(at("mine/run-s1/result.json"));
  ASSERT_EQ(run(lab_run(path, "mine")).exit, 0);
  EXPECT_EQ(fs::last_write_time(at("mine/run-s1/result.json")), before);
}

}  // namespace
}  // namespace phasor::tools::testing
