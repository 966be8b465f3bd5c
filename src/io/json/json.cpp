#include "phasor/io/internal/json.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <ostream>

#include "io/json/library.hpp"

namespace phasor::io {

struct Json::Object {
  std::vector<JsonMember> members;
  // Positions of members sorted by key, or empty: built by the parser for large objects, cleared when
  // keys change.
  std::vector<std::size_t> index;

  [[nodiscard]] const JsonMember* find(std::string_view key) const;
  // Positions of members sorted by key, equal keys in their order of appearance.
  [[nodiscard]] std::vector<std::size_t> sorted() const;
};

const JsonMember* Json::Object::find(std::string_view key) const {
  if (index.empty()) {
    const auto found = std::find_if(members.begin(), members.end(),
                                    [&](const JsonMember& member) { return member.key == key; });
    return found == members.end() ? nullptr : &*found;
  }
  const auto found = std::lower_bound(
      index.begin(), index.end(), key,
      [&](std::size_t at, std::string_view wanted) { return members[at].key < wanted; });
  return found == index.end() || members[*found].key != key ? nullptr : &members[*found];
}

std::vector<std::size_t> Json::Object::sorted() const {
  if (!index.empty()) return index;
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    const int compared = members[left].key.compare(members[right].key);
    return compared != 0 ? compared < 0 : left < right;
  });
  return order;
}

Json::Json(std::string text)
    : kind_(Kind::string), value_{.string = new std::string(std::move(text))} {}
Json::Json(std::string_view text) : Json(std::string(text)) {}
Json::Json(const char* text) : Json(std::string(text)) {}

Json::Json(std::initializer_list<Json> values) : Json() {
  const bool is_object = std::all_of(values.begin(), values.end(), [](const Json& value) {
    return value.is_array() && value.size() == 2 && value.front().is_string();
  });
  if (!is_object) {
    *this = array(values);
    return;
  }
  *this = object();
  for (const Json& value : values) (*this)[value.front().text()] = value.back();
}

Json::Json(const Json& other) : kind_(other.kind_), value_(other.value_) {
  if (kind_ == Kind::string) value_.string = new std::string(*other.value_.string);
  if (kind_ == Kind::array) value_.array = new std::vector<Json>(*other.value_.array);
  if (kind_ == Kind::object) value_.object = new Object(*other.value_.object);
}
Json::Json(Json&& other) noexcept { swap(other); }
Json& Json::operator=(const Json& other) {
  Json copy(other);
  swap(copy);
  return *this;
}
Json& Json::operator=(Json&& other) noexcept {
  Json taken(std::move(other));  // `other` may be a part of this
  swap(taken);
  return *this;
}
Json::~Json() {
  if (kind_ == Kind::string) delete value_.string;
  if (kind_ == Kind::array) delete value_.array;
  if (kind_ == Kind::object) delete value_.object;
}

void Json::swap(Json& other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(value_, other.value_);
}

Json Json::array() {
  Json made;
  made.value_.array = new std::vector<Json>;
  made.kind_ = Kind::array;
  return made;
}
Json Json::array(std::initializer_list<Json> values) {
  Json made = array();
  *made.value_.array = values;
  return made;
}
Json Json::object() {
  Json made;
  made.value_.object = new Object;
  made.kind_ = Kind::object;
  return made;
}

void Json::wrong_type(std::string_view wanted) const {
  refuse(message("JSON value must be ", wanted, ", got ", shown(*this)));
}

bool Json::as_boolean() const {
  if (!is_boolean()) wrong_type("true or false");
  return value_.boolean;
}

double Json::as_real() const {
  if (kind_ == Kind::integer) return static_cast<double>(value_.integer);
  if (kind_ == Kind::natural) return static_cast<double>(value_.natural);
  if (kind_ != Kind::real) wrong_type("a number");
  return value_.real;
}

std::int64_t Json::as_integer(std::int64_t least, std::int64_t greatest) const {
  std::optional<std::int64_t> value;
  if (kind_ == Kind::integer) value = value_.integer;
  if (kind_ == Kind::natural && std::in_range<std::int64_t>(value_.natural))
    value = static_cast<std::int64_t>(value_.natural);
  if (kind_ == Kind::real && value_.real >= -0x1p63 && value_.real < 0x1p63 &&
      value_.real == std::floor(value_.real))
    value = static_cast<std::int64_t>(value_.real);
  if (!value || *value < least || *value > greatest)
    wrong_type(message("an integer from ", least, " to ", greatest));
  return *value;
}

std::uint64_t Json::as_natural(std::uint64_t greatest) const {
  std::optional<std::uint64_t> value;
  if (kind_ == Kind::natural) value = value_.natural;
  if (kind_ == Kind::integer && value_.integer >= 0)
    value = static_cast<std::uint64_t>(value_.integer);
  if (kind_ == Kind::real && value_.real >= 0.0 && value_.real < 0x1p64 &&
      value_.real == std::floor(value_.real))
    value = static_cast<std::uint64_t>(value_.real);
  if (!value || *value > greatest) wrong_type(message("an integer from 0 to ", greatest));
  return *value;
}

const std::string& Json::text() const {
  if (!is_string()) wrong_type("a string");
  return *value_.string;
}

const std::vector<Json>& Json::elements() const {
  if (!is_array()) wrong_type("a list");
  return *value_.array;
}

std::size_t Json::size() const {
  if (is_null()) return 0;
  if (is_array()) return value_.array->size();
  return items().size();
}

const std::vector<JsonMember>& Json::items() const {
  static const std::vector<JsonMember> kNone;
  if (is_null()) return kNone;
  if (!is_object()) wrong_type("an object");
  return value_.object->members;
}

std::vector<const JsonMember*> Json::sorted_items() const {
  std::vector<const JsonMember*> sorted;
  sorted.reserve(items().size());
  if (is_object()) {
    for (const std::size_t at : value_.object->sorted())
      sorted.push_back(&value_.object->members[at]);
  }
  return sorted;
}

Json::const_iterator Json::begin() const {
  if (is_array()) return const_iterator(value_.array->data());
  return const_iterator(items().data());
}
Json::const_iterator Json::end() const {
  if (is_array()) return const_iterator(value_.array->data() + value_.array->size());
  if (is_object())
    return const_iterator(value_.object->members.data() + value_.object->members.size());
  return {};
}
Json::iterator Json::begin() {
  if (is_array()) return iterator(value_.array->data());
  if (is_object()) return iterator(value_.object->members.data());
  if (!is_null()) wrong_type("a list or an object");
  return {};
}
Json::iterator Json::end() {
  if (is_array()) return iterator(value_.array->data() + value_.array->size());
  if (is_object()) return iterator(value_.object->members.data() + value_.object->members.size());
  return {};
}

const Json* Json::member(std::string_view key) const {
  if (!is_object()) return nullptr;
  const JsonMember* const found = value_.object->find(key);
  return found == nullptr ? nullptr : &found->value;
}

Json::const_iterator Json::find(std::string_view key) const {
  const JsonMember* const found = is_object() ? value_.object->find(key) : nullptr;
  return found == nullptr ? end() : const_iterator(found);
}
Json::iterator Json::find(std::string_view key) {
  const JsonMember* const found = is_object() ? value_.object->find(key) : nullptr;
  return found == nullptr ? end() : iterator(const_cast<JsonMember*>(found));
}

const Json& Json::at(std::string_view key) const {
  const Json* const found = member(key);
  if (found == nullptr) refuse(message("missing key \"", one_line(key), "\" in ", shown(*this)));
  return *found;
}
Json& Json::at(std::string_view key) { return const_cast<Json&>(std::as_const(*this).at(key)); }
const Json& Json::at(std::size_t index) const {
  if (index >= elements().size())
    refuse(message("index ", index, " is beyond the list ", shown(*this)));
  return (*value_.array)[index];
}
Json& Json::at(std::size_t index) { return const_cast<Json&>(std::as_const(*this).at(index)); }

Json& Json::operator[](std::string_view key) {
  if (is_null()) *this = object();
  if (!is_object()) wrong_type("an object");
  if (const Json* const found = member(key)) return const_cast<Json&>(*found);
  value_.object->index.clear();
  return value_.object->members.emplace_back(JsonMember{std::string(key), {}}).value;
}

void Json::push_back(Json value) {
  if (is_null()) *this = array();
  if (!is_array()) wrong_type("a list");
  value_.array->push_back(std::move(value));
}

void Json::erase(std::string_view key) {
  if (!is_object()) wrong_type("an object");
  const JsonMember* const found = value_.object->find(key);
  if (found == nullptr) return;
  value_.object->index.clear();
  value_.object->members.erase(value_.object->members.begin() +
                               (found - value_.object->members.data()));
}

void Json::erase(std::size_t index) {
  const std::ptrdiff_t place = &at(index) - elements().data();  // at() checks the index
  value_.array->erase(value_.array->begin() + place);
}

bool Json::equals(const Json& other) const {
  if (is_number() && other.is_number()) {
    if (kind_ == Kind::real || other.kind_ == Kind::real) return as_real() == other.as_real();
    if (kind_ == other.kind_) return value_.natural == other.value_.natural;
    return kind_ == Kind::integer ? std::cmp_equal(value_.integer, other.value_.natural)
                                  : std::cmp_equal(value_.natural, other.value_.integer);
  }
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::boolean:
      return value_.boolean == other.value_.boolean;
    case Kind::string:
      return *value_.string == *other.value_.string;
    case Kind::array:
      return *value_.array == *other.value_.array;
    case Kind::object:
      return size() == other.size() &&
             std::all_of(items().begin(), items().end(), [&](const JsonMember& mine) {
               const Json* const theirs = other.member(mine.key);
               return theirs != nullptr && mine.value == *theirs;
             });
    default:
      return true;
  }
}

std::string Json::dump(const JsonStyle& style) const {
  std::string text;
  write(text, style, 0);
  return text;
}

std::ostream& operator<<(std::ostream& to, const Json& value) {
  return to << value.dump({.bad_utf8 = JsonStyle::BadUtf8::replace});
}

void Json::write(std::string& to, const JsonStyle& style, int margin) const {
  const auto new_line = [&](int spaces) {
    if (style.indent < 0) return;
    to += '\n';
    to.append(static_cast<std::size_t>(spaces), ' ');
  };
  const int inside = margin + std::max(style.indent, 0);
  const auto write_member = [&](const JsonMember& member) {
    if (to.back() != '{') to += ',';
    new_line(inside);
    append_json_string(to, member.key, style);
    to += style.indent < 0 ? ":" : ": ";
    member.value.write(to, style, inside);
  };
  switch (kind_) {
    case Kind::null:
      to += "null";
      return;
    case Kind::boolean:
      to += value_.boolean ? "true" : "false";
      return;
    case Kind::integer:
      to += std::to_string(value_.integer);
      return;
    case Kind::natural:
      to += std::to_string(value_.natural);
      return;
    case Kind::real:
      append_json_number(to, value_.real);
      return;
    case Kind::string:
      append_json_string(to, *value_.string, style);
      return;
    case Kind::array:
      to += '[';
      for (const Json& element : *value_.array) {
        if (&element != value_.array->data()) to += ',';
        new_line(inside);
        element.write(to, style, inside);
      }
      if (!value_.array->empty()) new_line(margin);
      to += ']';
      return;
    case Kind::object:
      to += '{';
      if (style.keys == JsonStyle::Keys::sorted) {
        for (const JsonMember* const member : sorted_items()) write_member(*member);
      } else {
        for (const JsonMember& member : value_.object->members) write_member(member);
      }
      if (!empty()) new_line(margin);
      to += '}';
      return;
  }
}

// Builds the value from parser events. The library would silently keep the last of two equal keys;
// this refuses them.
class JsonBuilder final : public JsonEvents {
 public:
  explicit JsonBuilder(std::string_view text) : text_(text) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool integer(std::int64_t value) override { return add(value); }
  bool natural(std::uint64_t value) override { return add(value); }
  bool real(double value, const std::string& /*text*/) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool start_object() override { return enter(Json::object()); }
  bool key(std::string& name) override {
    keys_.push_back(std::move(name));
    return true;
  }
  bool end_object() override {
    finish(*open_.back().value_.object);
    return leave();
  }
  bool start_array() override { return enter(Json::array()); }
  bool end_array() override { return leave(); }
  void fault(std::size_t position, std::string_view reason) override {
    refuse(json_fault_text(text_, position, reason));
  }

  [[nodiscard]] Json take() { return std::move(root_); }

 private:
  // Up to this size a linear search is as fast.
  static constexpr std::size_t kWithoutIndex = 16;

  // Finds repeated keys with one sort per object, which also serves as the index.
  static void finish(Json::Object& object) {
    std::vector<std::size_t> order = object.sorted();
    std::size_t first_again = object.members.size();
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (object.members[order[i - 1]].key == object.members[order[i]].key)
        first_again = std::min(first_again, order[i]);
    }
    if (first_again < object.members.size()) {
      refuse(message("key \"", one_line(object.members[first_again].key),
                     "\" appears twice in one object"));
    }
    if (order.size() > kWithoutIndex) object.index = std::move(order);
  }

  bool enter(Json container) {
    open_.push_back(std::move(container));
    if (open_.size() > kMaxJsonDepth)
      refuse(message("JSON is nested deeper than ", kMaxJsonDepth, " levels"));
    return true;
  }
  bool leave() {
    Json closed = std::move(open_.back());
    open_.pop_back();
    return add(std::move(closed));
  }
  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().value_.array->push_back(std::move(value));
    } else {
      open_.back().value_.object->members.push_back({std::move(keys_.back()), std::move(value)});
      keys_.pop_back();
    }
    return true;
  }

  std::string_view text_;
  Json root_;
  std::vector<Json> open_;         // from the outermost
  std::vector<std::string> keys_;  // one for each open object
};

Json Json::parse(std::string_view text) {
  // The library treats a NUL as the end of the text and would ignore what follows.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    refuse(json_fault_text(text, nul + 1, "NUL byte"));
  }
  JsonBuilder builder(text);
  parse_events(text, builder);
  return builder.take();
}

}  // namespace phasor::io
