#include "phasor/io/npy.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

using testing::get;
using testing::put;

class Npy : public testing::TemporaryFolder {};

constexpr NpyType kNpyTypes[] = {NpyType::f64,     NpyType::f32, NpyType::f16, NpyType::bf16,
                                 NpyType::i64,     NpyType::i32, NpyType::i16, NpyType::i8,
                                 NpyType::u64,     NpyType::u32, NpyType::u16, NpyType::u8,
                                 NpyType::boolean, NpyType::c64, NpyType::c128};

std::string file_with(std::string_view header, std::string_view data, char major = 1) {
  std::string out = "\x93NUMPY";
  out += {major, '\0', static_cast<char>(header.size() & 0xff),
          static_cast<char>(header.size() >> 8 & 0xff)};
  if (major > 1) out.append(2, '\0');
  return out.append(header).append(data);
}

std::string dict(std::string_view descr, std::string_view shape, std::string_view order = "False") {
  return message("{'descr': '", descr, "', 'fortran_order': ", order, ", 'shape': ", shape,
                 ", }\n");
}

template <class T>
NpyArray array_of(NpyType type, const std::vector<T>& values) {
  NpyArray array = make_npy(type, {static_cast<std::int64_t>(values.size())});
  if (!values.empty()) std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

TEST_F(Npy, EveryTypeAndShapeComesBack) {
  for (const NpyType type : kNpyTypes) {
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
             {}, {0}, {1}, {7}, {2, 3, 4}, {3, 0, 5}, {1, 1, 1, 1, 2}}) {
      NpyArray array = make_npy(type, shape);
      for (std::size_t i = 0; i < array.bytes.size(); ++i) {
        array.bytes[i] = static_cast<std::byte>(type == NpyType::boolean ? i % 2 : 37 * i + 11);
      }
      ASSERT_TRUE(write_npy(at("a.npy"), array).ok());
      const auto back = read_npy(at("a.npy"));
      ASSERT_TRUE(back.ok()) << name_of(type) << ": " << back.error().what();
      EXPECT_EQ(back->type, type);
      EXPECT_EQ(back->shape, shape);
      EXPECT_EQ(back->bytes, array.bytes);
    }
  }
}

TEST_F(Npy, WritesWhatNumpyWrites) {
  ASSERT_TRUE(write_npy(at("a.npy"), array_of<float>(NpyType::f32, {1.0F, 2.0F})).ok());
  const std::string got = get(at("a.npy"));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  header.resize(117, ' ');
  ASSERT_EQ(got.size(), 128U + 8U);
  EXPECT_EQ(got.substr(0, 128), file_with(header + "\n", ""));
}

TEST_F(Npy, ReadsEveryVersionAndSpelling) {
  const std::string data(24, '\1');
  for (const std::string& header : {
           dict("<f4", "(2, 3)"),
           dict("<f4", "(2,3,)"),
           std::string("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}"),
           std::string(" {\t'descr' : '<f4' ,\n'fortran_order' : False , 'shape' : ( 2 , 3 ) } \n"),
       }) {
    for (const char major : {1, 2, 3}) {
      put(at("a.npy"), file_with(header, data, major));
      const auto got = read_npy(at("a.npy"));
      ASSERT_TRUE(got.ok()) << header << got.error().what();
      EXPECT_EQ(got->shape, (std::vector<std::int64_t>{2, 3}));
      EXPECT_EQ(got->bytes.size(), 24U);
    }
  }
}

TEST_F(Npy, FortranOrderIsCopiedToCOrder) {
  for (const std::string shape : {"()", "(6,)", "(1, 6, 1)", "(6, 1)"}) {
    const std::string data(shape == "()" ? 4 : 24, '\1');
    put(at("a.npy"), file_with(dict("<f4", shape, "True"), data));
    EXPECT_TRUE(read_npy(at("a.npy")).ok()) << shape;
  }
  // The first index varies fastest: element (i, j, k) is i + 2 j + 6 k.
  std::string data;
  for (char i = 0; i < 24; ++i) data += i;
  put(at("a.npy"), file_with(dict("|i1", "(2, 3, 4)", "True"), data));
  const NpyArray array = read_npy(at("a.npy")).value_or_throw();
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3, 4}));
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k)
        EXPECT_EQ(array.as<std::int8_t>()[(i * 3 + j) * 4 + k], i + 2 * j + 6 * k);
    }
  }
}

TEST_F(Npy, ComplexNumbersAreReadAndNotConverted) {
  put(at("a.npy"), file_with(dict("<c8", "(3,)"), std::string(24, '\1')));
  const NpyArray array = read_npy(at("a.npy")).value_or_throw();
  EXPECT_EQ(array.type, NpyType::c64);
  EXPECT_TRUE(is_complex(array.type));
  tests::expect_error(ErrorCode::unsupported, {"complex64"}, to_doubles(array));
  tests::expect_error(ErrorCode::unsupported, {"complex64"}, to_integers(array));
  tests::expect_error(ErrorCode::unsupported, {"complex64", "a.npy"}, dtype_of(array, "a.npy"));
}

TEST_F(Npy, ReadsBothSpellingsOfBfloat16) {
  for (const std::string descr : {"<V2", "|V2"}) {
    put(at("a.npy"), file_with(dict(descr, "(1,)"), std::string("\x80\x3f", 2)));
    const auto got = read_npy(at("a.npy"));
    ASSERT_TRUE(got.ok()) << got.error().what();
    EXPECT_EQ(got->type, NpyType::bf16);
    EXPECT_EQ(to_doubles(*got).value(), std::vector<double>{1.0});
  }
}

TEST_F(Npy, AFileCutAtAnyByteIsRefused) {
  ASSERT_TRUE(write_npy(at("a.npy"), array_of<std::int16_t>(NpyType::i16, {1, 2, 3})).ok());
  const std::string whole = get(at("a.npy"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(at("cut.npy"), std::string_view(whole).substr(0, size));
    const auto got = read_npy(at("cut.npy"));
    ASSERT_FALSE(got.ok()) << size;
    EXPECT_EQ(got.error().code(), ErrorCode::io) << got.error().what();
  }
  put(at("long.npy"), whole + "x");
  EXPECT_FALSE(read_npy(at("long.npy")).ok());
}

// A flipped byte may still be a sound file (another value, another dtype of the same size), never a
// crash, and never an array whose size disagrees with its shape.
TEST_F(Npy, AChangedByteNeverBreaksWhatIsReturned) {
  ASSERT_TRUE(write_npy(at("a.npy"), array_of<std::int16_t>(NpyType::i16, {1, 2, 3})).ok());
  const std::string whole = get(at("a.npy"));
  for (std::size_t i = 0; i < 128; ++i) {
    for (const char c : {'\0', '0', '9', '(', ')', ',', '\'', '}', '-', ' ', '\n', 'f', '\xff'}) {
      std::string changed = whole;
      changed[i] = c;
      put(at("b.npy"), changed);
      const auto got = read_npy(at("b.npy"));
      if (got.ok()) {
        EXPECT_EQ(got->bytes.size(), static_cast<std::size_t>(got->size()) * size_of(got->type));
        EXPECT_EQ(got->bytes.size(), 6U);
      }
    }
  }
}

TEST_F(Npy, RefusesDamagedHeaders) {
  const std::string data(24, '\1');
  const struct {
    std::string header;
    std::string_view reason;
  } cases[] = {
      {"", "'{' at the start"},
      {"{", "a key in quotes"},
      {"{}", "key 'descr'"},
      {"{,}", "a key in quotes"},
      {"{'descr': '<f4'}", "key 'fortran_order'"},
      {"{'descr': '<f4', 'fortran_order': False}", "key 'shape'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)", "',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3", "',' or ')'"},
      {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}", "',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x", "spaces"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}", "'more'"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
       "'descr' appears twice"},
      {"{descr: '<f4', 'fortran_order': False, 'shape': (2, 3)}", "a key in quotes"},
      {"{'descr\": '<f4', 'fortran_order': False, 'shape': (2, 3)}", "'descr\": '"},
      {"{'descr': <f4, 'fortran_order': False, 'shape': (2, 3)}", "a dtype in quotes"},
      {"{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3)}", "',' or '}'"},
      {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2, 3)}", "structured"},
      {dict("<f4", "(2, 3)", "false"), "True or False"},
      {dict("<f4", "(2, 3)", "0"), "True or False"},
      {dict("<f4", "(2, 3)", "Falsey"), "',' or '}'"},
      {dict("<f4", "[2, 3]"), "a tuple"},
      {dict("<f4", "(6)"), "',' after the only dimension"},
      {dict("<f4", "(,)"), "a number"},
      {dict("<f4", "(2,,3)"), "a number"},
      {dict("<f4", "(2 3)"), "',' after the only dimension"},
      {dict("<f4", "(2, 3 1)"), "',' or ')'"},
      {dict("<f4", "(2, -3)"), "negative"},
      {dict("<f4", "(2, +3)"), "a number"},
      {dict("<f4", "(2, 03)"), "'03"},
      {dict("<f4", "(2, 3.0)"), "',' or ')'"},
      {dict("<f4", "(2, 0x3)"), "',' or ')'"},
      {dict("<f4", "(True, 6)"), "a number"},
      {dict("<f4", "(9223372036854775808,)"), "64 bits"},
      {dict("<f4", "(99999999999999999999999999,)"), "64 bits"},
      {dict("<f4", "(4294967296, 4294967296)"), "63 bits"},
      {dict("<f4", "(4294967296, 4294967296, 0)"), "63 bits"},
      {dict("<f4", "(9223372036854775807,)"), "63 bits"},
      {dict("<f4", "(1152921504606846976,)"), "24"},
      {dict("<f4", "(2, 4)"), "24"},
      {dict("<f4", "(5,)"), "24"},
      {dict("<f4", "(0,)"), "24"},
      {dict("<f8", "(6,)"), "24"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.header);
    put(at("a.npy"), file_with(c.header, data));
    const auto got = read_npy(at("a.npy"));
    ASSERT_FALSE(got.ok());
    const std::string text = got.error().what();
    EXPECT_TRUE(text.starts_with(at("a.npy").string() + ": ")) << text;
    EXPECT_NE(text.find(c.reason), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST_F(Npy, RefusesMoreDimensionsThanNumpyHas) {
  std::string shape = "(";
  for (int i = 0; i < 64; ++i) shape += "1, ";
  put(at("a.npy"), file_with(dict("|u1", shape + ")"), "x"));
  EXPECT_TRUE(read_npy(at("a.npy")).ok());
  put(at("a.npy"), file_with(dict("|u1", shape + "1)"), "x"));
  tests::expect_error(ErrorCode::io, {" 64 "}, read_npy(at("a.npy")));
}

TEST_F(Npy, RefusesTypesItDoesNotHave) {
  for (const auto& [descr, reason] :
       {std::pair<std::string, std::string>{">f4", "'>f4' is big-endian"},
        {">i8", "'>i8' is big-endian"},
        {"|O", "Python objects"},
        {"|O8", "Python objects"},
        {"<c32", "'<c32'"},
        {"<f16", "'<f16'"},
        {"<U4", "'<U4'"},
        {"|S4", "'|S4'"},
        {"<M8[ns]", "'<M8[ns]'"},
        {"|V4", "'|V4'"},
        {"|f4", "'|f4'"},
        {"f4", "'f4'"},
        {"", "''"}}) {
    put(at("a.npy"), file_with(dict(descr, "(6,)"), std::string(24, '\1')));
    tests::expect_error(ErrorCode::unsupported, {reason}, read_npy(at("a.npy")));
  }
}

TEST_F(Npy, RefusesWhatIsNoNpy) {
  const auto expect_refused = [&](const std::string& bytes,
                                  std::initializer_list<std::string_view> values) {
    put(at("a.npy"), bytes);
    tests::expect_error(ErrorCode::io, values, read_npy(at("a.npy")));
  };
  expect_refused("0123456789 and more", {"'012345'"});
  expect_refused("", {"truncated", "10 bytes", " 0 "});
  expect_refused(file_with("x", "", 0), {"version", " 0.0"});
  expect_refused(file_with("x", "", 4), {"version", " 4.0"});
  expect_refused(std::string("\x93NUMPY\1\0\xff\xff{}", 12), {"truncated", "65535", " 2 "});
  expect_refused(std::string("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14), {"1048576", "4294967295"});
  expect_refused(std::string("\x93NUMPY\2\0\x10\0", 10), {"header length", "2 bytes", " 0 "});
}

TEST_F(Npy, RefusesWhatIsNoFile) {
  for (const auto& path : {at("missing.npy"), at("."), std::filesystem::path("/dev/zero")}) {
    const auto got = read_npy(path);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code(), ErrorCode::io);
  }
}

TEST_F(Npy, AFailedWriteIsReportedAndChangesNothing) {
  const NpyArray array = make_npy(NpyType::f32, {4});
  put(at("file"), "text");
  for (const auto& path :
       {at("file/a.npy"), at("missing/a.npy"), std::filesystem::path("/dev/full"), at(".")}) {
    const auto written = write_npy(path, array);
    ASSERT_FALSE(written.ok()) << path;
    EXPECT_EQ(written.error().code(), ErrorCode::io);
  }
  EXPECT_EQ(get(at("file")), "text");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Npy, AWrongArrayThrows) {
  NpyArray array = make_npy(NpyType::f32, {4});
  array.bytes.resize(15);
  EXPECT_THROW((void)write_npy(at("a.npy"), array), Error);
  EXPECT_THROW((void)make_npy(NpyType::f32, {-1}), Error);
  EXPECT_THROW((void)make_npy(NpyType::f32, {std::int64_t{1} << 62, 4}), Error);
  EXPECT_EQ(entries(), 0U);
}

TEST_F(Npy, AnythingInTheHeaderIsAnswered) {
  EXPECT_TRUE(rc::check([&](const std::string& header) {
    put(at("a.npy"), file_with(header.substr(0, 60000), std::string(8, '\0')));
    RC_ASSERT(!read_npy(at("a.npy")).ok());
  }));
}

TEST(NpyValues, WidenToDoubles) {
  EXPECT_EQ(to_doubles(array_of<std::int8_t>(NpyType::i8, {-128, 127})).value(),
            (std::vector<double>{-128.0, 127.0}));
  EXPECT_EQ(to_doubles(array_of<std::uint8_t>(NpyType::boolean, {0, 1, 2})).value(),
            (std::vector<double>{0.0, 1.0, 1.0}));
  EXPECT_EQ(to_doubles(array_of<std::uint16_t>(NpyType::f16, {0x3c00, 0xc000, 0x0001})).value(),
            (std::vector<double>{1.0, -2.0, std::ldexp(1.0, -24)}));
  EXPECT_EQ(to_doubles(array_of<float>(NpyType::f32, {0.1F})).value(),
            std::vector<double>{double{0.1F}});
}

TEST(NpyValues, RefuseIntegersThatNoDoubleHolds) {
  constexpr std::int64_t kEdge = std::int64_t{1} << 53;
  EXPECT_TRUE(to_doubles(array_of<std::int64_t>(NpyType::i64, {kEdge, -kEdge})).ok());
  EXPECT_FALSE(to_doubles(array_of<std::int64_t>(NpyType::i64, {0, kEdge + 1})).ok());
  EXPECT_FALSE(to_doubles(array_of<std::int64_t>(NpyType::i64, {-kEdge - 1})).ok());
  EXPECT_FALSE(to_doubles(array_of<std::uint64_t>(NpyType::u64, {~std::uint64_t{0}})).ok());
}

TEST(NpyValues, ToIntegers) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(to_integers(array_of<std::int64_t>(NpyType::i64, {kMost, -kMost - 1})).value(),
            (std::vector<std::int64_t>{kMost, -kMost - 1}));
  EXPECT_EQ(to_integers(array_of<std::uint32_t>(NpyType::u32, {~0U})).value(),
            (std::vector<std::int64_t>{4294967295}));
  EXPECT_TRUE(to_integers(array_of<std::uint64_t>(NpyType::u64, {std::uint64_t{kMost}})).ok());
  EXPECT_FALSE(to_integers(array_of<std::uint64_t>(NpyType::u64, {std::uint64_t{kMost} + 1})).ok());
  EXPECT_FALSE(to_integers(array_of<float>(NpyType::f32, {1.0F})).ok());
  EXPECT_FALSE(to_integers(array_of<std::uint8_t>(NpyType::boolean, {1})).ok());
}

TEST(NpyValues, NamesAndSizes) {
  EXPECT_EQ(name_of(NpyType::bf16), "bfloat16");
  EXPECT_EQ(size_of(NpyType::bf16), 2U);
  EXPECT_EQ(size_of(NpyType::boolean), 1U);
  EXPECT_TRUE(is_integer(NpyType::u8));
  EXPECT_FALSE(is_integer(NpyType::boolean));
  EXPECT_FALSE(is_integer(NpyType::f16));
  EXPECT_EQ(dtype_of(make_npy(NpyType::bf16, {1}), "x").value(), core::DType::bf16);
  tests::expect_error(ErrorCode::unsupported, {"X.npy", "int32"},
                      dtype_of(make_npy(NpyType::i32, {1}), "X.npy"));
}

TEST(NpyGolden, ReadsTheGoldenArrays) {
  int seen = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(PHASOR_GOLDEN_DIR "/rope_apply")) {
    if (entry.path().extension() != ".npy") continue;
    const auto got = read_npy(entry.path());
    EXPECT_TRUE(got.ok()) << got.error().what();
    ++seen;
  }
  EXPECT_GT(seen, 100);
}

}  // namespace
}  // namespace phasor::io
