#include <algorithm>

#include "phasor/io/internal/content_hash.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/lab/internal/corpus.hpp"
#include "phasor/text/internal/utf8.hpp"

namespace phasor::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 29;  // what a tokenizer takes at once
constexpr std::string_view kWhite = " \t\r\n\f\v";

// Sections without the white space around them.
std::vector<std::string> sections_of(std::string_view text) {
  std::vector<std::string> sections;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\f', begin), text.size());
    std::string_view section = text.substr(begin, end - begin);
    if (const std::size_t first = section.find_first_not_of(kWhite);
        first != std::string_view::npos) {
      section.remove_prefix(first);
      sections.emplace_back(section.substr(0, section.find_last_not_of(kWhite) + 1));
    }
    begin = end + 1;
  }
  return sections;
}

TextCorpus::Work read_work(const fs::path& path, std::string name) {
  const std::string text = io::read_text(path, kMaxFileBytes).value_or_throw();
  text::unicode::require_utf8(text, io::shown(path));
  return {std::move(name), sections_of(text)};
}

void read_path(const fs::path& path, std::vector<TextCorpus::Work>& works) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    works.push_back(read_work(path, path.filename().string()));
    return;
  }
  const fs::path folder = io::as_folder(path);
  bool found = false;
  for (const std::string& name : io::files_below(folder).value_or_throw()) {
    if (!name.ends_with(".txt")) continue;
    found = true;
    works.push_back(read_work(folder / name, name));
  }
  if (!found) throw io::file_error(io::shown(path), "the folder has no .txt file");
}

void add_sized(io::ContentHash& hash, std::string_view text) {
  const auto size = static_cast<std::uint64_t>(text.size());
  hash.add(std::as_bytes(std::span(&size, 1)));
  hash.add(text);
}

}  // namespace

Result<TextCorpus> TextCorpus::read(std::span<const fs::path> paths) {
  try {
    TextCorpus corpus;
    for (const fs::path& path : paths) read_path(path, corpus.works_);
    std::erase_if(corpus.works_, [](const Work& work) { return work.sections.empty(); });
    if (corpus.works_.empty()) {
      return Error(ErrorCode::invalid_argument,
                   message("corpus: no text in ", paths.size(), " paths",
                           paths.empty() ? "" : ", the first is ",
                           paths.empty() ? "" : io::shown(paths.front())));
    }
    return corpus;
  } catch (const Error& error) {
    return error;
  }
}

Result<TextCorpus> TextCorpus::of_text(std::string name, std::string_view text) {
  try {
    text::unicode::require_utf8(text, name);
  } catch (const Error& error) {
    return error;
  }
  TextCorpus corpus;
  corpus.works_.push_back({std::move(name), sections_of(text)});
  if (corpus.works_.front().sections.empty()) {
    return Error(ErrorCode::invalid_argument,
                 message(corpus.works_.front().name, ": the corpus has no text"));
  }
  return corpus;
}

std::vector<std::string_view> TextCorpus::texts() const {
  std::vector<std::string_view> texts;
  for (const Work& work : works_)
    texts.insert(texts.end(), work.sections.begin(), work.sections.end());
  return texts;
}

std::int64_t TextCorpus::bytes() const noexcept {
  std::int64_t sum = 0;
  for (const Work& work : works_)
    for (const std::string& section : work.sections)
      sum += static_cast<std::int64_t>(section.size());
  return sum;
}

TextCorpus::Parts TextCorpus::hold_out_last(std::int64_t sections) const {
  const auto all = static_cast<std::int64_t>(texts().size());
  if (sections < 1 || sections >= all) {
    refuse(message("corpus: sections that are held out must be from 1 to ", all - 1, ", got ",
                   sections));
  }
  Parts parts;
  std::int64_t kept = all - sections;
  for (const Work& work : works_) {
    const auto count = static_cast<std::int64_t>(work.sections.size());
    const auto middle = work.sections.begin() + std::min(kept, count);
    if (kept > 0) parts.train.works_.push_back({work.name, {work.sections.begin(), middle}});
    if (kept < count) parts.held_out.works_.push_back({work.name, {middle, work.sections.end()}});
    kept = std::max<std::int64_t>(0, kept - count);
  }
  return parts;
}

std::string TextCorpus::hash() const {
  io::ContentHash hash;
  for (const Work& work : works_) {
    add_sized(hash, work.name);
    for (const std::string& section : work.sections) add_sized(hash, section);
  }
  return hash.text();
}

TokenCorpus::TokenCorpus(const TextCorpus& corpus, const text::Tokenizer& tokenizer)
    : vocabulary_(tokenizer.size()), specials_(tokenizer.specials()) {
  const bool is_narrow = vocabulary_ <= std::int64_t{1} << 16;
  const auto push = [&](std::int64_t id) {
    if (is_narrow) {
      narrow_.push_back(static_cast<std::uint16_t>(id));
    } else {
      wide_.push_back(static_cast<std::int32_t>(id));
    }
  };
  const std::optional<std::int64_t> end = specials_.end ? specials_.end : specials_.separate;
  for (std::size_t work = 0; work < corpus.works().size(); ++work) {
    for (const std::string& section : corpus.works()[work].sections) {
      const std::vector<std::int64_t> ids = tokenizer.encode(section, text::SpecialText::as_text);
      if (ids.empty()) continue;
      sections_.push_back(
          {size(), static_cast<std::int64_t>(ids.size()), static_cast<std::int32_t>(work)});
      std::for_each(ids.begin(), ids.end(), push);
      if (end) push(*end);
    }
  }
  if (sections_.empty()) {
    refuse(message("corpus: ", corpus.bytes(), " bytes of text have no token of ",
                   tokenizer.description()));
  }
  is_ordinary_.resize(static_cast<std::size_t>(vocabulary_));
  for (std::int64_t id = 0; id < vocabulary_; ++id) {
    if (tokenizer.is_special(id) || id == specials_.unknown) continue;
    is_ordinary_[static_cast<std::size_t>(id)] = true;
    ordinary_.push_back(static_cast<std::int32_t>(id));
  }
}

std::int64_t TokenCorpus::size() const noexcept {
  return static_cast<std::int64_t>(narrow_.size() + wide_.size());
}

std::string TokenCorpus::hash() const {
  io::ContentHash hash;
  hash.add(std::as_bytes(std::span(narrow_)));
  hash.add(std::as_bytes(std::span(wide_)));
  for (const Section& section : sections_) {
    const std::int64_t numbers[] = {section.first, section.count, section.work};
    hash.add(std::as_bytes(std::span(numbers)));
  }
  return hash.text();
}

}  // namespace phasor::lab
