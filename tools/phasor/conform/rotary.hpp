// From the description of a golden case to the rotation it asks for, and the positions of its
// tokens.
#pragma once

#include <cstdint>
#include <string>

#include "conform/case.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::tools {

// The spec of a description: a Hugging Face config or plain spec where `config` is one, rope
// parameters with a head width, or explicit members (theta, head_dim, rotary_dim, layout).
//
// throws   Error when the config is refused, or when it contradicts the case's own layout,
// rotary_dim,
//          head_dim or M-RoPE rows
[[nodiscard]] encodings::RopeSpec spec_of(const io::Json& description, const std::string& where);

// A config written into a case rather than in a file.
[[nodiscard]] encodings::RopeSpec spec_of_config(const io::Json& config,
                                                 const std::string& layer_type,
                                                 const std::string& where);

// The positions of a case as [axes, batch, tokens].
//
// throws   Error(shape_mismatch) when the array does not fit
[[nodiscard]] core::Positions case_positions(const CaseArray& array, const std::string& name,
                                             const encodings::RopeSpec& spec, std::int64_t batch,
                                             std::int64_t tokens);

// The rotation at the length the case names (`seq_len`), else at the length of its positions where
// that matters.
[[nodiscard]] core::Rotary rotary_of(const io::Json& description, const encodings::RopeSpec& spec,
                                     const core::Positions& positions, const std::string& where);

}  // namespace phasor::tools
