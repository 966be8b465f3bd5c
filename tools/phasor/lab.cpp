// phasor lab: trains models and compares position encodings.
#include "lab.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "commands.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/text/internal/trainer.hpp"
#include "ranks.hpp"
#include "text_files.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

constexpr std::string_view kSizes[] = {"quick", "full"};

int lab_list(const LabFlags& flags) {
  if (!flags.names.empty()) {
    refuse(message("list takes no names, got \"", flags.names.front(), "\""));
  }
  io::Json page = io::Json::array();
  for (const std::string_view name : lab::built_in_names()) {
    const lab::Experiment experiment = experiment_named(std::string(name));
    if (flags.json) {
      io::Json entry = io::Json::object();
      entry["name"] = experiment.name;
      entry["description"] = experiment.description;
      entry["paper"] = experiment.paper;
      entry["variants"] = experiment.variants();
      entry["time"] = io::Json::object();
      for (const std::string_view size : kSizes) entry["time"][size] = experiment.time_of(size);
      page.push_back(std::move(entry));
      continue;
    }
    print_out("{}\n", experiment.name);
    print_out("{}", in_lines("  ", experiment.description));
    const std::vector<std::string> names = experiment.variants();
    print_out("{}", in_lines("  variants  ", fmt::format("{}", fmt::join(names, ", "))));
    print_out("{}", in_lines("  paper     ", experiment.paper));
    for (const std::string_view size : kSizes) {
      print_out("{}", in_lines(fmt::format("  {:9} ", size), experiment.time_of(size)));
    }
    print_out("\n");
  }
  if (flags.json) {
    print_out("{}\n", page.dump());
  } else {
    print_out("Times are estimates for one core. `phasor lab run NAME --out DIR` runs one.\n");
  }
  return exit_code::done;
}

int lab_tokenizer(const LabFlags& flags) {
  if (flags.names.empty()) refuse("tokenizer needs at least one text file");
  if (flags.out.empty()) refuse("tokenizer needs --out DIR");
  constexpr std::string_view kKinds[] = {"bytes", "bpe", "wordpiece"};
  const auto kind = std::find(std::begin(kKinds), std::end(kKinds), flags.kind);
  std::vector<std::string> texts;
  for (const std::string& name : flags.names) {
    constexpr std::size_t kLimit = std::size_t{1} << 30;
    texts.push_back(io::read_text(name, kLimit).value_or_throw());
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  text::TrainerSettings settings;
  settings.kind = static_cast<text::TokenizerKind>(kind - std::begin(kKinds));
  settings.vocabulary = flags.vocabulary;
  for (const auto& [flag, given, kinds] :
       {std::tuple{"--min-frequency", flags.min_frequency.has_value(), "bpe or wordpiece"},
        {"--min-character-frequency", flags.min_character_frequency.has_value(), "wordpiece"},
        {"--lowercase", flags.lowercase, "wordpiece"}}) {
    if (given && std::string_view(kinds).find(flags.kind) == std::string_view::npos) {
      refuse(message(flag, " requires --kind ", kinds, ", got ", flags.kind));
    }
  }
  if (flags.min_frequency) settings.min_frequency = *flags.min_frequency;
  if (flags.min_character_frequency) {
    settings.min_character_frequency = *flags.min_character_frequency;
  }
  if (flags.lowercase) settings.letters = text::LetterCase::lower;
  const text::TrainedTokenizer trained = text::train_tokenizer(settings, views);
  static_cast<void>(text::save_tokenizer(trained, flags.out).value_or_throw());
  if (flags.json) {
    io::Json page = io::Json::object();
    page["kind"] = flags.kind;
    page["vocabulary"] = trained.tokens.size();
    page["merges"] = trained.merges.size();
    print_out("{}\n", page.dump());
  } else {
    print_out("{}: {} tokens, {} merges -> {}\n", flags.kind, trained.tokens.size(),
              trained.merges.size(), flags.out);
  }
  return exit_code::done;
}

int lab_action(LabFlags flags) {
  for (const std::int64_t seed : flags.seed_list) {
    if (seed < 0) refuse(message("--seeds must be at least 0, got ", seed));
    flags.seeds.push_back(static_cast<std::uint64_t>(seed));
  }
  if (ranks() != nullptr && flags.action != "run") {
    refuse(ErrorCode::unsupported, message(flags.action, " runs on one rank, got ", ranks()->size(),
                                           ": start it without mpirun"));
  }
  if (flags.action == "list") return lab_list(flags);
  if (flags.action == "tokenizer") return lab_tokenizer(flags);
  if (flags.action == "report") return lab_report(flags);
  if (flags.action == "speed") return lab_speed(flags);
  return lab_run(flags);
}

}  // namespace

lab::Experiment experiment_named(const std::string& name) {
  if (const auto text = lab::built_in_experiment(name)) return lab::parse_experiment(*text);
  std::error_code ignored;
  if (name != "-" && !std::filesystem::exists(name, ignored)) {
    const auto names = lab::built_in_names();
    refuse(message("no experiment and no file is called \"", name, "\"",
                   core::did_you_mean(name, names), "; `phasor lab list` shows all"));
  }
  const std::string text = read_text_or_stdin(name);
  try {
    return lab::parse_experiment(text);
  } catch (const Error& error) {
    throw io::in_file(name, error);
  }
}

void add_lab(CommandLine& line) {
  auto flags = std::make_shared<LabFlags>();
  Verb& verb = line.verb("lab", "train small models and compare their position encodings");
  verb.runs_on_ranks = true;
  verb.argument("action", &flags->action, "what to do")
      .one_of({"run", "list", "report", "tokenizer", "speed"})
      .required();
  verb.argument("names", &flags->names,
                "run: an experiment, by name or as a JSON file; report: folders of runs; "
                "tokenizer: text files; speed: a model as a JSON file")
      .value("NAME");
  verb.flag("-o,--out", &flags->out,
            "run: the folder of the runs; report: of the page (default: the first DIR); tokenizer: "
            "of "
            "its files")
      .folder();
  verb.flag("--size", &flags->size, "run: how much is trained (default quick)").free_text();
  verb.flag("--seeds", &flags->seed_list, "run: seeds instead of the experiment's: 1,2,3")
      .separated_by(',');
  verb.flag("--variants", &flags->variants, "run: only these variants: rope,t5")
      .separated_by(',')
      .free_text();
  verb.flag("--set", &flags->assignments,
            "run: change a setting, training.steps=400; speed: of the model, encoding=t5; may be "
            "given several times")
      .value("KEY=VALUE")
      .free_text();
  verb.flag(
          "--data", &flags->data,
          "run: the folder with corpora (default: PHASOR_CORPORA, else where `./dev corpora` puts "
          "them)")
      .folder();
  verb.flag("--threads", &flags->threads,
            "run: threads of one run (default: all, shared by the jobs or the ranks of a machine); "
            "speed: threads")
      .at_least(0);
  verb.flag("--jobs", &flags->jobs, "run: runs at the same time").within(1, 1024).show_default();
  verb.flag("--kind", &flags->kind, "tokenizer: what it is made of")
      .one_of({"bpe", "wordpiece", "bytes"})
      .show_default();
  verb.flag("--vocabulary", &flags->vocabulary, "tokenizer: tokens, special ones included")
      .at_least(1)
      .show_default();
  verb.flag("--min-frequency", &flags->min_frequency,
            "tokenizer: a pair that occurs less often is not merged (default 2)")
      .at_least(1);
  verb.flag("--min-character-frequency", &flags->min_character_frequency,
            "tokenizer: a character that occurs less often has no token (wordpiece; default 1)")
      .at_least(1);
  verb.flag("--lowercase", &flags->lowercase, "tokenizer: lower case, without accents (wordpiece)");
  verb.flag("--rows", &flags->speed.rows, "speed: rows of a batch").at_least(1).show_default();
  verb.flag("--tokens", &flags->speed.tokens, "speed: tokens of a row").at_least(1).show_default();
  verb.flag("--steps", &flags->speed.steps, "speed: steps that are timed, after one that is not")
      .at_least(1)
      .show_default();
  verb.flag("--json", &flags->json, "print the answer as JSON");
  verb.footer =
      R"(run        trains every variant with every seed, each in DIR/VARIANT-sSEED: experiment.json (all
           settings), run.json (version, data, sizes), log.csv (curves), checkpoints, model/
           (the trained network), result.json. The same command goes on after a stop, to the
           same numbers; finished runs are skipped. `mpirun -n P phasor lab run` divides the rows
           of each batch over P ranks; a run may go on with another number of ranks.
list       the experiments that come with Phasor: what the paper found, how long they take
report     report.md with tables (mean and standard deviation over seeds) and CSV files; curves as
           SVG and PNG if the Python package is installed
tokenizer  makes tokenizer.json from texts
speed      times steps of training on random tokens: tokens/s, peak memory, the share of each part.
           Without a model: a decoder of 4 layers, 256 wide, 4 heads, RoPE

A model with RoPE and softmax attention is a Hugging Face checkpoint (roformer or llama):
`phasor run`, `fill`, `eval` and `logits` open it. `phasor logits` opens all others.

Example  phasor lab run mlm-convergence --out runs/mlm --variants rope,learned --jobs 2
         phasor lab run extrapolation --size full --set training.steps=400 --out runs/length
         phasor lab report runs/mlm runs/length -o report
         phasor lab speed --threads 1 --set encoding=t5)";
  verb.action = [flags] { return lab_action(*flags); };
}

}  // namespace phasor::tools
