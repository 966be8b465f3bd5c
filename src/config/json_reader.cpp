#include "phasor/config/internal/json_reader.hpp"

#include <cmath>
#include <utility>

#include "phasor/core/internal/message_text.hpp"

namespace phasor::config {
namespace {

[[nodiscard]] std::optional<std::int64_t> as_integer(const Json& value) {
  // Up to here every integer is a double, and sums of a few lengths cannot overflow.
  constexpr double kLargest = 9007199254740992.0;
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::fabs(number) <= kLargest) || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

ObjectReader::ObjectReader(const Json& object, std::string path)
    : object_(&object), path_(std::move(path)) {}

std::string ObjectReader::path_of(std::string_view key) const {
  const std::string name = io::one_line(key);
  return path_.empty() ? name : message(path_, ".", name);
}

void ObjectReader::refuse(std::string_view key, const std::string& what) const {
  refuse_as(ErrorCode::invalid_argument, key, what);
}

void ObjectReader::refuse_as(ErrorCode code, std::string_view key, const std::string& what) const {
  // `what` may contain text of the file.
  constexpr std::size_t kLongest = 1000;
  throw Error(code, message(path_of(key), ": ", io::one_line(what, kLongest)));
}

void ObjectReader::refuse_missing(std::string_view key, const std::string& what) const {
  throw Error(ErrorCode::invalid_argument, message("missing key \"", path_of(key), "\": ", what));
}

void ObjectReader::refuse_unknown(std::string_view key, std::string_view takes) const {
  const std::vector<std::string_view> known(understood_.begin(), understood_.end());
  std::string hint = core::did_you_mean(key, known);
  if (hint.empty() && !takes.empty()) hint = message("; expected one of ", takes);
  throw Error(
      ErrorCode::invalid_argument,
      message(path_.empty() ? "" : path_ + ": ", "unknown key \"", io::one_line(key), "\"", hint));
}

bool ObjectReader::has(std::string_view key) const { return !value(key).is_null(); }

bool ObjectReader::has_even_null(std::string_view key) const { return object_->contains(key); }

void ObjectReader::mark_understood(std::string_view key) const { understood_.emplace(key); }

const Json& ObjectReader::value(std::string_view key) const {
  static const Json kNull;
  const auto found = object_->find(key);
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
  if (!found->is_number()) refuse(key, message("must be a number, got ", shown(*found)));
  return found->get<double>();
}

std::optional<std::int64_t> ObjectReader::integer(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  const std::optional<std::int64_t> integer = as_integer(*found);
  if (!integer) refuse(key, message("must be an integer, got ", shown(*found)));
  return integer;
}

std::optional<bool> ObjectReader::flag(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) refuse(key, message("must be true or false, got ", shown(*found)));
  return found->get<bool>();
}

std::optional<std::string> ObjectReader::text(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) refuse(key, message("must be a string, got ", shown(*found)));
  return found->get<std::string>();
}

void ObjectReader::require_name(std::string_view key, std::string_view word) const {
  const std::string line = io::one_line(word);
  if (line != word) refuse(key, message("must be a name of printable characters, got ", line));
}

std::optional<std::vector<double>> ObjectReader::numbers(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_array()) refuse(key, message("must be a list of numbers, got ", shown(*found)));
  std::vector<double> numbers;
  for (const Json& entry : *found) {
    if (!entry.is_number())
      refuse(key, message("must be a list of numbers, got ", shown(entry), " in it"));
    numbers.push_back(entry.get<double>());
  }
  return numbers;
}

std::optional<std::vector<std::int64_t>> ObjectReader::integers(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_array()) refuse(key, message("must be a list of integers, got ", shown(*found)));
  std::vector<std::int64_t> integers;
  for (const Json& entry : *found) {
    const std::optional<std::int64_t> integer = as_integer(entry);
    if (!integer) refuse(key, message("must be a list of integers, got ", shown(entry), " in it"));
    integers.push_back(*integer);
  }
  return integers;
}

std::optional<std::vector<std::string>> ObjectReader::texts(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_array()) refuse(key, message("must be a list of strings, got ", shown(*found)));
  std::vector<std::string> texts;
  for (const Json& entry : *found) {
    if (!entry.is_string())
      refuse(key, message("must be a list of strings, got ", shown(entry), " in it"));
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

std::optional<ObjectReader> ObjectReader::object(std::string_view key) const {
  const Json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_object()) refuse(key, message("must be an object, got ", shown(*found)));
  return ObjectReader(*found, path_of(key));
}

std::int64_t ObjectReader::required_integer(std::string_view key) const {
  const std::optional<std::int64_t> found = integer(key);
  if (!found) refuse_missing(key, "expected an integer");
  return *found;
}

std::vector<std::string> ObjectReader::keys() const {
  std::vector<std::string> keys;
  for (const io::JsonMember* const entry : object_->sorted_items()) keys.push_back(entry->key);
  return keys;
}

std::vector<std::string> ObjectReader::keys_not_understood() const {
  std::vector<std::string> rest = keys();
  std::erase_if(rest, [&](const std::string& key) { return understood_.contains(key); });
  return rest;
}

void ObjectReader::refuse_rest(std::string_view takes) const {
  const std::vector<std::string> rest = keys_not_understood();
  if (!rest.empty()) refuse_unknown(rest.front(), takes);
}

}  // namespace phasor::config
