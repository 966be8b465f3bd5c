#include "phasor/lab/internal/batches.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "lab/data/data_support.hpp"
#include "lab/data/order.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::lab::testing {
namespace {

using tests::expect_error;
using Ids = std::vector<std::int32_t>;
constexpr std::int32_t kPad = 0, kBegin = 1, kEnd = 2, kMask = 3, kByte = 4;

// Bytes 'a' to 'z' in turn: the id after another is known.
std::string alphabet(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>('a' + i % 26);
  return text;
}

void expect_equal(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.mask, b.mask);
  EXPECT_EQ(a.token_types, b.token_types);
  EXPECT_EQ(a.source_tokens, b.source_tokens);
  EXPECT_EQ(a.source_ids, b.source_ids);
  EXPECT_EQ(a.source_mask, b.source_mask);
}

TEST(Permuted, IsAPermutationThatTheKeyDecides) {
  for (const std::int64_t count : {1, 2, 3, 4, 5, 17, 64, 1000}) {
    for (const std::uint64_t seed : {0, 1}) {
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < count; ++i)
        seen.insert(permuted(Random(seed, Stream::batches), i, count));
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
      EXPECT_EQ(*seen.rbegin(), count - 1);
    }
  }
  int equal = 0, fixed = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t one = permuted(Random(0, Stream::batches), i, 1000);
    equal += one == permuted(Random(1, Stream::batches), i, 1000);
    fixed += one == i;
  }
  EXPECT_LT(equal, 10);
  EXPECT_LT(fixed, 10);
}

// Each step alone gives what it gives in a run, and another seed or step something else.
void expect_function_of_step(const std::function<std::unique_ptr<Batches>(std::uint64_t)>& make) {
  const auto one = make(7);
  std::vector<Batch> run;
  const std::int64_t steps = 2 * one->steps() + 3;  // into a third epoch
  for (std::int64_t step = 0; step < steps; ++step) run.push_back(one->at(step));
  const auto other = make(7);
  for (const std::int64_t step : {steps - 1, std::int64_t{0}, steps / 2})
    expect_equal(other->at(step), run[static_cast<std::size_t>(step)]);
  EXPECT_NE(make(8)->at(0).ids, run[0].ids);
  EXPECT_NE(run[1].ids, run[0].ids);
  expect_error(ErrorCode::out_of_range, {"-1"}, [&] { return one->at(-1); });
}

TEST(CausalBatches, LabelsAreTheNextIds) {
  const auto corpus = shared_tokens(alphabet(1000));
  const auto batches = causal_batches(corpus, {.rows = 3, .tokens = 16, .seed = 1});
  for (std::int64_t step = 0; step < 50; ++step) {
    const Batch batch = batches->at(step);
    ASSERT_EQ(batch.ids.size(), 48U);
    ASSERT_EQ(batch.labels.size(), 48U);
    EXPECT_TRUE(batch.mask.empty());
    for (std::size_t i = 0; i < 48; ++i) {
      const bool ends_row = i % 16 == 15;
      if (!ends_row) {
        EXPECT_EQ(batch.labels[i], batch.ids[i + 1]);
      }
      const std::int32_t next = kByte + 'a' + (batch.ids[i] - kByte - 'a' + 1) % 26;
      if (batch.labels[i] != kEnd) {
        EXPECT_EQ(batch.labels[i], next);
      }
    }
  }
}

TEST(CausalBatches, AnEpochSeesEachWindowOnce) {
  // 257 tokens with the end token, all windows of 4: 63 or 64 of them.
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>('!' + i % 90);
  const auto corpus = shared_tokens(text);
  const auto batches = causal_batches(corpus, {.rows = 1, .tokens = 4, .seed = 5});
  const std::int64_t steps = batches->steps();
  EXPECT_EQ(steps, 63);
  std::multiset<Ids> first, second;
  for (std::int64_t step = 0; step < steps; ++step) first.insert(batches->at(step).ids);
  for (std::int64_t step = steps; step < 2 * steps; ++step) second.insert(batches->at(step).ids);
  EXPECT_NE(first, second);  // another offset
  for (const std::multiset<Ids>& seen : {first, second}) {
    int offsets = 0;
    for (std::int64_t offset = 0; offset < 4; ++offset) {
      std::multiset<Ids> expected;
      for (std::int64_t i = offset; i < offset + 63 * 4; i += 4)
        expected.insert({(*corpus)[i], (*corpus)[i + 1], (*corpus)[i + 2], (*corpus)[i + 3]});
      offsets += seen == expected;
    }
    EXPECT_EQ(offsets, 1);
  }
  const auto in_order =
      causal_batches(corpus, {.rows = 5, .tokens = 4, .order = Order::sequential});
  ASSERT_EQ(in_order->steps(), 13);
  std::int64_t at = 0;
  for (std::int64_t step = 0; step < 13; ++step)
    for (const std::int32_t id : in_order->at(step).ids) EXPECT_EQ(id, (*corpus)[at++]);
  EXPECT_EQ(at, 256);
  EXPECT_EQ(in_order->at(12).rows, 4);
  expect_error(ErrorCode::out_of_range, {"13", "12"}, [&] { return in_order->at(13); });
}

TEST(CausalBatches, AreFunctionsOfTheStep) {
  const auto corpus = shared_tokens(alphabet(400));
  expect_function_of_step([&](std::uint64_t seed) {
    return causal_batches(corpus, {.rows = 2, .tokens = 9, .seed = seed});
  });
}

TEST(CausalBatches, TheSmallestCorpusIsOneWindow) {
  const auto corpus = shared_tokens("abc");  // 4 tokens
  EXPECT_EQ(causal_batches(corpus, {.rows = 2, .tokens = 3})->at(5).ids,
            (Ids{kByte + 'a', kByte + 'b', kByte + 'c', kByte + 'a', kByte + 'b', kByte + 'c'}));
  expect_error(kBad, {"5", "4"}, [&] { return causal_batches(corpus, {.rows = 1, .tokens = 4}); });
  expect_error(kBad, {"rows", "0"},
               [&] { return causal_batches(corpus, {.rows = 0, .tokens = 2}); });
  expect_error(kBad, {"tokens", "0"},
               [&] { return causal_batches(corpus, {.rows = 1, .tokens = 0}); });
}

TEST(MaskedBatches, SharesOfMaskRandomAndKept) {
  const auto corpus = shared_tokens(alphabet(5000));
  const auto batches = masked_batches(corpus, {.rows = 8, .tokens = 102, .seed = 3});
  int masked = 0, random = 0, kept = 0;
  for (std::int64_t step = 0; step < 60; ++step) {
    const Batch batch = batches->at(step);
    for (std::size_t row = 0; row < 8; ++row) {
      const std::size_t first = row * 102;
      EXPECT_EQ(batch.ids[first], kBegin);
      EXPECT_EQ(batch.ids[first + 101], kEnd);
      EXPECT_EQ(batch.labels[first], kNoLabel);
      int labels = 0;
      for (std::size_t i = first; i < first + 102; ++i) {
        if (batch.labels[i] == kNoLabel) {
          EXPECT_NE(batch.ids[i], kMask);
          continue;
        }
        ++labels;
        EXPECT_TRUE(corpus->is_ordinary(batch.labels[i]));
        masked += batch.ids[i] == kMask;
        kept += batch.ids[i] == batch.labels[i];
        random += batch.ids[i] != kMask && batch.ids[i] != batch.labels[i];
      }
      EXPECT_EQ(labels, 15);
    }
  }
  const double all = masked + random + kept;
  EXPECT_EQ(all, 60 * 8 * 15);
  // Six standard deviations: 0.028 and 0.021.
  EXPECT_NEAR(masked / all, kMaskShare, 0.029);
  EXPECT_NEAR(random / all, kRandomShare, 0.022);
  EXPECT_NEAR(kept / all, 1 - kMaskShare - kRandomShare, 0.022);
}

TEST(MaskedBatches, AreFunctionsOfTheStep) {
  const auto corpus = shared_tokens(alphabet(300));
  expect_function_of_step([&](std::uint64_t seed) {
    return masked_batches(corpus, {.rows = 2, .tokens = 12, .seed = seed});
  });
}

TEST(MaskedBatches, EveryRowHasALabelAndSequentialCoversTheText) {
  const auto corpus = shared_tokens(alphabet(29));  // 30 tokens
  const auto batches = masked_batches(corpus, {.rows = 4, .tokens = 5, .order = Order::sequential});
  ASSERT_EQ(batches->steps(), 3);
  std::int64_t at = 0;
  for (std::int64_t step = 0; step < 3; ++step) {
    const Batch batch = batches->at(step);
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      int labels = 0;
      for (std::size_t i = 1; i < 4; ++i, ++at) {
        const std::size_t place = static_cast<std::size_t>(row) * 5 + i;
        labels += batch.labels[place] != kNoLabel;
        EXPECT_EQ(batch.labels[place] == kNoLabel ? batch.ids[place] : batch.labels[place],
                  (*corpus)[at]);
      }
      EXPECT_EQ(labels, 1);
    }
    expect_equal(batch, batches->at(step));
  }
  EXPECT_EQ(at, 30);
}

// Works of one letter each: where a passage comes from is seen.
std::shared_ptr<const TokenCorpus> letters(const std::vector<std::size_t>& lengths) {
  std::string text;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    text += (i == 0 ? "" : "\f") + std::string(lengths[i], static_cast<char>('a' + i));
  return shared_tokens(text);
}

TEST(MatchingBatches, LabelsSayWhetherPassagesShareAUnit) {
  const auto corpus = letters({100, 50, 30, 4});
  const auto batches =
      matching_batches(*corpus, {.rows = 4, .tokens = 20, .seed = 2}, {.unit = Unit::section});
  EXPECT_EQ(batches->left_out(), 1);
  int same = 0;
  std::map<std::int32_t, int> units;
  for (std::int64_t step = 0; step < 200; ++step) {
    const Batch batch = batches->at(step);
    ASSERT_EQ(batch.labels.size(), 4U);
    ASSERT_EQ(batch.token_types.size(), 80U);
    for (std::size_t row = 0; row < 4; ++row) {
      const Ids ids(batch.ids.begin() + static_cast<std::ptrdiff_t>(row * 20),
                    batch.ids.begin() + static_cast<std::ptrdiff_t>(row * 20 + 20));
      EXPECT_EQ(ids[0], kBegin);
      EXPECT_EQ(ids[10], kEnd);
      EXPECT_EQ(ids[19], kEnd);
      for (std::size_t i = 1; i < 19; ++i) {
        if (i != 10) {
          EXPECT_EQ(ids[i], ids[i < 10 ? 1 : 11]);
        }
      }
      for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(batch.token_types[row * 20 + i], i > 10);
      EXPECT_EQ(batch.labels[row], ids[1] == ids[11]);
      same += batch.labels[row];
      ++units[ids[1]];
    }
  }
  EXPECT_NEAR(same / 800.0, 0.5, 0.1);  // 5.7 standard deviations
  EXPECT_EQ(units.size(), 3U);
  EXPECT_GT(units[kByte + 'a'], units[kByte + 'c']);
}

TEST(MatchingBatches, PassagesOfOneUnitDoNotOverlap) {
  // Each token of a unit occurs once.
  std::string text;
  for (int i = 0; i < 60; ++i) text += static_cast<char>('!' + i);
  text += "\f" + std::string(60, '~');
  const auto corpus = shared_tokens(text);
  const auto batches =
      matching_batches(*corpus, {.rows = 4, .tokens = 40, .seed = 2}, {.unit = Unit::section});
  std::set<std::int32_t> firsts;
  for (std::int64_t step = 0; step < 50; ++step) {
    const Batch batch = batches->at(step);
    for (std::size_t row = 0; row < 4; ++row) {
      const auto begin = batch.ids.begin() + static_cast<std::ptrdiff_t>(row * 40);
      if (batch.labels[row] == 0 || begin[1] == kByte + '~') continue;
      std::set<std::int32_t> seen(begin + 1, begin + 20);
      seen.insert(begin + 21, begin + 39);
      seen.erase(kEnd);
      EXPECT_EQ(seen.size(), 37U);
      firsts.insert(begin[1]);
    }
  }
  EXPECT_GT(firsts.size(), 10U);
}

class MatchingFiles : public io::testing::TemporaryFolder {};

TEST_F(MatchingFiles, PassagesOfAWorkHoldNoSeparator) {
  // Two works of short sections, which end tokens separate in the corpus.
  for (const char letter : {'a', 'b'}) {
    std::string text;
    for (int section = 0; section < 20; ++section) text += std::string(5, letter) + "\f";
    io::testing::put(at(std::string(1, letter) + ".txt"), text);
  }
  const std::filesystem::path path = at("");
  const TokenCorpus corpus(TextCorpus::read(std::span(&path, 1)).value_or_throw(),
                           byte_tokenizer());
  ASSERT_EQ(corpus.sections().size(), 40U);
  const auto batches = matching_batches(corpus, {.rows = 4, .tokens = 40, .seed = 2}, {});
  // 200 tokens, 37 of them in a row.
  EXPECT_EQ(batches->steps(), kPairsOfToken * 200 / (4 * 37));
  for (std::int64_t step = 0; step < 20; ++step) {
    const Batch batch = batches->at(step);
    EXPECT_EQ(std::count(batch.ids.begin(), batch.ids.end(), kEnd), 8);
    for (std::size_t row = 0; row < 4; ++row) {
      EXPECT_EQ(batch.labels[row], batch.ids[row * 40 + 1] == batch.ids[row * 40 + 21]);
    }
  }
}

TEST(MatchingBatches, UnitsMayBeChosenForLongerRows) {
  const auto corpus = letters({100, 50, 30});
  const auto made = [&](std::int64_t longest) {
    return matching_batches(*corpus, {.rows = 2, .tokens = 20},
                            {.unit = Unit::section, .longest_tokens = longest});
  };
  EXPECT_EQ(made(0)->left_out(), 0);
  EXPECT_EQ(made(53)->left_out(), 1);
  expect_error(kBad, {"101", "0 of 3"}, [&] { return made(104); });
  expect_error(kBad, {"2 units", "1 of 3"}, [&] { return made(54); });
  // All sections are of one work.
  expect_error(kBad, {"1 of 1"},
               [&] { return matching_batches(*corpus, {.rows = 2, .tokens = 20}, {}); });
  expect_function_of_step([&](std::uint64_t seed) {
    return matching_batches(*corpus, {.rows = 3, .tokens = 21, .seed = seed},
                            {.unit = Unit::section});
  });
}

LabelledSet labelled(std::size_t count) {
  LabelledSet set;
  set.labels = 2;
  for (std::size_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int32_t>(i % 2);
    set.rows.push_back(
        {std::string(1 + i % 7, static_cast<char>('a' + label)) + static_cast<char>('0' + i % 10),
         label});
  }
  return set;
}

TEST(ClassificationBatches, RowsArePaddedToTheLongest) {
  LabelledSet set;
  set.labels = 2;
  set.rows = {{"abc", 1}, {"d", 0}, {"efghij", 1}};
  const auto batches = classification_batches(set, byte_tokenizer(),
                                              {.rows = 2, .tokens = 6, .order = Order::sequential});
  EXPECT_EQ(batches->steps(), 2);
  EXPECT_EQ(batches->truncated(), 1);
  const Batch first = batches->at(0), second = batches->at(1);
  EXPECT_EQ(first.tokens, 5);
  EXPECT_EQ(first.ids, (Ids{kBegin, kByte + 'a', kByte + 'b', kByte + 'c', kEnd,  //
                            kBegin, kByte + 'd', kEnd, kPad, kPad}));
  EXPECT_EQ(first.mask, (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(first.labels, (Ids{1, 0}));
  EXPECT_EQ(second.rows, 1);
  EXPECT_EQ(second.tokens, 6);
  EXPECT_EQ(second.ids.back(), kEnd);
  EXPECT_TRUE(second.mask.empty());
  expect_error(kBad, {"row 2", "8", "6"}, [&] {
    return classification_batches(set, byte_tokenizer(),
                                  {.rows = 2, .tokens = 6, .too_long = TooLong::refuse});
  });
}

TEST(ClassificationBatches, AnEpochSeesEachRowOnceAndNeighboursAreAlike) {
  const LabelledSet set = labelled(70);
  const auto batches =
      classification_batches(set, byte_tokenizer(), {.rows = 5, .tokens = 20, .seed = 4});
  ASSERT_EQ(batches->steps(), 14);
  for (const std::int64_t epoch : {0, 1}) {
    std::multiset<std::string> seen, expected;
    std::size_t padded = 0, all = 0;
    for (std::int64_t step = epoch * 14; step < epoch * 14 + 14; ++step) {
      const Batch batch = batches->at(step);
      all += batch.ids.size();
      for (std::size_t row = 0; row < 5; ++row) {
        std::string text;
        for (std::size_t i = 0; i < static_cast<std::size_t>(batch.tokens); ++i) {
          const std::int32_t id = batch.ids[row * static_cast<std::size_t>(batch.tokens) + i];
          if (id >= kByte) text += static_cast<char>(id - kByte);
          padded += id == kPad;
        }
        seen.insert(text);
        EXPECT_EQ(batch.labels[row], text[0] - 'a');
      }
    }
    for (const auto& row : set.rows) expected.insert(row.text);
    EXPECT_EQ(seen, expected);
    EXPECT_LT(padded * 20, all);  // unsorted: a quarter
  }
  expect_function_of_step([&](std::uint64_t seed) {
    return classification_batches(set, byte_tokenizer(), {.rows = 5, .tokens = 20, .seed = seed});
  });
}

TEST(ClassificationBatches, Refusals) {
  expect_error(kBad, {"8", "7"}, [] {
    return classification_batches(labelled(7), byte_tokenizer(), {.rows = 8, .tokens = 20});
  });
  expect_error(kBad, {"0"}, [] {
    return classification_batches({}, byte_tokenizer(),
                                  {.rows = 8, .tokens = 20, .order = Order::sequential});
  });
  const TrainedBytes without({"[CLS]"});
  expect_error(kBad, {"[SEP]"}, [&] {
    return classification_batches(labelled(7), *without, {.rows = 1, .tokens = 20});
  });
  const auto corpus = std::make_shared<const TokenCorpus>(
      TextCorpus::of_text("t", "some text").value_or_throw(), *without);
  expect_error(kBad, {"[SEP]"}, [&] { return masked_batches(corpus, {.rows = 1, .tokens = 5}); });
}

TEST(TranslationBatches, TargetsAreShiftedByTheBeginToken) {
  PairSet set;
  set.rows = {{"abc", "x"}, {"d", "yz"}};
  const auto batches = translation_batches(set, byte_tokenizer(), byte_tokenizer(),
                                           {.rows = 2, .tokens = 8, .order = Order::sequential});
  const Batch batch = batches->at(0);
  EXPECT_EQ(batch.tokens, 3);
  EXPECT_EQ(batch.ids, (Ids{kBegin, kByte + 'x', kPad, kBegin, kByte + 'y', kByte + 'z'}));
  EXPECT_EQ(batch.labels, (Ids{kByte + 'x', kEnd, kNoLabel, kByte + 'y', kByte + 'z', kEnd}));
  EXPECT_EQ(batch.mask, (std::vector<std::uint8_t>{1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(batch.source_tokens, 4);
  EXPECT_EQ(batch.source_ids,
            (Ids{kByte + 'a', kByte + 'b', kByte + 'c', kEnd, kByte + 'd', kEnd, kPad, kPad}));
  EXPECT_EQ(batch.source_mask, (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 0, 0}));
}

TEST(TranslationBatches, LongSentencesAreCutOrRefused) {
  PairSet set;
  set.rows = {{"abcdef", "x"}, {"d", "yz"}, {"abcdef", "uvwxyz"}};
  BatchSettings settings{.rows = 3, .tokens = 4, .order = Order::sequential};
  const auto batches = translation_batches(set, byte_tokenizer(), byte_tokenizer(), settings);
  EXPECT_EQ(batches->truncated(), 2);
  const Batch batch = batches->at(0);
  EXPECT_EQ(batch.source_tokens, 4);
  EXPECT_EQ(batch.tokens, 4);
  EXPECT_EQ(batch.source_ids[3], kEnd);
  EXPECT_EQ(batch.labels[11], kEnd);
  settings.too_long = TooLong::refuse;
  expect_error(kBad, {"source", "row 0", "7", "4"}, [&] {
    return translation_batches(set, byte_tokenizer(), byte_tokenizer(), settings);
  });
}

TEST(TranslationBatches, AreFunctionsOfTheStep) {
  PairSet set;
  for (std::size_t i = 0; i < 40; ++i)
    set.rows.push_back({alphabet(1 + i % 9), alphabet(1 + i % 11)});
  expect_function_of_step([&](std::uint64_t seed) {
    return translation_batches(set, byte_tokenizer(), byte_tokenizer(),
                               {.rows = 4, .tokens = 16, .seed = seed});
  });
}

}  // namespace
}  // namespace phasor::lab::testing
