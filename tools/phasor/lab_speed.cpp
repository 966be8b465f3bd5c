// phasor lab speed: tokens per second of training, peak memory, and where the time goes.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "lab.hpp"
#include "output.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/lab/internal/speed.hpp"
#include "run_parts.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

// The model of docs/lab.md, "Speed".
constexpr std::string_view kModel =
    R"({"architecture": "decoder", "style": "llama", "vocabulary": 256, "hidden": 256, "layers": 4,
        "heads": 4, "intermediate": 672, "encoding": "rope"})";

[[nodiscard]] io::Json model_of(const LabFlags& flags) {
  if (flags.names.size() > 1) {
    refuse(message("speed takes one model, got \"", flags.names[1], "\" too"));
  }
  io::Json model;
  if (flags.names.empty()) {
    model = io::parse_object(kModel);
  } else {
    const std::string& name = flags.names.front();
    try {
      model = io::parse_object(read_text_or_stdin(name));
    } catch (const Error& error) {
      throw io::in_file(name, error);
    }
  }
  for (const std::string& assignment : flags.assignments) lab::assign(model, assignment);
  if (!model.contains("context")) model["context"] = flags.speed.tokens;
  return model;
}

[[nodiscard]] std::vector<double> sorted_copy(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}
[[nodiscard]] double median(const std::vector<double>& sorted) {
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

}  // namespace

int lab_speed(const LabFlags& flags) {
  const lab::ModelSpec spec = lab::parse_model_spec(model_of(flags));
  lab::SpeedSettings settings = flags.speed;
  settings.threads = flags.threads > 0 ? flags.threads : core::available_threads();
  const lab::Speed speed = lab::measure_speed(spec, settings);
  const std::vector<double> sorted = sorted_copy(speed.seconds);
  const double step = median(sorted), cpu = median(sorted_copy(speed.cpu_seconds));
  const double rate = static_cast<double>(settings.rows * settings.tokens) / step;
  const double all = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  io::Json parts = io::Json::object();
  double rest = 1.0;
  for (std::size_t i = 0; i < lab::kTimedParts; ++i) {
    parts[lab::name_of(static_cast<lab::Part>(i))] = speed.parts[i] / all;
    rest -= speed.parts[i] / all;
  }
  parts["other"] = rest;
  if (flags.json) {
    io::Json page = io::Json::object();
    page["model"] = lab::json_of(spec);
    page["parameters"] = speed.parameters;
    page["rows"] = settings.rows;
    page["tokens"] = settings.tokens;
    page["threads"] = settings.threads;
    page["step_seconds"] = speed.seconds;
    page["cpu_seconds"] = speed.cpu_seconds;
    page["tokens_per_second"] = rate;
    page["peak_bytes"] = peak_memory();
    page["parts"] = parts;
    print_out("{}\n", page.dump());
    return exit_code::done;
  }
  constexpr double kMiB = 1024.0 * 1024.0;
  print_out("{} parameters, {} x {} tokens, {} thread{}\n", speed.parameters, settings.rows,
            settings.tokens, settings.threads, settings.threads == 1 ? "" : "s");
  print_out("step      {:9.1f} ms (median of {}; fastest {:.1f}, slowest {:.1f})\n", 1e3 * step,
            sorted.size(), 1e3 * sorted.front(), 1e3 * sorted.back());
  print_out("CPU time  {:9.1f} ms (median)\n", 1e3 * cpu);
  print_out("tokens/s  {:9.0f}\n", rate);
  print_out("memory    {:9.0f} MiB at its peak\n", static_cast<double>(peak_memory()) / kMiB);
  for (const auto& [name, share] : parts.items()) {
    const auto part = share.get<double>();
    print_out("  {:12} {:6.1f} ms {:5.1f} %\n", name,
              1e3 * part * all / static_cast<double>(sorted.size()), 100 * part);
  }
  return exit_code::done;
}

}  // namespace phasor::tools
