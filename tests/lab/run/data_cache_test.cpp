#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "lab/run/synthetic.hpp"
#include "phasor/lab/internal/run.hpp"
#include "phasor/lab/internal/task_data.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::lab::testing {
namespace {

namespace fs = std::filesystem;
using phasor::tests::expect_error;

class Data : public io::testing::TemporaryFolder {
 protected:
  [[nodiscard]] std::string put(std::string_view name, std::string_view text) const {
    fs::create_directories(at(name).parent_path());
    io::testing::put(at(name), text);
    return at(name).string();
  }
  [[nodiscard]] RunPlan plan(const std::string& task, const std::string& data,
                             const std::string& more = "") const {
    const bool is_decoder = task == "causal_lm";
    return plan_of(
        R"({"name": "x", "task": ")" + task + R"(", "data": )" + data +
        R"(, "tokenizer": {"kind": "bytes"}, "model": {"architecture": ")" +
        (is_decoder              ? "decoder"
         : task == "translation" ? "encoder-decoder"
                                 : "encoder") +
        R"(", "hidden": 8, "layers": 1, "heads": 2, "intermediate": 16, "token_types": 2},
                   "training": {"steps": 2, "batch": 2, "context": 16})" +
        more + "}");
  }
  [[nodiscard]] std::shared_ptr<const TaskData> load(const RunPlan& of) const {
    DataCache cache(at("corpora"));
    return cache.load(of, of.stage);
  }
};

TEST_F(Data, a_plain_file_is_cut_into_parts) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i) + "\n";
  const std::string path = put("book.txt", text);
  const auto data = load(plan("causal_lm", R"({"corpus": ")" + path + R"("})",
                              R"(, "evaluation": {"contexts": [32], "tokens": 64})"));
  EXPECT_EQ(data->vocabulary, 260);
  EXPECT_EQ(data->held_out.size(), 65U);
  const std::int64_t bytes = data->facts["train"]["bytes"].get<std::int64_t>() +
                             data->facts["valid"]["bytes"].get<std::int64_t>() +
                             data->facts["test"]["bytes"].get<std::int64_t>();
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(text.size()), 3.0);
  const Batch batch = data->train(1)->at(0);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.tokens, 16);
  EXPECT_EQ(data->train(1)->at(5).ids, data->train(1)->at(5).ids);
  EXPECT_NE(data->train(1)->at(5).ids, data->train(2)->at(5).ids);
}

TEST_F(Data, a_corpus_that_is_absent_is_the_excerpt_with_a_note_or_refused) {
  const auto data = load(plan("masked_lm", R"({"corpus": "english"})"));
  ASSERT_EQ(data->notes.size(), 1U);
  EXPECT_NE(data->notes.front().find("./dev corpora"), std::string::npos);
  // One work: nothing to match with.
  expect_error(ErrorCode::invalid_argument, {"./dev corpora"},
               [&] { return load(plan("match", R"({"corpus": "english"})")); });
  expect_error(ErrorCode::io, {"klingon", "./dev corpora"},
               [&] { return load(plan("masked_lm", R"({"corpus": "klingon"})")); });
  expect_error(ErrorCode::io, {"english-german", "./dev corpora"},
               [&] { return load(plan("translation", R"({"pairs": "english-german"})")); });
}

TEST_F(Data, refuses_an_empty_corpus_and_text_that_is_not_utf8) {
  const std::string empty = put("empty.txt", ""), broken = put("broken.txt", "abc\xff");
  expect_error(ErrorCode::invalid_argument, {"empty"},
               [&] { return load(plan("causal_lm", R"({"corpus": ")" + empty + R"("})")); });
  expect_error(ErrorCode::invalid_argument, {"broken.txt", "3"},
               [&] { return load(plan("causal_lm", R"({"corpus": ")" + broken + R"("})")); });
  const std::string few = put("few.txt", "a b c d e f");
  expect_error(ErrorCode::invalid_argument, {},
               [&] { return load(plan("causal_lm", R"({"corpus": ")" + few + R"("})")); });
}

TEST_F(Data, refuses_keys_that_it_does_not_know) {
  const auto refused = [&](const RunPlan& of, std::initializer_list<std::string_view> values) {
    expect_error(ErrorCode::invalid_argument, values, [&] { return load(of); });
  };
  refused(plan("causal_lm", R"({"corpsu": "english"})"), {"corpus"});
  refused(plan("causal_lm", R"({"corpus": "english", "unit": "work"})"), {"unit"});
  refused(plan("match", R"({"corpus": "english", "unit": "word"})"), {"unit", "word"});
  refused(plan("classification", R"({"labelled": "x", "corpus": "y"})"), {"corpus"});
  RunPlan of = plan("causal_lm", R"({"corpus": "english"})");
  of.tokenizer = io::Json::parse(R"({"kind": "byte"})");
  refused(of, {"kind", "byte"});
}

// Sentences that are longer than a row are cut, also those that are translated.
TEST_F(Data, a_sentence_longer_than_the_context_is_cut) {
  const std::string longer(100, 'a');
  std::string lines;
  for (int i = 0; i < 4; ++i) {
    lines += R"({"source": "one )" + std::to_string(i) + R"(", "target": "eins"})" + "\n";
    lines += R"({"source": ")" + longer + R"(", "target": ")" + longer + R"("})" + "\n";
  }
  for (const char* const part : {"train", "valid", "test"}) {
    static_cast<void>(put(std::string("corpora/pairs/") + part + ".jsonl", lines));
  }
  const auto data = load(plan("translation", R"({"pairs": "pairs"})"));
  const auto batches = data->validation();
  for (std::int64_t step = 0; step < batches->steps(); ++step) {
    EXPECT_LE(batches->at(step).source_tokens, 16);
    EXPECT_LE(batches->at(step).tokens, 16);
  }
  ASSERT_EQ(data->sentences.size(), 8U);
  EXPECT_EQ(data->sentences[1].source.size(), 16U);
  EXPECT_EQ(data->sentences[1].reference, longer);
  EXPECT_EQ(data->sentences[0].source.back(), data->sentences[1].source.back());  // the end token
}

}  // namespace
}  // namespace phasor::lab::testing
