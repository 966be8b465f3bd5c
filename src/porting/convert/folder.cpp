#include "porting/convert/folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include "phasor/config/internal/json_reader.hpp"
#include "phasor/config/internal/layout_sidecar.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::porting {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFormat = 1;
constexpr std::string_view kSafetensors = ".safetensors";
// Weights that would be copied in the old order.
constexpr std::array<std::string_view, 10> kOtherWeights = {
    ".pt", ".pth", ".ckpt", ".gguf", ".ggml", ".h5", ".msgpack", ".onnx", ".npz", ".pdparams"};
constexpr std::array<std::string_view, 3> kWeightsInBin = {"pytorch_model", "model",
                                                           "consolidated"};

[[nodiscard]] bool is_other_weights(const fs::path& file) {
  const std::string extension = file.extension().string();
  const std::string name = file.filename().string();
  if (extension == ".bin") {
    return std::any_of(kWeightsInBin.begin(), kWeightsInBin.end(),
                       [&](std::string_view start) { return name.starts_with(start); });
  }
  return std::find(kOtherWeights.begin(), kOtherWeights.end(), extension) != kOtherWeights.end();
}

[[nodiscard]] int rank_of(const std::string& name) {
  if (name.ends_with(kSafetensors)) return 0;
  return name == "config.json" ? 2 : 1;
}

[[nodiscard]] Result<SourceFile> file_of(const fs::path& path, const std::string& name) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return io::system_error(io::shown(path), "open", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return Error(ErrorCode::io, message(io::shown(path), ": not a regular file or a folder"));
  }
  if (is_other_weights(path)) {
    return Error(
        ErrorCode::unsupported,
        message(io::shown(path),
                ": only safetensors files are converted; move these weights to another folder"));
  }
  return SourceFile{name, io::state_of(status)};
}

[[nodiscard]] std::string boot_id() {
  const Result<std::string> text = io::read_text("/proc/sys/kernel/random/boot_id", 256);
  return text ? text->substr(0, text->find('\n')) : "unknown";
}

[[nodiscard]] std::string journal_text(const ConvertJournal& journal) {
  io::Json text;
  text["format"] = kFormat;
  text["source"] = journal.source;
  text["from"] = core::name_of(journal.from);
  text["to"] = core::name_of(journal.to);
  text["boot"] = journal.boot;
  text["files"] = io::Json::array();
  for (const SourceFile& file : journal.files) {
    // As text: a reader that keeps numbers in double would round them.
    text["files"].push_back({{"name", file.name},
                             {"size", std::to_string(file.state.size)},
                             {"modified_ns", std::to_string(file.state.modified_ns)}});
  }
  return text.dump({.indent = 1, .bad_utf8 = io::JsonStyle::BadUtf8::replace}) + "\n";
}

[[nodiscard]] Result<ConvertJournal> read_journal(const fs::path& path) {
  const Result<std::string> text = io::read_text(path);
  if (!text) return text.error();
  try {
    const config::Json object = config::parse_object(*text);
    const config::ObjectReader top(object);
    if (top.integer("format") != kFormat) top.refuse("format", message("expected ", kFormat));
    ConvertJournal journal;
    journal.source = top.text("source").value_or("");
    journal.boot = top.text("boot").value_or("");
    const auto layout = [&](std::string_view key) {
      const auto found = core::pair_layout_of(top.text(key).value_or(""));
      if (!found) top.refuse(key, "expected a layout");
      return *found;
    };
    journal.from = layout("from");
    journal.to = layout("to");
    for (const config::Json& entry : top.value("files")) {
      const config::ObjectReader file(entry, "files");
      SourceFile& read = journal.files.emplace_back();
      read.name = file.text("name").value_or("");
      read.state.size = std::stoull(file.text("size").value_or(""));
      read.state.modified_ns = std::stoll(file.text("modified_ns").value_or(""));
    }
    return journal;
  } catch (const std::exception& error) {
    return Error(ErrorCode::invalid_argument,
                 message(io::shown(path), ": not the journal of a conversion: ", error.what()));
  }
}

[[nodiscard]] std::optional<std::string> disagreement(const ConvertJournal& found,
                                                      const ConvertJournal& wanted) {
  if (found.source != wanted.source) return message("of ", found.source);
  if (found.to != wanted.to) return message("to ", core::name_of(found.to));
  if (found.from != wanted.from) return message("from ", core::name_of(found.from));
  // Not by the inode: some network file systems do not keep it, and the journal does not hold it.
  const bool same = std::equal(found.files.begin(), found.files.end(), wanted.files.begin(),
                               wanted.files.end(), [](const SourceFile& a, const SourceFile& b) {
                                 return a.name == b.name && a.state.size == b.state.size &&
                                        a.state.modified_ns == b.state.modified_ns;
                               });
  if (!same) return "of a source that has changed since";
  return std::nullopt;
}

[[nodiscard]] bool is_inside(const fs::path& inner, const fs::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// A journal that was not finished when its process was killed does not count.
[[nodiscard]] bool is_empty_but(const fs::path& folder, const fs::path& unfinished) {
  const std::vector<std::string> names = io::names_in(folder).value_or_throw();
  return std::all_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name == unfinished.filename(); });
}

void remove_copies(const fs::path& folder, const std::vector<SourceFile>& files) {
  std::error_code ignored;
  for (const SourceFile& file : files) {
    fs::remove(folder / file.name, ignored);
    fs::remove(partial_of(folder, file.name), ignored);
  }
}

[[nodiscard]] Result<io::Descriptor> locked(const fs::path& path) {
  io::Descriptor lock(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (lock.number() < 0) return io::system_error(io::shown(path), "open", errno);
  if (::flock(lock.number(), LOCK_EX | LOCK_NB) != 0) {
    return Error(
        ErrorCode::invalid_argument,
        message(io::shown(path.parent_path()), ": another conversion is writing to this folder"));
  }
  return lock;
}

}  // namespace

Result<std::vector<SourceFile>> list_source(const fs::path& folder) {
  const Result<std::vector<std::string>> names = io::files_below(folder);
  if (!names) return names.error();
  std::vector<SourceFile> files;
  for (const std::string& name : *names) {
    if (name == config::kLayoutSidecar) continue;
    Result<SourceFile> file = file_of(folder / name, name);
    if (!file) return file.error();
    files.push_back(std::move(file).value());
  }
  std::sort(files.begin(), files.end(), [](const SourceFile& a, const SourceFile& b) {
    return std::pair(rank_of(a.name), a.name) < std::pair(rank_of(b.name), b.name);
  });
  return files;
}

ConvertJournal make_journal(const fs::path& source, core::PairLayout from, core::PairLayout to,
                            std::vector<SourceFile> files) {
  return {fs::weakly_canonical(source).string(), from, to, boot_id(), std::move(files)};
}

Result<Done> put_text(const fs::path& path, const std::string& text) {
  const fs::path partial = partial_of(path.parent_path(), path.filename().string());
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return io::system_error(io::shown(path), "write", errno);
  std::error_code error;
  fs::rename(partial, path, error);
  if (error) return io::system_error(io::shown(path), "replace", error.value());
  return Done{};
}

fs::path partial_of(const fs::path& folder, const std::string& name) {
  const fs::path file = folder / name;
  return file.parent_path() / message(".", file.filename().string(), ".partial");
}

void remove_results(const fs::path& folder, const std::vector<SourceFile>& files) {
  remove_copies(folder, files);
  std::error_code ignored;
  for (const SourceFile& file : files) {
    // Only folders that are empty are removed.
    for (fs::path inner = fs::path(file.name).parent_path(); !inner.empty();
         inner = inner.parent_path()) {
      fs::remove(folder / inner, ignored);
    }
  }
  fs::remove(folder / config::kConvertJournal, ignored);
  fs::remove(folder, ignored);
}

Result<Destination> open_destination(const fs::path& folder, const ConvertJournal& journal) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(folder, error);
  if (error) return io::system_error(io::shown(folder), "open", error.value());
  const fs::path source = journal.source;
  if (is_inside(inner, source) || is_inside(source, inner)) {
    return Error(ErrorCode::invalid_argument,
                 message(io::shown(folder), ": source and destination ",
                         inner == source ? "are the same folder" : "contain each other",
                         "; choose a separate folder"));
  }
  fs::create_directories(folder, error);
  if (error) {
    return io::system_error(io::shown(folder), "create", error.value());
  }
  const fs::path path = folder / config::kConvertJournal;
  const bool resumes = fs::exists(path, error);
  if (!resumes && !is_empty_but(folder, partial_of(folder, std::string(config::kConvertJournal)))) {
    return Error(
        ErrorCode::invalid_argument,
        message(
            io::shown(folder),
            ": the destination is not empty; it must be empty or hold an unfinished conversion"));
  }
  if (!resumes) {
    const Result<Done> written = put_text(path, journal_text(journal));
    if (!written) return written.error();
  }
  Result<io::Descriptor> lock = locked(path);
  if (!lock) return lock.error();
  if (!resumes) return Destination{folder, std::move(lock).value()};

  const Result<ConvertJournal> found = read_journal(path);
  if (!found) return found.error();
  if (const std::optional<std::string> other = disagreement(*found, journal)) {
    return Error(ErrorCode::invalid_argument,
                 message(io::shown(folder), ": the folder holds an unfinished conversion ", *other,
                         "; finish that one or choose an empty folder"));
  }
  if (found->boot != journal.boot) {
    remove_copies(folder, journal.files);
    const Result<Done> written = put_text(path, journal_text(journal));
    if (!written) return written.error();
    lock = locked(path);
    if (!lock) return lock.error();
  }
  return Destination{folder, std::move(lock).value()};
}

}  // namespace phasor::porting
