// phasor convert: q and k weights of a checkpoint from one pair layout to the other.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "commands.hpp"
#include "hub_cache.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/porting/convert.hpp"
#include "progress.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct ConvertFlags {
  std::string source, destination, to, from;
  bool json = false, sync = false;
};

volatile std::sig_atomic_t interrupted = 0;
extern "C" void on_interrupt(int) { interrupted = 1; }

// During a conversion, Ctrl-C stops it between two chunks with one error line.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    ::sigaction(SIGINT, &action, &before_int_);
    ::sigaction(SIGTERM, &action, &before_term_);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard() {
    ::sigaction(SIGINT, &before_int_, nullptr);
    ::sigaction(SIGTERM, &before_term_, nullptr);
  }

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
};

void print_text(const porting::ConvertResult& result, double seconds) {
  print_out("{}: {} -> {}\n", result.model_type, core::name_of(result.from),
            core::name_of(result.to));
  print_out("  {} tensors of {} layers permuted; all other bytes unchanged\n", result.tensors,
            result.layers);
  print_out("  {} files, {} in {}", result.files, size_text(static_cast<double>(result.bytes)),
            duration_text(seconds));
  if (seconds > 0.0) {
    print_out(" ({}/s)", size_text(static_cast<double>(result.bytes - result.resumed) / seconds));
  }
  if (result.resumed > 0) {
    print_out(", of which {} in an earlier run", size_text(static_cast<double>(result.resumed)));
  }
  print_out("\n  check: {} attention scores of {} layers agree to {:.2g} of the largest\n",
            result.proof.scores, result.proof.layers, result.proof.largest_difference);
  if (result.sidecar) {
    print_out("  {} records the layout; engines that do not read it would rotate the wrong pairs\n",
              result.sidecar->string());
  } else {
    print_out("  this is the family's own layout: no phasor_layout.json needed\n");
  }
}

int run_convert(const ConvertFlags& flags) {
  porting::ConvertOptions options;
  options.source = flags.source;
  options.destination = flags.destination;
  options.to = *core::pair_layout_of(flags.to);
  if (!flags.from.empty()) options.from = core::pair_layout_of(flags.from);
  if (flags.sync) options.finish = porting::ConvertOptions::Finish::on_disk;

  const Clock::time_point start = Clock::now();
  const InterruptGuard guard;
  Progress bar;
  bool begun = false;
  options.progress = [&](const porting::ConvertProgress& progress) {
    const auto done = static_cast<double>(progress.bytes), all = static_cast<double>(progress.all);
    if (!begun) bar.begin("", static_cast<double>(std::min(progress.bytes, progress.resumed)));
    begun = true;
    bar.move(done, all,
             fmt::format("{} of {}, {}", size_text(done), size_text(all), progress.file));
    if (interrupted != 0) {
      refuse(ErrorCode::io, message("interrupted after ", progress.bytes, " of ", progress.all,
                                    " bytes; run the same command again to continue"));
    }
  };
  options.before_finish = [&](const porting::ConvertResult& converted) {
    bar.clear();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (flags.json) {
      print_out("{}\n", porting::convert_json(converted));
    } else {
      print_text(converted, seconds);
    }
  };
  (void)porting::convert_checkpoint(options).value_or_throw();
  return exit_code::done;
}

}  // namespace

void add_convert(CommandLine& line) {
  auto flags = std::make_shared<ConvertFlags>();
  Verb& verb =
      line.verb("convert", "convert the q and k weights of a checkpoint to the other pair layout");
  verb.argument(
          "source", &flags->source,
          "a folder with config.json and safetensors files, or org/name from the Hugging Face "
          "cache")
      .folder()
      .read_by(model_path)
      .required();
  verb.argument("destination", &flags->destination, "a folder that is new or empty")
      .folder()
      .required();
  verb.flag("--to", &flags->to, "interleaved (2i, 2i+1) or half (i, i + rotary_dim/2)")
      .one_of({"interleaved", "half"})
      .required();
  verb.flag("--from", &flags->from, "layout of the source, if its config does not say")
      .one_of({"interleaved", "half"});
  verb.flag("--sync", &flags->sync, "flush every file to disk before returning");
  verb.flag("--json", &flags->json, "print a summary as one JSON object");
  verb.footer =
      R"(Permutes q and k projections, their biases and per-head norms. Handles grouped key heads,
fused tensors and partial rotation. Every other byte is copied unchanged. Then compares the
attention scores of both layouts on random activations and writes phasor_layout.json, which
phasor reads: a second conversion is refused, and converting back restores the source.

Refuses  latent attention, quantised weights, unknown model types
Resumes  after an interruption or a full disk, when the same command is run again

Example  phasor convert Llama-3-8B Llama-3-8B-interleaved --to interleaved)";
  verb.action = [flags] { return run_convert(*flags); };
}

}  // namespace phasor::tools
