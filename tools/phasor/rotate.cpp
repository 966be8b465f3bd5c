// phasor rotate: rotates queries or keys by the angles of their positions.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "arrays.hpp"
#include "commands.hpp"
#include "heads_file.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "spec.hpp"

namespace phasor::tools {
namespace {

struct CommandOptions {
  SpecOptions spec;
  std::string input, output, positions, role, angles = "exact", isa = "best";
  std::optional<std::int64_t> offset;
  bool inverse = false, transpose = false, json = false;
  int threads = 0;
};

core::InstructionSet parse_instruction_set(std::string_view name) {
  if (name == core::name_of(core::InstructionSet::best)) return core::InstructionSet::best;
  std::string known(core::name_of(core::InstructionSet::best));
  for (const core::InstructionSet isa : core::available_instruction_sets()) {
    if (name == core::name_of(isa)) return isa;
    known += ", ";
    known += core::name_of(isa);
  }
  refuse(ErrorCode::unsupported,
         message("--isa must be supported by this machine (", known, "), got '", name, "'"));
}

core::Role role_of(const CommandOptions& options, const encodings::RopeSpec& spec) {
  if (spec.xpos && options.role.empty()) {
    print_err(
        "phasor rotate: xPos scales queries and keys differently; treating X as queries, use "
        "--role key for keys\n");
  }
  return options.role == "key" ? core::Role::key : core::Role::query;
}

int run_rotate(const CommandOptions& options) {
  core::RotateOptions how;
  how.direction = options.inverse     ? core::Direction::inverse
                  : options.transpose ? core::Direction::transpose
                                      : core::Direction::forward;
  how.angles = parse_angles(options.angles);
  how.threads = options.threads;
  how.isa = parse_instruction_set(options.isa);

  const encodings::RopeSpec spec = read_spec(options.spec);
  if (!spec.layout) refuse("the config does not state the layout; give --layout interleaved|half");
  const HeadsFile heads(options.input, "the input");
  const core::Positions positions =
      fit_positions(spec,
                    options.positions.empty()
                        ? core::positions_counted(options.offset.value_or(0), heads.view.tokens)
                        : parse_positions(options.positions),
                    heads.batch(), heads.view.tokens);
  const std::optional<std::int64_t> context = context_for(spec, options.spec, positions, "rotate");
  const core::Rotary rotary = encodings::resolve(spec, context);
  const core::Rotation rotation{heads.view, heads.view, role_of(options, spec)};
  core::rotate(rotary, positions, std::span(&rotation, 1), how);
  write_array(options.output, heads.array);

  if (options.json) {
    io::Json answer;
    answer["shape"] = heads.array.shape;
    answer["dtype"] = io::name_of(heads.array.type);
    answer["layout"] = core::name_of(rotary.layout);
    answer["rotary_dim"] = rotary.rotary_dim();
    answer["amplitude"] = rotary.frequencies.amplitude();
    answer["context"] = context ? io::Json(*context) : io::Json(nullptr);
    answer["isa"] = core::name_of(core::resolve_instruction_set(how.isa));
    print_out("{}\n", answer.dump());
  }
  return exit_code::done;
}

}  // namespace

void add_rotate(CommandLine& line) {
  auto options = std::make_shared<CommandOptions>();
  Verb& verb = line.verb("rotate", "rotate queries or keys by the angles of their positions");
  add_spec_options(verb, options->spec);
  verb.flag("-i,--input", &options->input, "queries or keys, a .npy file").required();
  verb.flag("-o,--output", &options->output, "write the result here; may be the input").required();
  verb.flag("--positions", &options->positions,
            "a .npy file, or A:B for A, A+1, ..., B-1 (default 0, 1, 2, ...)")
      .value("A:B|FILE");
  verb.flag("--offset", &options->offset, "token t is at position N + t").excludes("--positions");
  verb.flag("--inverse", &options->inverse, "undo the rotation, including the amplitude");
  verb.flag("--transpose", &options->transpose,
            "the backward pass: multiply by the transpose, amplitude included")
      .excludes("--inverse");
  verb.flag("--role", &options->role, "query (default) or key; matters only for xPos")
      .one_of({"query", "key"});
  add_angles_option(verb, options->angles);
  verb.flag("--threads", &options->threads, "use at most N threads; 0: choose automatically")
      .at_least(0);
  verb.flag("--isa", &options->isa, "instruction set: best (default), x86-64-v2, ...").free_text();
  verb.flag("--json", &options->json, "print a summary as one JSON object");
  verb.footer = R"(Shapes   X [batch, tokens, heads, head_dim] or [tokens, heads, head_dim];
         float16, float32, float64 or bfloat16 (stored as '|V2'); Y is the same
         P [tokens], [batch, tokens] or [axes, batch, tokens] (M-RoPE: 3 or 4 axes, images: 2);
         for X without batch also [axes, tokens]; integers or floats

Y is replaced only after success.

)" + std::string(kArrayFiles) +
                R"(

Example  phasor rotate --config model -i Q.npy -o Q_rotated.npy --offset 1024
         phasor rotate --head-dim 128 --layout half -i Q.npy -o Q_rotated.npy)";
  verb.action = [options] { return run_rotate(*options); };
}

}  // namespace phasor::tools
