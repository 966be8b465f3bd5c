// phasor fill: predicts the tokens at [MASK] with a RoFormer.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "hub_cache.hpp"
#include "output.hpp"
#include "phasor/core/internal/visible_text.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/models/roformer.hpp"
#include "phasor/text/tokenizer.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

constexpr std::string_view kMask = "[MASK]";
constexpr std::string_view kContinues = "##";

struct FillFlags {
  std::string model, text, text_file;
  std::int64_t top = 5;
  int threads = 0;
  bool json = false;
};

void read_text(FillFlags& flags) {
  const std::string_view flag = flags.text_file.empty() ? "--text" : "--text-file";
  if (!flags.text_file.empty()) {
    flags.text = read_text_or_stdin(flags.text_file);
    while (flags.text.ends_with('\n')) flags.text.pop_back();
  }
  if (flags.text.empty() && flags.text_file.empty()) refuse("--text or --text-file is required");
  if (flags.text.find(kMask) == std::string::npos) refuse(message(flag, " has no [MASK]"));
}

std::unique_ptr<text::Tokenizer> tokenizer_of(const std::filesystem::path& folder) {
  const std::filesystem::path vocabulary = io::as_folder(folder) / "vocab.txt";
  std::error_code ignored;
  if (!std::filesystem::exists(vocabulary, ignored)) {
    refuse(ErrorCode::io,
           message("cannot open ", vocabulary.string(), ": no such file or directory"));
  }
  return text::read_tokenizer(folder).value_or_throw();
}

// The text with the most likely token at each mask; a ## token is joined to the word before it.
std::string filled_text(std::string_view text, const std::vector<models::Filling>& fillings) {
  std::string filled;
  for (const models::Filling& filling : fillings) {
    const std::size_t mask = text.find(kMask);
    filled += text.substr(0, mask);
    text.remove_prefix(mask + kMask.size());
    std::string_view token = filling.choices.front().token;
    if (token.size() > kContinues.size() && token.starts_with(kContinues)) {
      token.remove_prefix(kContinues.size());
      while (filled.ends_with(' ')) filled.pop_back();
    }
    filled += token;
  }
  return filled += text;
}

void print_text(const std::vector<models::Filling>& fillings, const std::string& filled) {
  for (std::size_t mask = 0; mask < fillings.size(); ++mask) {
    print_out("mask {} (slot {})\n", mask + 1, fillings[mask].slot);
    for (const models::Filling::Choice& choice : fillings[mask].choices) {
      print_out("  {:>8.4f} %  {}\n", 100.0 * choice.probability, core::visible_text(choice.token));
    }
  }
  print_out("{}\n", core::visible_text(filled));
}

void print_json(const FillFlags& flags, const std::vector<models::Filling>& fillings,
                const std::string& filled) {
  io::Json answer;
  answer["text"] = flags.text;
  answer["filled"] = filled;
  answer["masks"] = io::Json::array();
  for (const models::Filling& filling : fillings) {
    io::Json choices = io::Json::array();
    for (const models::Filling::Choice& choice : filling.choices) {
      choices.push_back({{"id", choice.id},
                         {"token", choice.token},
                         {"probability", choice.probability},
                         {"logit", choice.logit}});
    }
    answer["masks"].push_back({{"slot", filling.slot}, {"choices", std::move(choices)}});
  }
  print_out("{}\n", answer.dump(2));
}

int run_fill(FillFlags flags) {
  read_text(flags);
  models::RoFormer model =
      models::RoFormer::load(flags.model, {.threads = flags.threads}).value_or_throw();
  const std::unique_ptr<text::Tokenizer> tokenizer = tokenizer_of(flags.model);
  const std::vector<models::Filling> fillings =
      models::fill(model, *tokenizer, flags.text, flags.top);
  const std::string filled = filled_text(flags.text, fillings);
  if (flags.json) {
    print_json(flags, fillings, filled);
  } else {
    print_text(fillings, filled);
  }
  return exit_code::done;
}

}  // namespace

void add_fill(CommandLine& line) {
  auto flags = std::make_shared<FillFlags>();
  Verb& verb = line.verb("fill", "predict masked tokens with a RoFormer");
  verb.argument(
          "model", &flags->model,
          "a RoFormer: a folder with config.json, safetensors and vocab.txt, or org/name from "
          "the Hugging Face cache")
      .value("MODEL")
      .read_by(model_path)
      .required();
  verb.flag("--text", &flags->text, "the text, with [MASK] at each token to predict").free_text();
  verb.flag("--text-file", &flags->text_file, "a file that holds the text; -: stdin")
      .excludes("--text");
  verb.flag("--top", &flags->top, "candidates to show for each mask").at_least(1).show_default();
  verb.flag("--threads", &flags->threads, "use at most N threads; 0: choose automatically")
      .at_least(0);
  verb.flag("--json", &flags->json, "print the result as one JSON object");
  verb.footer =
      R"(Runs [CLS] text [SEP] through a RoFormer with a masked-LM head. Prints, for each mask, the
most likely tokens and their probabilities, then the text with the most likely ones filled
in. Masks are predicted independently of each other.

Chinese text is split into the fewest words of vocab.txt that cover it (the reference uses
jieba); other text is split as in BERT.

JSON     text, filled, masks [{slot, choices [{id, token, probability, logit}]}]

Example  phasor fill roformer/ --text "the capital of france is [MASK]." --top 3)";
  verb.action = [flags] { return run_fill(*flags); };
}

}  // namespace phasor::tools
