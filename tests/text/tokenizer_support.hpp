// Small vocabularies for the tests of tokenizers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/text/tokenizer.hpp"
#include "support/errors.hpp"

namespace phasor::text::testing {

using Ids = std::vector<std::int64_t>;

inline void append_character(std::string& out, unsigned c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

// Bytes as byte-level BPE writes them.
inline std::string byte_characters(std::string_view bytes) {
  std::string out;
  for (const char raw : bytes) {
    const auto byte = static_cast<unsigned char>(raw);
    unsigned spare = 0;
    bool is_plain = false;
    for (unsigned b = 0; b <= byte; ++b) {
      is_plain = (b >= '!' && b <= '~') || (b >= 0xa1 && b != 0xad);
      if (!is_plain) ++spare;
    }
    append_character(out, is_plain ? byte : 0x100 + spare - 1);
  }
  return out;
}

// All 256 bytes, then those of `more`.
inline std::vector<std::string> byte_tokens(const std::vector<std::string>& more = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(byte_characters(std::string(1, static_cast<char>(byte))));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

inline std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

inline constexpr std::string_view kByteLevel =
    R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";

// The text of a tokenizer.json.
struct JsonParts {
  std::vector<std::string> tokens = byte_tokens();
  std::string merges = "[]";
  std::string model = R"("type": "BPE")";  // further members
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = std::string(kByteLevel);
  std::string more;  // members of the root, each with a comma in front

  [[nodiscard]] std::string text() const {
    std::string vocab;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      vocab += (i == 0 ? "" : ", ") + json_text(tokens[i]) + ": " + std::to_string(i);
    return R"({"version": "1.0", "added_tokens": )" + added + R"(, "normalizer": )" + normalizer +
           R"(, "pre_tokenizer": )" + pre_tokenizer + more + R"(, "model": {)" + model +
           R"(, "vocab": {)" + vocab + R"(}, "merges": )" + merges + "}}";
  }
};

inline std::unique_ptr<Tokenizer> tokenizer_of(const JsonParts& parts) {
  return parse_tokenizer_json(parts.text(), "tokenizer.json").value_or_throw();
}

inline std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text,
                                          SpecialText special = SpecialText::parse) {
  std::vector<std::string> pieces;
  for (const std::int64_t id : tokenizer.encode(text, special))
    pieces.push_back(tokenizer.piece(id));
  return pieces;
}

// Refused in one line that holds `part`.
inline void expect_refusal(const Result<std::unique_ptr<Tokenizer>>& result, std::string_view value,
                           ErrorCode code = ErrorCode::invalid_argument) {
  tests::expect_error(code, {value}, result);
  if (!result) {
    EXPECT_EQ(std::string_view(result.error().what()).find('\n'), std::string_view::npos);
  }
}

}  // namespace phasor::text::testing
