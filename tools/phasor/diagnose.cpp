// phasor diagnose: finds the rotation between two tensors.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "commands.hpp"
#include "diagnose_runs.hpp"
#include "diagnose_weights.hpp"
#include "output.hpp"
#include "pages/diagnose.hpp"
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
    print_out("{}", diagnose_page(found, check ? &*check : nullptr));
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

With --weights it exits with 1 if the weights have another order than the config says, or
queries another one than keys.

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
