// The check of text that other rooms read.
#pragma once

#include <string_view>

namespace phasor::text::unicode {

// throws   Error(invalid_argument): "<where>: text must be UTF-8, got byte 0xff at offset 3"
void require_utf8(std::string_view text, std::string_view where);

}  // namespace phasor::text::unicode
