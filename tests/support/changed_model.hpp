// A golden model with other numbers in one of its tensors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "phasor/io/tensors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::tests {

// Copies a folder of config.json and model.safetensors, with `value` in elements [first, end) of a float32
// tensor.
inline void copy_with_value(const std::filesystem::path& from, const std::filesystem::path& to,
                            std::string_view tensor, float value, std::size_t first = 0,
                            std::size_t end = std::string::npos) {
  namespace fs = std::filesystem;
  fs::create_directories(to);
  fs::copy_file(from / "config.json", to / "config.json", fs::copy_options::overwrite_existing);
  std::string bytes = io::testing::get(from / "model.safetensors");
  const auto file = io::SafetensorsFile::open(from / "model.safetensors").value_or_throw();
  const io::Tensor* const found = file.find(tensor);
  ASSERT_NE(found, nullptr) << tensor;
  const std::vector<float> values(std::min(end, found->byte_size() / sizeof(float)) - first, value);
  std::memcpy(bytes.data() + found->offset + first * sizeof(float), values.data(),
              values.size() * sizeof(float));
  io::testing::put(to / "model.safetensors", bytes);
}

}  // namespace phasor::tests
