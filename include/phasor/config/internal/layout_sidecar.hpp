// The file that `phasor convert` writes next to weights whose layout is no longer that of their family.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "phasor/config/config.hpp"

namespace phasor::config {

inline constexpr std::string_view kLayoutSidecar = "phasor_layout.json";
// In the folder while a conversion runs: the weights are then partly in one layout, partly in the other.
inline constexpr std::string_view kConvertJournal = ".phasor_convert.json";

struct LayoutSidecar {
  core::PairLayout layout = core::PairLayout::half;
  core::PairLayout converted_from = core::PairLayout::half;
  std::string model_type;
};

// nullopt when the folder has no such file.
//
// refuses  text that is not a JSON object, other formats, unknown or missing keys, layouts other than half
//          and interleaved
[[nodiscard]] Result<std::optional<LayoutSidecar>> read_layout_sidecar(
    const std::filesystem::path& folder);

// Sets the layout of each group that rotates to that of the sidecar, with a source and a note.
//
// refuses  also a sidecar of another model_type, and a folder whose conversion is unfinished
[[nodiscard]] Result<Done> apply_layout_sidecar(const std::filesystem::path& folder,
                                                ModelConfig& config);

}  // namespace phasor::config
