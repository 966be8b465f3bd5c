// A page of text that grows line by line.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace phasor::tools {

template <class... Args>
void add(std::string& page, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(page), format, std::forward<Args>(args)...);
}

}  // namespace phasor::tools
