// The folders of a conversion: the files of the source, and the journal by which a rerun recognises
// the conversion that it resumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::porting {

struct SourceFile {
  std::string name;  // relative to the folder, with '/'
  io::FileState state;

  bool operator==(const SourceFile&) const = default;
};

// Every file in the folder and its subfolders, following links, without the layout sidecar. The
// safetensors files come first and config.json last, so that an incomplete copy is not a checkpoint.
//
// error    what is neither a file nor a folder; weights in a format that is not converted
[[nodiscard]] Result<std::vector<SourceFile>> list_source(const std::filesystem::path& folder);

struct ConvertJournal {
  std::string source;  // canonical
  core::PairLayout from = core::PairLayout::half, to = core::PairLayout::half;
  std::string boot;  // boot id of the machine: after a reboot, written bytes may be lost
  std::vector<SourceFile> files;
};
[[nodiscard]] ConvertJournal make_journal(const std::filesystem::path& source,
                                          core::PairLayout from, core::PairLayout to,
                                          std::vector<SourceFile> files);

// The destination with its journal, locked against a second conversion.
struct Destination {
  std::filesystem::path folder;
  io::Descriptor lock;
};
// Replaces a small file atomically, without fsync, which on some file systems would wait for every
// byte that the conversion has written.
[[nodiscard]] Result<Done> put_text(const std::filesystem::path& path, const std::string& text);

// Removes what a conversion wrote to its destination, with the journal, and the folder if it is empty
// then: for a conversion that cannot be resumed.
void remove_results(const std::filesystem::path& folder, const std::vector<SourceFile>& files);

// Creates the destination or resumes in it. Files from before a reboot are removed.
//
// error    folders that are equal or inside each other; a destination that is not empty and has no
//          journal, or that of another conversion; one that another process is writing to
[[nodiscard]] Result<Destination> open_destination(const std::filesystem::path& folder,
                                                   const ConvertJournal& journal);

[[nodiscard]] std::filesystem::path partial_of(const std::filesystem::path& folder,
                                               const std::string& name);

}  // namespace phasor::porting
