// Copies one file and permutes the heads of some tensors, resuming where an earlier run stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/porting/convert.hpp"
#include "porting/convert/permute.hpp"

namespace phasor::porting {

struct PlacedTensor {
  std::uint64_t offset = 0, size = 0;  // in the file
  PermutedTensor permuted;
};

struct CopyJob {
  std::filesystem::path source, destination, partial;
  io::FileState state;              // of the source
  std::vector<PlacedTensor> moved;  // in order of offset
  ConvertOptions::Finish finish = ConvertOptions::Finish::written;
};

// The offset at which a rerun continues. The partial file is only appended to, so it always holds a
// prefix of the result.
[[nodiscard]] std::uint64_t resume_point(const CopyJob& job);

// Writes the partial file from resume_point() on and renames it. `report` gets the number of bytes
// written so far.
//
// error    Error(io): files that cannot be read or written; a source that is not, or no longer, what
//          job.state says: checked before the copy and after every step
[[nodiscard]] Result<Done> copy_permuted(const CopyJob& job,
                                         const std::function<void(std::uint64_t)>& report);

}  // namespace phasor::porting
