// phasor_rope_spec to encodings::RopeSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "phasor/config/config.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/phasor.h"

namespace phasor::capi {

[[nodiscard]] phasor_rope_spec default_spec();
// throws   Error(invalid_argument | unsupported) for a choice or a pointer that does not fit; the
//          values themselves are checked by encodings::resolve
[[nodiscard]] encodings::RopeSpec to_rope_spec(const phasor_rope_spec* given,
                                               std::string_view where);

// None for PHASOR_LAYOUT_UNSET.
[[nodiscard]] std::optional<core::PairLayout> to_layout(phasor_pair_layout layout,
                                                        std::string_view where);
// None for 0.
[[nodiscard]] std::optional<std::int64_t> to_context(std::int64_t context, std::string_view where);

// The rotation of a layer of a config, and its numbers. layer: an index or a layer type; NULL
// when all layers that rotate do so alike. layout: replaces that of the config when it is set.
//
// throws   Error as config::select_layer; Error(unsupported) for a layer that does not rotate
[[nodiscard]] encodings::RopeSpec layer_spec(const config::ModelConfig& config, const char* layer,
                                             std::string_view where);
[[nodiscard]] core::Rotary layer_rotary(const config::ModelConfig& config, const char* layer,
                                        phasor_pair_layout layout, std::int64_t context,
                                        std::string_view where);

}  // namespace phasor::capi
