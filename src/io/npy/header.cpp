#include "io/npy/header.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "phasor/io/internal/file_text.hpp"
#include "phasor/io/internal/shape.hpp"

namespace phasor::io {
namespace {

struct NpyTypeRow {
  NpyType type;
  std::string_view descr;
  std::string_view also_read;  // another spelling, never written
};
constexpr std::array<NpyTypeRow, 15> kNpyTypes{{
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
    {NpyType::c64, "<c8", "<c8"},
    {NpyType::c128, "<c16", "<c16"},
}};

Error header_error(std::string_view text) { return {ErrorCode::io, message("header: ", text)}; }

Error unsupported_type(std::string_view descr, std::string_view reason) {
  return {ErrorCode::unsupported, message("dtype ", in_quotes(descr), " ", reason)};
}

// (2, 3), (2,) or (): a Python tuple.
std::string tuple_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (const std::int64_t dim : shape) text += message(text.size() > 1 ? " " : "", dim, ",");
  if (shape.size() > 1) text.pop_back();
  return text + ")";
}

class NpyHeaderParser {
 public:
  explicit NpyHeaderParser(std::string_view text) : text_(text) {}

  Result<NpyHeader> parse() {
    if (!take('{')) return expected("'{' at the start");
    while (!take('}')) {
      if (const auto error = parse_entry()) return *error;
      if (!take(',') && peek() != '}') return expected("',' or '}' after an entry");
    }
    skip_space();
    if (at_ < text_.size()) return expected("only spaces after '}'");
    for (const auto& [name, seen] : {std::pair<std::string_view, bool>{"descr", has_descr_},
                                     {"fortran_order", has_order_},
                                     {"shape", has_shape_}}) {
      if (!seen) return header_error(message("missing key '", name, "'"));
    }
    return std::move(header_);
  }

 private:
  std::optional<Error> parse_entry() {
    const std::optional<std::string_view> key = take_string();
    if (!key) return expected("a key in quotes");
    bool* seen = *key == "descr"           ? &has_descr_
                 : *key == "fortran_order" ? &has_order_
                 : *key == "shape"         ? &has_shape_
                                           : nullptr;
    if (seen == nullptr) {
      return header_error(message("unknown key ", in_quotes(*key),
                                  "; the keys are 'descr', 'fortran_order' and 'shape'"));
    }
    if (*seen) return header_error(message("key ", in_quotes(*key), " appears twice"));
    *seen = true;
    if (!take(':')) return expected("':' after a key");
    if (seen == &has_descr_) return parse_descr();
    return seen == &has_order_ ? parse_order() : parse_shape();
  }

  std::optional<Error> parse_descr() {
    if (peek() == '[')
      return unsupported_type(text_.substr(at_), "is structured; only plain numbers are supported");
    const std::optional<std::string_view> value = take_string();
    if (!value) return expected("a dtype in quotes as 'descr'");
    header_.descr = *value;
    return std::nullopt;
  }

  std::optional<Error> parse_order() {
    if (take_word("True")) {
      header_.order = NpyHeader::Order::fortran;
    } else if (!take_word("False")) {
      return expected("True or False as 'fortran_order'");
    }
    return std::nullopt;
  }

  std::optional<Error> parse_shape() {
    if (!take('(')) return expected("a tuple as 'shape'");
    bool comma = true;  // () is a tuple and (3,) is one; (3) is a number
    while (!take(')')) {
      if (!comma) return expected("',' or ')' in 'shape'");
      if (auto error = parse_dimension()) return error;
      comma = take(',');
      if (!comma && header_.shape.size() == 1)
        return expected("',' after the only dimension in 'shape'");
    }
    return std::nullopt;
  }

  std::optional<Error> parse_dimension() {
    skip_space();
    if (header_.shape.size() == kMaxDims) {
      return header_error(message("shape has more than ", kMaxDims, " dimensions"));
    }
    if (peek() == '-') return header_error(message("shape must not be negative, got ", rest()));
    const std::size_t first = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
          __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value)) {
        return header_error(
            message("shape must fit in 64 bits, got ", in_quotes(text_.substr(first))));
      }
    }
    if (at_ == first) return expected("a number in 'shape'");
    if (text_[first] == '0' && at_ - first > 1) {
      return header_error(message("a number in 'shape' must not start with 0, got ",
                                  in_quotes(text_.substr(first))));
    }
    header_.shape.push_back(value);
    return std::nullopt;
  }

  // Without escapes, which neither a key nor a dtype has.
  std::optional<std::string_view> take_string() {
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

  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
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
  Error expected(std::string_view what) const {
    return header_error(message("expected ", what, ", got ", rest()));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
};

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text) { return NpyHeaderParser(text).parse(); }

std::string npy_header_text(NpyType type, const std::vector<std::int64_t>& shape) {
  const auto* const row = std::find_if(kNpyTypes.begin(), kNpyTypes.end(),
                                       [&](const NpyTypeRow& r) { return r.type == type; });
  return message("{'descr': '", row->descr,
                 "', 'fortran_order': False, 'shape': ", tuple_text(shape), ", }");
}

Result<NpyType> npy_type_of(std::string_view descr) {
  for (const NpyTypeRow& row : kNpyTypes) {
    if (descr == row.descr || descr == row.also_read) return row.type;
  }
  if (!descr.empty() && descr.front() == '>') {
    return unsupported_type(descr, "is big-endian; only little-endian files are supported");
  }
  if (descr.find('O') != std::string_view::npos) {
    return unsupported_type(descr, "holds Python objects; only plain numbers are supported");
  }
  return unsupported_type(descr,
                          "is not supported; it must be float16, float32, float64, bfloat16 (V2), "
                          "an integer type, bool, complex64 or complex128");
}

}  // namespace phasor::io
