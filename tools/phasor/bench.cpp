#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.hpp"
#include "core/rotary_bench.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/threads.hpp"

namespace phasor::tools {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string time_text(double microseconds) {
  if (microseconds >= 1000.0) return fmt::format("{:.2f} ms", microseconds / 1000.0);
  return fmt::format("{:.2f} us", microseconds);
}

struct BenchRequest {
  bool quick = false;
  bool json = false;
  std::string level;
  int rounds = 0;
};

bench::Plan plan_of(const BenchRequest& request) {
  bench::Plan plan;
  if (request.level.empty()) {
    // Levels below AVX2 have no promise to keep.
    for (const core::InstructionSet level : core::available_instruction_sets()) {
      if (level >= core::InstructionSet::x86_64_v3) plan.levels.push_back(level);
    }
    if (plan.levels.empty() || request.quick)
      plan.levels = {core::resolve_instruction_set(core::InstructionSet::best)};
  } else {
    const auto level = core::instruction_set_of(request.level);
    if (!level) {
      throw Error(ErrorCode::invalid_argument,
                  message("--isa must be best, generic, x86-64-v2, x86-64-v3 or x86-64-v4, got ",
                          request.level));
    }
    plan.levels = {core::resolve_instruction_set(*level)};
  }
  plan.rounds = request.rounds > 0 ? request.rounds : request.quick ? 15 : 21;
  plan.beyond_caches = !request.quick;
  return plan;
}

int run_bench(const BenchRequest& request) {
  const bench::Plan plan = plan_of(request);
  nlohmann::json rows = nlohmann::json::array();
  bool correct = true;
  if (!request.json) {
    fmt::print(
        "{}, {} threads; best level {}; medians of {} rounds in turns; a ratio of 1 is the limit "
        "itself\n\n",
        cpu_name(), core::available_threads(),
        core::name_of(core::available_instruction_sets().back()), plan.rounds);
    fmt::print("{:<64} {:>11} {:>11}  {:>5}  {:>13}  {:>7}  against\n", "what", "ours", "limit",
               "ratio", "quartiles", "at most");
  }
  bench::run_rotary_bench(plan, [&](const bench::Row& row) {
    correct = correct && row.correct;
    if (request.json) {
      if (!row.correct) return;
      rows.push_back({{"name", row.name},
                      {"ours_us", row.contest.ours_us},
                      {"against", row.against},
                      {"against_us", row.contest.against_us},
                      {"ratio", row.contest.ratio}});
      return;
    }
    if (!row.correct) {
      fmt::print("{:<64} not timed: its output does not agree with the reference\n", row.name);
      return;
    }
    fmt::print("{:<64} {:>11} {:>11}  {:>5.3f}  {:.3f}-{:.3f}  {:>7.3f}  {}{}\n", row.name,
               time_text(row.contest.ours_us), time_text(row.contest.against_us), row.contest.ratio,
               row.contest.low, row.contest.high, row.at_most, row.against,
               row.contest.ratio > row.at_most ? "  <- over" : "");
    std::fflush(stdout);
  });
  if (request.json) fmt::print("{}\n", rows.dump(1));
  return correct ? exit_code::done : exit_code::difference;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("bench", "Ours beside the machine's own limits, as ratios");
  const auto request = std::make_shared<BenchRequest>();
  verb->add_flag("--quick", request->quick,
                 "The best instruction set only, 15 rounds, nothing beyond the caches");
  verb->add_flag("--json", request->json,
                 "Print [{name, ours_us, against, against_us, ratio}] instead of a table");
  verb->add_option("--isa", request->level,
                   "Measure one instruction set: x86-64-v3, x86-64-v4, ...");
  verb->add_option("--rounds", request->rounds, "Rounds per row")->check(CLI::Range(1, 10000));
  verb->footer(
      "Each row first compares its output with the float64 reference, then runs ours and the limit "
      "in turns and prints\n"
      "the median of the rounds' ratios. In-place rotation is measured against scaling the same "
      "bytes in place,\n"
      "out-of-place rotation against a copy with streaming stores, the table against std::sin and "
      "std::cos.\n"
      "Close other programs first: ratios are robust, not immune.\n\n"
      "Example: phasor bench --quick");
  verb->callback([request, &action] { action = [request] { return run_bench(*request); }; });
}

}  // namespace phasor::tools
