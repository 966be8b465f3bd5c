#include "io/json.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace phasor::io {
namespace {

[[noreturn]] void refuse_text(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text);
}

// Refuses what the parser would take: it keeps the last of two equal keys and says nothing. What it
// refuses itself ends the watch, and is left for it to say.
class Watch final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(std::int64_t /*value*/) override { return true; }
  bool number_unsigned(std::uint64_t /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*count*/) override {
    open_objects_.emplace_back();
    return enter();
  }
  bool key(std::string& name) override {
    if (open_objects_.back().contains(name)) {
      refuse_text(message(one_line(name), ": a key must appear once in an object, got it twice"));
    }
    open_objects_.back().insert(std::move(name));
    return true;
  }
  bool end_object() override {
    open_objects_.pop_back();
    return leave();
  }
  bool start_array(std::size_t /*count*/) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const Json::exception& /*exception*/) override {
    return false;
  }

 private:
  bool enter() {
    if (++depth_ > kMaxJsonDepth)
      refuse_text(message("JSON must be nested at most ", kMaxJsonDepth, " deep, got more"));
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::vector<std::set<std::string>> open_objects_;
  int depth_ = 0;
};

// The end of the string that begins at text[first], which is its quotation mark.
[[nodiscard]] std::size_t end_of_string(std::string_view text, std::size_t first) {
  std::size_t at = first + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

[[nodiscard]] std::string with_words_quoted(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + 16);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    bool is_word = false;
    if (text[at] == '"') {
      end = end_of_string(text, at);
    } else {
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (!text.substr(at).starts_with(word)) continue;
        end = at + word.size();
        is_word = true;
      }
    }
    if (is_word) quoted += '"';
    quoted += text.substr(at, end - at);
    if (is_word) quoted += '"';
    at = end;
  }
  return quoted;
}

}  // namespace

std::string place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column =
      newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
  return message("line ", line, ", column ", column + 1);
}

Json parse_object(std::string_view text) {
  // The parser takes a NUL for the end and would ignore what follows; JSON has none anywhere.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    refuse_text(message("expected JSON, got something else at ", place_of(text, nul + 1)));
  }
  // Two passes: the parser that calls back while it builds the tree looks through all that stands
  // before an object at each object's end.
  Watch watch;
  Json::sax_parse(text.begin(), text.end(), &watch);
  Json parsed;
  try {
    parsed = Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    refuse_text(message("expected JSON, got something else at ", place_of(text, error.byte)));
  } catch (const Json::exception&) {
    // A number beyond double, say.
    refuse_text("expected JSON with numbers in the range of float64, got others");
  }
  if (!parsed.is_object()) refuse_text(message("expected a JSON object, got ", shown(parsed)));
  return parsed;
}

Json parse_python_object(std::string_view text) {
  const bool has_words =
      text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  return has_words ? parse_object(with_words_quoted(text)) : parse_object(text);
}

std::string one_line(std::string_view text, std::size_t longest) {
  std::size_t size = std::min(text.size(), longest);
  // Not in the middle of a character: its later bytes are 10xxxxxx.
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80)
    --size;
  std::string line(text.substr(0, size));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return size < text.size() ? line + "..." : line;
}

std::string shown(const Json& value) {
  return one_line(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace phasor::io
