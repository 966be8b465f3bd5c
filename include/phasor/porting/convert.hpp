// Converts the q and k weights of a checkpoint from one pair layout to the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/export.h"

namespace phasor::porting {

// Bound on |score of the source - score of the result| relative to the largest score. The
// conversion only permutes rows, so the scores differ by the rounding of sums in another order; a
// larger difference is an error.
inline constexpr double kConvertScoreTolerance = 1e-5;

struct ConvertProgress {
  std::string_view file;             // being copied; relative to the folder
  std::uint64_t bytes = 0, all = 0;  // of all files
  std::uint64_t resumed = 0;         // the part of `bytes` written by an earlier run
};

struct ConvertResult;

struct ConvertOptions {
  // on_disk calls fsync for every file. A killed process loses nothing either way. After a power
  // failure files that were only `written` may be lost; a rerun then starts over.
  enum class Finish : std::uint8_t { written, on_disk };

  std::filesystem::path source, destination;
  core::PairLayout to = core::PairLayout::interleaved;
  // Required if the config does not determine the layout; otherwise it must agree with the config.
  std::optional<core::PairLayout> from = std::nullopt;
  Finish finish = Finish::written;
  std::uint64_t seed = 1;  // of the random activations of the proof
  // Called after every few MiB. An exception from it stops the conversion; a rerun resumes it.
  std::function<void(const ConvertProgress&)> progress = {};
  // Called with the result before the folder counts as finished: an exception from it leaves a
  // conversion that a rerun finishes, rather than one that a rerun refuses to overwrite.
  std::function<void(const ConvertResult&)> before_finish = {};
};

// Attention scores of source and result on the same random activations and positions.
struct ScoreProof {
  std::int64_t layers = 0;  // checked: the first, the last and some between
  std::int64_t scores = 0;
  double largest_score = 0.0;
  double largest_difference = 0.0;  // relative to largest_score
};

struct ConvertResult {
  std::string model_type;
  core::PairLayout from = core::PairLayout::half, to = core::PairLayout::half;
  std::int64_t layers = 0, tensors = 0;  // permuted
  std::int64_t files = 0;
  std::uint64_t bytes = 0, resumed = 0;
  // The sidecar that was written; none if the result is in the family's own layout.
  std::optional<std::filesystem::path> sidecar;
  ScoreProof proof;
};

// Copies a folder of config.json and safetensors files and permutes its q and k projections,
// biases and per-head norms (also the values and the output projection in models that rotate
// values). Names, shapes and offsets do not change; all other bytes are copied unchanged. Finally
// compares attention scores of source and result and, if the new layout is not the family's own,
// writes the sidecar phasor_layout.json that read_config() reads.
//
// A run that was killed or failed leaves .NAME.partial and .phasor_convert.json; the same call
// resumes after the last byte written. A file gets its final name only when it is complete.
//
// error    before anything is written: what find_attention() lists; weights that are already in
//          `to`; a destination that is not empty, or holds another conversion; a folder inside the
//          other; weight files that are not part of the checkpoint; not enough disk space
//          Error(io), also when a file of the source is written to, replaced, added or removed during
//          the conversion (seen by size, time and inode): then everything written is removed.
//          Error(internal) when the scores differ: then no sidecar is written and the folder remains
//          marked as unfinished
// memory   two buffers of 1 MiB, or of one head of a projection if that is larger
[[nodiscard]] PHASOR_API Result<ConvertResult> convert_checkpoint(const ConvertOptions& options);

[[nodiscard]] PHASOR_API std::string convert_json(const ConvertResult& result);

// Converts arrays in memory to the other pair layout: weights, biases, activations.

// A view of an array; strides in elements, may be negative.
template <class Byte>  // std::byte or const std::byte
struct StridedArray {
  Byte* data = nullptr;
  std::size_t element_bytes = 0;  // 1, 2, 4 or 8
  std::span<const std::int64_t> shape = {}, strides = {};
};
inline constexpr std::size_t kMaxStridedRank = 8;

struct LayoutChange {
  core::PairLayout to = core::PairLayout::half;  // half or interleaved; the input has the other one
  std::int64_t heads = 0;
  std::optional<std::int64_t> rotary_dim =
      std::nullopt;  // none: all features from rotary_offset on
  std::int64_t rotary_offset = 0;
};

// Reorders the features of each head along `axis`, whose length is heads * head_dim:
//
//   half i        <->  interleaved 2i        i < rotary_dim / 2, counted from rotary_offset
//   half i + R/2  <->  interleaved 2i + 1
//
// Features that are not rotated do not move. Rotating the result in the new layout gives the same
// reordering of `in` rotated in the old layout.
//
// throws   Error(invalid_argument | shape_mismatch | unsupported): heads that do not divide the
//          axis, a rotary_dim that is odd or larger than the head, another layout, shapes or element
//          sizes that differ, memory of `in` and `out` that may overlap; before `out` is written
// cost     one read and one write of the array
PHASOR_API void convert_layout(const LayoutChange& change, std::int64_t axis,
                               const StridedArray<const std::byte>& in,
                               const StridedArray<std::byte>& out);

// Copies the array to `out`, row-major and contiguous.
//
// throws   Error(shape_mismatch | unsupported): `out` of another size, more than kMaxStridedRank
//          axes
PHASOR_API void copy_dense(const StridedArray<const std::byte>& in, std::span<std::byte> out);

}  // namespace phasor::porting
