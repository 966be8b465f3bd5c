// From the description of a golden case to the rotation it asks for, and the positions of its
// tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conform/case.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::tools {

// The spec of a description: a Hugging Face config or plain spec where `config` is one, rope
// parameters with a head width, or explicit members (theta, head_dim, rotary_dim, layout).
//
// throws   Error when the config is refused, or when it contradicts the case's own layout,
// rotary_dim,
//          head_dim or M-RoPE rows
[[nodiscard]] encodings::RopeSpec spec_of(const io::Json& description, const std::string& where);

// A config written into a case rather than in a file.
[[nodiscard]] encodings::RopeSpec spec_of_config(const io::Json& config,
                                                 const std::string& layer_type,
                                                 const std::string& where);

// The positions of a case as [axes, batch, tokens].
class CasePositions {
 public:
  CasePositions(const CaseArray& array, const std::string& name, const encodings::RopeSpec& spec,
                std::int64_t batch, std::int64_t tokens);
  [[nodiscard]] core::Positions view() const noexcept;
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] double at(int axis, std::int64_t batch, std::int64_t token) const;
  // The length of the sequences: the largest position + 1.
  [[nodiscard]] std::optional<std::int64_t> length() const;

 private:
  int axes_ = 1;
  std::int64_t batch_ = 1, tokens_ = 0;
  std::vector<double> values_;
  std::vector<std::int64_t> integers_;  // the same, when the file holds integers
};

// The rotation at the length the case names (`seq_len`), else at the length of its positions where
// that matters.
[[nodiscard]] core::Rotary rotary_of(const io::Json& description, const encodings::RopeSpec& spec,
                                     const CasePositions& positions, const std::string& where);

}  // namespace phasor::tools
