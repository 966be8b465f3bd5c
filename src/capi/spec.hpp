// A rope specification as C gives it, as the encodings room wants it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "phasor/core/rotary.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/phasor.h"

namespace phasor::capi {

[[nodiscard]] phasor_rope_spec default_spec() noexcept;
// throws   Error(invalid_argument | unsupported) for a choice or a pointer that does not fit; the
//          values themselves are judged by encodings::resolve
[[nodiscard]] encodings::RopeSpec to_rope_spec(const phasor_rope_spec* given,
                                               std::string_view where);

// None for PHASOR_LAYOUT_UNSET.
[[nodiscard]] std::optional<core::PairLayout> to_layout(phasor_pair_layout layout,
                                                        std::string_view where);
// None for 0.
[[nodiscard]] std::optional<std::int64_t> to_context(std::int64_t context, std::string_view where);

}  // namespace phasor::capi
