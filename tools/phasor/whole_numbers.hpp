// Whole numbers as people write counts: 131072, 128k, 1M.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

namespace phasor::tools {

// The whole text as one number, in decimal. A leading + is allowed, and one of k (or K), M and G after
// the digits: 2^10, 2^20 and 2^30, since lengths of contexts are powers of two.
//
// returns  std::errc{}, invalid_argument, or result_out_of_range when it does not fit the type
template <std::integral Whole>
[[nodiscard]] std::errc read_whole(std::string_view text, Whole& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Whole unit = 1;
  if (text.size() > 1) {
    const char last = text.back();
    const int bits = last == 'k' || last == 'K' ? 10 : last == 'M' ? 20 : last == 'G' ? 30 : 0;
    if (bits != 0) text.remove_suffix(1);
    unit = static_cast<Whole>(unit << bits);
  }
  Whole value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty()) return std::errc::invalid_argument;
  if (status != std::errc{}) return status;
  using Limits = std::numeric_limits<Whole>;
  if (value > Limits::max() / unit || value < Limits::min() / unit)
    return std::errc::result_out_of_range;
  number = static_cast<Whole>(value * unit);
  return {};
}

}  // namespace phasor::tools
