#include "terminal_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace phasor::tools {
namespace {

// U+2800 plus one bit per dot, as UTF-8.
std::string braille(std::uint8_t dots) {
  if (dots == 0) return " ";
  const unsigned code = 0x2800U + dots;
  return {static_cast<char>(0xe0U | (code >> 12)), static_cast<char>(0x80U | ((code >> 6) & 0x3fU)),
          static_cast<char>(0x80U | (code & 0x3fU))};
}

class Canvas {
 public:
  Canvas(int width, int height) : width_(width) {
    cells_.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height), 0);
  }
  void dot(int x, int y) {  // from the top left
    static constexpr std::uint8_t kBits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cells_[cell(x / 2, y / 4)] |= kBits[y % 4][x % 2];
  }
  [[nodiscard]] std::string row(int y) const {
    std::string text;
    for (int x = 0; x < width_; ++x) text += braille(cells_[cell(x, y)]);
    return text;
  }

 private:
  [[nodiscard]] std::size_t cell(int x, int y) const {
    return static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) +
           static_cast<std::size_t>(x);
  }

  int width_;
  std::vector<std::uint8_t> cells_;
};

}  // namespace

std::string terminal_plot(std::span<const double> values, const PlotStyle& style) {
  const double top = *std::max_element(values.begin(), values.end());
  const int columns = 2 * style.width, rows = 4 * style.height;
  const auto row_of = [&](double value) {
    return std::clamp(static_cast<int>(std::lround((1.0 - value / top) * (rows - 1))), 0, rows - 1);
  };
  Canvas canvas(style.width, style.height);
  int before = -1;
  for (int x = 0; x < columns; ++x) {
    const double at =
        static_cast<double>(x) * static_cast<double>(values.size() - 1) / (columns - 1);
    const auto left = std::min(static_cast<std::size_t>(at), values.size() - 2);
    const double share = at - static_cast<double>(left);
    const int y = row_of(values[left] * (1.0 - share) + values[left + 1] * share);
    // A steep step is drawn as a line, not as two dots.
    const int from = before < 0 ? y : std::min(before + (y > before ? 1 : -1), y);
    for (int fill = std::min(from, y); fill <= std::max(before < 0 ? y : before, y); ++fill)
      canvas.dot(x, fill);
    before = y;
  }
  const std::string margin(static_cast<std::size_t>(style.indent), ' ');
  std::string text;
  for (int y = 0; y < style.height; ++y) {
    const bool labelled = y == 0 || y == style.height - 1 || y == style.height / 2;
    const double value = top * (1.0 - static_cast<double>(y) / (style.height - 1));
    text += fmt::format("{}{:>6} |{}\n", margin, labelled ? fmt::format("{:.1f}", value) : "",
                        canvas.row(y));
  }
  const std::string last = fmt::format("{}", values.size() - 1);
  const int room = std::max(1, style.width - 1 - static_cast<int>(last.size()));
  text += fmt::format("{}       +{}\n{}        0{:^{}}{}\n", margin,
                      std::string(static_cast<std::size_t>(style.width), '-'), margin,
                      style.x_label, room, last);
  return text;
}

}  // namespace phasor::tools
