// phasor diagnose: finds the rotation between two tensors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "commands.hpp"
#include "diagnose_runs.hpp"
#include "diagnose_weights.hpp"
#include "output.hpp"
#include "phasor/config/config.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/porting/diagnose.hpp"
#include "progress.hpp"
#include "spec.hpp"

namespace phasor::tools {
namespace {

struct DiagnoseOptions {
  SpecOptions spec;
  std::string before, after, positions, weights, role;
  std::vector<std::string> axes;
  bool runs = false, json = false;
};

io::NpyArray as_array(const core::Positions& positions) {
  io::NpyArray array = io::make_npy(io::NpyType::f64, positions.shape());
  if (array.bytes.empty()) return array;
  auto* to = array.as<double>();
  for (int axis = 0; axis < positions.axes; ++axis) {
    for (std::int64_t row = 0; row < std::max<std::int64_t>(positions.batch, 1); ++row) {
      for (std::int64_t token = 0; token < positions.tokens; ++token)
        *to++ = positions.at(axis, row, token);
    }
  }
  return array;
}

// No more digits than the tensors' type can carry.
std::string number_text(double value, double rounding = 0.0) {
  if (value == 0.0 || !std::isfinite(value) || rounding <= 0.0)
    return fmt::format("{:.10g}", value);
  const int count = std::clamp(static_cast<int>(-std::log10(rounding)) + 1, 3, 10);
  const double step = std::pow(10.0, std::floor(std::log10(std::abs(value))) - count + 1);
  return fmt::format("{:.10g}", std::round(value / step) * step);
}

std::string scaling_text(const porting::FoundScaling& scaling, double rounding) {
  std::string text = scaling.type;
  for (const auto& [name, value] : scaling.numbers) {
    text += name == "truncate" ? fmt::format(", truncate {}", value != 0.0)
                               : fmt::format(", {} {}", name, number_text(value, rounding));
  }
  return text;
}

std::string list_text(const std::vector<double>& values) {
  constexpr std::size_t kShown = 4;
  if (values.size() <= 2 * kShown) return fmt::format("{:.6g}", fmt::join(values, ", "));
  return fmt::format("{:.6g}, ..., {:.6g}",
                     fmt::join(values.begin(), values.begin() + kShown, ", "),
                     fmt::join(values.end() - 2, values.end(), ", "));
}

void print_rotation(const porting::Diagnosis& found) {
  print_out("rotary: {} layout, rotary_dim {} of {}{}, base {}, scaling {}\n",
            found.layout.value_or("unknown"),
            found.rotary_dim ? fmt::to_string(*found.rotary_dim) : "unknown", found.head_dim,
            found.rotary_offset == 0 ? "" : fmt::format(" from feature {}", found.rotary_offset),
            found.base ? number_text(*found.base, found.rounding_floor) : "unknown",
            found.scaling ? scaling_text(*found.scaling, found.rounding_floor) : "unknown");
  print_out("direction    {}\n", !found.inverse   ? "unknown"
                                 : *found.inverse ? "inverse"
                                                  : "forward");
  if (found.amplitude) print_out("amplitude    {:.7g}\n", *found.amplitude);
  print_out("positions    {}{}\n", found.positions,
            found.offset ? fmt::format(", starting at {}", *found.offset) : "");
  print_out("table        {}\n", found.table_dtype.value_or("unknown"));
  print_out("tensors      {}{}\n", found.tensor_dtype,
            found.arithmetic ? fmt::format(", arithmetic in {}", *found.arithmetic) : "");
  if (found.effective_base && found.base != found.effective_base) {
    print_out("frequencies  a power law of base {}\n",
              number_text(*found.effective_base, found.rounding_floor));
  }
  if (!found.frequencies.empty()) {
    print_out("frequencies  {}\n", list_text(found.frequencies));
  }
  if (found.scaling && !found.scaling->factors.empty()) {
    print_out("factors      {}\n", list_text(found.scaling->factors));
  }
}

void print_verdict(const porting::ConfigCheck& check) {
  if (check.agrees) {
    print_out("as the config says\n");
    return;
  }
  print_out("DIFFERS: {}\n", check.text);
  for (const porting::FoundCause& other : check.alternatives)
    print_out("or:      {}\n", other.text);
  for (const porting::ConfigDifference& difference : check.differences) {
    if (difference.text != check.text) print_out("         {}\n", difference.text);
  }
}

void print_text(const porting::Diagnosis& found, const porting::ConfigCheck* check) {
  if (check != nullptr) {
    print_verdict(*check);
    print_out("\n");
  }
  if (found.answer == porting::Answer::none) {
    // A named cause says more than "no rotary embedding".
    if (check == nullptr || !check->cause) print_out("no rotary embedding: {}\n", found.reason);
  } else {
    print_rotation(found);
  }
  if (found.residual && found.answer == porting::Answer::rope) {
    print_out("residual     {:.3g} of the tensor's size (rounding alone leaves about {:.2g})\n",
              *found.residual, found.rounding_floor);
  }
  if (found.runner_up && check == nullptr) {
    print_out("{}{} leaves {:.3g}\n",
              found.answer == porting::Answer::rope ? "runner-up    " : "nearest      ",
              found.runner_up->what, found.runner_up->residual);
  }
  for (const porting::Undetermined& open : found.undetermined) {
    print_out("cannot tell  {}: {}\n", open.field, open.reason);
  }
  for (const porting::Reading& reading : found.readings) {
    print_out("or           {}\n", reading.text);
  }
  for (const std::string& note : found.notes) print_out("note         {}\n", note);
}

int run_diagnose(const DiagnoseOptions& options) {
  if (!options.weights.empty()) {
    if (!options.before.empty()) {
      refuse("--weights cannot be combined with BEFORE");
    }
    return run_diagnose_weights(options.weights,
                                options.json ? WeightsPage::json : WeightsPage::text);
  }
  if (options.before.empty() || options.after.empty()) {
    refuse("BEFORE and AFTER are required (or --weights)");
  }
  if (options.runs) {
    return run_diagnose_runs(options.before, options.after, options.spec,
                             options.json ? RunsPage::json : RunsPage::text);
  }
  const io::NpyArray before = read_array(options.before);
  const io::NpyArray after = read_array(options.after);
  std::optional<io::NpyArray> positions;
  if (!options.positions.empty()) {
    const core::Positions given = parse_positions(options.positions);
    if (given.tokens > before.size()) {
      refuse(ErrorCode::shape_mismatch,
             message("--positions must be one per token, got ", given.tokens,
                     " for BEFORE of the shape ", core::shape_text(before.shape)));
    }
    positions = as_array(given);
  }
  Progress progress;
  const porting::DiagnoseInput input{&before, &after, positions ? &*positions : nullptr,
                                     options.axes,
                                     [&](double share) { progress.move(share, 1.0); }};
  porting::Diagnosis found;
  std::optional<porting::ConfigCheck> check;
  if (!has_spec(options.spec)) {
    found = porting::diagnose(input);
  } else {
    const auto [spec, model] = read_model_spec(options.spec);
    porting::CheckOptions how{options.spec.context, model.heads, model.key_heads, std::nullopt};
    if (!options.role.empty()) {
      how.role = options.role == "query" ? core::Role::query : core::Role::key;
    }
    porting::ConfigDiagnosis both = porting::diagnose(input, spec, how);
    found = std::move(both.found);
    check = std::move(both.check);
  }
  progress.clear();
  if (options.json) {
    print_out("{}\n", porting::diagnose_json(found, check ? &*check : nullptr));
  } else {
    print_text(found, check ? &*check : nullptr);
  }
  return check && !check->agrees ? exit_code::difference : exit_code::done;
}

}  // namespace

void add_diagnose(CommandLine& line) {
  auto options = std::make_shared<DiagnoseOptions>();
  Verb& verb = line.verb("diagnose",
                         "find the rotation between two tensors: layout, base, scaling, positions");
  verb.argument("before", &options->before, "the tensor before the rotation, a .npy file");
  verb.argument("after", &options->after, "the tensor after it");
  verb.flag("--positions", &options->positions,
            "A:B or a .npy file (default: consecutive, from an unknown offset)");
  verb.flag("--axes", &options->axes,
            "name of each axis, such as batch,tokens,heads,dim (default: inferred)")
      .separated_by(',')
      .free_text();
  add_spec_options(verb, options->spec);
  verb.flag("--role", &options->role, "query or key, for xPos (default: either)")
      .one_of({"query", "key"});
  verb.flag(
      "--weights", &options->weights,
      "a checkpoint: infer from its q and k weights whether its layout is interleaved or half");
  verb.flag("--runs", &options->runs,
            "BEFORE and AFTER are two engines' dumps: find the first tensor that differs")
      .excludes("--weights")
      .excludes("--positions")
      .excludes("--axes");
  verb.flag("--json", &options->json, "print the result as one JSON object");
  verb.footer =
      R"(Finds the rotation that maps BEFORE to AFTER: layout, rotary_dim, base, scaling with its
parameters, offset or positions, direction, amplitude and the precision of the table; or
reports that there is none, and why.

With --config it applies the config to BEFORE and compares the result with AFTER within
rounding. If they differ it names the mistake (a sign, a layout, a table, an exponent, a
scaling, positions, heads, a precision) with the values in the config and in the data, and
exits with 1.

With --runs it compares two dumps (.safetensors, .npz, .pt, or folders of these or .npy)
tensor by tensor in the order of layers, names the first that differs by more than
rounding, and says why: another order of features or axes, a factor, shifted tokens; for q
and k after the rotation (q_before and q_after, q_pre_rope and q_rope, q and q_rot) which
of the two engines does not rotate as the config says. Exits with 1 if they differ.

Shape    BEFORE and AFTER [batch, tokens, heads, head_dim] or [tokens, heads, head_dim],
         leading axes in any order; float16, float32, float64, bfloat16 (or its bits as
         uint16)
         P.npy [tokens] or [batch, tokens]; M-RoPE and images [axes, tokens] or
         [axes, batch, tokens]

)" + std::string(kArrayFiles) +
      R"(

Example  phasor diagnose q_before.npy q_after.npy --positions 0:24 --config model
         phasor diagnose --weights model
         phasor diagnose --runs torch.pt mine.npz --config model)";
  verb.action = [options] { return run_diagnose(*options); };
}

}  // namespace phasor::tools
