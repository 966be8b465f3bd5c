// safetensors files built by hand, right or wrong, as the tests need them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace phasor::io::testing {

inline std::string length_field(std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xff);
  return out;
}

inline std::string safetensors_text(std::string_view header, std::string_view data = "") {
  return length_field(header.size()).append(header).append(data);
}

// One F32 tensor of two elements.
inline std::string one_tensor(std::string_view name, std::string_view data = "12345678") {
  return safetensors_text(
      "{\"" + std::string(name) + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data);
}

}  // namespace phasor::io::testing
