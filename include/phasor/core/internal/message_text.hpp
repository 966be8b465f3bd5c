// Parts of messages that every room needs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "phasor/core/view.hpp"

namespace phasor::core {

// "[2, 5, 64]"
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);
// "[batch, tokens, heads, head_dim]" of a view, as numbers.
[[nodiscard]] std::string shape_text(const ConstHeadsView& view);

// `"a", "b" or "c"`; without quotes: `a, b or c`
enum class Quotes : std::uint8_t { none, around };
[[nodiscard]] std::string list_text(std::span<const std::string_view> words,
                                    Quotes quotes = Quotes::none);

// `; did you mean "rope_scaling"?` when one of `known` is close to `word`, else "".
[[nodiscard]] std::string did_you_mean(std::string_view word,
                                       std::span<const std::string_view> known);

}  // namespace phasor::core
