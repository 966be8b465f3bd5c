#include "phasor/io/internal/json.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/errors.hpp"

namespace phasor::io {
namespace {

constexpr JsonStyle kReplace{.bad_utf8 = JsonStyle::BadUtf8::replace};

void expect_parse_refused(std::string_view text, std::string_view value) {
  SCOPED_TRACE(text.substr(0, 60));
  tests::expect_error(ErrorCode::invalid_argument, {value}, [&] { return Json::parse(text); });
}

std::string round_trip(std::string_view text) { return Json::parse(text).dump(); }

TEST(Json, values_keep_their_kind) {
  EXPECT_TRUE(Json().is_null());
  EXPECT_TRUE(Json(nullptr).is_null());
  EXPECT_TRUE(Json(true).is_boolean());
  EXPECT_TRUE(Json(1).is_number_integer());
  EXPECT_TRUE(Json(1U).is_number_integer());
  EXPECT_TRUE(Json(1.0).is_number());
  EXPECT_FALSE(Json(1.0).is_number_integer());
  EXPECT_TRUE(Json("text").is_string());
  EXPECT_TRUE(Json(std::string_view("text")).is_string());
  EXPECT_TRUE(Json(std::vector<int>{}).is_array());
  EXPECT_TRUE(Json::object().is_object());
  EXPECT_EQ(Json({1, 2.5, "x", nullptr, true}).dump(), R"([1,2.5,"x",null,true])");
  EXPECT_EQ(Json({{"a", 1}, {"b", {1, 2}}}).dump(), R"({"a":1,"b":[1,2]})");
  EXPECT_EQ(Json::array({"a", 1}).dump(), R"(["a",1])");
}

TEST(Json, members_keep_their_order) {
  Json value = Json::parse(R"({"z":1,"a":{"y":2,"b":3}})");
  EXPECT_EQ(value.dump(), R"({"z":1,"a":{"y":2,"b":3}})");
  EXPECT_EQ(value.dump({.keys = JsonStyle::Keys::sorted}), R"({"a":{"b":3,"y":2},"z":1})");
  EXPECT_EQ(shown(value), R"({"a":{"b":3,"y":2},"z":1})");
  value["m"] = 4;
  value["z"] = 5;
  EXPECT_EQ(value.dump(), R"({"z":5,"a":{"y":2,"b":3},"m":4})");
  value.erase("z");
  value.erase("absent");
  EXPECT_EQ(value.items().front().key, "a");
  EXPECT_EQ(value.size(), 2U);
  // Two objects of the same members are equal.
  EXPECT_EQ(Json::parse(R"({"a":1,"b":2})"), Json::parse(R"({"b":2.0,"a":1})"));
  EXPECT_NE(Json::parse(R"({"a":1,"b":2})"), Json::parse(R"({"a":1,"c":2})"));
}

TEST(Json, dump_lays_out_with_an_indent) {
  const Json value = {{"a", {1, 2}}, {"b", Json::object()}, {"c", Json::array()}, {"d", nullptr}};
  EXPECT_EQ(value.dump(2),
            "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {},\n  \"c\": [],\n  \"d\": null\n}");
  EXPECT_EQ(Json({1}).dump(0), "[\n1\n]");
}

// The parser's index, and the search without it after a change.
TEST(Json, lookup_in_objects_of_every_size) {
  for (const std::size_t size : {0, 1, 15, 16, 17, 18, 1000}) {
    Json made = Json::object();
    // Neither sorted nor reversed: 7 and the sizes have no common divisor.
    for (std::size_t i = 0; i < size; ++i) made["key" + std::to_string(7 * i % (size + 1))] = i;
    Json parsed = Json::parse(made.dump());
    ASSERT_EQ(parsed.size(), made.size());
    for (const auto& [key, value] : made.items()) ASSERT_EQ(parsed.at(key), value) << size;
    EXPECT_FALSE(parsed.contains("key"));
    EXPECT_FALSE(parsed.contains("zzz"));
    EXPECT_FALSE(parsed.contains(""));
    const Json copy = parsed;
    parsed["added"] = "x";
    if (size > 0) parsed.erase(made.items().front().key);
    EXPECT_EQ(parsed.at("added"), "x");
    if (size > 0) {
      EXPECT_FALSE(parsed.contains(made.items().front().key));
    }
    EXPECT_EQ(copy, made);
  }
}

// As many as the vocabulary of a tokenizer.json; a parser that looks at all members for each would
// take minutes.
TEST(Json, large_objects_parse) {
  constexpr std::size_t kKeys = 200'000;
  std::string text = "{";
  for (std::size_t i = 0; i < kKeys; ++i)
    text += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + "\":" + std::to_string(i);
  const Json parsed = Json::parse(text + "}");
  ASSERT_EQ(parsed.size(), kKeys);
  for (std::size_t i = 0; i < kKeys; ++i)
    ASSERT_EQ(parsed.at("t" + std::to_string(i)).get<std::size_t>(), i);
  expect_parse_refused(text + ",\"t77\":0}", "\"t77\"");
}

TEST(Json, repeated_keys_are_refused) {
  expect_parse_refused(R"({"a":1,"a":1})", "\"a\"");
  expect_parse_refused(R"([{"b":{"c":1,"d":2,"c":3}}])", "\"c\"");
  expect_parse_refused(R"({"a":1,"\u0061":2})", "\"a\"");
  // The first that comes again, not the first of the alphabet.
  expect_parse_refused(R"({"z":1,"a":1,"z":1,"a":1})", "\"z\"");
  EXPECT_EQ(round_trip(R"({"a":{"a":{"a":1}},"b":{"a":1}})"), R"({"a":{"a":{"a":1}},"b":{"a":1}})");
}

TEST(Json, nesting_is_bounded) {
  const auto nested = [](int depth) {
    const auto count = static_cast<std::size_t>(depth);
    return std::string(count, '[') + std::string(count, ']');
  };
  EXPECT_EQ(round_trip(nested(kMaxJsonDepth)), nested(kMaxJsonDepth));
  expect_parse_refused(nested(kMaxJsonDepth + 1), " 64 ");
  expect_parse_refused(std::string(1'000'000, '['), " 64 ");
  std::string objects;
  for (int i = 0; i <= kMaxJsonDepth; ++i) objects += R"({"a":)";
  expect_parse_refused(objects, " 64 ");
}

TEST(Json, integers_are_exact) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  for (const char* const text :
       {"-9223372036854775808", "9223372036854775807", "18446744073709551615", "0", "-1"}) {
    EXPECT_TRUE(Json::parse(text).is_number_integer()) << text;
    EXPECT_EQ(round_trip(text), text);
  }
  EXPECT_EQ(Json::parse("-9223372036854775808").get<std::int64_t>(), kLeast);
  EXPECT_EQ(Json::parse("9223372036854775807").get<std::int64_t>(), kMost);
  EXPECT_EQ(Json::parse("18446744073709551615").get<std::uint64_t>(), kLargest);
  EXPECT_NE(Json(kLargest), Json(-1));
  EXPECT_NE(Json(kMost), Json(kMost - 1));
  EXPECT_THROW((void)Json(kLargest).get<std::int64_t>(), Error);
  EXPECT_THROW((void)Json(-1).get<std::uint64_t>(), Error);
  EXPECT_THROW((void)Json(300).get<std::uint8_t>(), Error);
  EXPECT_THROW((void)Json(std::int64_t{1} << 31).get<std::int32_t>(), Error);
  // Beyond 64 bits a number is a double.
  EXPECT_FALSE(Json::parse("18446744073709551616").is_number_integer());
  EXPECT_EQ(Json::parse("18446744073709551616").get<double>(), 0x1p64);
  EXPECT_THROW((void)Json(0x1p64).get<std::uint64_t>(), Error);
  EXPECT_THROW((void)Json(0x1p63).get<std::int64_t>(), Error);
  EXPECT_EQ(Json(-0x1p63).get<std::int64_t>(), kLeast);
  EXPECT_EQ(Json(64.0).get<std::int64_t>(), 64);
  EXPECT_THROW((void)Json(0.5).get<std::int64_t>(), Error);
  EXPECT_THROW((void)Json(std::numeric_limits<double>::quiet_NaN()).get<std::int64_t>(), Error);
}

TEST(Json, doubles_read_back) {
  EXPECT_EQ(round_trip("1.0"), "1.0");
  EXPECT_EQ(round_trip("0.1"), "0.1");
  EXPECT_EQ(round_trip("-0.0"), "-0.0");
  EXPECT_TRUE(std::signbit(Json::parse("-0.0").get<double>()));
  EXPECT_EQ(Json::parse("1e308").get<double>(), 1e308);
  EXPECT_EQ(round_trip("5e-324"), "5e-324");
  EXPECT_EQ(round_trip("1e-400"), "0.0");
  EXPECT_EQ(Json(1e16).dump(), "1e+16");
  EXPECT_EQ(Json(10000.0F).dump(), "10000.0");
  expect_parse_refused("[1e309]", "float64");
  expect_parse_refused("-1e309", "float64");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
}

RC_GTEST_PROP(Json, every_finite_double_reads_back, (std::uint64_t bits)) {
  double value = 0.0;
  static_assert(sizeof value == sizeof bits);
  std::memcpy(&value, &bits, sizeof value);
  RC_PRE(std::isfinite(value));
  const double back = Json::parse(Json(value).dump()).get<double>();
  RC_ASSERT(std::memcmp(&back, &value, sizeof value) == 0);
}

TEST(Json, escapes) {
  EXPECT_EQ(Json::parse(R"("\"\\\/\b\f\n\r\t")").text(), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(Json("\"\\/\b\f\n\r\t\x01\x1f\x7f").dump(), R"("\"\\/\b\f\n\r\t\u0001\u001f)"
                                                        "\x7f\"");
  EXPECT_EQ(Json::parse(R"("\u00e9\u20AC\ud83d\ude00")").text(), "\u00e9\u20ac\U0001f600");
  EXPECT_EQ(Json("\u00e9\U0001f600").dump(), "\"\u00e9\U0001f600\"");
  EXPECT_EQ(Json("\u00e9\U0001f600").dump({.characters = JsonStyle::Characters::ascii}),
            R"("\u00e9\ud83d\ude00")");
  // Half of a pair is no character.
  for (const char* const text : {R"("\ud83d")", R"("\ude00")", R"("\ud83d\u0041")", R"("\ud83dx")",
                                 R"("\u12")", R"("\x41")"}) {
    expect_parse_refused(text, "line 1, column ");
  }
}

TEST(Json, nul_is_refused_as_a_byte_and_read_as_an_escape) {
  const std::string nul = Json::parse(R"("a\u0000b")").text();
  EXPECT_EQ(nul, std::string("a\0b", 3));
  EXPECT_EQ(Json(nul).dump(), R"("a\u0000b")");
  expect_parse_refused(std::string_view("{}\0", 3), "line 1, column 3");
  expect_parse_refused(std::string_view("\"a\0\"", 4), "line 1, column 3");
  expect_parse_refused("\"a\nb\"", "line 1");
  expect_parse_refused("\"a\tb\"", "line 1");
}

TEST(Json, bytes_that_are_not_utf8) {
  const std::array<std::string, 6> bad{"\xff",     "\xc0\x80",         "\xed\xa0\x80",
                                       "\xe2\x82", "\xf5\x80\x80\x80", "\x80"};
  for (const std::string& bytes : bad) {
    expect_parse_refused("\"" + bytes + "\"", "line 1, column ");
    EXPECT_THROW((void)Json(bytes).dump(), Error);
    const std::string replaced = Json("a" + bytes + "b").dump(kReplace);
    EXPECT_TRUE(replaced.starts_with("\"a\ufffd") && replaced.ends_with("\ufffdb\"")) << replaced;
  }
  EXPECT_THROW((void)Json({{"\xff", 1}}).dump(), Error);
}

TEST(Json, text_that_is_not_json) {
  for (const char* const text : {"", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "01", "+1", ".5",
                                 "1.", "NaN", "nul", "1 2", "'a'", "[1]]", "// c\n1"}) {
    expect_parse_refused(text, "line ");
  }
  expect_parse_refused("{\n \"a\": x}", "line 2, column 7");
}

TEST(Json, parse_object_wants_an_object) {
  EXPECT_EQ(parse_object(R"( {"a":1} )").at("a"), 1);
  EXPECT_THROW((void)parse_object("[1]"), Error);
  EXPECT_THROW((void)parse_object("null"), Error);
  EXPECT_EQ(parse_python_object(R"({"a":NaN,"b":[-Infinity,"NaN"]})").dump(),
            R"({"a":"NaN","b":["-Infinity","NaN"]})");
}

TEST(Json, another_type_than_asked_for_is_refused) {
  const std::vector<Json> all{nullptr, true, -1, 2.5, "text", Json::array({1}), {{"a", 1}}};
  for (Json value : all) {
    if (!value.is_boolean()) {
      EXPECT_THROW((void)value.get<bool>(), Error) << shown(value);
    }
    if (!value.is_number()) {
      EXPECT_THROW((void)value.get<double>(), Error) << shown(value);
    }
    if (!value.is_number()) {
      EXPECT_THROW((void)value.get<std::int64_t>(), Error) << shown(value);
    }
    if (!value.is_string()) {
      EXPECT_THROW((void)value.text(), Error) << shown(value);
    }
    if (!value.is_array()) {
      EXPECT_THROW((void)value.get<std::vector<int>>(), Error) << shown(value);
      EXPECT_THROW((void)value.at(std::size_t{0}), Error) << shown(value);
      EXPECT_THROW(value.erase(std::size_t{0}), Error) << shown(value);
      EXPECT_THROW((void)value.back(), Error) << shown(value);
    }
    if (!value.is_array() && !value.is_null()) {
      EXPECT_THROW(value.push_back(1), Error);
    }
    if (!value.is_object()) {
      EXPECT_THROW((void)value.at("a"), Error) << shown(value);
      EXPECT_THROW(value.erase("a"), Error) << shown(value);
      EXPECT_FALSE(value.contains("a"));
      EXPECT_TRUE(value.find("a") == value.end());
    }
    if (!value.is_object() && !value.is_null()) {
      EXPECT_THROW((void)value.items(), Error) << shown(value);
      EXPECT_THROW(value["a"] = 1, Error) << shown(value);
    }
    const bool has_parts = value.is_null() || value.is_array() || value.is_object();
    if (!has_parts) {
      EXPECT_THROW((void)value.size(), Error) << shown(value);
      EXPECT_THROW((void)value.begin(), Error) << shown(value);
      EXPECT_THROW((void)std::as_const(value).begin(), Error) << shown(value);
    }
  }
  EXPECT_THROW((void)Json::parse("[1,\"x\"]").get<std::vector<double>>(), Error);
  EXPECT_THROW((void)Json::array().front(), Error);
  EXPECT_THROW((void)Json::array().back(), Error);
  const Json object = {{"a", 1}};
  EXPECT_THROW((void)object["b"], Error);
}

TEST(Json, iteration) {
  Json list = {1, 2, 3};
  for (Json& value : list) value = value.get<int>() * 10;
  EXPECT_EQ(list, (std::vector<int>{10, 20, 30}));
  Json object = {{"b", 1}, {"a", 2}};
  int sum = 0;
  for (const Json& value : std::as_const(object)) sum += value.get<int>();
  EXPECT_EQ(sum, 3);
  std::string keys;
  for (const JsonMember* const member : object.sorted_items()) keys += member->key;
  EXPECT_EQ(keys, "ab");
  for (const Json& value : Json()) ADD_FAILURE() << shown(value);
  EXPECT_TRUE(Json().items().empty());
  EXPECT_TRUE(Json().empty());
}

TEST(Json, a_part_may_replace_the_whole) {
  Json value = {{"a", {{"b", 7}}}};
  value = std::move(value["a"]);
  EXPECT_EQ(value.dump(), R"({"b":7})");
  value = value.at("b");
  EXPECT_EQ(value, 7);
  Json list = Json::array({1});
  list.push_back(list);
  EXPECT_EQ(list.dump(), "[1,[1]]");
  Json& same = list;
  list = same;
  EXPECT_EQ(list.size(), 2U);
}

// Values of all kinds up to two levels deep; small, since every level multiplies.
rc::Gen<Json> values(int depth) {
  const auto text =
      rc::gen::map(rc::gen::container<std::u32string>(
                       rc::gen::map(rc::gen::inRange<std::uint32_t>(0, 0x11'0000),
                                    [](std::uint32_t code) {
                                      const bool half = code >= 0xd800 && code < 0xe000;
                                      return static_cast<char32_t>(half ? 0x41 : code);
                                    })),
                   [](const std::u32string& codes) {
                     std::string utf8;
                     for (const char32_t code : codes) {
                       const auto bits = [&](int shift, int lead, int mask) {
                         utf8 += static_cast<char>(lead | (static_cast<int>(code >> shift) & mask));
                       };
                       if (code < 0x80) {
                         bits(0, 0, 0x7f);
                       } else if (code < 0x800) {
                         bits(6, 0xc0, 0x1f), bits(0, 0x80, 0x3f);
                       } else if (code < 0x10000) {
                         bits(12, 0xe0, 0x0f), bits(6, 0x80, 0x3f);
                         bits(0, 0x80, 0x3f);
                       } else {
                         bits(18, 0xf0, 0x07), bits(12, 0x80, 0x3f);
                         bits(6, 0x80, 0x3f), bits(0, 0x80, 0x3f);
                       }
                     }
                     return utf8;
                   });
  const auto leaf = rc::gen::oneOf(
      rc::gen::just(Json()),
      rc::gen::map(rc::gen::arbitrary<bool>(), [](bool b) { return Json(b); }),
      rc::gen::map(rc::gen::arbitrary<std::int64_t>(), [](std::int64_t i) { return Json(i); }),
      rc::gen::map(rc::gen::arbitrary<std::uint64_t>(), [](std::uint64_t i) { return Json(i); }),
      rc::gen::map(rc::gen::arbitrary<double>(),
                   [](double d) { return Json(std::isfinite(d) ? d : 0.5); }),
      rc::gen::map(text, [](std::string s) { return Json(std::move(s)); }));
  if (depth == 0) return leaf;
  return rc::gen::oneOf(leaf,
                        rc::gen::map(rc::gen::container<std::vector<Json>>(values(depth - 1)),
                                     [](const std::vector<Json>& list) { return Json(list); }),
                        rc::gen::map(rc::gen::container<std::vector<std::pair<std::string, Json>>>(
                                         rc::gen::pair(text, values(depth - 1))),
                                     [](const std::vector<std::pair<std::string, Json>>& members) {
                                       Json object = Json::object();
                                       for (const auto& [key, value] : members) object[key] = value;
                                       return object;
                                     }));
}

RC_GTEST_PROP(Json, what_is_dumped_reads_back, ()) {
  const Json value = *rc::gen::scale(0.15, values(2));
  const std::string text = value.dump();
  for (const JsonStyle style :
       {JsonStyle{}, JsonStyle{.indent = 2}, JsonStyle{.characters = JsonStyle::Characters::ascii},
        JsonStyle{.keys = JsonStyle::Keys::sorted}}) {
    const Json back = Json::parse(value.dump(style));
    RC_ASSERT(back == value);
    if (style.keys == JsonStyle::Keys::as_inserted) RC_ASSERT(back.dump() == text);
  }
}

}  // namespace
}  // namespace phasor::io
