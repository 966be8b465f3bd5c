// A curve in a terminal, drawn with braille dots: two across and four down per character.
#pragma once

#include <span>
#include <string>

namespace phasor::tools {

struct PlotStyle {
  int width = 64;   // characters
  int height = 12;  // characters
  int indent = 0;
  std::string x_label;
};

// values[i] over i, from zero to the largest value. Needs at least two finite values.
[[nodiscard]] std::string terminal_plot(std::span<const double> values, const PlotStyle& style);

}  // namespace phasor::tools
