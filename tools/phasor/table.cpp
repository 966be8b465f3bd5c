// phasor table: the cos/sin table of a config.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "spec.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

struct TableOptions {
  SpecOptions spec;
  std::string positions, angles = "exact", output;
  bool json = false;
};

// Before any of it is allocated: most systems grant memory that they do not have.
void require_room(std::int64_t positions, std::int64_t pairs) {
  const double needed =
      2.0 * sizeof(float) * static_cast<double>(positions) * static_cast<double>(pairs);
  const double room =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed <= room) return;
  refuse(ErrorCode::out_of_range,
         fmt::format("--positions: a table of {} positions and {} pairs needs {}, this machine "
                     "has {} of memory; write several tables of fewer positions",
                     positions, pairs, size_text(needed), size_text(room)));
}

int run_table(const TableOptions& options) {
  const encodings::RopeSpec spec = read_spec(options.spec);
  const core::Positions given = parse_positions(options.positions);
  const std::int64_t count = given.tokens;
  const core::Positions positions = fit_positions(spec, given, std::nullopt, count);
  const std::optional<std::int64_t> context = context_for(spec, options.spec, positions, "table");
  const core::Frequencies frequencies = encodings::resolve_frequencies(spec, context);

  const std::int64_t pairs = frequencies.pairs();
  require_room(count, pairs);
  const auto width = static_cast<std::size_t>(pairs);
  io::NpyArray table = io::make_npy(io::NpyType::f32, {2, count, pairs});
  auto* const cos = table.as<float>();
  auto* const sin = cos + count * pairs;
  std::vector<double> per_axis(static_cast<std::size_t>(frequencies.axis_count()));
  for (std::int64_t row = 0; row < count; ++row) {
    positions.read_token(0, row, per_axis);
    core::cos_sin(frequencies, per_axis, std::span(cos + row * pairs, width),
                  std::span(sin + row * pairs, width), parse_angles(options.angles));
  }
  write_array(options.output, table);

  if (spec.xpos) {
    print_err(
        "phasor table: xPos also scales queries and keys; the table holds only cos and sin\n");
  }
  if (options.json) {
    io::Json answer;
    answer["shape"] = table.shape;
    answer["amplitude"] = frequencies.amplitude();
    answer["angles"] = options.angles;
    answer["context"] = context ? io::Json(*context) : io::Json(nullptr);
    print_out("{}\n", answer.dump());
  } else {
    print_out("table        float32 {}: cos, sin\namplitude    {}\n", core::shape_text(table.shape),
              frequencies.amplitude());
  }
  return exit_code::done;
}

}  // namespace

void add_table(CommandLine& line) {
  auto options = std::make_shared<TableOptions>();
  Verb& verb = line.verb("table", "write the cos/sin table of a config");
  add_spec_options(verb, options->spec);
  verb.flag("--positions", &options->positions,
            "A:B for A, A+1, ..., B-1 (write --positions=-4:4 for a negative A), or a .npy file")
      .value("A:B|FILE")
      .required();
  add_angles_option(verb, options->angles);
  verb.flag("-o,--output", &options->output, "write the table here").required();
  verb.flag("--json", &options->json, "print shape and amplitude as one JSON object");
  verb.footer =
      R"(Writes a cos/sin table for any engine. Every float32 value is the exact one, rounded once, at
any position, and multiplied by the amplitude.

Shape    T.npy is float32 [2, positions, pairs]: cos, then sin
         P.npy is [positions], or [axes, positions] for M-RoPE (3 or 4 axes) and images (2)

)" + std::string(kArrayFiles) +
      R"(

Example  phasor table --config model --positions 0:128k -o T.npy)";
  verb.action = [options] { return run_table(*options); };
}

}  // namespace phasor::tools
