#include "text/sentencepiece/model.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <unordered_set>

#include "phasor/io/internal/json.hpp"
#include "text/unicode/unicode.hpp"

namespace phasor::text {
namespace {

constexpr std::size_t kMaxModelBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxPieceBytes = 4096;

// A field of a protocol buffer message.
struct Field {
  std::uint32_t number = 0;
  enum Wire : std::uint32_t { varint = 0, bits64 = 1, bytes = 2, bits32 = 5 } wire = varint;
  std::uint64_t value = 0;  // of varint and bits
  std::string_view text;    // of bytes
};

class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}
  [[nodiscard]] std::size_t left() const noexcept { return rest_.size(); }

  // False at the end.
  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = read_varint();
    const std::uint64_t number = key >> 3;
    if (number == 0 || number > 0x1fffffff) refuse_wire();
    field.number = static_cast<std::uint32_t>(number);
    field.wire = static_cast<Field::Wire>(key & 7);
    switch (field.wire) {
      case Field::varint:
        field.value = read_varint();
        return true;
      case Field::bits64:
        field.value = read_fixed(8);
        return true;
      case Field::bits32:
        field.value = read_fixed(4);
        return true;
      case Field::bytes:
        break;
      default:
        refuse_wire();
    }
    const std::uint64_t size = read_varint();
    if (size > rest_.size()) refuse_wire();
    field.text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

 private:
  [[noreturn]] void refuse_wire() const {
    refuse(message("not a SentencePiece model: invalid protocol buffer, ", rest_.size(),
                   " bytes before its end"));
  }
  std::uint64_t read_varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) refuse_wire();
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    refuse_wire();
  }
  std::uint64_t read_fixed(std::size_t size) {
    if (rest_.size() < size) refuse_wire();
    std::uint64_t value = 0;
    std::memcpy(&value, rest_.data(), size);
    rest_.remove_prefix(size);
    return value;
  }

  std::string_view rest_;
};

void require_wire(const Field& field, Field::Wire wire, std::string_view what) {
  if (field.wire != wire)
    refuse(message(what, " must have the wire type ", static_cast<unsigned>(wire), ", got ",
                   static_cast<unsigned>(field.wire)));
}

Token read_piece(std::string_view bytes, std::size_t index) {
  Token token;
  Field field;
  for (Message message_of(bytes); message_of.next(field);) {
    if (field.number == 1) {
      require_wire(field, Field::bytes, "a piece's text");
      token.text = field.text;
    } else if (field.number == 2) {
      require_wire(field, Field::bits32, "a piece's score");
      float score = 0;
      const auto bits = static_cast<std::uint32_t>(field.value);
      std::memcpy(&score, &bits, sizeof score);
      if (!std::isfinite(score))
        refuse(message("score of piece ", index, " must be finite, got ", score));
    } else if (field.number == 3) {
      require_wire(field, Field::varint, "a piece's kind");
      if (field.value < 1 || field.value > 6)
        refuse(message("kind of piece ", index, " must be from 1 to 6, got ", field.value));
      token.kind = static_cast<TokenKind>(field.value);
    }
  }
  if (token.text.empty() || token.text.size() > kMaxPieceBytes ||
      token.text.find('\0') != std::string::npos ||
      unicode::find_invalid(token.text) != std::string_view::npos) {
    refuse(message("piece ", index, " must be UTF-8 of 1 to ", kMaxPieceBytes,
                   " bytes without a NUL, got ", token.text.size(), " bytes"));
  }
  return token;
}

std::uint32_t word_at(std::string_view bytes, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof word, sizeof word);
  return word;
}

// A double array of 32-bit words, then the replacement texts, each with a NUL at its end. The library
// goes from word i to word i ^ offset(i) ^ byte for any byte, without a bounds check.
void check_character_map(std::string_view map) {
  if (map.empty()) return;
  const auto require = [](bool holds) {
    if (!holds) refuse("precompiled_charsmap refers to bytes beyond its end");
  };
  require(map.size() > 4);
  const std::size_t trie_bytes = word_at(map, 0);
  map.remove_prefix(4);
  require(trie_bytes >= 1024 && trie_bytes % 1024 == 0 && trie_bytes < map.size());
  const std::string_view texts = map.substr(trie_bytes);
  require(texts.back() == '\0');
  const std::size_t words = trie_bytes / 4;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint32_t word = word_at(map, i);
    const bool is_leaf = word >> 31 != 0;
    if (is_leaf) {
      require((word & 0x7fffffffU) < texts.size());
      continue;
    }
    const std::size_t offset = std::size_t{word >> 10} << ((word & (1U << 9)) >> 6);
    require(((i ^ offset) | 0xff) < words);
    // If a text ends at this word, its value is in the leaf for byte 0.
    if ((word >> 8 & 1) != 0) require(word_at(map, i ^ offset) >> 31 != 0);
  }
}

void read_trainer(std::string_view bytes, bool& wants_bytes) {
  Field field;
  for (Message spec(bytes); spec.next(field);) {
    if (field.number == 3) {
      require_wire(field, Field::varint, "model_type");
      if (field.value != 1 && field.value != 2) {
        refuse(ErrorCode::unsupported,
               message("model_type must be 1 (unigram) or 2 (BPE), got ", field.value));
      }
    } else if (field.number == 35) {
      require_wire(field, Field::varint, "byte_fallback");
      wants_bytes = field.value != 0;
    }
  }
}

void read_normalizer(std::string_view bytes, SentencePieceModel& model) {
  Field field;
  for (Message spec(bytes); spec.next(field);) {
    if (field.number == 2) {
      require_wire(field, Field::bytes, "precompiled_charsmap");
      check_character_map(field.text);
    } else if (field.number == 3) {
      require_wire(field, Field::varint, "add_dummy_prefix");
      model.adds_prefix = field.value != 0;
    }
  }
}

void check_pieces(const std::vector<Token>& tokens, bool wants_bytes) {
  std::unordered_set<std::string_view> texts;
  std::set<unsigned char> bytes;
  std::size_t unknown = 0, normal = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (!texts.insert(token.text).second)
      refuse(message("piece '", io::one_line(token.text), "' appears twice"));
    if (token.kind == TokenKind::unknown) ++unknown;
    if (token.kind == TokenKind::normal) ++normal;
    if (token.kind != TokenKind::byte) continue;
    const std::optional<unsigned char> byte = byte_of(token.text);
    if (!byte || !wants_bytes) {
      refuse(message("byte pieces must be <0x00> to <0xFF>, in a model with byte_fallback, got '",
                     io::one_line(token.text), "'"));
    }
    bytes.insert(*byte);
  }
  if (unknown != 1) refuse(message("the model must have one unknown piece, got ", unknown));
  if (normal == 0) refuse("the model has no normal pieces");
  if (wants_bytes && bytes.size() != 256)
    refuse(message("byte_fallback needs 256 byte pieces, got ", bytes.size()));
}

}  // namespace

SentencePieceModel read_sentencepiece(std::string_view bytes) {
  if (bytes.size() > kMaxModelBytes)
    refuse(message("a SentencePiece model must have at most ", kMaxModelBytes, " bytes, got ",
                   bytes.size()));
  SentencePieceModel model;
  bool wants_bytes = false;
  Field field;
  std::size_t begin = 0;
  for (Message root(bytes); root.next(field);) {
    const std::size_t end = bytes.size() - root.left();
    const std::string_view whole = bytes.substr(begin, end - begin);
    begin = end;
    // Pieces, trainer_spec and normalizer_spec. Self-test data and denormalizer_spec are not needed.
    if (field.number > 3) continue;
    require_wire(field, Field::bytes, "a part of the model");
    if (field.number == 1) model.tokens.push_back(read_piece(field.text, model.tokens.size()));
    if (field.number == 2) read_trainer(field.text, wants_bytes);
    if (field.number == 3) read_normalizer(field.text, model);
    model.bytes += whole;
  }
  if (model.tokens.empty()) refuse("the SentencePiece model has no pieces");
  check_pieces(model.tokens, wants_bytes);
  return model;
}

}  // namespace phasor::text
