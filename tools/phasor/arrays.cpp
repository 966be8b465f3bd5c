#include "arrays.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/npy_text.hpp"
#include "ranks.hpp"
#include "streams.hpp"

namespace phasor::tools {

namespace {

struct ArrayPlace {
  std::string file;
  std::optional<std::string> name;
};

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

ArrayPlace place_of(const std::string& text) {
  if (is_file(text)) return {text, std::nullopt};
  for (std::size_t colon = text.find(':'); colon != std::string::npos;
       colon = text.find(':', colon + 1)) {
    std::string file = text.substr(0, colon);
    if (file == kStandardStream || is_file(file)) return {std::move(file), text.substr(colon + 1)};
  }
  return {text, std::nullopt};
}

}  // namespace

SelectedArrays open_arrays(const std::string& text) {
  ArrayPlace place = place_of(text);
  if (place.file != kStandardStream)
    return {nullptr, io::ArrayFile::open(place.file).value_or_throw(), std::move(place.name)};
  auto bytes = std::make_shared<const std::string>(read_stdin());
  io::ArrayFile file =
      io::ArrayFile::parse(std::as_bytes(std::span(*bytes)), "stdin").value_or_throw();
  return {std::move(bytes), std::move(file), std::move(place.name)};
}

io::NpyArray read_array(const std::string& text) {
  const SelectedArrays selected = open_arrays(text);
  return selected.file.read(selected.name).value_or_throw();
}

io::NpyArray array_in(const std::string& bytes) {
  const io::ArrayFile file =
      io::ArrayFile::parse(std::as_bytes(std::span(bytes)), "stdin").value_or_throw();
  return file.read(std::nullopt).value_or_throw();
}

void write_array(const std::string& path, const io::NpyArray& array) {
  if (path != kStandardStream) {
    if (is_first_rank()) (void)io::write_npy(path, array).value_or_throw();
    return;
  }
  const std::string start = io::npy_start(array);
  write_stdout({std::as_bytes(std::span(start)), array.bytes});
}

}  // namespace phasor::tools
