#include "diagnose_runs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "arrays.hpp"
#include "config_source.hpp"
#include "output.hpp"
#include "phasor/config/config.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/visible_text.hpp"
#include "phasor/io/internal/array_file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/porting/internal/runs.hpp"
#include "progress.hpp"

namespace phasor::tools {
namespace {

namespace fs = std::filesystem;

struct Run {
  std::vector<porting::RunTensor> tensors;
  porting::RunOrder order = porting::RunOrder::by_name;
  std::shared_ptr<const std::string> bytes;  // of stdin
};

// The arrays of a file; `prefix` is in front of their names.
void add_arrays(const io::ArrayFile& file, const std::string& prefix, Run& run) {
  const auto shared = std::make_shared<const io::ArrayFile>(file);
  for (std::size_t i = 0; i < file.entries().size(); ++i) {
    const std::string& name = file.entries()[i].name;
    if (const std::optional<Error>& problem = file.entries()[i].problem) {
      print_err("phasor diagnose: left out: {}\n", problem->what());
      continue;
    }
    const std::string joint = prefix.empty() || name.empty() ? "" : ".";
    run.tensors.push_back(
        {prefix + joint + name, [shared, i] { return shared->read(i).value_or_throw(); }});
  }
}

// layer_0/q.npy is layer_0.q, layer_0.pt with q in it too. Files of safetensors are parts of one
// checkpoint, so that their names stay as they are.
Run read_folder(const std::string& path) {
  Run run;
  for (const std::string& name : io::files_below(path).value_or_throw()) {
    const std::string ending = fs::path(name).extension().string();
    if (ending != ".npy" && ending != ".npz" && ending != ".pt" && ending != ".safetensors")
      continue;
    std::string prefix = name.substr(0, name.size() - ending.size());
    std::replace(prefix.begin(), prefix.end(), '/', '.');
    const io::ArrayFile file = io::ArrayFile::open(io::as_folder(path) / name).value_or_throw();
    add_arrays(file, ending == ".safetensors" ? "" : prefix, run);
  }
  if (run.tensors.empty())
    refuse(message(path, ": no .npy, .npz, .pt or .safetensors file in this folder"));
  return run;
}

Run read_run(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return read_folder(path);
  SelectedArrays selected = open_arrays(path);
  if (selected.name) refuse(message(path, ": --runs compares whole files, got a name"));
  Run run;
  run.bytes = std::move(selected.bytes);
  add_arrays(selected.file, "", run);
  const io::ArrayFormat format = selected.file.format();
  if (format == io::ArrayFormat::npz || format == io::ArrayFormat::torch)
    run.order = porting::RunOrder::as_listed;
  if (run.tensors.empty()) refuse(message(path, ": it holds no array"));
  return run;
}

// The rotation that each layer should have.
class ExpectedRotations {
 public:
  // --layer and flags of a rotation hold for every layer; a config alone says it for each.
  explicit ExpectedRotations(const SpecOptions& options) {
    if (options.config.empty() || !options.layer.empty() || options.rope.given()) {
      ModelSpec both = read_model_spec(options);
      of_all_ = std::move(both.spec);
      model_ = std::move(both.model);
    } else {
      model_ = read_model_config(options.config);
    }
  }

  [[nodiscard]] const config::ModelConfig& model() const { return model_; }
  // None if the layer does not rotate, or if a tensor without a layer could be of several.
  [[nodiscard]] std::optional<encodings::RopeSpec> of(std::optional<std::int64_t> layer) const {
    if (of_all_) return of_all_;
    for (const std::string& selector : {layer ? std::to_string(*layer) : "", std::string()}) {
      const Result<config::LayerGroup> group = config::select_layer(model_, selector);
      if (group) return group->rope;
    }
    return std::nullopt;
  }

 private:
  config::ModelConfig model_;
  std::optional<encodings::RopeSpec> of_all_;
};

std::string shown(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  const std::size_t count = std::min(names.size(), kShown);
  return fmt::format(
      "{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "),
      names.size() > kShown ? ", ..." : "");
}

std::string size_of(double difference) {
  return std::isfinite(difference) ? fmt::format("{:.3g} of its size", difference)
                                   : "not comparable";
}

std::string both_names(const porting::RunPart& part) {
  return part.name == part.other_name ? part.name
                                      : fmt::format("{} ({} in B)", part.name, part.other_name);
}

void print_first(const porting::RunsReport& report) {
  const porting::RunPart& part = report.parts[*report.first];
  print_out("FIRST DIFFERENCE: {}: {}", core::visible_text(both_names(part)),
            size_of(part.difference.difference));
  if (!part.difference.precision.empty()) {
    print_out(" (rounding of {} allows {:.2g})", part.difference.precision,
              part.difference.tolerance);
  }
  print_out("\n");
  if (!part.difference.text.empty()) print_out("  {}\n", part.difference.text);
  if (report.rotated_from.empty()) return;
  print_out("  rotated from {}, which is equal in both\n", core::visible_text(report.rotated_from));
  for (const auto& [run, rotation] :
       {std::pair{"A", &report.rotation_a}, std::pair{"B", &report.rotation_b}}) {
    if (*rotation) print_out("  {}: {}\n", run, (*rotation)->text);
  }
  // A cause that one of the two has says it already.
  const auto has_cause = [](const std::optional<porting::RunRotation>& rotation) {
    return rotation && rotation->check && !rotation->check->agrees;
  };
  if (!report.rotations.empty() && has_cause(report.rotation_a) == has_cause(report.rotation_b))
    print_out("  A and B differ: {}\n", report.rotations);
}

void print_later(const porting::RunsReport& report) {
  if (report.later == 0) return;
  print_out("later: {} of {} tensors differ", report.later_differing, report.later);
  if (report.next_jump) {
    const porting::RunPart& part = report.parts[*report.next_jump];
    print_out("; another cause at {}: {}{}{}\n", core::visible_text(both_names(part)),
              size_of(part.difference.difference), part.difference.text.empty() ? "" : ", ",
              part.difference.text);
  } else {
    print_out("{}\n", report.later_differing > 0 ? ", by growth of the first difference" : "");
  }
}

void print_text(const porting::RunsReport& report) {
  print_out("{} tensors in both, {} only in A, {} only in B\n", report.parts.size(),
            report.only_a.size(), report.only_b.size());
  if (!report.only_a.empty())
    print_out("only in A: {}\n", core::visible_text(shown(report.only_a)));
  if (!report.only_b.empty())
    print_out("only in B: {}\n", core::visible_text(shown(report.only_b)));
  const std::size_t equal = report.first.value_or(report.parts.size());
  if (equal > 0) {
    double largest = 0.0;
    for (std::size_t i = 0; i < equal; ++i)
      largest = std::max(largest, report.parts[i].difference.difference);
    print_out(
        "equal within rounding: {} tensor{} up to {}, largest difference {:.2g} of the size\n",
        equal, equal == 1 ? "" : "s", core::visible_text(report.parts[equal - 1].name), largest);
  }
  if (!report.both_differ.empty())
    print_out("note: both rotate alike, and not as the config says: {}\n", report.both_differ);
  if (!report.first) return;
  print_first(report);
  print_later(report);
}

}  // namespace

int run_diagnose_runs(const std::string& a, const std::string& b, const SpecOptions& spec,
                      RunsPage page) {
  const Run run_a = read_run(a), run_b = read_run(b);
  Progress progress;
  porting::RunsInput input{run_a.tensors, run_b.tensors, run_a.order, {}, {}, {}};
  input.progress = [&](std::size_t done, std::size_t all) {
    progress.move(static_cast<double>(done), static_cast<double>(all),
                  fmt::format("{} of {} tensors", done, all));
  };
  if (has_spec(spec)) {
    const auto expected = std::make_shared<const ExpectedRotations>(spec);
    input.check = {spec.context, expected->model().heads, expected->model().key_heads,
                   std::nullopt};
    input.spec = [expected](std::optional<std::int64_t> layer) { return expected->of(layer); };
  }
  const porting::RunsReport report = porting::compare_runs(input);
  progress.clear();
  if (page == RunsPage::json) {
    print_out("{}\n", porting::runs_json(report));
  } else {
    print_text(report);
  }
  return report.first ? exit_code::difference : exit_code::done;
}

}  // namespace phasor::tools
