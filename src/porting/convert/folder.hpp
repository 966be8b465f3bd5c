// The two folders of a conversion: what the source holds, and the journal that lets a rerun know
// that it continues the same work.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/rotary.hpp"
#include "phasor/io/internal/posix_file.hpp"

namespace phasor::porting {

struct SourceFile {
  std::string name;  // inside the folder, '/' between parts
  std::uint64_t size = 0;
  std::int64_t modified_ns = 0;

  bool operator==(const SourceFile&) const = default;
};

// Every file below the folder, links followed, without the layout sidecar: first the safetensors
// files, last config.json, so that no half-made copy looks like a checkpoint.
//
// refuses  what is neither a file nor a folder; weights in a format that is not read here
[[nodiscard]] Result<std::vector<SourceFile>> list_source(const std::filesystem::path& folder);

struct ConvertJournal {
  std::string source;  // canonical
  core::PairLayout from = core::PairLayout::half, to = core::PairLayout::half;
  std::string boot;  // of the machine: after another one, bytes that were written may be gone
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
// A small file under its name whole. Without waiting for the disk: on some file systems that would
// be a wait for every byte the conversion wrote before.
[[nodiscard]] Result<Done> put_text(const std::filesystem::path& path, const std::string& text);

// Makes or takes up the destination. What an earlier boot of the machine wrote is removed.
//
// refuses  folders that are equal or inside each other; a destination that is not empty and has no
//          journal, or one of another conversion; one that somebody else is writing
[[nodiscard]] Result<Destination> open_destination(const std::filesystem::path& folder,
                                                   const ConvertJournal& journal);

[[nodiscard]] std::filesystem::path partial_of(const std::filesystem::path& folder,
                                               const std::string& name);

}  // namespace phasor::porting
