// The q and k weights of a checkpoint, put from one pair layout into the other.
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

// |score of the source - score of the result| relative to the largest score. Only rows move, so
// what remains is the rounding of sums in another order; beyond this the conversion is an error.
inline constexpr double kConvertScoreTolerance = 1e-5;

struct ConvertProgress {
  std::string_view file;             // under way, inside the folder
  std::uint64_t bytes = 0, all = 0;  // of all files
  std::uint64_t resumed = 0;         // of `bytes`: written by an earlier run
};

struct ConvertOptions {
  // Whether to wait until the disk has the bytes. A killed process loses nothing either way; a
  // machine that loses power may lose files that were not waited for, and a rerun then starts over.
  enum class Finish : std::uint8_t { written, on_disk };

  std::filesystem::path source, destination;
  core::PairLayout to = core::PairLayout::interleaved;
  // For a config that does not tell the layout; else it must agree with the config.
  std::optional<core::PairLayout> from = std::nullopt;
  Finish finish = Finish::written;
  std::uint64_t seed = 1;  // of the activations that the proof draws
  // Called after every few MiB. What it throws ends the conversion, which a rerun continues.
  std::function<void(const ConvertProgress&)> progress = {};
};

// Attention scores of source and result on the same random activations and positions.
struct ScoreProof {
  std::int64_t layers = 0;  // looked at: the first, the last and some between
  std::int64_t scores = 0;
  double largest_score = 0.0;
  double largest_difference = 0.0;  // relative to largest_score
};

struct ConvertResult {
  std::string model_type;
  core::PairLayout from = core::PairLayout::half, to = core::PairLayout::half;
  std::int64_t layers = 0, tensors = 0;  // that moved
  std::int64_t files = 0;
  std::uint64_t bytes = 0, resumed = 0;
  // Written unless the result is in the family's own layout again.
  std::optional<std::filesystem::path> sidecar;
  ScoreProof proof;
};

// Copies a folder of config.json and safetensors files, its q and k projections, biases and
// per-head norms permuted (values and the projection behind them too where values turn). Names,
// shapes and offsets stay, so every other byte is the source's. Ends with a proof and, where the
// layout is no longer the family's own, the sidecar phasor_layout.json that read_config() honours.
//
// A run that was killed or failed leaves .NAME.partial and .phasor_convert.json; the same call
// continues behind the last byte written. Files appear under their names whole.
//
// refuses  before anything is written: what find_attention() lists; weights that are already in
//          `to`; a destination that is not empty, or holds another conversion; folders inside each
//          other; weight files that are not part of the checkpoint; too little room
// error    Error(io); Error(internal) when the proof fails, and then no sidecar is written and the
//          folder stays marked as unfinished
// memory   two buffers of 1 MiB, or of one head of a projection where that is more
[[nodiscard]] PHASOR_API Result<ConvertResult> convert_checkpoint(const ConvertOptions& options);

[[nodiscard]] PHASOR_API std::string convert_json(const ConvertResult& result);

}  // namespace phasor::porting
