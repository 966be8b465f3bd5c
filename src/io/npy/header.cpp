#include "io/npy/header.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "phasor/io/internal/shape.hpp"

namespace phasor::io {
namespace {

struct NpyTypeRow {
  NpyType type;
  std::string_view descr;
  std::string_view also_read;  // another spelling, never written
};
constexpr std::array<NpyTypeRow, 13> kNpyTypes{{
    {NpyType::f64, "<f8", "<f8"},
    {NpyType::f32, "<f4", "<f4"},
    {NpyType::f16, "<f2", "<f2"},
    {NpyType::bf16, "<V2", "|V2"},
    {NpyType::i64, "<i8", "<i8"},
    {NpyType::i32, "<i4", "<i4"},
    {NpyType::i16, "<i2", "<i2"},
    {NpyType::i8, "|i1", "<i1"},
    {NpyType::u64, "<u8", "<u8"},
    {NpyType::u32, "<u4", "<u4"},
    {NpyType::u16, "<u2", "<u2"},
    {NpyType::u8, "|u1", "<u1"},
    {NpyType::boolean, "|b1", "<b1"},
}};

Error refused(ErrorCode code, std::string_view expected, const std::string& got) {
  return {code, message(expected, ", got ", got)};
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<NpyHeader> header() {
    if (!take('{')) return fail("'{' at the start of the header");
    while (!take('}')) {
      if (const auto error = entry()) return *error;
      if (!take(',') && peek() != '}') return fail("',' or '}' after an entry of the header");
    }
    skip_space();
    if (at_ < text_.size()) return fail("nothing but spaces after the header's '}'");
    for (const auto& [name, seen] : {std::pair<std::string_view, bool>{"descr", has_descr_},
                                     {"fortran_order", has_order_},
                                     {"shape", has_shape_}}) {
      if (!seen)
        return Error(ErrorCode::io, message("header must have the key '", name, "', got none"));
    }
    return std::move(header_);
  }

 private:
  std::optional<Error> entry() {
    const std::optional<std::string_view> key = string();
    if (!key) return fail("a key in quotes in the header");
    bool* seen = *key == "descr"           ? &has_descr_
                 : *key == "fortran_order" ? &has_order_
                 : *key == "shape"         ? &has_shape_
                                           : nullptr;
    if (seen == nullptr) {
      return refused(ErrorCode::io,
                     "header must have the keys 'descr', 'fortran_order' and 'shape'",
                     in_quotes(*key));
    }
    if (*seen)
      return refused(ErrorCode::io, "header must have each key once", in_quotes(*key) + " again");
    *seen = true;
    if (!take(':')) return fail("':' after a key of the header");
    if (seen == &has_descr_) return descr();
    return seen == &has_order_ ? order() : shape();
  }

  std::optional<Error> descr() {
    if (peek() == '[') {
      return refused(ErrorCode::unsupported, "must hold plain numbers", "a structured dtype");
    }
    const std::optional<std::string_view> value = string();
    if (!value) return fail("a dtype in quotes as 'descr'");
    header_.descr = *value;
    return std::nullopt;
  }

  std::optional<Error> order() {
    if (word("True")) {
      header_.order = NpyHeader::Order::fortran;
    } else if (!word("False")) {
      return fail("True or False as 'fortran_order'");
    }
    return std::nullopt;
  }

  std::optional<Error> shape() {
    if (!take('(')) return fail("a tuple as 'shape'");
    bool comma = true;  // () is a tuple and (3,) is one; (3) is a number
    while (!take(')')) {
      if (!comma) return fail("',' or ')' in 'shape'");
      if (auto error = dimension()) return error;
      comma = take(',');
      if (!comma && header_.shape.size() == 1)
        return fail("',' after the only dimension in 'shape'");
    }
    return std::nullopt;
  }

  std::optional<Error> dimension() {
    skip_space();
    if (header_.shape.size() == kMaxDims) {
      return refused(ErrorCode::io, message("shape must have at most ", kMaxDims, " dimensions"),
                     "more");
    }
    if (peek() == '-') return refused(ErrorCode::io, "shape must not be negative", rest());
    const std::size_t first = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value)) {
        return refused(ErrorCode::io, "shape must fit in 64 bits", in_quotes(text_.substr(first)));
      }
    }
    if (at_ == first) return fail("a number in 'shape'");
    if (text_[first] == '0' && at_ - first > 1) {
      return refused(ErrorCode::io, "a number in 'shape' must not start with 0",
                     in_quotes(text_.substr(first)));
    }
    header_.shape.push_back(value);
    return std::nullopt;
  }

  // No escapes: neither a key nor a dtype has one.
  std::optional<std::string_view> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return std::nullopt;
    const std::size_t first = at_ + 1;
    const std::size_t end = text_.find(quote, first);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view value = text_.substr(first, end - first);
    if (value.find_first_of("\\\n\r") != std::string_view::npos) return std::nullopt;
    at_ = end + 1;
    return value;
  }

  bool word(std::string_view expected) {
    skip_space();
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  std::string rest() const {
    return at_ < text_.size() ? in_quotes(text_.substr(at_)) : "the end of the header";
  }
  Error fail(std::string_view expected) const {
    return refused(ErrorCode::io, message("must have ", expected), rest());
  }

  std::string_view text_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
};

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text) { return Parser(text).header(); }

std::string npy_header_text(NpyType type, const std::vector<std::int64_t>& shape) {
  const auto* const row = std::find_if(kNpyTypes.begin(), kNpyTypes.end(),
                                       [&](const NpyTypeRow& r) { return r.type == type; });
  return message("{'descr': '", row->descr,
                 "', 'fortran_order': False, 'shape': ", shape_text(shape), ", }");
}

Result<NpyType> npy_type_of(std::string_view descr) {
  for (const NpyTypeRow& row : kNpyTypes) {
    if (descr == row.descr || descr == row.also_read) return row.type;
  }
  if (!descr.empty() && descr.front() == '>') {
    return refused(ErrorCode::unsupported, "must be little-endian", "dtype " + in_quotes(descr));
  }
  if (descr.find('O') != std::string_view::npos) {
    return refused(ErrorCode::unsupported, "must hold plain numbers",
                   "dtype " + in_quotes(descr) + " (Python objects)");
  }
  return refused(ErrorCode::unsupported,
                 "must be float16, float32, float64, bfloat16 (V2), an integer type or bool",
                 "dtype " + in_quotes(descr));
}

}  // namespace phasor::io
