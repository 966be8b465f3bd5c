// Arrays of the golden data for tests of rooms that may not include the io room: version 1 of .npy,
// as NumPy writes it. A file that is not exactly that fails the test with its name.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace phasor::tests {

// The elements of golden/<path>, whatever the shape.
template <class T>
std::vector<T> golden_array(const std::string& path) {
  std::ifstream file(std::string(PHASOR_GOLDEN_DIR) + "/" + path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() < 10 || bytes.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8)) != 0) {
    throw std::runtime_error("golden: " + path + " is not version 1 of .npy");
  }
  const std::size_t start = 10 + static_cast<unsigned char>(bytes[8]) +
                            256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[9]));
  const std::string kind = std::is_floating_point_v<T> ? "f" : "i";
  const std::string type = "'descr': '<" + kind + std::to_string(sizeof(T)) + "'";
  if (bytes.size() < start || (bytes.size() - start) % sizeof(T) != 0 ||
      bytes.substr(10, start - 10).find(type) == std::string::npos) {
    throw std::runtime_error("golden: " + path + " does not hold " + type);
  }
  std::vector<T> elements((bytes.size() - start) / sizeof(T));
  std::memcpy(elements.data(), bytes.data() + start, elements.size() * sizeof(T));
  return elements;
}

}  // namespace phasor::tests
