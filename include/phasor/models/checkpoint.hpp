// What models are loaded from and computed with: the tensors of a checkpoint by name, for any file
// format, with its config; precision, threads and instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/export.h"
#include "phasor/io/tensors.hpp"

namespace phasor::models {

enum class Precision : std::uint8_t {
  exact,  // float32 activations, within the rounding of a float32 sum
  fast,   // activations rounded to eight bits per block of 32; see kFastProductError
};
// Bound of a product's error with Precision::fast, relative to sum_c X_c |w_c|: w_c are weights, X_c is
// the largest activation of the 32 around c.
inline constexpr double kFastProductError = 1.0 / 254;
[[nodiscard]] PHASOR_API std::string_view name_of(Precision precision) noexcept;

struct ComputeOptions {
  Precision precision = Precision::exact;
  int threads = 0;  // as core::RotateOptions
  core::InstructionSet isa = core::InstructionSet::best;
};

// Numbers of a rotation in place of the config's. The weights are unchanged.
struct RopeChange {
  std::optional<double> base = std::nullopt;
  std::optional<encodings::RopeScaling> scaling = std::nullopt;
};

// A folder of config.json and safetensors, or a GGUF file; tensors are read when needed, from files
// that stay open. Moves, does not copy.
class PHASOR_API Checkpoint {
 public:
  // error    as SafetensorsCheckpoint, GgufFile and read_config; Error(io): nothing at this path, no
  //          config.json; Error(unsupported): a GGUF file with tensors of unsupported types
  [[nodiscard]] static Result<Checkpoint> open(const std::filesystem::path& path);
  // A config.json and a safetensors file in memory, which the caller keeps alive; `name` is that of the
  // model in messages.
  //
  // error    as open()
  [[nodiscard]] static Result<Checkpoint> parse(std::string_view config_json,
                                                std::span<const std::byte> safetensors,
                                                std::string_view name);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  // The position settings of the config.
  [[nodiscard]] const config::ModelConfig& config() const noexcept;
  // Changes the config of every layer that rotates, as if the files had these numbers. A model that is
  // loaded from this checkpoint afterwards rotates by them.
  //
  // throws   Error(unsupported): no layer rotates, layers rotate differently, or the file has lists of
  //          frequencies or of factors on them; Error(invalid_argument) as encodings::validate(). The
  //          config is then unchanged
  void change_rope(const RopeChange& change);
  // The text of config.json; empty for GGUF.
  [[nodiscard]] const std::string& config_json() const noexcept;
  // Null for safetensors.
  [[nodiscard]] const io::GgufFile* gguf() const noexcept;
  // The path, in one line, for messages.
  [[nodiscard]] const std::string& name() const noexcept;

  // Null when the name is unknown. Marks the tensor as read.
  [[nodiscard]] const io::Tensor* find(std::string_view name);
  // Names that find() was not called with, in the order of the file.
  [[nodiscard]] std::vector<std::string> unread() const;
  [[nodiscard]] std::vector<const io::Tensor*> tensors() const;
  [[nodiscard]] std::size_t bytes() const;  // of all tensors
  // Call after the last tensor was read.
  //
  // throws   Error(io): a file was written to since it was opened
  void check_unchanged() const;
  // Tells checkpoints apart by every byte of their files, whatever those are called: XXH64 of
  // config.json and of each file of tensors, in order, as "xxh64:" and 16 digits.
  //
  // throws   Error(io | cancelled)
  [[nodiscard]] std::string content_key() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace phasor::models
