// What the explorer page asks of the engine: a name, arguments in JSON and files as bytes; the answer
// is JSON with arrays of numbers beside it. Every number of the page is computed here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::web {

using Numbers = std::variant<std::vector<double>, std::vector<float>>;

// The arguments of one call. Reading a key marks it as known; the others are refused.
class Request {
 public:
  Request(const io::Json& arguments, std::span<const std::span<const std::byte>> files)
      : reader_(arguments), files_(files) {}

  [[nodiscard]] const config::ObjectReader& reader() const noexcept { return reader_; }

  // throws   Error(invalid_argument) when the key is missing or outside [least, greatest]
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t least,
                                     std::int64_t greatest) const;
  // The same, `otherwise` when the key is missing.
  [[nodiscard]] std::int64_t integer_or(std::string_view key, std::int64_t otherwise,
                                        std::int64_t least, std::int64_t greatest) const;
  // throws   Error(invalid_argument) when the key is missing, or is not a list of `count` finite
  //          numbers
  [[nodiscard]] std::vector<double> numbers(std::string_view key, std::size_t count) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const;
  // "context", when there is one.
  [[nodiscard]] std::optional<std::int64_t> context() const;
  // The bytes of a file under `key`; none when the key is missing.
  [[nodiscard]] std::optional<std::span<const std::byte>> file(std::string_view key) const;

  // "spec": a plain spec or a config.json, as an object or as text; "layer" selects one of several.
  //
  // throws   as parse_config() and select_layer(); Error(unsupported) for layers that do not rotate
  [[nodiscard]] config::ModelConfig model() const;
  [[nodiscard]] encodings::RopeSpec spec() const;
  [[nodiscard]] encodings::RopeSpec spec_of(const config::ModelConfig& model) const;

 private:
  config::ObjectReader reader_;
  std::span<const std::span<const std::byte>> files_;
};

// The answer of one call: JSON, and arrays that it names.
class Answer {
 public:
  [[nodiscard]] io::Json& operator[](std::string_view key) { return json_[key]; }
  // Keeps the numbers and returns what stands for them in the answer's JSON.
  [[nodiscard]] io::Json keep(std::vector<double> numbers) { return kept(std::move(numbers)); }
  [[nodiscard]] io::Json keep(std::vector<float> numbers) { return kept(std::move(numbers)); }

  [[nodiscard]] const io::Json& json() const noexcept { return json_; }
  [[nodiscard]] const std::deque<Numbers>& arrays() const noexcept { return arrays_; }

 private:
  [[nodiscard]] io::Json kept(Numbers numbers) {
    arrays_.push_back(std::move(numbers));
    return io::Json({{"$array", arrays_.size() - 1}});
  }

  io::Json json_ = io::Json::object();
  std::deque<Numbers> arrays_;
};

using Call = void (*)(const Request& request, Answer& answer);
struct NamedCall {
  std::string_view name;
  Call call;
};

// One list for each file of calls.
[[nodiscard]] std::span<const NamedCall> rope_calls();
[[nodiscard]] std::span<const NamedCall> picture_calls();
[[nodiscard]] std::span<const NamedCall> porting_calls();

// 2 pi / |frequency| of each; infinite for a frequency of 0.
[[nodiscard]] std::vector<double> wavelengths_of(std::span<const double> frequencies);

}  // namespace phasor::web
