// What reads and writes a config's own keys: where they are, and a scaling written back under them.
#pragma once

#include <cstdint>

#include "phasor/encodings/rope_scaling.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::porting {

// Longer contexts are refused: sums of lengths stay far from overflow.
inline constexpr std::int64_t kContextLimit = std::int64_t{1} << 40;

// The part of a config that describes the language model.
[[nodiscard]] inline io::Json& text_part(io::Json& config) {
  const auto text = config.find("text_config");
  return text != config.end() && text->is_object() ? *text : config;
}

enum class DefaultKeys : std::uint8_t {
  leave_out,  // what a config has to say and no more
  write,      // every parameter that the formula reads
};

// Adds the keys of the scaling to an object; the type's own name is left to the caller.
void write_scaling_keys(const encodings::RopeScaling& scaling, DefaultKeys defaults, io::Json& to);

}  // namespace phasor::porting
