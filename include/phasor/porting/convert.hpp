// Converts the q and k weights of a checkpoint from one pair layout to the other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "phasor/core/error.hpp"
#include "phasor/core/rotary.hpp"
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
//          Error(io); Error(internal) when the scores differ: then no sidecar is written and the
//          folder remains marked as unfinished
// memory   two buffers of 1 MiB, or of one head of a projection if that is larger
[[nodiscard]] PHASOR_API Result<ConvertResult> convert_checkpoint(const ConvertOptions& options);

[[nodiscard]] PHASOR_API std::string convert_json(const ConvertResult& result);

}  // namespace phasor::porting
