#include "phasor/core/error.hpp"

#include <cmath>
#include <cstdio>

#include "phasor/core/internal/visible_text.hpp"

namespace phasor::detail {

void append_to(std::string& text, std::int64_t number) { text += std::to_string(number); }

void append_to(std::string& text, std::uint64_t number) { text += std::to_string(number); }

void append_to(std::string& text, double number) {
  if (std::isnan(number)) {  // the sign of a NaN says nothing
    text += "nan";
    return;
  }
  char digits[32];
  const int size = std::snprintf(digits, sizeof(digits), "%.17g", number);
  text.append(digits, static_cast<std::size_t>(size));
}

}  // namespace phasor::detail

namespace phasor {

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(core::visible_text(message)), code_(code) {}

void refuse(ErrorCode code, const std::string& text) { throw Error(code, text); }

void refuse(const std::string& text) { refuse(ErrorCode::invalid_argument, text); }

}  // namespace phasor
