#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "attention/attention_bench.hpp"
#include "commands.hpp"
#include "core/rotary_bench.hpp"
#include "models/models_bench.hpp"
#include "output.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "progress.hpp"

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
  bool memory = false;
  std::string suite;  // empty: rotary, and attention in brief
  std::string level;
  std::string only;
  std::string curves;  // a folder
  std::int64_t largest = 16384;
  int rounds = 0;
};

bench::Plan plan_of(const BenchRequest& request) {
  bench::Plan plan;
  if (request.level.empty()) {
    // No bounds are set for instruction sets below AVX2.
    for (const core::InstructionSet level : core::available_instruction_sets()) {
      if (level >= core::InstructionSet::x86_64_v3) plan.levels.push_back(level);
    }
    if (plan.levels.empty() || request.quick)
      plan.levels = {core::resolve_instruction_set(core::InstructionSet::best)};
  } else {
    const auto level = core::instruction_set_of(request.level);
    if (!level) {
      refuse(message("--isa must be best, generic, x86-64-v2, x86-64-v3 or x86-64-v4, got ",
                     request.level));
    }
    plan.levels = {core::resolve_instruction_set(*level)};
  }
  plan.rounds = request.rounds > 0 ? request.rounds : request.quick ? 15 : 21;
  plan.beyond_caches = !request.quick;
  plan.only = request.only;
  return plan;
}

bench::AttentionPlan attention_plan_of(const BenchRequest& request) {
  using Extent = bench::AttentionPlan::Extent;
  bench::AttentionPlan plan;
  plan.levels = plan_of(request).levels;
  plan.rounds = request.rounds > 0 ? request.rounds : 15;
  plan.extent = request.suite.empty() || request.quick ? Extent::brief : Extent::full;
  plan.only = request.only;
  return plan;
}

// Prints each row at once, or all as JSON at the end.
class Printer {
 public:
  explicit Printer(bool json) : json_(json) {}

  void header(int rounds) const {
    if (json_) return;
    print_out(
        "{}, {} threads; best instruction set {}; medians of {} alternating rounds; a ratio of 1 "
        "is the "
        "limit\n\n",
        cpu_name(), core::available_threads(),
        core::name_of(core::available_instruction_sets().back()), rounds);
    print_out("{:<64} {:>11} {:>11}  {:>5}  {:>13}  {:>7}  against\n", "what", "ours", "limit",
              "ratio", "quartiles", "at most");
  }

  // How many rows will come.
  void expect(std::size_t rows) {
    expected_ = rows;
    progress_.begin("rows");
    move();
  }

  template <class AnyRow>
  void row(const AnyRow& row) {
    progress_.clear();
    show(row);
    ++shown_;
    move();
  }

  [[nodiscard]] int finish() {
    progress_.clear();
    if (json_) print_out("{}\n", rows_.dump({.indent = 1, .keys = io::JsonStyle::Keys::sorted}));
    return correct_ ? exit_code::done : exit_code::difference;
  }

 private:
  void move() {
    progress_.move(static_cast<double>(shown_), static_cast<double>(expected_),
                   fmt::format("{} of {}", shown_, expected_));
  }

  void show(const bench::Row& row) {
    correct_ = correct_ && row.correct;
    if (!row.correct) return wrong(row.name);
    if (json_) {
      rows_.push_back({{"name", row.name},
                       {"ours_us", row.contest.ours_us},
                       {"against", row.against},
                       {"against_us", row.contest.against_us},
                       {"ratio", row.contest.ratio}});
      return;
    }
    const bool promised = row.at_most > 0.0;
    print_out("{:<64} {:>11} {:>11}  {:>5.3f}  {:.3f}-{:.3f}  {:>7}  {}{}\n", row.name,
              time_text(row.contest.ours_us), time_text(row.contest.against_us), row.contest.ratio,
              row.contest.low, row.contest.high,
              promised ? fmt::format("{:.3f}", row.at_most) : "-", row.against,
              promised && row.contest.ratio > row.at_most ? "  <- over" : "");
    std::fflush(stdout);
  }

  void show(const bench::MemoryRow& row) {
    correct_ = correct_ && row.correct;
    if (!row.correct) return wrong(row.name);
    if (!row.mib) {
      if (!json_) print_out("{:<72} not available on this system\n", row.name);
      return;
    }
    if (json_) {
      rows_.push_back({{"name", row.name},
                       {"ours_mib", *row.mib},
                       {"against", "64 MiB"},
                       {"against_mib", row.at_most},
                       {"ratio", *row.mib / row.at_most}});
      return;
    }
    print_out("{:<72} {:>7.1f} MiB, at most {:.0f} MiB{}\n", row.name, *row.mib, row.at_most,
              *row.mib > row.at_most ? "  <- over" : "");
    std::fflush(stdout);
  }

  void wrong(const std::string& name) const {
    if (json_) return;
    print_out("{:<64} not timed: the output differs from the reference\n", name);
    std::fflush(stdout);
  }

  bool json_;
  bool correct_ = true;
  std::size_t shown_ = 0, expected_ = 0;
  Progress progress_;
  io::Json rows_ = io::Json::array();
};

int run_curves(const BenchRequest& request) {
  const std::filesystem::path file = io::as_folder(request.curves) / "attention_curves.csv";
  std::ofstream csv(file);
  if (!csv) {
    refuse(ErrorCode::io,
           message("--curves: cannot write to ", file.string(), ": ", std::strerror(errno)));
  }
  const bench::CurvePlan plan{plan_of(request).levels.back(), request.largest};
  const auto all = static_cast<double>(bench::count_attention_curves(plan));
  Progress progress;
  double done = 0.0;
  bench::write_attention_curves(plan, csv, [&](const std::string& line) {
    progress.clear();
    print_out("{}\n", line);
    std::fflush(stdout);
    progress.move(++done, all);
  });
  if (!csv) refuse(ErrorCode::io, message("cannot write ", file.string()));
  return exit_code::done;
}

int run_bench(const BenchRequest& request) {
  if ((request.suite == "rotary" || request.suite == "models") &&
      (request.memory || !request.curves.empty())) {
    refuse(message("--memory and --curves cannot be combined with --suite ", request.suite));
  }
  if (!request.curves.empty()) return run_curves(request);
  Printer printer(request.json);
  if (request.memory) {
    printer.expect(bench::count_attention_memory());
    bench::run_attention_memory(plan_of(request).levels.back(),
                                [&](const bench::MemoryRow& row) { printer.row(row); });
    return printer.finish();
  }
  const bench::Plan plan = plan_of(request);
  const bench::AttentionPlan attention = attention_plan_of(request);
  const auto print = [&](const bench::Row& row) { printer.row(row); };
  printer.header(request.suite == "attention" ? attention.rounds : plan.rounds);
  const bool all = request.suite.empty() || request.suite == "all";
  const auto run = [&](const bench::Plan& of_rows, const bench::AttentionPlan& of_attention) {
    if (all || request.suite == "rotary") bench::run_rotary_bench(of_rows, print);
    if (all || request.suite == "attention") bench::run_attention_bench(of_attention, print);
    if (request.suite == "all" || request.suite == "models")
      bench::run_models_bench(of_rows, print);
  };
  std::size_t rows = 0;
  bench::Plan counted = plan;
  bench::AttentionPlan counted_attention = attention;
  counted.count = counted_attention.count = &rows;
  run(counted, counted_attention);
  printer.expect(rows);
  run(plan, attention);
  return printer.finish();
}

}  // namespace

void add_bench(CommandLine& line) {
  Verb& verb = line.verb("bench", "measure speed as a ratio to the machine's limits");
  const auto request = std::make_shared<BenchRequest>();
  verb.flag(
      "--quick", &request->quick,
      "only the best instruction set, 15 rounds, no sizes beyond the caches, fewer attention rows");
  verb.flag("--json", &request->json,
            "print [{name, ours_us, against, against_us, ratio}] instead of a table");
  verb.flag("--isa", &request->level, "measure one instruction set: x86-64-v3, x86-64-v4, ...")
      .free_text();
  verb.flag("--rounds", &request->rounds, "rounds per row").within(1, 10000);
  verb.flag(
          "--suite", &request->suite,
          "measure all rows of rotary, attention, models or all (default: rotary, and some rows of "
          "attention)")
      .one_of({"rotary", "attention", "models", "all"});
  verb.flag("--only", &request->only, "only rows whose name contains this text").free_text();
  verb.flag("--memory", &request->memory,
            "only measure the working memory of attention over 16384 tokens");
  verb.flag("--curves", &request->curves,
            "only write time and memory by number of tokens to attention_curves.csv in this folder")
      .folder()
      .excludes("--memory")
      .excludes("--json");
  verb.flag("--largest", &request->largest, "largest number of tokens of --curves")
      .within(256, 1 << 20)
      .needs("--curves");
  verb.footer =
      R"(Each row compares its output with the float64 reference, then alternates ours and the limit
and prints the median of the rounds' ratios. The limits are: for rotation in place, scaling
the same bytes in place; out of place, a copy with streaming stores; for the table, std::sin
and std::cos; for attention, its multiply-adds at the core's peak (a ratio of 1.25 is 80 % of
the peak); for an encoding, attention without one; for backward, forward; for decoding,
reading the cache; for products of models, reading the weights and multiply-adds.
Close other programs first.

Example  phasor bench --quick)";
  verb.action = [request] { return run_bench(*request); };
}

}  // namespace phasor::tools
