// Every verb, and what `phasor help` says of all.
#include "commands.hpp"

namespace phasor::tools {

void add_every_verb(CommandLine& line) {
  line.name = "phasor";
  line.summary =
      "phasor: position encodings of transformers, rotary position embedding (RoPE) first.";
  line.version = "phasor " PHASOR_VERSION;
  line.footer =
      "`phasor help VERB` explains a verb: flags, shapes, an example.\n"
      "Exit codes: 0 done, 1 the check found a difference, 2 the request or the input is wrong.";
  line.sections = {
      {"Values",
       {{"128k, 1M, 1G",
         "Whole numbers may end in k (2^10), M (2^20) or G (2^30), also in lists (4k,8k) and "
         "ranges "
         "(0:128k)."},
        {"-", "Means stdin or stdout where a file is read or written."},
        {"CONFIG",
         "A config.json, a folder with one, a plain spec, a GGUF file, org/name, JSON itself, or - "
         "for JSON from stdin. --head-dim, --base, --rotary-dim, --layout and --scaling describe a "
         "rotation without a config."},
        {"org/name",
         "A model in the Hugging Face cache; org/name@REVISION is another revision, org/name/FILE "
         "one of its files. A path that exists is that path. Nothing is downloaded."}}},
      {"Environment",
       {{"HF_HUB_CACHE, HF_HOME",
         "The Hugging Face cache: HF_HUB_CACHE, else hub in HF_HOME, else "
         "~/.cache/huggingface/hub."},
        {"PHASOR_MODELS",
         "A folder with downloaded model files; before phasor in XDG_CACHE_HOME or ~/.cache."},
        {"PHASOR_CORPORA",
         "The folder of `./dev corpora`, for `lab run`; else corpora in the folders of "
         "PHASOR_MODELS."},
        {"PHASOR_MPI_PATIENCE",
         "Seconds that a rank of `mpirun -n P phasor` waits for another one before all stop; 60."},
        {"NO_COLOR", "Not needed: no colours are printed."}}},
  };
  add_demo(line);
  add_freqs(line);
  add_table(line);
  add_rotate(line);
  add_attend(line);
  add_explain(line);
  add_audit(line);
  add_diagnose(line);
  add_diff(line);
  add_plan(line);
  add_convert(line);
  add_fill(line);
  add_logits(line);
  add_eval(line);
  add_run(line);
  add_tokenize(line);
  add_inspect(line);
  add_lab(line);
  add_explore(line);
  add_conform(line);
  add_bench(line);
  add_about(line);
}

}  // namespace phasor::tools
