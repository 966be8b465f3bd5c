// A rotation by flags: instead of a config, or in place of some of its numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "command_line.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::tools {

struct RopeFlags {
  std::optional<std::int64_t> head_dim, rotary_dim;
  std::optional<double> base;
  std::string layout, scaling;

  [[nodiscard]] bool given() const {
    return head_dim || rotary_dim || base || !layout.empty() || !scaling.empty();
  }
};

// --head-dim, --base, --rotary-dim, --layout, --scaling
//
// excluded  the flag that these cannot be combined with; empty: they replace the config's numbers
void add_rope_flags(Verb& verb, RopeFlags& flags, std::string_view excluded = "");

// A scaling as text, "TYPE:key=number,...", or a JSON object with "type", as the plain spec has it;
// "none" is the default scaling.
//
// flag     in messages: "--scaling"
// spec     that it must fit
// trained  its original length if it gives none
// throws   Error(invalid_argument): a part without =, unknown types and keys, missing numbers
[[nodiscard]] encodings::RopeScaling scaling_for_spec(std::string_view flag,
                                                      const std::string& text,
                                                      const encodings::RopeSpec& spec,
                                                      std::optional<std::int64_t> trained);

// The plain spec of the flags, as JSON.
//
// throws   Error(invalid_argument) without --head-dim; as scaling_json()
[[nodiscard]] std::string spec_json(const RopeFlags& flags);

// The config, or the plain spec of the flags if there is none. Both are what read_readable() takes.
//
// what     the config's flag or argument, in messages
// throws   Error(invalid_argument): neither is given; as spec_json()
[[nodiscard]] std::string config_or_flags(const std::string& config, const RopeFlags& flags,
                                          std::string_view what);

// The spec with the flags in place of its own numbers. Prints a note on stderr for each number that
// changes.
//
// trained  the original length of a scaling that gives none
// name     of the config, in messages
// throws   Error(invalid_argument): what does not fit the rest of the spec
[[nodiscard]] encodings::RopeSpec replaced_by(const RopeFlags& flags,
                                              const encodings::RopeSpec& spec,
                                              std::optional<std::int64_t> trained,
                                              std::string_view name);

}  // namespace phasor::tools
