// phasor tokenize: text to token ids and back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "commands.hpp"
#include "hub_cache.hpp"
#include "model_options.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/text/tokenizer.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

struct TokenizeFlags {
  std::string model, text_file, ids, output;
  std::optional<std::string> text;
  bool raw = false, pieces = false, json = false;
};

void check_flags(const TokenizeFlags& flags) {
  const int sources =
      (flags.text ? 1 : 0) + (flags.text_file.empty() ? 0 : 1) + (flags.ids.empty() ? 0 : 1);
  if (sources == 0) refuse("the input is missing: give --text, --text-file or --ids");
  if (sources > 1) refuse("--text, --text-file and --ids cannot be combined");
  if (!flags.output.empty() && !flags.ids.empty()) refuse("-o cannot be combined with --ids");
}

// A piece may be a part of a character; such bytes become U+FFFD, as in decode().
std::string piece_text(const text::Tokenizer& tokenizer, std::int64_t id) {
  text::TextStream stream;
  std::string text = stream.push(tokenizer.piece(id));
  return text += stream.finish();
}

io::Json pieces_of(const text::Tokenizer& tokenizer, std::span<const std::int64_t> ids) {
  io::Json pieces = io::Json::array();
  for (const std::int64_t id : ids) pieces.push_back(piece_text(tokenizer, id));
  return pieces;
}

// One token per line: its id and its text as a JSON string.
void print_pieces(const text::Tokenizer& tokenizer, std::span<const std::int64_t> ids) {
  for (const std::int64_t id : ids)
    print_out("{:>8}  {}\n", id, io::Json(piece_text(tokenizer, id)).dump());
}

std::string decoded(const TokenizeFlags& flags, const text::Tokenizer& tokenizer,
                    std::span<const std::int64_t> ids) {
  if (!flags.raw) return tokenizer.decode(ids);
  text::TextStream stream;
  std::string text;
  for (const std::int64_t id : ids) text += stream.push(tokenizer.piece(id));
  return text += stream.finish();
}

int decode(const TokenizeFlags& flags, const text::Tokenizer& tokenizer) {
  const IdArray ids = read_ids(flags.ids);
  io::Json rows = io::Json::array();
  for (std::int64_t row = 0; row < ids.batch; ++row) {
    const std::span<const std::int64_t> tokens = ids.row(row);
    if (flags.json) {
      rows.push_back({{"ids", std::vector<std::int64_t>(tokens.begin(), tokens.end())},
                      {"pieces", pieces_of(tokenizer, tokens)},
                      {"text", decoded(flags, tokenizer, tokens)}});
    } else if (flags.pieces) {
      print_pieces(tokenizer, tokens);
    } else {
      print_out("{}\n", decoded(flags, tokenizer, tokens));
    }
  }
  if (flags.json) {
    const io::Json answer = {{"tokenizer", tokenizer.description()}, {"rows", std::move(rows)}};
    print_out("{}\n", answer.dump());
  }
  return exit_code::done;
}

int encode(const TokenizeFlags& flags, const text::Tokenizer& tokenizer) {
  const std::string text = flags.text ? *flags.text : read_text_or_stdin(flags.text_file);
  const std::vector<std::int64_t> ids = text::prompt_ids(
      tokenizer, text, flags.raw ? text::BeginToken::leave_out : text::BeginToken::as_wanted);
  if (!flags.output.empty()) {
    io::NpyArray array = io::make_npy(io::NpyType::i64, {static_cast<std::int64_t>(ids.size())});
    std::memcpy(array.bytes.data(), ids.data(), array.bytes.size());
    write_array(flags.output, array);
  }
  if (flags.json) {
    const io::Json answer = {{"tokenizer", tokenizer.description()},
                             {"tokens", ids.size()},
                             {"ids", ids},
                             {"pieces", pieces_of(tokenizer, ids)}};
    print_out("{}\n", answer.dump());
  } else if (flags.pieces) {
    print_pieces(tokenizer, ids);
  } else if (flags.output.empty()) {
    print_out("{}\n", fmt::join(ids, " "));
  } else {
    print_out("ids [{}] int64 -> {}\n", ids.size(), flags.output);
  }
  return exit_code::done;
}

int run_tokenize(const TokenizeFlags& flags) {
  check_flags(flags);
  const std::unique_ptr<text::Tokenizer> tokenizer =
      text::read_tokenizer(flags.model).value_or_throw();
  return flags.ids.empty() ? encode(flags, *tokenizer) : decode(flags, *tokenizer);
}

}  // namespace

void add_tokenize(CommandLine& line) {
  auto flags = std::make_shared<TokenizeFlags>();
  Verb& verb = line.verb("tokenize", "convert text to token ids and back");
  verb.argument(
          "model", &flags->model,
          "a GGUF file, a folder with tokenizer.json, tokenizer.model or vocab.txt, or org/name "
          "from the Hugging Face cache")
      .value("MODEL")
      .read_by(model_path)
      .required();
  verb.flag("--text", &flags->text, "the text to encode, UTF-8").free_text();
  verb.flag("--text-file", &flags->text_file, "a file that holds the text; -: stdin");
  verb.flag("--ids", &flags->ids,
            "token ids to decode: .npy [tokens] or [batch, tokens], or a list 1,2,3");
  verb.flag("--raw", &flags->raw, "add no begin token; print special tokens when decoding");
  verb.flag("--pieces", &flags->pieces, "print one token per line: id and text").excludes("--json");
  verb.flag("-o,--output", &flags->output, "write the ids here: int64 [tokens]");
  verb.flag("--json", &flags->json, "print ids and pieces as one JSON object");
  verb.footer =
      R"(Prints the ids of a text, with the begin token if the model adds one, as phasor run reads
a prompt; or the text of each row of ids, without special tokens.

JSON     {tokenizer, tokens, ids, pieces}; with --ids {tokenizer, rows [{ids, pieces, text}]}

)" + std::string(kArrayFiles) +
      R"(

Example  phasor tokenize model.gguf --text "The quick brown fox" -o ids.npy
         phasor tokenize model.gguf --ids ids.npy
         phasor tokenize model.gguf --ids 504,3575,6354,16438)";
  verb.action = [flags] { return run_tokenize(*flags); };
}

}  // namespace phasor::tools
