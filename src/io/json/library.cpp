#include "io/json/library.hpp"

#define JSON_NO_IO  // its streams are not used, and cost half a megabyte in a web page
#include <nlohmann/json.hpp>

#include "phasor/io/internal/file_text.hpp"

namespace phasor::io {
namespace {

using Library = nlohmann::json;

// "syntax error while parsing value - invalid literal; last read: 'x'" -> "invalid literal". The
// last part may be any bytes of the text.
std::string_view reason_of(std::string_view what) {
  constexpr std::string_view kBefore = " - ";
  const std::size_t start = what.find(kBefore);
  if (start == std::string_view::npos) return "syntax error";
  what.remove_prefix(start + kBefore.size());
  return what.substr(0, what.find("; last read"));
}

class Forward {
 public:
  explicit Forward(JsonEvents& events) : events_(events) {}

  bool null() { return events_.null(); }
  bool boolean(bool value) { return events_.boolean(value); }
  bool number_integer(std::int64_t value) { return events_.integer(value); }
  bool number_unsigned(std::uint64_t value) { return events_.natural(value); }
  bool number_float(double value, const std::string& text) { return events_.real(value, text); }
  bool string(std::string& value) { return events_.string(value); }
  bool binary(Library::binary_t& /*value*/) { return false; }  // JSON as text has none
  bool start_object(std::size_t /*count*/) { return events_.start_object(); }
  bool key(std::string& name) { return events_.key(name); }
  bool end_object() { return events_.end_object(); }
  bool start_array(std::size_t /*count*/) { return events_.start_array(); }
  bool end_array() { return events_.end_array(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Library::exception& exception) {
    constexpr int kNumberOutOfRange = 406;
    events_.fault(position, exception.id == kNumberOutOfRange ? "number beyond the range of float64"
                                                              : reason_of(exception.what()));
    return false;
  }

 private:
  JsonEvents& events_;
};

}  // namespace

void parse_events(std::string_view text, JsonEvents& events) {
  Forward forward(events);
  Library::sax_parse(text.begin(), text.end(), &forward);
}

void append_json_number(std::string& to, double value) { to += Library(value).dump(); }

void append_json_string(std::string& to, const std::string& text, const JsonStyle& style) {
  const auto on_error = style.bad_utf8 == JsonStyle::BadUtf8::replace
                            ? Library::error_handler_t::replace
                            : Library::error_handler_t::strict;
  try {
    to += Library(text).dump(-1, ' ', style.characters == JsonStyle::Characters::ascii, on_error);
  } catch (const Library::exception&) {
    refuse(message("text must be UTF-8 to be written as JSON, got ", in_quotes(text)));
  }
}

}  // namespace phasor::io
