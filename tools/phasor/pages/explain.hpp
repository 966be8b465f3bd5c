// What `phasor explain` prints about a config, as text; the explorer page shows the same.
#pragma once

#include <cstdint>
#include <string>

#include "phasor/porting/config_reports.hpp"

namespace phasor::tools {

enum class PairList : std::uint8_t {
  bands,  // neighbouring pairs that make about as many rotations in one line
  every,
};
[[nodiscard]] std::string explain_page(const porting::Explanation& explanation, PairList pairs);

}  // namespace phasor::tools
