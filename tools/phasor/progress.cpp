#include "progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "output.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::size_t kWidestBar = 24, kNarrowestBar = 4;

// A line that is longer than the terminal cannot be cleared.
std::size_t terminal_width() noexcept {
  struct winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return kPageWidth;
  return size.ws_col - 1;
}

}  // namespace

Progress::~Progress() {
  if (drawn_) erase_line();
}

void Progress::begin(std::string_view label, double done_before) {
  clear();
  label_ = label;
  done_before_ = done_before;
  start_ = Clock::now();
}

void Progress::move(double done, double all, std::string_view detail) {
  const Clock::time_point now = Clock::now();
  if (!can_redraw() || (drawn_ && done < all && now - last_ < kRedraw)) return;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double made = done - done_before_;
  const double share = all > 0.0 ? std::clamp(done / all, 0.0, 1.0) : 1.0;
  const std::string before = fmt::format("{}{}[", label_, label_.empty() ? "" : ": ");
  const std::string after =
      fmt::format("] {:3.0f} %, {} left{}{}", 100.0 * share,
                  made > 0.0 ? duration_text(seconds / made * (all - done)) : "?",
                  detail.empty() ? "" : ", ", detail);
  // The bar gives way to the text.
  const std::size_t width = terminal_width(), text = before.size() + after.size();
  const std::size_t bar = std::clamp(width > text ? width - text : 0, kNarrowestBar, kWidestBar);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar));
  draw(before + std::string(filled, '#') + std::string(bar - filled, '.') + after);
}

void Progress::note(std::string_view detail) {
  if (!can_redraw()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  draw(fmt::format("{}{}{}, {} so far", label_, label_.empty() ? "" : ": ", detail,
                   duration_text(seconds)));
}

void Progress::draw(std::string line) {
  last_ = Clock::now();
  std::size_t width = terminal_width();
  if (line.size() > width) {
    while (width > 0 && (static_cast<unsigned char>(line[width]) & 0xc0U) == 0x80U) --width;
    line.resize(width);  // whole characters
  }
  erase_line();
  print_err("{}", line);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) erase_line();
  drawn_ = false;
}

void Progress::end(std::string_view outcome) {
  clear();
  print_err("{}: {}\n", label_, outcome);
}

}  // namespace phasor::tools
