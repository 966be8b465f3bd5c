// Weights by name, whatever the file format, and the settings that came with them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/core/error.hpp"
#include "phasor/export.h"
#include "phasor/io/gguf.hpp"
#include "phasor/io/tensor.hpp"

namespace phasor::models {

// A folder of config.json and safetensors, or a GGUF file; memory-mapped. Moves, does not copy.
class PHASOR_API Checkpoint {
 public:
  // Refuses what the readers refuse (SafetensorsCheckpoint, GgufFile, read_config), a folder
  // without config.json, and a GGUF file with tensors of a type that Phasor does not read.
  [[nodiscard]] static Result<Checkpoint> open(const std::filesystem::path& path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  // What the config says of positions.
  [[nodiscard]] const config::ModelConfig& config() const noexcept;
  // The text of config.json; empty for GGUF.
  [[nodiscard]] const std::string& config_json() const noexcept;
  // Null for safetensors.
  [[nodiscard]] const io::GgufFile* gguf() const noexcept;
  // As it may stand in a one-line message.
  [[nodiscard]] const std::string& name() const noexcept;

  // Null when there is none of that name. find() marks the tensor as read.
  [[nodiscard]] const io::Tensor* find(std::string_view name);
  // Names that nobody asked for, in the order of the file.
  [[nodiscard]] std::vector<std::string> unread() const;
  [[nodiscard]] std::vector<const io::Tensor*> tensors() const;
  [[nodiscard]] std::size_t bytes() const;  // of all tensors
  // Gives a tensor's pages back to the system once it was copied: the file counts no more as memory.
  void release(const io::Tensor& tensor) const noexcept;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace phasor::models
