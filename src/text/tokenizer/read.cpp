// The tokenizer of a path, whatever files are there.
#include <filesystem>

#include "phasor/io/internal/file.hpp"
#include "phasor/io/gguf.hpp"
#include "phasor/io/internal/json.hpp"
#include "text/tokenizer/settings.hpp"
#include "text/tokenizer/stages.hpp"

namespace phasor::text {
namespace {

namespace fs = std::filesystem;
using Made = std::unique_ptr<Tokenizer>;

std::string shown_path(const fs::path& path) { return io::one_line(path.string(), 200); }

// What `make` refuses, with the name of the file in front.
template <class Make>
Made named(const fs::path& path, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw Error(error.code(), message(shown_path(path), ": ", error.what()));
  }
}

Segmentation segmentation_of(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  if (!fs::exists(path)) return Segmentation::bert;
  const io::Json config = io::parse_object(io::read_text(path).value_or_throw());
  return text_member(config, "model_type") == "roformer" ? Segmentation::roformer
                                                         : Segmentation::bert;
}

Made read_folder(const fs::path& folder) {
  const fs::path json = folder / "tokenizer.json", pieces = folder / "tokenizer.model",
                 words = folder / "vocab.txt";
  const TokenizerSettings settings = read_settings(folder);
  const bool has_pieces = fs::exists(pieces), has_words = fs::exists(words);
  if (fs::exists(json)) {
    const std::string text = io::read_text(json).value_or_throw();
    try {
      return named(json, [&] { return tokenizer_of_json(text, settings); });
    } catch (const Error& error) {
      // The file beside it is the same tokenizer in the form that Phasor may have.
      if (error.code() != ErrorCode::unsupported || (!has_pieces && !has_words)) throw;
    }
  }
  if (has_pieces) {
    const std::string bytes = io::read_text(pieces).value_or_throw();
    return named(pieces, [&] { return tokenizer_of_sentencepiece(bytes, settings); });
  }
  if (has_words) {
    const LetterCase letters =
        settings.lower_case.value_or(true) ? LetterCase::lower : LetterCase::keep;
    const std::string text = io::read_text(words).value_or_throw();
    return parse_wordpiece(text, shown_path(words), segmentation_of(folder), letters)
        .value_or_throw();
  }
  throw Error(ErrorCode::io,
              message(shown_path(folder),
                      ": a tokenizer must be tokenizer.json, tokenizer.model or vocab.txt, got "
                      "none of them"));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> read_tokenizer(const fs::path& path) {
  try {
    if (fs::is_directory(path)) return read_folder(path);
    const Result<io::GgufFile> file = io::GgufFile::open(path);
    if (!file) return file.error();
    return tokenizer_of_gguf(*file);
  } catch (const Error& error) {
    return error;
  } catch (const fs::filesystem_error& error) {
    return Error(ErrorCode::io,
                 message(shown_path(path), ": must be readable, got ", error.code().message()));
  }
}

}  // namespace phasor::text
