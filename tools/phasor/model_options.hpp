// Flags and inputs shared by the verbs that run a model: its path, precision, threads, token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "phasor/models/checkpoint.hpp"

namespace phasor::tools {

struct ModelOptions {
  std::string model;
  bool fast = false;
  int threads = 0;
};
// MODEL, --fast, --threads
enum class ModelArgument : std::uint8_t { required, optional };
void add_model_options(Verb& verb, ModelOptions& options,
                       ModelArgument argument = ModelArgument::required);
[[nodiscard]] models::ComputeOptions compute_options(const ModelOptions& options);
// The kind of a model that several ranks run: of others, a refusal.
//
// throws   Error(unsupported)
void require_decoder_on_ranks(std::string_view model_type);
// On several ranks, collective: all must have read the same ids.
//
// throws   Error(invalid_argument), the same on every rank
void agree_on_ids(std::span<const std::int64_t> ids);

// Numbers of a rotation in place of the model's.
struct RopeOverride {
  std::optional<double> base;
  std::string scaling;
};
// --rope-base, --rope-scaling
void add_rope_override(Verb& verb, RopeOverride& rope);
// The model with these numbers.
//
// throws   Error as Checkpoint::change_rope(); a scaling that does not fit
[[nodiscard]] models::Checkpoint with_rope(models::Checkpoint checkpoint, const RopeOverride& rope);
// The same for the model of a path.
//
// throws   also as Checkpoint::open()
[[nodiscard]] models::Checkpoint open_checkpoint(const std::string& model,
                                                 const RopeOverride& rope);

// [batch, tokens] integers; `has_batch` tells a file with that axis from one of [tokens].
struct IdArray {
  std::int64_t batch = 1, tokens = 0;
  bool has_batch = false;
  std::vector<std::int64_t> values;

  [[nodiscard]] std::span<const std::int64_t> row(std::int64_t index) const {
    return std::span(values).subspan(static_cast<std::size_t>(index * tokens),
                                     static_cast<std::size_t>(tokens));
  }
};
// An array file, or the ids themselves: "1,2,3". stdin (-) may hold either.
//
// throws   Error: not a readable .npy, not integers, wrong rank, no token
[[nodiscard]] IdArray read_ids(const std::string& path);
// [batch, tokens], one byte per token, 0 = padding. Without a path: no padding.
[[nodiscard]] std::vector<std::uint8_t> read_mask(const std::string& path, const IdArray& ids);

// The last part of a path, with control characters, commas and quotes replaced: safe in a CSV file.
[[nodiscard]] std::string short_name(const std::string& path);

}  // namespace phasor::tools
