// phasor fill: what a RoFormer puts where a text says [MASK].
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/models/roformer.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::tools {
namespace {

constexpr std::string_view kMask = "[MASK]";
constexpr std::string_view kContinues = "##";

struct FillFlags {
  std::string model, text;
  std::int64_t top = 5;
  int threads = 0;
  bool json = false;
};

void require_flags(const FillFlags& flags) {
  if (flags.text.find(kMask) == std::string::npos) {
    throw Error(ErrorCode::invalid_argument, "--text must hold [MASK], got none");
  }
  if (flags.top < 1) {
    throw Error(ErrorCode::invalid_argument, message("--top must be at least 1, got ", flags.top));
  }
  if (flags.threads < 0) {
    throw Error(ErrorCode::invalid_argument,
                message("--threads must be 0 (as many as help) or more, got ", flags.threads));
  }
}

std::unique_ptr<text::Tokenizer> tokenizer_of(const std::filesystem::path& folder) {
  const std::filesystem::path vocabulary = folder / "vocab.txt";
  std::error_code ignored;
  if (!std::filesystem::exists(vocabulary, ignored)) {
    throw Error(ErrorCode::io,
                message(vocabulary.string(), ": must hold one token a line, got no such file"));
  }
  return text::read_tokenizer(folder).value_or_throw();
}

// The user's own text with the likeliest token at each mask; a piece of a word goes to the word
// before it.
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

// A vocabulary may hold control characters; a terminal should not obey them.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

void print_text(const std::vector<models::Filling>& fillings, const std::string& filled) {
  for (std::size_t mask = 0; mask < fillings.size(); ++mask) {
    fmt::print("mask {} (slot {})\n", mask + 1, fillings[mask].slot);
    for (const models::Filling::Choice& choice : fillings[mask].choices) {
      fmt::print("  {:>8.4f} %  {}\n", 100.0 * choice.probability, printable(choice.token));
    }
  }
  fmt::print("{}\n", printable(filled));
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
  fmt::print("{}\n", answer.dump(2));
}

int run_fill(const FillFlags& flags) {
  require_flags(flags);
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
  Verb& verb = line.verb("fill", "masked prediction (RoFormer)");
  verb.argument("model", &flags->model,
                "a folder with config.json, safetensors and vocab.txt of a RoFormer")
      .required();
  verb.flag("--text", &flags->text, "the sentence, [MASK] where a token is missing").required();
  verb.flag("--top", &flags->top, "candidates to show for each mask").show_default();
  verb.flag("--threads", &flags->threads, "at most N threads; 0: as many as help");
  verb.flag("--json", &flags->json, "print everything as one object");
  verb.footer =
      "Puts [CLS] text [SEP] through a RoFormer with a masked-LM head and prints, for each mask,\n"
      "the likeliest tokens with their share of the whole vocabulary, then the text with the\n"
      "likeliest of each. Masks are filled independently of each other.\n"
      "\n"
      "Chinese text is cut into the words of vocab.txt, the fewest that cover it, where the\n"
      "reference asks jieba; all else is cut as BERT does.\n"
      "\n"
      "JSON     text, filled, masks [{slot, choices [{id, token, probability, logit}]}]\n"
      "\n"
      "Example  phasor fill roformer/ --text \"the capital of france is [MASK].\" --top 3";
  verb.action = [flags] { return run_fill(*flags); };
}

}  // namespace phasor::tools
