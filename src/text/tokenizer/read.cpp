// The tokenizer of a file or folder.
#include <filesystem>

#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/io/tensors.hpp"
#include "text/tokenizer/settings.hpp"
#include "text/tokenizer/stages.hpp"

namespace phasor::text {
namespace {

namespace fs = std::filesystem;
using Made = std::unique_ptr<Tokenizer>;

// make(), its errors with the name of the file in front.
template <class Make>
Made named(const fs::path& path, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw io::in_file(io::shown(path), error);
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
  const fs::path json = folder / "tokenizer.json", words = folder / "vocab.txt";
  fs::path pieces = folder / "tokenizer.model";
  if (!fs::exists(pieces)) pieces = folder / "spiece.model";  // T5's name for it
  TokenizerSettings settings = read_settings(folder);
  const bool has_pieces = fs::exists(pieces), has_words = fs::exists(words);
  if (fs::exists(json)) {
    const std::string text = io::read_text(json).value_or_throw();
    const bool names_words = text.find("\"WordPiece\"") != std::string::npos;
    try {
      if (names_words && !has_words) settings.segmentation = segmentation_of(folder);
      if (!names_words || !has_words)  // vocab.txt has the same words
        return named(json, [&] { return tokenizer_of_json(text, settings); });
    } catch (const Error& error) {
      // tokenizer.model, spiece.model and vocab.txt have the same tokenizer in a form that may be supported.
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
    return parse_wordpiece(text, io::shown(words), segmentation_of(folder), letters)
        .value_or_throw();
  }
  throw io::file_error(
      io::shown(folder),
      "no tokenizer: tokenizer.json, tokenizer.model, spiece.model and vocab.txt are "
      "missing");
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> read_tokenizer(const fs::path& path) {
  try {
    if (fs::is_directory(path)) return read_folder(io::as_folder(path));
    const Result<io::GgufFile> file = io::GgufFile::open(path);
    if (!file) return file.error();
    return tokenizer_of_gguf(*file);
  } catch (const Error& error) {
    return error;
  } catch (const fs::filesystem_error& error) {
    return io::system_error(io::shown(path), "open", error.code().value());
  }
}

}  // namespace phasor::text
