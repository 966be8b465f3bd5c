#include "phasor/lab/internal/corpus.hpp"

#include "lab/data/data_support.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::lab::testing {
namespace {

using io::testing::put;
using tests::expect_error;
using Paths = std::vector<std::filesystem::path>;

class TextFiles : public io::testing::TemporaryFolder {
 protected:
  TextFiles() {
    std::filesystem::create_directory(at("train"));
    put(at("train/b.txt"), "Second work.\n");
    put(at("train/a.txt"), "\n One. \n\f\n\f\n Two.\f");
    put(at("train/notes.md"), "not text");
    put(at("single"), "A file.");
  }
};

TEST_F(TextFiles, WorksAreFilesAndFormFeedsSeparateSections) {
  const TextCorpus corpus = TextCorpus::read(Paths{at("train"), at("single")}).value_or_throw();
  ASSERT_EQ(corpus.works().size(), 3U);
  EXPECT_EQ(corpus.works()[0].name, "a.txt");
  EXPECT_EQ(corpus.works()[0].sections, (std::vector<std::string>{"One.", "Two."}));
  EXPECT_EQ(corpus.works()[2].name, "single");
  EXPECT_EQ(corpus.bytes(), 4 + 4 + 12 + 7);
  EXPECT_EQ(corpus.texts(),
            (std::vector<std::string_view>{"One.", "Two.", "Second work.", "A file."}));
}

TEST_F(TextFiles, TheLastSectionsAreHeldOut) {
  const TextCorpus corpus = TextCorpus::read(Paths{at("train"), at("single")}).value_or_throw();
  using Texts = std::vector<std::string_view>;
  const Texts all = corpus.texts();
  for (const std::int64_t count : {1, 2, 3}) {
    const TextCorpus::Parts parts = corpus.hold_out_last(count);
    EXPECT_EQ(parts.train.texts(), Texts(all.begin(), all.end() - count));
    EXPECT_EQ(parts.held_out.texts(), Texts(all.end() - count, all.end()));
    for (const TextCorpus* part : {&parts.train, &parts.held_out})
      for (const TextCorpus::Work& work : part->works()) EXPECT_FALSE(work.sections.empty());
  }
  EXPECT_EQ(corpus.hold_out_last(3).held_out.works().front().name, "a.txt");
  for (const std::int64_t count : {-1, 0, 4})
    expect_error(kBad, {"3", std::to_string(count)}, [&] { return corpus.hold_out_last(count); });
}

// What ships: chapters of UTF-8 text, enough for windows of 1024 bytes in both parts.
TEST(ShippedTexts, HaveChapters) {
  for (const auto& [name, chapters] : {std::pair{"english.txt", 21U}, {"chinese.txt", 6U}}) {
    const TextCorpus corpus =
        TextCorpus::read(Paths{std::filesystem::path(PHASOR_LAB_TEXTS) / name}).value_or_throw();
    ASSERT_EQ(corpus.works().size(), 1U);
    EXPECT_EQ(corpus.works()[0].sections.size(), chapters) << name;
    EXPECT_GT(corpus.hold_out_last(1).held_out.bytes(), 10000) << name;
  }
}

TEST_F(TextFiles, TheHashKnowsTextsAndTheirSeparation) {
  const auto hash = [&](const Paths& paths) {
    return TextCorpus::read(paths).value_or_throw().hash();
  };
  const std::string before = hash({at("train")});
  EXPECT_EQ(before, hash({at("train")}));
  EXPECT_NE(before, hash({at("train/a.txt")}));
  put(at("train/a.txt"), "One.Two.");
  const std::string joined = hash({at("train")});
  EXPECT_NE(joined, before);
  put(at("train/a.txt"), "One\f.Two.");
  EXPECT_NE(hash({at("train")}), joined);
}

TEST_F(TextFiles, Refusals) {
  std::filesystem::create_directory(at("none"));
  put(at("empty.txt"), " \n\f \n");
  put(at("latin.txt"), "caf\xe9 au lait");
  expect_error(ErrorCode::io, {"missing.txt"}, TextCorpus::read(Paths{at("missing.txt")}));
  expect_error(ErrorCode::io, {"none"}, TextCorpus::read(Paths{at("none")}));
  expect_error(kBad, {"empty.txt"}, TextCorpus::read(Paths{at("empty.txt")}));
  expect_error(kBad, {"0 paths"}, TextCorpus::read({}));
  expect_error(kBad, {"latin.txt", "0xe9", "3"},
               TextCorpus::read(Paths{at("train"), at("latin.txt")}));
  expect_error(kBad, {"excerpt", "0xff", "1"}, TextCorpus::of_text("excerpt", "x\xff"));
  expect_error(kBad, {"excerpt"}, TextCorpus::of_text("excerpt", "\f\n"));
}

TEST(TokenCorpus, SectionsEndWithTheEndToken) {
  const TokenCorpus corpus = tokens_of("ab\fc </s>");
  ASSERT_EQ(corpus.size(), 2 + 1 + 6 + 1);
  const std::int32_t end = 2;
  EXPECT_EQ(corpus[0], 4 + 'a');
  EXPECT_EQ(corpus[2], end);
  EXPECT_EQ(corpus[5], 4 + '<');  // text, not a special token
  EXPECT_EQ(corpus[9], end);
  ASSERT_EQ(corpus.sections().size(), 2U);
  EXPECT_EQ(corpus.sections()[1].first, 3);
  EXPECT_EQ(corpus.sections()[1].count, 6);
  EXPECT_EQ(corpus.sections()[1].work, 0);
  EXPECT_EQ(corpus.vocabulary(), 260);
  EXPECT_EQ(corpus.ordinary().size(), 256U);
  EXPECT_FALSE(corpus.is_ordinary(end));
  EXPECT_NE(corpus.hash(), tokens_of("ab c </s>").hash());
  EXPECT_EQ(corpus.hash(), tokens_of("ab\fc </s>").hash());
}

TEST(LabelledSet, RowsAndLabels) {
  const LabelledSet set =
      parse_labelled("{\"text\": \"好\", \"label\": 0}\n{\"label\": 2, \"text\": \"bad\"}\n", "f")
          .value_or_throw();
  ASSERT_EQ(set.rows.size(), 2U);
  EXPECT_EQ(set.rows[0].text, "好");
  EXPECT_EQ(set.rows[1].label, 2);
  EXPECT_EQ(set.labels, 3);
}

TEST(LabelledSet, Refusals) {
  const std::string good = "{\"text\": \"a\", \"label\": 1}\n";
  const auto refused = [&](const std::string& line,
                           std::initializer_list<std::string_view> values) {
    expect_error(kBad, values, parse_labelled(good + line, "set.jsonl"));
  };
  refused("{\"text\": \"a\", \"label\": 1.5}", {"set.jsonl", "line 2", "1.5"});
  refused("{\"text\": \"a\", \"label\": -1}", {"line 2", "-1"});
  refused("{\"text\": \"a\", \"label\": 1000}", {"line 2", "1000", "999"});
  refused("{\"text\": 7, \"label\": 0}", {"line 2", "7"});
  refused("{\"text\": \" \", \"label\": 0}", {"line 2", "text"});
  refused("{\"text\": \"a\"}", {"line 2", "label"});
  refused("{\"text\": \"a\", \"label\": 0, \"lable\": 0}", {"line 2", "lable"});
  refused("{\"text\": \"a\", \"text\": \"b\", \"label\": 0}", {"line 2", "text"});
  refused("[1]", {"line 2"});
  refused("\n", {"line 2"});
  refused("\xff", {"set.jsonl", "0xff", std::to_string(good.size())});
  expect_error(kBad, {"set.jsonl"}, parse_labelled("", "set.jsonl"));
  expect_error(ErrorCode::io, {"/nowhere.jsonl"}, read_labelled("/nowhere.jsonl"));
}

class PairFiles : public io::testing::TemporaryFolder {};

TEST_F(PairFiles, RowsAndRefusals) {
  put(at("p.jsonl"), "{\"source\": \"one\", \"target\": \"eins\"}");
  const PairSet set = read_pairs(at("p.jsonl")).value_or_throw();
  ASSERT_EQ(set.rows.size(), 1U);
  EXPECT_EQ(set.rows[0].source, "one");
  EXPECT_EQ(set.rows[0].target, "eins");
  EXPECT_NE(set.hash,
            parse_pairs("{\"source\": \"one\", \"target\": \"zwei\"}", "p").value_or_throw().hash);
  expect_error(kBad, {"line 1", "target"}, parse_pairs("{\"source\": \"one\"}", "p"));
  expect_error(kBad, {"line 1", "label"},
               parse_pairs("{\"source\": \"one\", \"target\": \"eins\", \"label\": 1}", "p"));
}

}  // namespace
}  // namespace phasor::lab::testing
