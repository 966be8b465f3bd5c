#include "phasor/encodings/rope_scaling.hpp"

#include <array>
#include <cmath>

#include "encodings/rope/scalings.hpp"
#include "phasor/core/error.hpp"

namespace phasor::encodings {

std::string_view name_of(const RopeScaling& scaling) noexcept {
  static constexpr std::array<std::string_view, std::variant_size_v<RopeScaling>> kNames = {
      "default", "linear",   "ntk",    "dynamic",     "ntk_by_parts",
      "yarn",    "longrope", "llama3", "proportional"};
  return kNames[scaling.index()];
}

bool depends_on_context(const RopeScaling& scaling) noexcept {
  if (const auto* dynamic = std::get_if<DynamicScaling>(&scaling)) return !dynamic->alpha;
  return std::holds_alternative<LongRopeScaling>(scaling);
}

std::optional<std::int64_t> original_length(const RopeScaling& scaling) noexcept {
  return std::visit(
      [](const auto& type) -> std::optional<std::int64_t> {
        // Dynamic scaling with alpha has a length of 0: it does not read one.
        if constexpr (requires { type.original_length; }) {
          if (type.original_length > 0) return type.original_length;
        }
        return std::nullopt;
      },
      scaling);
}

void require_finite(std::string_view what, double value) {
  if (std::isfinite(value)) return;
  throw Error(ErrorCode::invalid_argument, message("rope: ", what, " must be finite, got ", value));
}

void require_positive(std::string_view what, double value) {
  if (std::isfinite(value) && value > 0.0) return;
  throw Error(ErrorCode::invalid_argument,
              message("rope: ", what, " must be positive and finite, got ", value));
}

void require_positive(std::string_view what, std::int64_t value) {
  if (value > 0) return;
  throw Error(ErrorCode::invalid_argument,
              message("rope: ", what, " must be positive, got ", value));
}

}  // namespace phasor::encodings
