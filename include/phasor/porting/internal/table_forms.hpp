// The forms in which engines store their cos and sin.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::porting {

// With rows = positions and pairs = rotary_dim / 2:
enum class TableForm : std::uint8_t {
  pairs,         // cos and sin [rows, pairs]; in one array [2, rows, pairs]
  concatenated,  // cos and sin [rows, 2 pairs], the second half repeats the first (Hugging Face)
  interleaved,  // cos and sin [rows, 2 pairs], features 2i and 2i + 1 are equal (repeat_interleave)
  complex,      // [rows, pairs] of cos + i sin (freqs_cis)
  last_axis,    // [rows, pairs, 2]: the same, as real numbers (view_as_real)
  cos_sin,      // [rows, 2 pairs]: cos in the first half, sin in the second (vLLM)
  sin_cos,      // sin in the first half (GPT-J, RoFormer); never inferred, only chosen
};
[[nodiscard]] std::string_view name_of(TableForm form) noexcept;
// nullopt for an unknown name.
[[nodiscard]] std::optional<TableForm> table_form_of(std::string_view name) noexcept;

// Two features that must be equal in a form that stores each value twice, and are not.
struct CopyDifference {
  std::int64_t row = 0, first = 0, second = 0;
  double first_value = 0.0, second_value = 0.0;
  std::int64_t count = 0;  // of such entries in cos and sin
};

struct TableReading {
  TableForm form = TableForm::pairs;
  std::int64_t rows = 0;
  std::vector<double> cos, sin;  // [rows, pairs]; of two copies the first
  core::DType stored = core::DType::f32;
  std::optional<CopyDifference> copies;
};

// Finds the form from shapes, types and, between `concatenated` and `interleaved`, from the numbers.
// Axes of size 1 in addition to those of the form are ignored. uint16 is read as the bits of bfloat16.
//
// shape    as TableForm says; `sin` null: `table` holds both
// throws   Error(shape_mismatch) for a shape of no form, with the shape and those that would fit;
//          Error(invalid_argument) when several forms fit, or when a half that must be sin repeats the
//          other, which is cos or sin alone; Error(unsupported) for types that are no floats
[[nodiscard]] TableReading read_table(const io::NpyArray& table, const io::NpyArray* sin,
                                      std::int64_t pairs,
                                      std::optional<TableForm> form = std::nullopt);

}  // namespace phasor::porting
