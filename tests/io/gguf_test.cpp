// GGUF files: metadata, tensors, and every error.
#include "phasor/io/tensors.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

using testing::append;
using testing::append_text;
using testing::bytes_of;
using testing::GgufType;
using testing::GgufWriter;

class Gguf : public testing::TemporaryFolder {};

// Owns the bytes that its views point into.
struct Parsed {
  explicit Parsed(const GgufWriter& writer)
      : bytes(writer.bytes()), file(GgufFile::parse(bytes_of(bytes), "f").value_or_throw()) {}
  std::string bytes;
  GgufFile file;
};

using Values = std::initializer_list<std::string_view>;

void expect_gguf_refused(const std::string& bytes, Values values) {
  const Result<GgufFile> file = GgufFile::parse(bytes_of(bytes), "f");
  tests::expect_error(ErrorCode::invalid_argument, values, file);
  if (!file) {
    EXPECT_TRUE(std::string_view(file.error().what()).starts_with("f: "));
  }
}
void expect_gguf_refused(const GgufWriter& writer, Values values) {
  expect_gguf_refused(writer.bytes(), values);
}

std::string zeros(std::size_t count) { return std::string(count, '\0'); }

TEST_F(Gguf, GivesMetadataOfEveryType) {
  GgufWriter writer;
  writer.number<std::uint8_t>("u8", 200).number<std::int8_t>("i8", -100);
  writer.number<std::uint16_t>("u16", 60000).number<std::int16_t>("i16", -30000);
  writer.number<std::uint32_t>("u32", 4000000000U).number<std::int32_t>("i32", -2000000000);
  writer.number<std::uint64_t>("u64", 1ULL << 63).number<std::int64_t>("i64", -5);
  writer.number<float>("f32", 0.1F).number<double>("f64", 0.1);
  writer.number<bool>("yes", true).number<bool>("no", false).text("text", "ab\nc");
  writer.numbers<std::uint8_t>("u8s", {1, 255}).numbers<std::int32_t>("i32s", {-1, 2});
  writer.numbers<float>("f32s", {0.5F, -1.0F}).numbers<bool>("flags", {true, false});
  writer.texts("texts", {"a", "", "bc"}).numbers<double>("none", {});
  const Parsed parsed(writer);
  const GgufFile& file = parsed.file;
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.metadata().size(), 19U);
  EXPECT_EQ(file.integer("u8").value_or_throw(), 200);
  EXPECT_EQ(file.integer("i8").value_or_throw(), -100);
  EXPECT_EQ(file.integer("u16").value_or_throw(), 60000);
  EXPECT_EQ(file.integer("i16").value_or_throw(), -30000);
  EXPECT_EQ(file.integer("u32").value_or_throw(), 4000000000);
  EXPECT_EQ(file.integer("i32").value_or_throw(), -2000000000);
  EXPECT_EQ(file.integer("i64").value_or_throw(), -5);
  EXPECT_EQ(std::get<std::uint64_t>(file.metadata().at("u64")), 1ULL << 63);
  EXPECT_EQ(file.number("u64").value_or_throw(), 0x1p63);
  EXPECT_EQ(file.number("i8").value_or_throw(), -100.0);
  EXPECT_EQ(file.number("f32").value_or_throw(), static_cast<double>(0.1F));
  EXPECT_EQ(file.number("f64").value_or_throw(), 0.1);
  EXPECT_EQ(file.flag("yes").value_or_throw(), true);
  EXPECT_EQ(file.flag("no").value_or_throw(), false);
  EXPECT_EQ(file.text("text").value_or_throw(), "ab\nc");
  EXPECT_EQ(file.integers("u8s").value_or_throw(), (std::vector<std::int64_t>{1, 255}));
  EXPECT_EQ(file.integers("i32s").value_or_throw(), (std::vector<std::int64_t>{-1, 2}));
  EXPECT_EQ(std::get<std::vector<double>>(file.metadata().at("f32s")),
            (std::vector<double>{0.5, -1.0}));
  EXPECT_EQ(std::get<std::vector<bool>>(file.metadata().at("flags")),
            (std::vector<bool>{true, false}));
  EXPECT_EQ(std::get<std::vector<std::string>>(file.metadata().at("texts")),
            (std::vector<std::string>{"a", "", "bc"}));
  EXPECT_TRUE(std::get<std::vector<double>>(file.metadata().at("none")).empty());
}

TEST_F(Gguf, SaysWhenAKeyIsAbsentOrOfAnotherKind) {
  GgufWriter writer;
  writer.number<std::uint64_t>("large", 1ULL << 63).text("text", "x").number<float>("real", 1.0F);
  writer.numbers<std::uint64_t>("larges", {1ULL << 63}).texts("texts", {"x"});
  const Parsed parsed(writer);
  const GgufFile& file = parsed.file;
  EXPECT_FALSE(file.integer("absent").value_or_throw());
  EXPECT_FALSE(file.number("absent").value_or_throw());
  EXPECT_FALSE(file.flag("absent").value_or_throw());
  EXPECT_FALSE(file.text("absent").value_or_throw());
  EXPECT_FALSE(file.integers("absent").value_or_throw());
  const auto expect_kind = [](Values values, const auto& result) {
    tests::expect_error(ErrorCode::invalid_argument, values, result);
  };
  expect_kind({"'text'", "integer", "string"}, file.integer("text"));
  expect_kind({"'real'", "integer", "float"}, file.integer("real"));
  expect_kind({"'large'", "9223372036854775808"}, file.integer("large"));
  expect_kind({"'texts'", "number", "array of strings"}, file.number("texts"));
  expect_kind({"'large'", "bool", "integer"}, file.flag("large"));
  expect_kind({"'real'", "string", "float"}, file.text("real"));
  expect_kind({"'large'", "array of integers", "an integer"}, file.integers("large"));
  expect_kind({"'larges'", "9223372036854775808"}, file.integers("larges"));
}

TEST_F(Gguf, GivesTensorsInTheirOrderWithShapesOutermostFirst) {
  GgufWriter writer;
  writer.version = 2;
  writer.tensor("b", 0, {3, 2}, zeros(23) + "z").tensor("a", 8, {64, 5}, zeros(340));
  const Parsed parsed(writer);
  const GgufFile& file = parsed.file;
  EXPECT_EQ(file.version(), 2U);
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.tensors()[0].type, TensorType::f32);
  EXPECT_EQ(file.tensors()[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.tensors()[0].bytes.size(), 24U);
  EXPECT_EQ(file.tensors()[0].bytes.back(), std::byte{'z'});
  EXPECT_EQ(file.find("a"), &file.tensors()[1]);
  EXPECT_EQ(file.find("a")->type, TensorType::q8_0);
  EXPECT_EQ(file.find("a")->bytes.size(), 340U);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.name(), "f");
}

TEST_F(Gguf, KnowsTheNumberOfEachTensorType) {
  const std::vector<std::pair<std::uint32_t, TensorType>> types = {
      {0, TensorType::f32},   {1, TensorType::f16},     {2, TensorType::q4_0},
      {3, TensorType::q4_1},  {6, TensorType::q5_0},    {7, TensorType::q5_1},
      {8, TensorType::q8_0},  {12, TensorType::q4_k},   {13, TensorType::q5_k},
      {14, TensorType::q6_k}, {20, TensorType::iq4_nl}, {24, TensorType::i8},
      {25, TensorType::i16},  {26, TensorType::i32},    {27, TensorType::i64},
      {28, TensorType::f64},  {30, TensorType::bf16}};
  for (const auto& [number, type] : types) {
    GgufWriter writer;
    const std::size_t bytes =
        256 / static_cast<std::size_t>(block_elements(type)) * block_bytes(type);
    writer.tensor("t", number, {256}, zeros(bytes));
    const Parsed parsed(writer);
    ASSERT_EQ(parsed.file.tensors().size(), 1U) << number;
    EXPECT_EQ(parsed.file.tensors()[0].type, type);
    EXPECT_EQ(parsed.file.tensors()[0].bytes.size(), bytes);
  }
}

TEST_F(Gguf, SkipsTypesThatItDoesNotReadAndStillChecksThem) {
  GgufWriter writer;
  writer.tensor("coarse", 10, {256, 3}, zeros(252)).floats("fine", {1.0F});
  const Parsed parsed(writer);
  ASSERT_EQ(parsed.file.tensors().size(), 1U);
  ASSERT_EQ(parsed.file.skipped().size(), 1U);
  EXPECT_EQ(parsed.file.skipped()[0].name, "coarse");
  EXPECT_EQ(parsed.file.skipped()[0].type, "Q2_K");
  EXPECT_EQ(parsed.file.skipped()[0].shape, (std::vector<std::int64_t>{3, 256}));
  EXPECT_EQ(parsed.file.find("coarse"), nullptr);
  expect_gguf_refused(GgufWriter().tensor("coarse", 10, {256, 3}, zeros(251)),
                      {"truncated", "'coarse'", "252", "251"});
}

TEST_F(Gguf, HonoursTheAlignmentOfTheFile) {
  GgufWriter writer;
  writer.alignment = 128;
  writer.number<std::uint32_t>("general.alignment", 128);
  writer.floats("a", {1.0F}).floats("b", {2.0F});
  const Parsed parsed(writer);
  float value = 0.0F;
  to_floats(*parsed.file.find("b"), 0, {&value, 1});
  EXPECT_EQ(value, 2.0F);
  const auto offset = parsed.file.find("a")->bytes.data() - bytes_of(parsed.bytes).data();
  EXPECT_EQ(offset % 128, 0);
}

TEST_F(Gguf, OpensAFileAndLooksAtItsStart) {
  testing::put(at("m.gguf"), GgufWriter().text("k", "v").floats("t", {3.0F}).bytes());
  testing::put(at("short"), "GGU");
  testing::put(at("other"), "PK\x03\x04....");
  EXPECT_TRUE(looks_like_gguf(at("m.gguf")));
  EXPECT_FALSE(looks_like_gguf(at("short")));
  EXPECT_FALSE(looks_like_gguf(at("other")));
  EXPECT_FALSE(looks_like_gguf(at("absent")));
  EXPECT_FALSE(looks_like_gguf(at("")));
  const GgufFile file = GgufFile::open(at("m.gguf")).value_or_throw();
  EXPECT_EQ(file.name(), at("m.gguf").string());
  float value = 0.0F;
  to_floats(*file.find("t"), 0, {&value, 1});
  EXPECT_EQ(value, 3.0F);
  EXPECT_EQ(GgufFile::open(at("absent")).error().code(), ErrorCode::io);
  tests::expect_error(ErrorCode::invalid_argument, {at("other").string(), "'PK"},
                      GgufFile::open(at("other")));
}

TEST_F(Gguf, RefusesAnotherHeader) {
  GgufWriter writer;
  writer.magic = "GGML";
  expect_gguf_refused(writer, {"'GGML'"});
  expect_gguf_refused("", {"\"GGUF\"", "''"});
  expect_gguf_refused("GGUF\x03", {"truncated", "version", "4 bytes", "byte 4", " 1 "});
  writer = {};
  writer.version = 1;
  expect_gguf_refused(writer, {"version", " 1"});
  writer.version = 4;
  expect_gguf_refused(writer, {"version", " 4"});
  writer.version = 0x03000000;
  expect_gguf_refused(writer, {"big-endian", "50331648"});
}

TEST_F(Gguf, RefusesCountsThatTheFileCannotHold) {
  const std::uint64_t huge = std::uint64_t{1} << 60;
  GgufWriter writer;
  writer.pair_count = huge;
  expect_gguf_refused(writer,
                      {"truncated", "metadata", "byte 24", std::to_string(huge), "14 bytes"});
  writer = {};
  writer.tensor_count = huge;
  expect_gguf_refused(
      writer, {"truncated", "tensor directory", "byte 24", std::to_string(huge), "33 bytes"});
  expect_gguf_refused(
      GgufWriter().raw("k", GgufType::array, GgufWriter::array_head(GgufType::u8, huge)),
      {"truncated", "array of key 'k'", std::to_string(huge), "byte 49"});
  expect_gguf_refused(GgufWriter().raw("k", GgufType::array,
                                       GgufWriter::array_head(GgufType::string, 2) + zeros(8)),
                      {"array of key 'k'", "2 x 8", "byte 49", " 8 "});
  std::string text;
  append<std::uint64_t>(text, std::numeric_limits<std::uint64_t>::max());
  expect_gguf_refused(GgufWriter().raw("k", GgufType::string, text),
                      {"value of key 'k'", "byte 45", "18446744073709551615"});
}

TEST_F(Gguf, RefusesMoreArrayElementsThanAnyVocabularyHas) {
  const std::uint64_t count = (std::uint64_t{1} << 25) + 1;
  expect_gguf_refused(GgufWriter().raw("k", GgufType::array,
                                       GgufWriter::array_head(GgufType::u8, count) + zeros(count)),
                      {"'k'", "33554432", "33554433"});
}

TEST_F(Gguf, RefusesWrongKeysAndValues) {
  const GgufWriter one = GgufWriter().number<std::uint8_t>("k", 1);
  expect_gguf_refused(GgufWriter(one).number<std::uint8_t>("k", 2), {"'k'", "twice"});
  expect_gguf_refused(GgufWriter().number<std::uint64_t>("", 1), {"key", "byte 24", "65535", " 0"});
  expect_gguf_refused(GgufWriter().number<std::uint8_t>(std::string(65536, 'k'), 1),
                      {"key", "byte 24", "65536"});
  expect_gguf_refused(GgufWriter().number<std::uint8_t>("a\nb", 1), {"byte 24", "byte 10"});
  expect_gguf_refused(GgufWriter().number<std::uint8_t>("\xc3\xa9", 1), {"byte 24", "byte 195"});
  expect_gguf_refused(GgufWriter().raw("k", static_cast<GgufType>(13), zeros(16)),
                      {"'k'", "type", "13"});
  expect_gguf_refused(GgufWriter().raw("k", GgufType::boolean, "\x02"), {"'k'", "bool", " 2"});
  expect_gguf_refused(GgufWriter().raw("k", GgufType::array,
                                       GgufWriter::array_head(GgufType::array, 1) + zeros(16)),
                      {"'k'", "arrays of arrays"});
  expect_gguf_refused(GgufWriter().raw("k", GgufType::u64, zeros(4)),
                      {"value of key 'k'", "8 bytes", "byte 37", " 4 "});
  EXPECT_TRUE(
      GgufFile::parse(
          bytes_of(GgufWriter().number<std::uint8_t>(std::string(65535, 'k'), 1).bytes()), "f")
          .ok());
}

TEST_F(Gguf, RefusesAnAlignmentThatIsNone) {
  const auto with = [](auto value) { return GgufWriter().number("general.alignment", value); };
  expect_gguf_refused(with(std::uint32_t{0}), {"general.alignment", "1073741824", " 0"});
  expect_gguf_refused(with(std::uint32_t{48}), {"general.alignment", "48"});
  expect_gguf_refused(with(std::uint64_t{1} << 31), {"general.alignment", "2147483648"});
  expect_gguf_refused(with(32.0F), {"general.alignment", "float"});
}

TEST_F(Gguf, RefusesWrongShapesAndTypes) {
  const auto shaped = [](const std::vector<std::uint64_t>& extents) {
    return GgufWriter().tensor("t", 0, extents, zeros(64));
  };
  expect_gguf_refused(shaped({}), {"'t'", "dimensions", " 0"});
  expect_gguf_refused(shaped({1, 1, 1, 1, 1}), {"'t'", "dimensions", " 5"});
  expect_gguf_refused(shaped({0}), {"'t'", "positive", " 0 ", " 1"});
  expect_gguf_refused(shaped({std::uint64_t{1} << 32, std::uint64_t{1} << 31}),
                      {"'t'", "2^63", "2147483648", "4294967296"});
  expect_gguf_refused(shaped({(std::uint64_t{1} << 62) + 1}),
                      {"'t'", "2^64", "4611686018427387905"});
  expect_gguf_refused(GgufWriter().tensor("t", 2, {48}, zeros(64)), {"'t'", "Q4_0", "32", "48"});
  // 4 x 16 elements would fill two blocks, but a block may not span rows.
  expect_gguf_refused(GgufWriter().tensor("t", 2, {16, 4}, zeros(64)), {"'t'", "Q4_0", "32", "16"});
  for (const std::uint32_t type : {4U, 31U, 36U, 42U, 0xffffffffU}) {
    expect_gguf_refused(GgufWriter().tensor("t", type, {32}, zeros(64)),
                        {"'t'", "type " + std::to_string(type)});
  }
}

TEST_F(Gguf, RefusesWrongNamesAndPlaces) {
  expect_gguf_refused(GgufWriter().floats("t", {1.0F}).floats("t", {1.0F}), {"'t'", "twice"});
  expect_gguf_refused(GgufWriter().floats("", {1.0F}).floats("t", {1.0F}),
                      {"tensor name", "byte 24", "65535", " 0"});
  expect_gguf_refused(GgufWriter().tensor("t", 0, {1}, zeros(64), 16),
                      {"'t'", "offset", "32", "16"});
  expect_gguf_refused(GgufWriter().tensor("t", 0, {16}, zeros(64), 32),
                      {"'t'", "64 bytes", "offset 32"});
  expect_gguf_refused(GgufWriter().tensor("t", 0, {1}, zeros(4), std::uint64_t{0} - 32),
                      {"'t'", "18446744073709551584"});
  expect_gguf_refused(
      GgufWriter().tensor("a", 0, {16}, zeros(64)).tensor("b", 0, {1}, zeros(4), 32),
      {"'b'", "'a'", "64", "32"});
  // The other tensor may be of a skipped type.
  expect_gguf_refused(
      GgufWriter().tensor("a", 10, {256}, zeros(84)).tensor("b", 0, {1}, zeros(4), 64),
      {"'b'", "'a'", "84", "64"});
}

TEST_F(Gguf, NeedsNoDataSectionWithoutTensors) {
  const Parsed parsed(GgufWriter().text("general.architecture", "llama"));
  EXPECT_TRUE(parsed.file.tensors().empty());
  EXPECT_TRUE(Parsed(GgufWriter()).file.metadata().empty());
}

// One of everything, for the laws below.
std::string sample() {
  GgufWriter writer;
  writer.text("general.architecture", "llama").number<std::uint32_t>("llama.block_count", 2);
  writer.numbers<std::int32_t>("list", {1, 2, 3}).texts("words", {"a", "bc"});
  writer.number<bool>("flag", true).number<double>("real", 0.5);
  writer.floats("x", {1.0F, 2.0F}).tensor("q", 2, {32, 2}, zeros(36));
  writer.tensor("s", 10, {256}, zeros(84));
  return writer.bytes();
}

// All tensors are inside the bytes of the file.
bool is_inside(const GgufFile& file, const std::string& bytes) {
  const std::span<const std::byte> all = bytes_of(bytes);
  for (const Tensor& tensor : file.tensors()) {
    if (tensor.bytes.data() < all.data()) return false;
    if (tensor.bytes.data() + tensor.bytes.size() > all.data() + all.size()) return false;
    std::vector<float> values(static_cast<std::size_t>(tensor.size()));
    to_floats(tensor, 0, values);
  }
  return true;
}

TEST(GgufLaws, EveryTruncationIsRefused) {
  const std::string whole = sample();
  ASSERT_TRUE(GgufFile::parse(bytes_of(whole), "f").ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_FALSE(GgufFile::parse(bytes_of(cut), "f").ok()) << size << " of " << whole.size();
  }
}

RC_GTEST_PROP(GgufLaws, FlippedBytesGiveAnErrorOrTensorsInsideTheFile, ()) {
  std::string bytes = sample();
  const int flips = *rc::gen::inRange(1, 5);
  for (int i = 0; i < flips; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
    bytes[at] = static_cast<char>(*rc::gen::inRange(0, 256));
  }
  const Result<GgufFile> file = GgufFile::parse(bytes_of(bytes), "f");
  if (file) RC_ASSERT(is_inside(*file, bytes));
}

}  // namespace
}  // namespace phasor::io
