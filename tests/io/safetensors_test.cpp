#include "phasor/io/tensors.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "io/safetensors_text.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using testing::get;
using testing::length_field;
using testing::put;
using testing::safetensors_text;

class Safetensors : public testing::TemporaryFolder {};

constexpr std::array kTensorTypes{
    TensorType::f64,     TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::f8_e4m3,
    TensorType::f8_e5m2, TensorType::i64, TensorType::i32, TensorType::i16,  TensorType::i8,
    TensorType::u64,     TensorType::u32, TensorType::u16, TensorType::u8,   TensorType::boolean};

Result<SafetensorsFile> parse(std::string_view text) {
  return SafetensorsFile::parse(bytes_of(text), "w.safetensors");
}

using Values = std::initializer_list<std::string_view>;

void expect_refused(std::string_view text, Values values, ErrorCode code = ErrorCode::io) {
  const auto file = parse(text);
  tests::expect_error(code, values, file);
  if (!file) {
    EXPECT_TRUE(std::string_view(file.error().what()).starts_with("w.safetensors: "));
  }
}

void expect_header_refused(std::string_view header, Values values, ErrorCode code = ErrorCode::io,
                           std::string_view data = "12345678") {
  SCOPED_TRACE(header.substr(0, 200));
  expect_refused(safetensors_text(header, data), values, code);
}

TEST_F(Safetensors, EveryTypeAndShapeComesBack) {
  const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> filled(1000);
    for (std::size_t i = 0; i < filled.size(); ++i) filled[i] = static_cast<std::byte>(37 * i + 11);
    return filled;
  }();
  std::vector<Tensor> tensors;
  for (const TensorType type : kTensorTypes) {
    for (const std::vector<std::int64_t>& shape :
         std::vector<std::vector<std::int64_t>>{{}, {0}, {7}, {2, 3, 4}, {3, 0, 5}}) {
      Tensor tensor;
      tensor.name = message(name_of(type), ".", tensors.size(), " \"\\\n\xc3\xa9");
      tensor.type = type;
      tensor.shape = shape;
      const auto size = static_cast<std::size_t>(tensor.size()) * block_bytes(type);
      tensor.bytes = std::span(bytes).subspan(tensors.size(), size);
      tensors.push_back(tensor);
    }
  }
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"quote \"", "line\n"}};
  const auto written = write_safetensors(at("a.safetensors"), tensors, metadata);
  ASSERT_TRUE(written.ok()) << written.error().what();
  const auto file = SafetensorsFile::open(at("a.safetensors"));
  ASSERT_TRUE(file.ok()) << file.error().what();
  EXPECT_EQ(file->metadata(), metadata);
  EXPECT_EQ(file->tensors().front().offset % 8, 0U);
  ASSERT_EQ(file->tensors().size(), tensors.size());
  for (const Tensor& expected : tensors) {
    const Tensor* const got = file->find(expected.name);
    ASSERT_NE(got, nullptr) << expected.name;
    EXPECT_EQ(got->type, expected.type);
    EXPECT_EQ(got->shape, expected.shape);
    EXPECT_TRUE(same_bytes(*got, expected)) << expected.name;
  }
  EXPECT_EQ(file->find("other"), nullptr);
}

TEST_F(Safetensors, TensorsComeInTheOrderOfTheirBytes) {
  const std::string text = safetensors_text(
      R"({"late":{"data_offsets":[4,12],"shape":[2],"dtype":"F32"},)"
      R"("none":{"dtype":"I8","shape":[0,9],"data_offsets":[4,4]},)"
      R"("__metadata__":{},"early":{"dtype":"I16","shape":[1,2],"data_offsets":[0,4]}}   )",
      "abcd12345678");
  const auto file = parse(text);
  ASSERT_TRUE(file.ok()) << file.error().what();
  ASSERT_EQ(file->tensors().size(), 3U);
  EXPECT_EQ(file->tensors()[0].name, "early");
  EXPECT_EQ(file->tensors()[1].name, "none");
  EXPECT_EQ(file->tensors()[2].name, "late");
  EXPECT_EQ(file->tensors()[1].size(), 0);
  EXPECT_EQ(std::to_integer<char>(file->tensors()[2].bytes.front()), '1');
  EXPECT_EQ(file->tensors()[0].offset, text.size() - 12);
}

TEST_F(Safetensors, AFileWithoutTensorsIsEmpty) {
  for (const std::string_view header : {"{}", "{}      ", R"({"__metadata__":{"a":"b"}})"}) {
    const auto file = parse(safetensors_text(header));
    ASSERT_TRUE(file.ok()) << file.error().what();
    EXPECT_TRUE(file->tensors().empty());
  }
}

TEST_F(Safetensors, RefusesLengthsThatTheFileDoesNotHold) {
  expect_refused("", {"truncated", " 8 ", " 0"});
  expect_refused("1234567", {"truncated", " 8 ", " 7"});
  expect_refused(length_field(3) + "{}", {"truncated", " 3 ", " 2 "});
  expect_refused(length_field(100'000'001) + "{}", {"100000000 ", "100000001"});
  expect_refused(length_field(~std::uint64_t{0}) + "{}", {"100000000 ", "18446744073709551615"});
}

TEST_F(Safetensors, RefusesHeadersThatAreNoObjectOfTensors) {
  const std::string entry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  expect_header_refused("", {"'{'", "''"});
  expect_header_refused(" {}", {"'{'", "' '"});
  expect_header_refused("\xef\xbb\xbf{}", {"'{'", "'?'"});
  expect_header_refused("[]", {"'{'", "'['"});
  expect_header_refused("{", {"line 1, column 2"});
  expect_header_refused("{}x", {"line 1, column 3"});
  expect_header_refused(std::string_view("{}\0", 3), {"line 1, column 3", "NUL"});
  expect_header_refused("{\"a\xff\":1}", {"line 1, column 4"});
  expect_header_refused(R"({"a":1e999})", {"line 1, column 10", "float64"});
  expect_header_refused(R"({"a":1})", {"'a'", "object", " 1"});
  expect_header_refused(R"({"a":null})", {"'a'", "object", "null"});
  expect_header_refused(R"({"a":[]})", {"'a'", "object", "a list"});
  expect_header_refused(R"({"a":{}})", {"'a'", "'dtype'"});
  expect_header_refused(R"({"a":{"dtype":"F32"}})", {"'a'", "'shape'"});
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[2]}})", {"'a'", "'data_offsets'"});
  expect_header_refused(R"({"a":{"strides":[1]}})", {"'a'", "'strides'"});
  expect_header_refused(R"({"a":{"dtype":"F32","dtype":"F32"}})", {"'a'", "'dtype'", "twice"});
  expect_header_refused(R"({"a":{"shape":[],"shape":[]}})", {"'a'", "'shape'", "twice"});
  expect_header_refused(R"({"a":{"data_offsets":[0,8],"data_offsets":[0,8]}})",
                        {"'a'", "'data_offsets'", "twice"});
  expect_header_refused(R"({"a":)" + entry + R"(,"b":)" + entry + R"(,"a":)" + entry + "}",
                        {"'a'", "twice"});
  expect_header_refused(R"({"a\nb":{}})", {"'a?b'", "'dtype'"});
}

TEST_F(Safetensors, RefusesMetadataThatIsNoMapOfStrings) {
  expect_header_refused(R"({"__metadata__":7})", {"__metadata__", " 7"});
  expect_header_refused(R"({"__metadata__":{"a":7}})", {"__metadata__", "'a'", " 7"});
  expect_header_refused(R"({"__metadata__":{"a":{"b":"c"}}})", {"__metadata__", "'a'", "object"});
  expect_header_refused(R"({"__metadata__":{"a":"b","a":"b"}})", {"__metadata__", "'a'", "twice"});
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", {"'__metadata__'", "twice"});
  std::string many = R"({"__metadata__":{"first":"")";
  for (int i = 0; i < 100'000; ++i) many += message(",\"", i, "\":\"\"");
  expect_header_refused(many + "}}", {"__metadata__", "100000"});
}

std::string entry(std::string_view type, std::string_view shape, std::string_view offsets) {
  return message(R"({"a":{"dtype":)", type, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets,
                 "}}");
}

TEST_F(Safetensors, RefusesTypesShapesAndOffsetsThatAreNone) {
  std::string dims = "[1";
  for (int i = 0; i < 64; ++i) dims += ",1";
  expect_header_refused(entry("\"C64\"", "[1]", "[0,8]"), {"'a'", "'C64'", "BF16", "BOOL"},
                        ErrorCode::unsupported);
  expect_header_refused(entry("\"f32\"", "[2]", "[0,8]"), {"'f32'"}, ErrorCode::unsupported);
  const struct {
    std::string header, value;
  } cases[] = {
      {entry("32", "[2]", "[0,8]"), "dtype must be a string, got 32"},
      {entry("\"F32\"", "2", "[0,8]"), "integers, got 2"},
      {entry("\"F32\"", "[-2]", "[0,8]"), "-2"},
      {entry("\"F32\"", "[2.0]", "[0,8]"), "'2.0'"},
      {entry("\"F32\"", "[\"2\"]", "[0,8]"), "string '2'"},
      {entry("\"F32\"", "[[2]]", "[0,8]"), "a list"},
      {entry("\"F32\"", "[9223372036854775808]", "[0,8]"), "9223372036854775808"},
      {entry("\"F32\"", "[4611686018427387904]", "[0,8]"), "[4611686018427387904]"},
      {entry("\"I8\"", "[0,4611686018427387904,4]", "[0,0]"), "[0, 4611686018427387904, 4]"},
      {entry("\"I8\"", dims + "]", "[0,1]"), " 64 "},
      {entry("\"F32\"", "[2]", "8"), "two integers, got 8"},
      {entry("\"F32\"", "[2]", "[]"), "a list of 0"},
      {entry("\"F32\"", "[2]", "[0]"), "a list of 1"},
      {entry("\"F32\"", "[2]", "[0,8,9]"), "a list of 3"},
      {entry("\"F32\"", "[2]", "[-1,8]"), "-1"},
      {entry("\"F32\"", "[2]", "[8,0]"), "[8, 0]"},
      {entry("\"F32\"", "[3]", "[0,12]"), "[0, 12] exceed the 8 "},
      {entry("\"F32\"", "[2]", "[18446744073709551608,18446744073709551615]"),
       "[18446744073709551608, 18446744073709551615]"},
      {entry("\"F32\"", "[1]", "[0,8]"), "[0, 8] must span 4 "},
      {entry("\"F32\"", "[0]", "[0,8]"), "[0, 8] must span 0 "},
      {entry("\"F32\"", "[1]", "[4,8]"), "[4, 8] leave a gap"},
  };
  for (const auto& c : cases) expect_header_refused(c.header, {"'a'", c.value});
}

TEST_F(Safetensors, RefusesDataThatOverlapsOrBelongsToNoTensor) {
  const auto two = [](std::string_view second) {
    return message(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)",
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":)", second, "}}");
  };
  EXPECT_TRUE(parse(safetensors_text(two("[4,8]"), "12345678")).ok());
  expect_header_refused(two("[2,6]"), {"'b'", "[2, 6]", " 4"});
  expect_header_refused(two("[0,4]"), {"'b'", "[0, 4]", " 4"});
  expect_header_refused(two("[4,8]"), {" 8 ", " 9 "}, ErrorCode::io, "123456789");
  expect_header_refused("{}", {" 0 ", " 1 "}, ErrorCode::io, "1");
}

TEST_F(Safetensors, DeepNestingIsRefusedWhereItStarts) {
  const std::string deep = "{\"a\":" + std::string(1'000'000, '[');
  expect_header_refused(deep, {"'a'", "a list"});
}

TEST_F(Safetensors, AHeaderOfManyTensorsOpens) {
  std::string header = "{";
  constexpr int kTensors = 100'000;
  for (int i = 0; i < kTensors; ++i) {
    header +=
        message(i == 0 ? "" : ",", "\"model.layers.", i,
                R"(.weight":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1, "]}");
  }
  const std::string text = safetensors_text(header + "}", std::string(kTensors, 'x'));
  const auto file = parse(text);
  ASSERT_TRUE(file.ok()) << file.error().what();
  EXPECT_EQ(file->tensors().size(), static_cast<std::size_t>(kTensors));
  EXPECT_EQ(file->find("model.layers.99999.weight"), &file->tensors().back());
}

TEST_F(Safetensors, GoldenModelsOpen) {
  std::size_t models = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(PHASOR_GOLDEN_DIR) / "models")) {
    if (!entry.is_directory()) continue;
    const fs::path path = entry.path() / "model" / "model.safetensors";
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().what();
    EXPECT_FALSE(file->tensors().empty());
    const Tensor& last = file->tensors().back();
    EXPECT_EQ(last.offset + last.byte_size(), fs::file_size(path));
    ++models;
  }
  EXPECT_GT(models, 10U);
}

TEST_F(Safetensors, OpenNamesTheFile) {
  put(at("w.safetensors"), "short");
  tests::expect_error(ErrorCode::io, {at("w.safetensors").string(), " 8 ", " 5"},
                      SafetensorsFile::open(at("w.safetensors")));
  EXPECT_FALSE(SafetensorsFile::open(at("missing")).ok());
}

// Whatever a byte was changed to: tensors inside the file, or a message of one line.
bool is_inside_or_one_line(const std::string& text) {
  const auto file = parse(text);
  if (!file.ok()) {
    const std::string error = file.error().what();
    return error.starts_with("w.safetensors: ") && error.find('\n') == std::string::npos;
  }
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return std::all_of(file->tensors().begin(), file->tensors().end(), [&](const Tensor& tensor) {
    return tensor.bytes.size() ==
               static_cast<std::size_t>(tensor.size()) * block_bytes(tensor.type) &&
           tensor.bytes.data() >= first &&
           tensor.bytes.data() + tensor.bytes.size() <= first + text.size();
  });
}

std::string valid_file(const fs::path& path) {
  const std::string_view bytes = "0123456789abcdef";
  const std::vector<Tensor> tensors{
      {"model.embed.weight", TensorType::bf16, {2, 2}, bytes_of(bytes.substr(0, 8))},
      {"empty", TensorType::f64, {0}, {}},
      {"bias", TensorType::f32, {2}, bytes_of(bytes.substr(8))}};
  EXPECT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}}).ok());
  return get(path);
}

TEST_F(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = valid_file(at("a"));
  ASSERT_TRUE(parse(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A separate string, so that AddressSanitizer sees a read past the end.
    const std::string cut = whole.substr(0, size);
    SCOPED_TRACE(size);
    expect_refused(cut, {});
  }
}

TEST_F(Safetensors, AnyValueOfAnyByteGivesTensorsInsideTheFileOrOneLine) {
  const std::string whole = valid_file(at("a"));
  std::size_t refused = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = whole;
      changed[i] = static_cast<char>(value);
      ASSERT_TRUE(is_inside_or_one_line(changed)) << i << ": " << value;
      refused += parse(changed).ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, whole.size());
}

TEST_F(Safetensors, AnyChangeOfBytesGivesTensorsInsideTheFileOrOneLine) {
  const std::string whole = valid_file(at("a"));
  const bool held = rc::check("flipped, inserted and removed bytes", [&] {
    std::string changed = whole;
    const int changes = *rc::gen::inRange(1, 4);
    for (int i = 0; i < changes && !changed.empty(); ++i) {
      const std::size_t at = *rc::gen::inRange<std::size_t>(0, changed.size());
      const char byte = *rc::gen::arbitrary<char>();
      switch (*rc::gen::inRange(0, 3)) {
        case 0:
          changed[at] = byte;
          break;
        case 1:
          changed.insert(at, 1, byte);
          break;
        default:
          changed.erase(at, 1);
      }
    }
    RC_ASSERT(is_inside_or_one_line(changed));
  });
  EXPECT_TRUE(held);
}

TEST_F(Safetensors, RefusesToWriteWhatCouldNotBeRead) {
  const auto tensor = [](std::string name, TensorType type, std::vector<std::int64_t> shape) {
    return Tensor{std::move(name), type, std::move(shape), bytes_of("12345678")};
  };
  const Tensor good = tensor("a", TensorType::f32, {2});
  const struct {
    std::vector<Tensor> tensors;
    std::map<std::string, std::string> metadata;
    std::string_view value;
  } cases[] = {
      {{good, tensor("b", TensorType::f32, {2}), good}, {}, "'a' appears twice"},
      {{tensor("__metadata__", TensorType::f32, {2})}, {}, "'__metadata__'"},
      {{tensor("\xff", TensorType::f32, {2})}, {}, "'?'"},
      {{tensor("a", TensorType::f32, {3})}, {}, "[3] of F32 needs 12 bytes, got 8"},
      {{tensor("a", TensorType::f32, {-2})}, {}, "[-2]"},
      {{tensor("a", TensorType::q8_0, {8})}, {}, "q8_0"},
      {{good}, {{"k", "\xff"}}, "'k'"},
  };
  put(at("a"), "old");
  for (const auto& c : cases) {
    tests::expect_error(ErrorCode::invalid_argument, {"write_safetensors: ", c.value},
                        write_safetensors(at("a"), c.tensors, c.metadata));
  }
  EXPECT_EQ(get(at("a")), "old");
}

// As on a full disk: the process may write no file above 4 KiB.
TEST_F(Safetensors, AFailedWriteLeavesTheOldFile) {
  const std::string old = valid_file(at("a"));
  const std::vector<std::byte> large(100'000);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = write_safetensors(at("a"), {{"large", TensorType::u8, {100'000}, large}});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code(), ErrorCode::io);
  EXPECT_EQ(get(at("a")), old);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Safetensors, AFileCanBeRewrittenFromItsOwnTensors) {
  const std::string old = valid_file(at("a"));
  const auto file = SafetensorsFile::open(at("a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(write_safetensors(at("a"), file->tensors(), file->metadata()).ok());
  EXPECT_EQ(get(at("a")), old);
  const auto again = SafetensorsFile::open(at("a")).value_or_throw();
  fs::resize_file(at("a"), old.size() - 1);
  tests::expect_error(ErrorCode::io, {at("a").string()},
                      write_safetensors(at("b"), again.tensors(), again.metadata()));
  EXPECT_EQ(entries(), 1U);
}

}  // namespace
}  // namespace phasor::io
