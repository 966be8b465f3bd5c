// The note that `phasor convert` leaves beside weights whose order is no longer their family's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "phasor/config/config.hpp"

namespace phasor::config {

inline constexpr std::string_view kLayoutSidecar = "phasor_layout.json";
// Stands in the folder while a conversion is under way: what is there then is neither order.
inline constexpr std::string_view kConvertJournal = ".phasor_convert.json";

struct LayoutSidecar {
  core::PairLayout layout = core::PairLayout::half;
  core::PairLayout converted_from = core::PairLayout::half;
  std::string model_type;
};

// None when the folder holds none.
//
// refuses  what is no JSON object, another format, unknown or missing keys, layouts other than half
//          and interleaved
[[nodiscard]] Result<std::optional<LayoutSidecar>> read_layout_sidecar(
    const std::filesystem::path& folder);

// Gives each group that rotates the layout of the sidecar, with a source and a note.
//
// refuses  also a sidecar of another model_type, and a folder whose conversion has not ended
[[nodiscard]] Result<Done> apply_layout_sidecar(const std::filesystem::path& folder,
                                                ModelConfig& config);

}  // namespace phasor::config
