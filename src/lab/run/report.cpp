#include "phasor/lab/internal/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>

#include "lab/run/run_log.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/lab/internal/experiment.hpp"

namespace phasor::lab {
namespace {

namespace fs = std::filesystem;
using io::Json;

[[nodiscard]] std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

[[nodiscard]] std::optional<double> number_at(const Json& object, std::string_view key) {
  if (!object.contains(key) || !object[key].is_number()) return std::nullopt;
  return object[key].get<double>();
}

// "3.214 +- 0.012", "3.214" of one run, "-" of none.
[[nodiscard]] std::string spread_text(std::span<const double> values, int digits) {
  if (values.empty()) return "-";
  const Spread spread = spread_of(values);
  std::string text = fixed(spread.mean, digits);
  if (spread.count > 1) text += " \u00b1 " + fixed(spread.deviation, digits);
  return text;
}

[[nodiscard]] FinishedRun read_run(const fs::path& folder) {
  FinishedRun run;
  run.folder = folder;
  const fs::path path = folder / "result.json";
  try {
    run.result = io::parse_object(io::read_text(path).value_or_throw());
    const config::ObjectReader reader(run.result);
    run.experiment = reader.text("experiment").value_or("");
    run.variant = reader.text("variant").value_or("");
    run.seed = static_cast<std::uint64_t>(reader.required_integer("seed"));
    run.settings = io::parse_object(io::read_text(folder / "experiment.json").value_or_throw());
    run.settings.erase("seed");
    std::error_code ignored;
    if (fs::exists(folder / "bleu.json", ignored)) {
      const Json bleu = io::parse_object(io::read_text(folder / "bleu.json").value_or_throw());
      for (const std::string_view key : {"bleu", "chrf"}) {
        if (const auto value = number_at(bleu, key)) run.result[key] = *value;
      }
    }
  } catch (const Error& error) {
    throw io::in_file(path.string(), error);
  }
  return run;
}

// Values of one variant, in the order of first appearance.
struct Group {
  std::string variant;
  std::vector<const FinishedRun*> runs;

  [[nodiscard]] std::vector<double> values(std::string_view key, double factor = 1.0) const {
    std::vector<double> list;
    for (const FinishedRun* run : runs) {
      if (const auto value = number_at(run->result, key)) list.push_back(*value * factor);
    }
    return list;
  }
};

[[nodiscard]] std::vector<Group> groups_of(std::span<const FinishedRun> runs,
                                           std::string_view experiment) {
  std::vector<Group> groups;
  for (const FinishedRun& run : runs) {
    if (run.experiment != experiment) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.variant == run.variant;
    });
    if (same == groups.end()) {
      groups.push_back({run.variant, {&run}});
    } else {
      same->runs.push_back(&run);
    }
  }
  for (const Group& group : groups) {
    for (const FinishedRun* run : group.runs) {
      const FinishedRun& first = *group.runs.front();
      const std::string difference = difference_of(first.settings, run->settings);
      if (difference.empty()) continue;
      refuse(message("report: ", first.folder.string(), " and ", run->folder.string(),
                     " have other settings and no common mean: ", difference));
    }
  }
  // The order of the experiment, if it is a known one.
  if (const auto text = built_in_experiment(experiment)) {
    const std::vector<std::string> order = parse_experiment(*text).variants();
    const auto place = [&](const Group& group) {
      return std::find(order.begin(), order.end(), group.variant) - order.begin();
    };
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const Group& a, const Group& b) { return place(a) < place(b); });
  }
  return groups;
}

void add_results(std::span<const Group> groups, std::string& page) {
  struct Column {
    std::string_view title, key;
    int digits;
    double factor;
  };
  constexpr Column kColumns[] = {{"parameters", "parameters", 0, 1.0},
                                 {"steps", "steps", 0, 1.0},
                                 {"validation loss (nats)", "validation_loss", 4, 1.0},
                                 {"test loss (nats)", "test_loss", 4, 1.0},
                                 {"test accuracy (%)", "test_accuracy", 2, 100.0},
                                 {"BLEU", "bleu", 2, 1.0},
                                 {"chrF", "chrf", 2, 1.0},
                                 {"seconds a run", "seconds", 0, 1.0}};
  std::vector<Column> shown;
  for (const Column& column : kColumns) {
    if (std::any_of(groups.begin(), groups.end(),
                    [&](const Group& group) { return !group.values(column.key).empty(); })) {
      shown.push_back(column);
    }
  }
  page += "| variant | seeds |";
  for (const Column& column : shown) page += message(" ", column.title, " |");
  page += "\n|---|--:|";
  for (std::size_t i = 0; i < shown.size(); ++i) page += "--:|";
  page += '\n';
  for (const Group& group : groups) {
    page += message("| ", group.variant, " | ", group.runs.size(), " |");
    for (const Column& column : shown) {
      const std::vector<double> values = group.values(column.key, column.factor);
      const bool is_count = column.digits == 0;
      page += message(" ",
                      is_count && !values.empty() ? fixed(spread_of(values).mean, 0)
                                                  : spread_text(values, column.digits),
                      " |");
    }
    page += '\n';
  }
  page += '\n';
}

// {label: {context: values}}; the label is the variant, with its scaling if that is not its own.
using ByContext = std::map<std::int64_t, std::vector<double>>;
[[nodiscard]] std::vector<std::pair<std::string, ByContext>> contexts_of(
    std::span<const Group> groups, std::string_view key) {
  std::vector<std::pair<std::string, ByContext>> lines;
  for (const Group& group : groups) {
    for (const FinishedRun* run : group.runs) {
      if (!run->result.contains("contexts")) continue;
      for (const Json& cell : run->result["contexts"]) {
        const std::string scaling = cell["scaling"].text();
        const std::string label =
            scaling == "none" ? group.variant : group.variant + " + " + scaling;
        auto line = std::find_if(lines.begin(), lines.end(),
                                 [&](const auto& entry) { return entry.first == label; });
        if (line == lines.end()) line = lines.insert(lines.end(), {label, {}});
        std::vector<double>& values = line->second[cell["context"].get<std::int64_t>()];
        if (const auto value = number_at(cell, key)) values.push_back(*value);
      }
    }
  }
  return lines;
}

void add_contexts(std::span<const Group> groups, std::string& page) {
  for (const auto& [key, title] :
       {std::pair{"nats", "Loss by length of the rows (nats per token)"},
        {"last_quarter_nats", "The same, of the last quarter of each row"}}) {
    const auto lines = contexts_of(groups, key);
    if (lines.empty()) return;
    page += message("### ", title, "\n\n| encoding |");
    for (const auto& [context, values] : lines.front().second) page += message(" ", context, " |");
    page += "\n|---|";
    for (std::size_t i = 0; i < lines.front().second.size(); ++i) page += "--:|";
    page += '\n';
    for (const auto& [label, cells] : lines) {
      page += "| " + label + " |";
      for (const auto& [context, values] : cells) page += " " + spread_text(values, 3) + " |";
      page += '\n';
    }
    page += '\n';
  }
}

// Rows "experiment,variant,step,loss,seed" of the validation losses in the runs' logs.
[[nodiscard]] std::string curves_of(std::span<const Group> groups) {
  std::string csv = "experiment,encoding,step,loss,seed\n";
  for (const Group& group : groups) {
    for (const FinishedRun* run : group.runs) {
      for (const auto& [step, loss] :
           read_validation_curve(run->folder / "log.csv").value_or_throw()) {
        if (step == 0) continue;  // the loss of a guess, which would flatten all curves
        csv += message(run->experiment, ",", run->variant, ",", step, ",", log_number(loss), ",",
                       run->seed, "\n");
      }
    }
  }
  return csv;
}

[[nodiscard]] std::string contexts_csv(std::span<const Group> groups) {
  std::string csv = "experiment,encoding,context,loss,seed\n";
  bool any = false;
  for (const Group& group : groups) {
    for (const FinishedRun* run : group.runs) {
      if (!run->result.contains("contexts")) continue;
      for (const Json& cell : run->result["contexts"]) {
        const auto nats = number_at(cell, "nats");
        if (!nats) continue;
        any = true;
        const std::string scaling = cell["scaling"].text();
        csv += message(run->experiment, ",", run->variant, scaling == "none" ? "" : " + " + scaling,
                       ",", cell["context"].get<std::int64_t>(), ",", log_number(*nats), ",",
                       run->seed, "\n");
      }
    }
  }
  return any ? csv : std::string();
}

[[nodiscard]] std::string results_csv(std::span<const FinishedRun> runs) {
  constexpr std::string_view kKeys[] = {
      "parameters",    "steps", "tokens", "validation_loss", "validation_accuracy", "test_loss",
      "test_accuracy", "bleu",  "chrf",   "seconds"};
  std::string csv = "experiment,variant,seed";
  for (const std::string_view key : kKeys) csv += message(",", key);
  csv += '\n';
  for (const FinishedRun& run : runs) {
    csv += message(run.experiment, ",", run.variant, ",", run.seed);
    for (const std::string_view key : kKeys) {
      const auto value = number_at(run.result, key);
      csv += "," + (value ? log_number(*value) : std::string());
    }
    csv += '\n';
  }
  return csv;
}

}  // namespace

Spread spread_of(std::span<const double> values) {
  Spread spread;
  spread.count = values.size();
  if (values.empty()) return spread;
  for (const double value : values) spread.mean += value;
  spread.mean /= static_cast<double>(values.size());
  if (values.size() < 2) return spread;
  double sum = 0.0;
  for (const double value : values) sum += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(sum / static_cast<double>(values.size() - 1));
  return spread;
}

Result<std::vector<FinishedRun>> find_runs(const fs::path& folder) {
  const fs::path base = io::as_folder(folder);
  auto files = io::files_below(base);
  if (!files) return files.error();
  std::vector<FinishedRun> runs;
  try {
    for (const std::string& file : *files) {
      const fs::path path = base / file;
      // In its own run's folder, or shared by runs: a folder below the one of that name.
      const fs::path run = path.parent_path();
      if (path.filename() != "result.json" || run.filename() == "pretraining" ||
          run.parent_path().filename() == "pretraining") {
        continue;
      }
      runs.push_back(read_run(run));
    }
  } catch (const Error& error) {
    return error;
  }
  if (runs.empty()) {
    return Error(ErrorCode::invalid_argument,
                 message(base.string(), ": no finished run (result.json) at or below this folder"));
  }
  return runs;
}

std::vector<ReportFile> make_report(std::span<const FinishedRun> runs, Figures figures) {
  std::vector<ReportFile> files;
  std::vector<std::string> experiments;
  for (const FinishedRun& run : runs) {
    if (std::find(experiments.begin(), experiments.end(), run.experiment) == experiments.end()) {
      experiments.push_back(run.experiment);
    }
  }
  std::string page = "# Report of the lab\n\nMean \u00b1 standard deviation over seeds.\n\n";
  for (const std::string& experiment : experiments) {
    const std::vector<Group> groups = groups_of(runs, experiment);
    page += "## " + experiment + "\n\n";
    if (const auto text = built_in_experiment(experiment)) {
      const Experiment known = parse_experiment(*text);
      page += known.description + "\n\nThe paper: " + known.paper + "\n\n";
    }
    add_results(groups, page);
    const auto show = [&](std::string_view what, std::string_view caption) {
      if (figures == Figures::none) return;
      page += message("![", caption, "](", experiment, "-", what, ".svg)\n\n");
    };
    show("curves", "validation loss by step");
    files.push_back({experiment + "-curves.csv", curves_of(groups)});
    add_contexts(groups, page);
    if (std::string csv = contexts_csv(groups); !csv.empty()) {
      show("contexts", "loss by length of the rows");
      files.push_back({experiment + "-contexts.csv", std::move(csv)});
    }
  }
  files.push_back({"results.csv", results_csv(runs)});
  files.push_back({"report.md", std::move(page)});
  return files;
}

}  // namespace phasor::lab
