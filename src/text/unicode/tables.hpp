// The tables of unicode.hpp, sorted by their first member; made by
// scripts/make_unicode_tables.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phasor::text::unicode {

struct CategoryRun {  // up to where the next run begins
  std::uint32_t first;
  std::uint8_t category;
};
struct ClassRun {
  std::uint32_t first, last;
  std::uint8_t combining_class;
};
struct Decomposition {
  std::uint32_t code, first, second;  // second 0: one character alone
};
struct Composition {
  std::uint32_t first, second, code;
};
struct LowerCase {
  std::uint32_t code, lower;
};

extern const CategoryRun kCategoryRuns[];
extern const std::size_t kCategoryRunsCount;
extern const ClassRun kClassRuns[];
extern const std::size_t kClassRunsCount;
extern const Decomposition kDecompositions[];
extern const std::size_t kDecompositionsCount;
extern const Composition kCompositions[];
extern const std::size_t kCompositionsCount;
extern const LowerCase kLowerCase[];
extern const std::size_t kLowerCaseCount;

}  // namespace phasor::text::unicode
