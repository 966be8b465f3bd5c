#include "bridge.hpp"

#include <cmath>
#include <exception>
#include <new>
#include <numbers>

#include "phasor/core/error.hpp"

namespace phasor::web {
namespace {

using config::ObjectReader;

[[noreturn]] void refuse_range(const ObjectReader& reader, std::string_view key, std::int64_t got,
                               std::int64_t least, std::int64_t greatest) {
  reader.refuse(key, message("must be from ", least, " to ", greatest, ", got ", got));
}

[[nodiscard]] Call find_call(std::string_view name) {
  std::string known;
  for (const std::span<const NamedCall> calls : {rope_calls(), picture_calls(), porting_calls()}) {
    for (const NamedCall& call : calls) {
      if (call.name == name) return call.call;
      known += (known.empty() ? "" : ", ") + std::string(call.name);
    }
  }
  refuse(message("unknown call \"", name, "\"; known: ", known));
}

// The answer of the last call: its text and arrays stay in memory until the next one.
struct State {
  Answer answer;
  std::string text;
};

[[nodiscard]] State& state() {
  static State state;
  return state;
}

void write_text(State& state) {
  io::Json arrays = io::Json::array();
  for (const Numbers& numbers : state.answer.arrays()) {
    std::visit(
        [&](const auto& values) {
          arrays.push_back(
              {sizeof(values.front()),
               static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(values.data())),
               values.size()});
        },
        numbers);
  }
  io::Json whole;
  whole["answer"] = state.answer.json();
  whole["arrays"] = std::move(arrays);
  state.text = whole.dump({.bad_utf8 = io::JsonStyle::BadUtf8::replace});
}

void write_error(State& state, std::string_view what) {
  io::Json whole;
  whole["error"] = what;
  state.text = whole.dump({.bad_utf8 = io::JsonStyle::BadUtf8::replace});
}

}  // namespace

std::int64_t Request::integer(std::string_view key, std::int64_t least,
                              std::int64_t greatest) const {
  const std::int64_t value = reader_.required_integer(key);
  if (value < least || value > greatest) refuse_range(reader_, key, value, least, greatest);
  return value;
}

std::int64_t Request::integer_or(std::string_view key, std::int64_t otherwise, std::int64_t least,
                                 std::int64_t greatest) const {
  reader_.mark_understood(key);  // so that a misspelt one is answered with it
  return reader_.has(key) ? integer(key, least, greatest) : otherwise;
}

std::vector<double> Request::numbers(std::string_view key, std::size_t count) const {
  std::optional<std::vector<double>> values = reader_.numbers(key);
  if (!values) reader_.refuse_missing(key, message("a list of ", count, " numbers"));
  if (values->size() != count) {
    reader_.refuse(key, message("must have ", count, " numbers, got ", values->size()));
  }
  return *std::move(values);
}

std::vector<std::string> Request::texts(std::string_view key) const {
  std::optional<std::vector<std::string>> values = reader_.texts(key);
  if (!values) reader_.refuse_missing(key, "a list of names");
  return *std::move(values);
}

std::optional<std::int64_t> Request::context() const {
  reader_.mark_understood("context");
  if (!reader_.has("context")) return std::nullopt;
  return integer("context", 1, std::int64_t{1} << 40);
}

std::optional<std::span<const std::byte>> Request::file(std::string_view key) const {
  const std::optional<ObjectReader> place = reader_.object(key);
  if (!place) return std::nullopt;
  const std::int64_t index = place->required_integer("$file");
  if (index < 0 || index >= std::ssize(files_)) reader_.refuse(key, "must be the bytes of a file");
  return files_[static_cast<std::size_t>(index)];
}

config::ModelConfig Request::model() const {
  const io::Json& given = reader_.value("spec");
  reader_.mark_understood("spec");
  if (given.is_null()) reader_.refuse_missing("spec", "a plain spec or a config.json");
  return config::parse_config(given.is_string() ? given.text() : given.dump(), "spec")
      .value_or_throw();
}

encodings::RopeSpec Request::spec() const { return spec_of(model()); }

encodings::RopeSpec Request::spec_of(const config::ModelConfig& model) const {
  const std::string layer = reader_.text("layer").value_or("");
  const config::LayerGroup group = config::select_layer(model, layer).value_or_throw();
  if (!group.rope) {
    refuse(ErrorCode::unsupported,
           message("spec: no layer rotates",
                   model.other_positions.empty() ? "" : "; it has " + model.other_positions));
  }
  return *group.rope;
}

std::vector<double> wavelengths_of(std::span<const double> frequencies) {
  std::vector<double> wavelengths;
  wavelengths.reserve(frequencies.size());
  for (const double frequency : frequencies)
    wavelengths.push_back(2.0 * std::numbers::pi / std::abs(frequency));
  return wavelengths;
}

}  // namespace phasor::web

extern "C" {

// Files of the next call: `count` addresses and `count` sizes in one array.
//
// Returns the answer as JSON, {"answer", "arrays": [[bytes per number, address, count], ...]} or
// {"error"}, ended by a zero byte. It is valid until the next call.
const char* phasor_call(const char* name, const char* arguments, const std::uintptr_t* files,
                        std::size_t count) {
  using namespace phasor;
  web::State& state = web::state();
  state.answer = {};
  try {
    const io::Json parsed = io::parse_object(arguments);
    std::vector<std::span<const std::byte>> contents;
    for (std::size_t i = 0; i < count; ++i)
      contents.emplace_back(reinterpret_cast<const std::byte*>(files[i]), files[count + i]);
    const web::Request request(parsed, contents);
    const web::Call call = web::find_call(name);
    call(request, state.answer);
    request.reader().refuse_rest({});
    web::write_text(state);
  } catch (const std::bad_alloc&) {
    web::write_error(state, "out of memory");
  } catch (const std::exception& error) {
    web::write_error(state, error.what());
  }
  return state.text.c_str();
}
}
