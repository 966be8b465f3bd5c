// What `phasor demo` prints: numbered parts that end with checks; the exit code is 1 if one fails.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "command_line.hpp"
#include "output.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::tools {

enum class DemoForm : std::uint8_t { text, json };

class DemoPage {
 protected:
  explicit DemoPage(DemoForm form) : form_(form) {}

  template <class... Args>
  void out(fmt::format_string<Args...> format, Args&&... args) const {
    if (form_ == DemoForm::text) print_out(format, std::forward<Args>(args)...);
  }
  void title(const std::string& text) {
    title_ = text;
    out("\n{}. {}\n", ++part_, text);
  }
  void check(bool holds, const std::string& text) {
    out("   {} {}\n", holds ? "ok  " : "FAIL", text);
    answer_["checks"].push_back({{"part", title_}, {"ok", holds}, {"text", text}});
    if (!holds) ++failures_;
  }
  // What --json prints besides the checks.
  [[nodiscard]] io::Json& json() noexcept { return answer_; }
  // Prints the end. Returns the exit code.
  [[nodiscard]] int finish() {
    out("\n{}\n", failures_ == 0 ? "All checks passed."
                                 : fmt::format("{} of the checks above FAILED.", failures_));
    if (form_ == DemoForm::json) {
      answer_["failed"] = failures_;
      print_out("{}\n", answer_.dump());
    }
    return failures_ == 0 ? exit_code::done : exit_code::difference;
  }

 private:
  DemoForm form_;
  int part_ = 0, failures_ = 0;
  std::string title_;
  io::Json answer_;
};

}  // namespace phasor::tools
