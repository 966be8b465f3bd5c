// Tokenizers through phasor.h.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "capi/support.hpp"
#include "phasor/text/tokenizer.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::capi {
namespace {

using testing::expect_status;
using testing::taken;
using testing::Tokenizer;
using testing::untouched;
using Ids = std::vector<std::int64_t>;

// Byte-level BPE of a few letters.
constexpr std::string_view kJson = R"({"version": "1.0", "normalizer": null,
  "added_tokens": [{"id": 4, "content": "<s>", "special": true},
                   {"id": 5, "content": "<|im_end|>", "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "é": 3, "Ã": 6, "©": 7},
            "merges": ["a b"]}})";

class CapiTokenizer : public io::testing::TemporaryFolder {
 protected:
  CapiTokenizer() {
    io::testing::put(at("tokenizer.json"), kJson);
    io::testing::put(at("tokenizer_config.json"), R"({"bos_token": "<s>", "add_bos_token": true})");
    phasor_tokenizer* tokenizer = nullptr;
    EXPECT_EQ(phasor_tokenizer_load(at("").c_str(), &tokenizer), PHASOR_OK) << phasor_last_error();
    tokenizer_.reset(tokenizer);
    theirs_ = text::read_tokenizer(at("")).value_or_throw();
  }
  [[nodiscard]] Ids encode(std::string_view text, phasor_special_text special) const {
    phasor_ids* ids = nullptr;
    EXPECT_EQ(phasor_tokenizer_encode(tokenizer_.get(), text.data(), text.size(), special, &ids),
              PHASOR_OK)
        << phasor_last_error();
    return taken(ids);
  }
  [[nodiscard]] std::string decode(const Ids& ids) const {
    phasor_text* text = nullptr;
    EXPECT_EQ(phasor_tokenizer_decode(tokenizer_.get(), ids.data(), ids.size(), &text), PHASOR_OK)
        << phasor_last_error();
    return taken(text);
  }

  Tokenizer tokenizer_;
  std::unique_ptr<text::Tokenizer> theirs_;
};

TEST_F(CapiTokenizer, EncodesAndDecodesAsTheRoomDoes) {
  EXPECT_EQ(phasor_tokenizer_vocabulary(tokenizer_.get()), theirs_->size());
  EXPECT_EQ(encode("abba", PHASOR_SPECIAL_PARSE), (Ids{2, 1, 0}));
  EXPECT_EQ(encode("a<|im_end|>", PHASOR_SPECIAL_PARSE), theirs_->encode("a<|im_end|>"));
  EXPECT_EQ(encode("a<|im_end|>", PHASOR_SPECIAL_PARSE), (Ids{0, 5}));
  EXPECT_EQ(encode("", PHASOR_SPECIAL_PARSE), Ids{});
  EXPECT_EQ(decode({2, 1, 0, 5}), "abba");  // special tokens are not seen
  EXPECT_EQ(decode({6, 7}), "\u00e9");
  EXPECT_EQ(decode({6}), "\ufffd");
  EXPECT_EQ(decode({}), "");
  phasor_text* piece = nullptr;
  ASSERT_EQ(phasor_tokenizer_piece(tokenizer_.get(), 6, &piece), PHASOR_OK);
  EXPECT_EQ(taken(piece), "\xc3");
  phasor_ids* prompt = nullptr;
  ASSERT_EQ(phasor_tokenizer_encode_prompt(tokenizer_.get(), "ab", 2, &prompt), PHASOR_OK);
  EXPECT_EQ(taken(prompt), (Ids{4, 2}));
  std::int64_t id = 0;
  ASSERT_EQ(phasor_tokenizer_find(tokenizer_.get(), "<s>", 3, &id), PHASOR_OK);
  EXPECT_EQ(id, 4);
  ASSERT_EQ(phasor_tokenizer_find(tokenizer_.get(), "none", 4, &id), PHASOR_OK);
  EXPECT_EQ(id, -1);
}

TEST_F(CapiTokenizer, ReportsItsSpecialTokens) {
  phasor_special_tokens specials{};
  specials.struct_size = sizeof(specials);
  ASSERT_EQ(phasor_tokenizer_specials(tokenizer_.get(), &specials), PHASOR_OK);
  EXPECT_EQ(specials.begin, 4);
  EXPECT_EQ(specials.add_begin, 1);
  EXPECT_EQ(specials.end, -1);
  EXPECT_EQ(specials.mask, -1);
  phasor_ids* stops = nullptr;
  ASSERT_EQ(phasor_tokenizer_stops(tokenizer_.get(), &stops), PHASOR_OK);
  EXPECT_EQ(taken(stops), theirs_->specials().stops);
}

TEST_F(CapiTokenizer, ReadsTheTextOfATokenizerJson) {
  phasor_tokenizer* parsed = nullptr;
  ASSERT_EQ(phasor_tokenizer_parse(kJson.data(), kJson.size(), &parsed), PHASOR_OK)
      << phasor_last_error();
  const Tokenizer owned(parsed);
  EXPECT_EQ(phasor_tokenizer_vocabulary(parsed), theirs_->size());
}

TEST_F(CapiTokenizer, RefusesAndLeavesOutputsAsTheyWere) {
  auto* const same = untouched<phasor_tokenizer>();
  phasor_tokenizer* tokenizer = same;
  phasor_ids* ids = untouched<phasor_ids>();
  phasor_text* text = untouched<phasor_text>();
  const phasor_tokenizer* const ours = tokenizer_.get();
  expect_status(phasor_tokenizer_load(at("nowhere").c_str(), &tokenizer), PHASOR_IO, "nowhere");
  expect_status(phasor_tokenizer_parse("{}", 2, &tokenizer), PHASOR_INVALID_ARGUMENT, "model");
  expect_status(phasor_tokenizer_encode(ours, "\xff", 1, 0, &ids), PHASOR_INVALID_ARGUMENT, "UTF");
  expect_status(phasor_tokenizer_encode(ours, "a", 1, 2, &ids), PHASOR_INVALID_ARGUMENT,
                {"special", "1", "2"});
  const std::int64_t outside = 99;
  expect_status(phasor_tokenizer_decode(ours, &outside, 1, &text), PHASOR_OUT_OF_RANGE, "99");
  expect_status(phasor_tokenizer_piece(ours, -1, &text), PHASOR_OUT_OF_RANGE, "-1");
  std::int64_t id = 7;
  phasor_special_tokens specials{};
  specials.struct_size = sizeof(specials);
  const phasor_status null[] = {
      phasor_tokenizer_load(nullptr, &tokenizer),
      phasor_tokenizer_load("x", nullptr),
      phasor_tokenizer_parse(nullptr, 0, &tokenizer),
      phasor_tokenizer_parse("{}", 2, nullptr),
      phasor_tokenizer_encode(nullptr, "a", 1, 0, &ids),
      phasor_tokenizer_encode(ours, nullptr, 1, 0, &ids),
      phasor_tokenizer_encode(ours, "a", 1, 0, nullptr),
      phasor_tokenizer_encode_prompt(nullptr, "a", 1, &ids),
      phasor_tokenizer_encode_prompt(ours, nullptr, 1, &ids),
      phasor_tokenizer_encode_prompt(ours, "a", 1, nullptr),
      phasor_tokenizer_decode(nullptr, &id, 1, &text),
      phasor_tokenizer_decode(ours, nullptr, 1, &text),
      phasor_tokenizer_decode(ours, &id, 0, nullptr),
      phasor_tokenizer_piece(nullptr, 0, &text),
      phasor_tokenizer_piece(ours, 0, nullptr),
      phasor_tokenizer_find(nullptr, "a", 1, &id),
      phasor_tokenizer_find(ours, nullptr, 1, &id),
      phasor_tokenizer_find(ours, "a", 1, nullptr),
      phasor_tokenizer_specials(nullptr, &specials),
      phasor_tokenizer_specials(ours, nullptr),
      phasor_tokenizer_stops(nullptr, &ids),
      phasor_tokenizer_stops(ours, nullptr),
  };
  for (std::size_t i = 0; i < std::size(null); ++i) {
    EXPECT_EQ(null[i], PHASOR_INVALID_ARGUMENT) << i;
  }
  EXPECT_EQ(tokenizer, same);
  EXPECT_EQ(ids, untouched<phasor_ids>());
  EXPECT_EQ(text, untouched<phasor_text>());
  EXPECT_EQ(id, 7);
  EXPECT_EQ(phasor_tokenizer_vocabulary(nullptr), 0);
  phasor_tokenizer_destroy(nullptr);
}

}  // namespace
}  // namespace phasor::capi
