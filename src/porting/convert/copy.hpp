// One file copied in order, heads of some tensors permuted on the way, from wherever an earlier run
// stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/porting/convert.hpp"
#include "porting/convert/permute.hpp"

namespace phasor::porting {

struct PlacedTensor {
  std::uint64_t offset = 0, size = 0;  // in the file
  PermutedTensor permuted;
};

struct CopyJob {
  std::filesystem::path source, destination, partial;
  std::uint64_t size = 0;
  std::vector<PlacedTensor> moved;  // by offset
  ConvertOptions::Finish finish = ConvertOptions::Finish::written;
};

// Where a rerun would start: the partial file holds a prefix of the result, however the run before
// ended, since it only ever grew at its end.
[[nodiscard]] std::uint64_t resume_point(const CopyJob& job);

// Writes the partial file from resume_point() on and renames it. `report` gets the number of bytes
// of the file that are written so far.
[[nodiscard]] Result<Done> copy_permuted(const CopyJob& job,
                                         const std::function<void(std::uint64_t)>& report);

}  // namespace phasor::porting
