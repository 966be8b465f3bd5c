// phasor VERB ... without memory: every request for memory refused, once and from then on. A run must
// end with its usual result, or with exit code 2 and "out of memory" as the last line on stderr,
// without a part of an output file.
//
// faults_verbs NAME runs the cases of one verb; without a name it checks that each verb has one.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "faults/inputs.hpp"
#include "faults/sweep.hpp"

int phasor_main(int argc, char** argv);  // main() of the command

namespace phasor::faults {
namespace {

namespace fs = std::filesystem;
constexpr int kWrong = 2;  // exit code of a request or an input that is wrong
using Words = std::vector<std::string>;

// What must be the same when a run succeeds in spite of a refusal.
enum class Compare : std::uint8_t { all, files, code };
// What a run that fails may leave: whole files (when only its report is missing), or what the next run
// goes on with.
enum class Leaves : std::uint8_t { whole_files, resumable };

struct Case {
  Words words;  // IN/ and OUT/ stand for the folders, GOLDEN/ for golden, EXAMPLES/ for examples,
                // ARRAYS/ for tests/io/data/arrays
  Density density = Density::dense;
  Compare compare = Compare::all;
  Leaves leaves = Leaves::whole_files;
};

const std::string kModel = "GOLDEN/models/llama_gqa_llama3/";
const std::string kT5 = "GOLDEN/models/t5_relu_tied/";

const std::vector<Case> kCases = {
    {{"--version"}},
    {{}},
    {{"turn"}},
    {{"rotate", "--help"}},
    {{"rotate", "--inptu", "x"}},
    {{"demo"}, Density::sparse, Compare::code},
    {{"freqs", "--config", "IN/spec.json", "--json"}},
    {{"freqs", "--config", "IN/yarn.json", "-o", "OUT/F.npy"}},
    {{"freqs", "--head-dim", "16", "--scaling",
      "yarn:factor=4,original_max_position_embeddings=8k"}},
    {{"freqs", "--config", R"({"head_dim": 8})", "--base", "500", "--json"}},
    {{"table", "--config", "IN/spec.json", "--positions", "0:16", "-o", "OUT/T.npy"}},
    {{"rotate", "--config", "IN/spec.json", "-i", "IN/X.npy", "-o", "OUT/Y.npy", "--json"}},
    {{"rotate", "--config", "IN/spec.json", "-i", "IN/large.npy", "-o", "OUT/Y.npy", "--threads",
      "2", "--positions", "IN/P.npy"}},
    {{"rotate", "--config", "IN/four.json", "-i", "ARRAYS/views.pt:transposed", "-o", "OUT/Y.npy"}},
    {{"rotate", "--config", "IN/four.json", "-i", "ARRAYS/arrays_deflated.npz:layers.0.v", "-o",
      "OUT/Y.npy"}},
    {{"attend", "--encoding", "EXAMPLES/encodings/t5.json", "-q", "IN/Q.npy", "-k", "IN/Q.npy",
      "-v", "IN/Q.npy", "-o", "OUT/O.npy", "--json"}},
    {{"attend", "--encoding", "EXAMPLES/encodings/transformer_xl.json", "-q", "IN/Q.npy", "-k",
      "IN/Q.npy", "-v", "IN/Q.npy", "-o", "OUT/O.npy", "--causal"}},
    {{"attend", "--encoding", "EXAMPLES/encodings/deberta_v2.json", "-q", "IN/Q.npy", "-k",
      "IN/Q.npy", "-v", "IN/Q.npy", "-o", "OUT/O.npy", "--probabilities", "OUT/P.npy"}},
    {{"attend", "--encoding", "EXAMPLES/encodings/rope_with_alibi.json", "-q", "IN/Q64.npy", "-k",
      "IN/Q64.npy", "-v", "IN/Q64.npy", "-o", "OUT/O.npy", "--threads", "2"}},
    {{"attend", "--encoding", "EXAMPLES/encodings/rope.json", "-q", "IN/Q.npy", "-k", "IN/Q.npy",
      "-v", "IN/Q.npy", "-o", "OUT/O.npy", "--kind", "linear"}},
    {{"explain", "IN/yarn.json"}},
    {{"explain", "IN/t5.json"}},
    {{"explain", "IN/tiny.gguf", "--json"}},
    {{"explain", "org/absent"}},
    {{"audit", "IN/T.npy", "--config", "IN/spec.json", "--csv", "OUT/errors.csv"}},
    {{"diagnose", "GOLDEN/diagnose/diag_interleaved_inverse_offset/before.npy",
      "GOLDEN/diagnose/diag_interleaved_inverse_offset/after.npy"}},
    {{"diagnose", "IN/X.npy", "IN/X.npy", "--config", "IN/spec.json", "--json"}},
    {{"diagnose", "--weights", kModel + "model/", "--json"}},
    {{"diagnose", "--runs", "ARRAYS/arrays.npz", "ARRAYS/arrays_deflated.npz"}},
    {{"diagnose", "--runs", "ARRAYS/nested.pt", "ARRAYS/protocol4.pt", "--json"}},
    {{"diff", "--config", "IN/yarn.json"}},
    {{"diff", "--config", "IN/yarn.json", "--config", "IN/t5.json"}},
    {{"diff", "--list"}},
    {{"plan", "--config", "IN/yarn.json", "--to", "16384", "--csv", "OUT/plan.csv"}},
    {{"plan", "--config", kModel + "model", "--ranks", "4", "--tokens", "64", "--json"}},
    {{"convert", kModel + "model/", "OUT/converted/", "--to", "interleaved"},
     Density::dense,
     Compare::files,
     Leaves::resumable},
    {{"fill", "IN/roformer/", "--text", "the capital of france is [MASK].", "--json"}},
    {{"logits", kModel + "model", "--ids", kModel + "input_ids.npy", "-o", "OUT/L.npy"}},
    {{"logits", kModel + "model", "--ids", "IN/ids.npy", "--last", "-o", "OUT/L.npy", "--threads",
      "2"}},
    {{"logits", "GOLDEN/models/bloom_alibi/model", "--ids", "3,4,5", "-o", "OUT/L.npy"}},
    {{"logits", kT5 + "model", "--ids", kT5 + "input_ids.npy", "--decoder-ids",
      kT5 + "decoder_input_ids.npy", "-o", "OUT/L.npy"}},
    {{"eval", kModel + "model", "--ids", "IN/ids.npy", "--contexts", "32", "--scaling", "none,yarn",
      "--json"},
     Density::dense,
     Compare::code},
    {{"eval", kModel + "model", "--ids", "IN/ids.npy", "--contexts", "32", "--scaling", "none",
      "--csv", "OUT/eval.csv"},
     Density::sparse,
     Compare::code,
     Leaves::resumable},
    {{"eval", kModel + "model", "--ids", "IN/ids.npy", "--contexts", "32", "--offset", "0,1000",
      "--angles", "exact,bfloat16", "--csv", "OUT/eval.csv"},
     Density::sparse,
     Compare::code,
     Leaves::resumable},
    {{"run", kModel + "model/", "--ids", kModel + "input_ids.npy", "--tokens", "4"}},
    {{"run", kModel + "model", "--ids", kModel + "padded_input_ids.npy", "--mask",
      kModel + "padded_attention_mask.npy", "--tokens", "4", "--temperature", "0.7", "--json"},
     Density::dense,
     Compare::code},  // it prints times
    {{"run", kT5 + "model", "--ids", kT5 + "input_ids.npy", "--tokens", "3"}},
    {{"run", kModel + "model", "--ids", kModel + "input_ids.npy", "--tokens", "2", "--rope-base",
      "500", "--rope-scaling", "linear:factor=2"}},
    {{"tokenize", "IN/words/", "--text", "the quick foxes", "--json"}},
    {{"tokenize", "IN/bytes", "--text", "abba", "-o", "OUT/ids.npy"}},
    {{"tokenize", "IN/unigram", "--text", "hello world", "--pieces"}},
    {{"tokenize", "IN/bpe", "--text", "hello world"}},
    {{"lab", "list", "--json"}, Density::sparse},
    {{"lab", "tokenizer", "IN/text.txt", "--kind", "bytes", "--out", "OUT/tokenizer"},
     Density::sparse,
     Compare::files,
     Leaves::resumable},
    {{"lab", "speed", "IN/model.json", "--rows", "2", "--tokens", "8", "--steps", "1", "--threads",
      "1", "--json"},
     Density::sparse,
     Compare::code},  // it prints times
    {{"lab", "run", "IN/experiment.json", "--out", "OUT/runs", "--threads", "1", "--json"},
     Density::sparse,
     Compare::code,  // it prints times
     Leaves::resumable},
    {{"inspect", kModel + "model/"}},
    {{"inspect", "IN/tiny.gguf", "--json"}},
    {{"inspect", "ARRAYS/arrays_deflated.npz"}},
    {{"inspect", "ARRAYS/views.pt", "--json"}},
    {{"explore", "-o", "OUT/explorer.html"}},
    {{"conform", "GOLDEN/worked_example", "--json", "OUT/verdicts.json"}},
    {{"conform", "GOLDEN/encodings/alibi_bloom_h8", "--filter", "*alibi*"}},
    {{"conform", "GOLDEN/encodings/alibi_causal_attention_h6"}},
    {{"conform", "--json", "GOLDEN/worked_example"}},
    {{"bench", "--quick", "--rounds", "1", "--only", "rotate/half/f32/t4096", "--json"},
     Density::sparse,
     Compare::code},
    {{"help", "rotate"}},
    {{"completion", "bash"}},
    {{"completion", "zsh"}},
    {{"completion", "fish"}},
    {{"man"}},
    {{"man", "-o", "OUT/man"}},
};

class Sweeping {
 public:
  Sweeping(const Inputs& inputs, const Case& what) : what_(what), out_(inputs.folder() / "out") {
    words_ = {"phasor"};
    for (const std::string& word : what.words)
      words_.push_back(replaced(word, {{"IN/", inputs.folder().string() + "/"},
                                       {"OUT/", out_.string() + "/"},
                                       {"GOLDEN", PHASOR_GOLDEN_DIR},
                                       {"EXAMPLES", PHASOR_EXAMPLES_DIR},
                                       {"ARRAYS", PHASOR_ARRAYS_DIR}}));
    for (std::string& word : words_) argv_.push_back(word.data());
    argv_.push_back(nullptr);
  }

  [[nodiscard]] int run() {
    const std::function<int()> body = [this] {
      return phasor_main(static_cast<int>(words_.size()), argv_.data());
    };
    std::string name;
    for (const std::string& word : what_.words) name += (name.empty() ? "" : " ") + word;
    clear();
    expected_ = run_in_child(body, {});
    expected_files_ = contents_below(out_);
    if (expected_.code > 2) {
      std::fprintf(stderr, "%s: exit code %d without a refusal\n%s", name.c_str(), expected_.code,
                   expected_.err.c_str());
      return 1;
    }
    clear();
    return sweep(name, what_.density, body, [&](const Run& run) {
      std::string problem = problem_of(run);
      if (problem.empty() && what_.leaves == Leaves::resumable && run.code != expected_.code) {
        const Run again = run_in_child(body, {});
        problem = again.code == expected_.code ? wrong_files() : "the next run failed too";
        if (!problem.empty()) problem += ": " + again.err;
      }
      clear();
      return problem;
    });
  }

 private:
  static std::string replaced(const std::string& word,
                              const std::map<std::string, std::string>& by) {
    for (const auto& [from, to] : by)
      if (word.starts_with(from)) return to + word.substr(from.size());
    return word;
  }

  void clear() const {
    fs::remove_all(out_);
    fs::create_directories(out_);
  }

  [[nodiscard]] std::string wrong_files() const {
    if (what_.compare == Compare::code) return "";
    return contents_below(out_) == expected_files_ ? "" : "the output files differ";
  }

  // A file is there as a whole or not at all.
  [[nodiscard]] std::string partial_file() const {
    for (const auto& [name, bytes] : contents_below(out_)) {
      const auto whole = expected_files_.find(name);
      if (whole == expected_files_.end() || whole->second != bytes) return "it leaves " + name;
    }
    return "";
  }

  // Whether the usual run also begins with these lines on stderr; lines with times differ.
  [[nodiscard]] bool is_usual(const std::string& lines) const {
    if (what_.compare == Compare::all) return expected_.err.starts_with(lines);
    return std::count(lines.begin(), lines.end(), '\n') <=
           std::count(expected_.err.begin(), expected_.err.end(), '\n');
  }

  [[nodiscard]] std::string problem_of(const Run& run) const {
    if (run.code == 128 + SIGALRM) return "it does not end";
    if (run.code >= 128) return "it ends by signal " + std::to_string(run.code - 128);
    const std::size_t before_last = run.err.find_last_of('\n', run.err.size() - 2);
    const std::string last = run.err.substr(before_last == std::string::npos ? 0 : before_last + 1);
    const bool reported = run.code == kWrong && run.err.ends_with('\n') &&
                          last.starts_with("phasor") &&
                          last.find("out of memory") != std::string::npos;
    if (reported) {
      if (!is_usual(run.err.substr(0, run.err.size() - last.size())))
        return "more than one line on stderr";
      return what_.leaves == Leaves::resumable ? "" : partial_file();
    }
    if (run.code != expected_.code)
      return "exit code " + std::to_string(run.code) + " without \"out of memory\"";
    if (what_.compare == Compare::all && (run.out != expected_.out || run.err != expected_.err))
      return "another text is printed";
    return wrong_files();
  }

  const Case& what_;
  fs::path out_;
  Words words_;
  std::vector<char*> argv_;
  Run expected_;
  std::map<std::string, std::string> expected_files_;
};

// The name of its ctest case.
std::string name_of(const Case& what) {
  if (what.words.empty() || what.words[0] == "turn") return "command";
  return what.words[0].starts_with('-') ? "command" : what.words[0];
}

int check_names() {
  const Run help = run_in_child(
      [] {
        std::string words[] = {"phasor", "--help"};
        char* argv[] = {words[0].data(), words[1].data(), nullptr};
        return phasor_main(2, argv);
      },
      {});
  int missing = 0;
  const std::string verbs = help.out.substr(help.out.find("Subcommands:"));
  for (std::size_t at = verbs.find("\n  "); at != std::string::npos;
       at = verbs.find("\n  ", at + 1)) {
    const std::string verb = verbs.substr(at + 3, verbs.find(' ', at + 3) - at - 3);
    if (verb.empty()) continue;
    const bool known = std::any_of(kCases.begin(), kCases.end(),
                                   [&](const Case& what) { return name_of(what) == verb; });
    if (known) continue;
    std::fprintf(stderr, "faults_verbs: no case for the verb \"%s\"\n", verb.c_str());
    ++missing;
  }
  return missing;
}

int run_cases(const std::string& name) {
  const Inputs inputs;
  int wrong = 0, cases = 0;
  for (const Case& what : kCases) {
    if (name_of(what) != name) continue;
    ++cases;
    wrong += Sweeping(inputs, what).run();
  }
  if (cases == 0) std::fprintf(stderr, "faults_verbs: no case is named %s\n", name.c_str());
  return cases == 0 || wrong > 0 ? 1 : 0;
}

}  // namespace
}  // namespace phasor::faults

int main(int argc, char** argv) {
  return argc > 1 ? phasor::faults::run_cases(argv[1]) : phasor::faults::check_names();
}
