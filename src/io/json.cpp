#include "io/json.hpp"

#include <algorithm>
#include <set>
#include <vector>

namespace phasor::io {
namespace {

[[noreturn]] void refuse_text(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text);
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
  std::vector<std::set<std::string>> open_objects;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxJsonDepth) {
      refuse_text(message("JSON must be nested at most ", kMaxJsonDepth, " deep, got more"));
    }
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    // The parser would keep the last of two equal keys and say nothing.
    if (event == Json::parse_event_t::key &&
        !open_objects.back().insert(parsed.get<std::string>()).second) {
      refuse_text(message(one_line(parsed.get<std::string>()),
                          ": a key must appear once in an object, got it twice"));
    }
    return true;
  };
  // The parser takes a NUL for the end and would ignore what follows; JSON has none anywhere.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    refuse_text(message("expected JSON, got something else at ", place_of(text, nul + 1)));
  }
  Json parsed;
  try {
    parsed = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    refuse_text(message("expected JSON, got something else at ", place_of(text, error.byte)));
  } catch (const Json::exception&) {
    // A number beyond double, say.
    refuse_text("expected JSON with numbers in the range of float64, got others");
  }
  if (!parsed.is_object()) refuse_text(message("expected a JSON object, got ", shown(parsed)));
  return parsed;
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
