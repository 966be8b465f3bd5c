#include "attention/cache/same_rotary.hpp"

#include "phasor/core/internal/standard.hpp"

namespace phasor::attention {
namespace {

using core::Frequencies;
using core::Growth;
using core::Rotary;

template <class Value>
std::string differ(const char* name, const Value& expected, const Value& got) {
  return message(name, " ", expected, ", got ", got);
}

std::string frequency_difference(const Frequencies& expected, const Frequencies& got) {
  if (expected.amplitude() != got.amplitude())
    return differ("amplitude", expected.amplitude(), got.amplitude());
  const auto a = expected.values(), b = got.values();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return message("frequency ", i, " of ", a[i], ", got ", b[i]);
  }
  if (!core::equal(expected.axes(), got.axes())) return "the axis of a frequency differs";
  if (expected.axis_count() != got.axis_count())
    return differ("rows of positions", expected.axis_count(), got.axis_count());
  // same_values() also compares float32 frequencies and the sign of zero, which exact rotations do
  // not read.
  return {};
}

std::string growth_difference(const Growth& expected, const Growth& got) {
  if (expected.centre != got.centre) return differ("growth centre", expected.centre, got.centre);
  if (expected.rates != got.rates) return "the growth rates (xPos) differ";
  return {};
}

}  // namespace

std::string difference_of(const Rotary& expected, const Rotary& got) {
  if (expected.head_dim != got.head_dim) return differ("head_dim", expected.head_dim, got.head_dim);
  if (expected.rotary_dim() != got.rotary_dim())
    return differ("rotary_dim", expected.rotary_dim(), got.rotary_dim());
  if (expected.offset != got.offset) return differ("offset", expected.offset, got.offset);
  if (expected.layout != got.layout)
    return differ("layout", core::name_of(expected.layout), core::name_of(got.layout));
  if (expected.blocks != got.blocks) return differ("blocks", expected.blocks, got.blocks);
  if (std::string text = frequency_difference(expected.frequencies, got.frequencies); !text.empty())
    return text;
  if (expected.growth.has_value() != got.growth.has_value())
    return expected.growth ? "the cache has growth (xPos), the terms have none"
                           : "the terms have growth (xPos), the cache has none";
  return expected.growth ? growth_difference(*expected.growth, *got.growth) : std::string();
}

}  // namespace phasor::attention
