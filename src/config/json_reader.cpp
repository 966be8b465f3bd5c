#include "config/json_reader.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace phasor::config {
namespace {

[[noreturn]] void refuse_text(const std::string& text) {
  throw Error(ErrorCode::invalid_argument, text);
}

// Line and column of a byte offset that the parser reports one past the offending byte.
[[nodiscard]] std::string place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column =
      newline == std::string_view::npos ? before.size() : before.size() - newline - 1;
  return message("line ", line, ", column ", column + 1);
}

[[nodiscard]] std::optional<std::int64_t> as_integer(const Json& value) {
  // Up to here every integer is a double, and sums of a few lengths cannot overflow.
  constexpr double kLargest = 9007199254740992.0;
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::fabs(number) <= kLargest) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

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
      refuse_text(message(parsed.get<std::string>(),
                          ": a key must appear once in an object, got it twice"));
    }
    return true;
  };
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

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

ObjectReader::ObjectReader(const Json& object, std::string path)
    : object_(&object), path_(std::move(path)) {}

std::string ObjectReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : message(path_, ".", key);
}

void ObjectReader::refuse(std::string_view key, const std::string& what) const {
  refuse_as(ErrorCode::invalid_argument, key, what);
}

void ObjectReader::refuse_as(ErrorCode code, std::string_view key, const std::string& what) const {
  throw Error(code, message(path_of(key), ": ", what));
}

bool ObjectReader::has(std::string_view key) const { return !value(key).is_null(); }

bool ObjectReader::has_even_null(std::string_view key) const {
  return object_->find(std::string(key)) != object_->end();
}

void ObjectReader::mark_understood(std::string_view key) const { understood_.emplace(key); }

const Json& ObjectReader::value(std::string_view key) const {
  static const Json kNull;
  const auto found = object_->find(std::string(key));
  return found == object_->end() ? kNull : *found;
}

const Json* ObjectReader::find(std::string_view key) const {
  mark_understood(key);
  const Json& found = value(key);
  return found.is_null() ? nullptr : &found;
}

std::optional<double> ObjectReader::number(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number()) refuse(key, message("expected a number, got ", shown(*found)));
  return found->get<double>();
}

std::optional<std::int64_t> ObjectReader::integer(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  const std::optional<std::int64_t> integer = as_integer(*found);
  if (!integer) refuse(key, message("expected an integer, got ", shown(*found)));
  return integer;
}

std::optional<bool> ObjectReader::flag(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) refuse(key, message("expected true or false, got ", shown(*found)));
  return found->get<bool>();
}

std::optional<std::string> ObjectReader::text(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) refuse(key, message("expected a string, got ", shown(*found)));
  return found->get<std::string>();
}

std::optional<std::vector<double>> ObjectReader::numbers(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_array()) refuse(key, message("expected a list of numbers, got ", shown(*found)));
  std::vector<double> numbers;
  for (const Json& entry : *found) {
    if (!entry.is_number())
      refuse(key, message("expected a list of numbers, got ", shown(entry), " in it"));
    numbers.push_back(entry.get<double>());
  }
  return numbers;
}

std::optional<std::vector<std::int64_t>> ObjectReader::integers(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_array()) refuse(key, message("expected a list of integers, got ", shown(*found)));
  std::vector<std::int64_t> integers;
  for (const Json& entry : *found) {
    const std::optional<std::int64_t> integer = as_integer(entry);
    if (!integer) refuse(key, message("expected a list of integers, got ", shown(entry), " in it"));
    integers.push_back(*integer);
  }
  return integers;
}

std::optional<std::vector<std::string>> ObjectReader::texts(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_array()) refuse(key, message("expected a list of strings, got ", shown(*found)));
  std::vector<std::string> texts;
  for (const Json& entry : *found) {
    if (!entry.is_string())
      refuse(key, message("expected a list of strings, got ", shown(entry), " in it"));
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

std::optional<ObjectReader> ObjectReader::object(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_object()) refuse(key, message("expected an object, got ", shown(*found)));
  return ObjectReader(*found, path_of(key));
}

double ObjectReader::required_number(std::string_view key) const {
  const std::optional<double> found = number(key);
  if (!found) refuse(key, "expected a number, got nothing");
  return *found;
}

std::vector<std::string> ObjectReader::keys() const {
  std::vector<std::string> keys;
  for (const auto& entry : object_->items()) keys.push_back(entry.key());
  return keys;
}

std::vector<std::string> ObjectReader::keys_not_understood() const {
  std::vector<std::string> rest = keys();
  std::erase_if(rest, [&](const std::string& key) { return understood_.contains(key); });
  return rest;
}

void ObjectReader::refuse_rest(std::string_view takes) const {
  const std::vector<std::string> rest = keys_not_understood();
  if (!rest.empty())
    refuse(rest.front(), message("expected one of ", takes, ", got an unknown key"));
}

}  // namespace phasor::config
