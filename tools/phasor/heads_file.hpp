// Queries, keys or values in a .npy file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "phasor/core/view.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::tools {

// Heads read from a file, with or without a batch axis.
struct HeadsFile {
  // role     "q", in messages
  // throws   Error(io) for a file that cannot be read, Error(shape_mismatch | unsupported) for one
  //          that is not [batch, tokens, heads, head_dim] or [tokens, heads, head_dim] of floats
  HeadsFile(const std::string& path, std::string_view role);
  HeadsFile(const HeadsFile&) = delete;
  HeadsFile& operator=(const HeadsFile&) = delete;

  // None: the array has no batch axis.
  [[nodiscard]] std::optional<std::int64_t> batch() const {
    return batched ? std::optional(view.batch) : std::nullopt;
  }

  io::NpyArray array;
  core::HeadsView view;  // of the array
  bool batched = false;
};

}  // namespace phasor::tools
