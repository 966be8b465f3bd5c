// The files of a run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lab/run/run_log.hpp"
#include "lab/train/trainer.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/text/internal/trainer.hpp"

namespace phasor::lab {

// What a checkpoint holds besides the network and the optimiser.
struct RunState {
  TrainerState trainer;
  std::int64_t log_rows = 0;
  // Of the steps since the last row of the log.
  Loss pending;
  double gradient_norm = 0.0;  // of the last step
  double seconds = 0.0;        // of all calls so far
};

// All throw Error(io) when a file cannot be read or written.
class RunFolder {
 public:
  explicit RunFolder(const std::filesystem::path& folder);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_; }
  // Keeps other processes and runs out, until it is destroyed or the process ends.
  //
  // throws   Error(io): another one has it
  [[nodiscard]] io::Descriptor lock() const;
  // nullopt: another one has it.
  [[nodiscard]] std::optional<io::Descriptor> try_lock() const;
  [[nodiscard]] std::filesystem::path file(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const;

  // Writes the document, or compares it with that of an earlier call.
  //
  // throws   Error(invalid_argument) with the differences
  void keep_document(std::string_view name, const io::Json& document) const;
  void write(std::string_view name, std::string_view text) const;

  // Complete checkpoints, oldest first.
  [[nodiscard]] std::vector<std::filesystem::path> checkpoints() const;
  // Writes a checkpoint and removes all but the newest two. If it fails, nothing of it stays.
  void save_checkpoint(const RunState& state, const Network<float>& network,
                       const OptimiserMoments& moments,
                       std::span<const text::TokenizerFile> tokenizer) const;
  // The newest one, with its moments; nullopt: none, nothing was changed. Incomplete ones are removed.
  //
  // throws   also Error(shape_mismatch | invalid_argument): a checkpoint of another network
  [[nodiscard]] std::optional<RunState> resume(Network<float>& network,
                                               OptimiserMoments& moments) const;
  void remove_checkpoints() const;

 private:
  std::filesystem::path folder_;
};

}  // namespace phasor::lab
