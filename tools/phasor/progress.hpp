// The progress of long work: one line on stderr with the share done and the time left. Redrawn on a
// terminal, silent in a file or pipe.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace phasor::tools {

class Progress {
 public:
  Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // clears the line

  // Starts the clock of the next piece of work.
  //
  // label        precedes the share; may be empty
  // done_before  the part that an earlier run did: it took no time in this one
  void begin(std::string_view label = "", double done_before = 0.0);
  // `done` of `all`, in any unit; `detail` follows the time left. What does not fit the terminal's
  // width is cut at the end: the detail begins with what matters most.
  void move(double done, double all, std::string_view detail = "");
  // For work whose size is not known: "label: detail, 0:31 so far".
  void note(std::string_view detail);
  // Clears the line, so that something else can be printed.
  void clear();
  // Clears the line and prints "label: outcome", also when stderr is not a terminal.
  void end(std::string_view outcome);

 private:
  using Clock = std::chrono::steady_clock;

  void draw(std::string line);

  std::string label_;
  double done_before_ = 0.0;
  Clock::time_point start_ = Clock::now(), last_ = start_;
  bool drawn_ = false;
};

}  // namespace phasor::tools
