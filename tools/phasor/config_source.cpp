#include "config_source.hpp"

#include "hub_cache.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

[[nodiscard]] bool is_text(const std::string& given) { return given == "-" || is_json_text(given); }

}  // namespace

bool is_json_text(const std::string& given) {
  const std::size_t first = given.find_first_not_of(" \t\r\n");
  return first != std::string::npos && given[first] == '{';
}

std::string config_path(const std::string& given) {
  return is_text(given) ? given : model_path(given);
}

std::string read_json_text(const std::string& given) {
  return is_json_text(given) ? given : read_text_or_stdin(given);
}

std::string config_name(const std::string& given) {
  return given == "-" ? "stdin" : is_json_text(given) ? "JSON" : given;
}

config::ModelConfig read_model_config(const std::string& given) {
  if (!is_text(given)) return config::read_config(given).value_or_throw();
  return config::parse_config(read_json_text(given), config_name(given)).value_or_throw();
}

porting::ReadableConfig read_readable(const std::string& given) {
  if (!is_text(given)) return porting::read_readable_config(given).value_or_throw();
  return porting::parse_readable_config(read_json_text(given), config_name(given)).value_or_throw();
}

}  // namespace phasor::tools
