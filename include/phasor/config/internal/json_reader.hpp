// Reads JSON by name and type. Every error has the path of the key, the value and what it must be;
// every key that was read counts as known.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::config {

using io::Json;
using io::parse_object;
using io::shown;

// A view of one object. Absent keys and nulls read as nullopt. Errors are thrown as
// Error(invalid_argument) with the path of the key in front.
class ObjectReader {
 public:
  // `object` must outlive the reader; `path` is empty at the top.
  explicit ObjectReader(const Json& object, std::string path = {});

  [[nodiscard]] std::string path_of(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const;
  [[noreturn]] void refuse_as(ErrorCode code, std::string_view key, const std::string& what) const;
  // missing key "rope_scaling.factor": `what`
  [[noreturn]] void refuse_missing(std::string_view key, const std::string& what) const;
  // unknown key "rope_scalling"; did you mean "rope_scaling"? Suggests the closest key that was read,
  // or else lists `takes`.
  [[noreturn]] void refuse_unknown(std::string_view key, std::string_view takes = {}) const;

  // Present and not null; does not count as reading it.
  [[nodiscard]] bool has(std::string_view key) const;
  // Present, even if null.
  [[nodiscard]] bool has_even_null(std::string_view key) const;
  void mark_understood(std::string_view key) const;

  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<bool> flag(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  // Refuses a word that would not fit in a line of output: control characters, or too long.
  void require_name(std::string_view key, std::string_view word) const;
  [[nodiscard]] std::optional<std::vector<double>> numbers(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<std::string>> texts(std::string_view key) const;
  [[nodiscard]] std::optional<ObjectReader> object(std::string_view key) const;
  [[nodiscard]] std::int64_t required_integer(std::string_view key) const;
  // The value itself, or null when the key is absent.
  [[nodiscard]] const Json& value(std::string_view key) const;

  // Sorted, so that the first error does not depend on the order of the file.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::vector<std::string> keys_not_understood() const;
  // Refuses the first key that was not read; `takes` lists the known ones.
  void refuse_rest(std::string_view takes) const;

 private:
  // The value of a key that is present and not null, marked as understood.
  [[nodiscard]] const Json* find(std::string_view key) const;

  const Json* object_;
  std::string path_;
  mutable std::set<std::string, std::less<>> understood_;
};

}  // namespace phasor::config
