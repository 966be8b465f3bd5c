// Names of tensors in dumps.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/porting/internal/runs.hpp"

namespace phasor::porting {

// A name in its parts: "model.layers.3.self_attn.q_rope" is layers, 3, self, attn, q, rope.
[[nodiscard]] std::vector<std::string> name_parts(std::string_view name);

// Parts joined again: two engines' names for one tensor should give one text.
[[nodiscard]] std::string normal_name(std::string_view name);

// The first number of a name.
[[nodiscard]] std::optional<std::int64_t> layer_of(std::string_view name);

// q and k, before and after the rotation: q_before and q_after, q_pre_rope and q_rope, q and q_rot.
enum class RotationStage : std::uint8_t { unknown, before, after };
struct RotationRole {
  RotationStage stage = RotationStage::unknown;
  std::string group;  // the parts without those of the stage: tensors of one rotation share it
};
// None for a tensor that is neither a query nor a key.
[[nodiscard]] std::optional<RotationRole> role_of(std::string_view name);

struct MatchedNames {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // of a and b, in the order of layers
  std::vector<std::size_t> only_a, only_b;
};
[[nodiscard]] MatchedNames match_names(const std::vector<RunTensor>& a,
                                       const std::vector<RunTensor>& b, RunOrder order);

}  // namespace phasor::porting
