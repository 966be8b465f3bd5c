#include "config/gguf/keys.hpp"
#include "phasor/io/tensors.hpp"

#include <variant>

#include "phasor/core/internal/message_text.hpp"

namespace phasor::config {

GgufKeys::GgufKeys(const io::GgufFile& file, std::string_view architecture)
    : file_(file), prefix_(std::string(architecture) + ".") {}

std::string GgufKeys::path_of(std::string_view name) const { return prefix_ + std::string(name); }

void GgufKeys::refuse(std::string_view name, const std::string& what) const {
  throw Error(ErrorCode::invalid_argument,
              message(file_.name(), ": key '", path_of(name), "' ", what));
}

void GgufKeys::refuse_missing(std::string_view name, const std::string& what) const {
  throw Error(ErrorCode::invalid_argument,
              message(file_.name(), ": missing key \"", path_of(name), "\": ", what));
}

std::string GgufKeys::suggest(std::string_view path) const {
  const std::vector<std::string_view> known(understood_.begin(), understood_.end());
  return core::did_you_mean(path, known);
}

bool GgufKeys::has(std::string_view name) const {
  return file_.metadata().find(path_of(name)) != file_.metadata().end();
}

void GgufKeys::mark_understood(std::string_view name) { understood_.insert(path_of(name)); }

std::optional<double> GgufKeys::number(std::string_view name) {
  mark_understood(name);
  return file_.number(path_of(name)).value_or_throw();
}

std::optional<bool> GgufKeys::flag(std::string_view name) {
  mark_understood(name);
  return file_.flag(path_of(name)).value_or_throw();
}

std::optional<std::string> GgufKeys::text(std::string_view name) {
  mark_understood(name);
  return file_.text(path_of(name)).value_or_throw();
}

std::optional<std::int64_t> GgufKeys::count(std::string_view name, std::int64_t most) {
  mark_understood(name);
  const std::optional<std::int64_t> value = file_.integer(path_of(name)).value_or_throw();
  if (value && (*value < 1 || *value > most))
    refuse(name, message("must be from 1 to ", most, ", got ", *value));
  return value;
}

std::optional<std::vector<std::int64_t>> GgufKeys::integers(std::string_view name) {
  mark_understood(name);
  const auto found = file_.metadata().find(path_of(name));
  if (found == file_.metadata().end()) return std::nullopt;
  if (const auto* flags = std::get_if<std::vector<bool>>(&found->second))
    return std::vector<std::int64_t>(flags->begin(), flags->end());
  if (std::holds_alternative<std::int64_t>(found->second) ||
      std::holds_alternative<std::uint64_t>(found->second)) {
    return std::vector<std::int64_t>{file_.integer(path_of(name)).value_or_throw().value()};
  }
  return file_.integers(path_of(name)).value_or_throw();
}

std::vector<std::string> GgufKeys::not_understood() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : file_.metadata()) {
    if (key.starts_with(prefix_) && !understood_.contains(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace phasor::config
