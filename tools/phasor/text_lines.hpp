// Text for a terminal: line breaks, sizes, safe characters.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace phasor::tools {

inline constexpr std::size_t kPageWidth = 100;

// `text` after `lead`, broken at spaces within kPageWidth; later lines are indented as deep as
// `lead` is wide. Ends with a line break.
[[nodiscard]] inline std::string in_lines(std::string_view lead, std::string_view text) {
  const std::string indent(lead.size(), ' ');
  std::string page(lead), line;
  while (!text.empty()) {
    const std::size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && lead.size() + line.size() + 1 + word.size() > kPageWidth) {
      page += line + '\n' + indent;
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  return page + line + '\n';
}

// "512 B", "93.01 MiB"
[[nodiscard]] inline std::string size_text(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024.0 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024.0;
  return unit == 0 ? fmt::format("{:.0f} {}", bytes, kUnits[unit])
                   : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

// "0:31", "1:02:05", rounded to seconds
[[nodiscard]] inline std::string duration_text(double seconds) {
  constexpr double kMost = 1e9;  // thirty years
  const auto whole = static_cast<std::int64_t>((seconds < kMost ? seconds : kMost) + 0.5);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// "full_attention, layers 0-4, 6", or "all layers" when the config does not count them.
[[nodiscard]] inline std::string layers_text(const std::vector<std::int64_t>& layers,
                                             std::string_view layer_type) {
  std::string text;
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t end = first + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    text += text.empty() ? "layers " : ", ";
    text += std::to_string(layers[first]);
    if (end > first + 1) text.append(1, '-').append(std::to_string(layers[end - 1]));
    first = end;
  }
  if (text.empty()) text = layer_type.empty() ? "all layers" : "layers";
  return layer_type.empty() ? text : std::string(layer_type) + ", " + text;
}

}  // namespace phasor::tools
