// Small checkpoints that tests write themselves, and folders compared byte by byte.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "phasor/io/tensors.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::porting::testing {

namespace fs = std::filesystem;

// Every file below a folder: its path there and its bytes.
inline std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    all[entry.path().lexically_relative(folder).string()] = io::testing::get(entry.path());
  }
  return all;
}

inline std::vector<float> floats(const fs::path& folder, std::string_view name) {
  const auto checkpoint = io::SafetensorsCheckpoint::open(folder).value_or_throw();
  const io::Tensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) throw std::runtime_error("no tensor " + std::string(name));
  std::vector<float> values(static_cast<std::size_t>(tensor->size()));
  io::to_floats(*tensor, 0, values);
  return values;
}

// Tensors of float32 in the order they were added.
class Checkpoint {
 public:
  void add(std::string name, std::vector<std::int64_t> shape, std::vector<float> values) {
    values_.push_back(std::move(values));
    tensors_.push_back({std::move(name), io::TensorType::f32, std::move(shape), {}});
  }
  // Numbers that occur nowhere else in the checkpoint.
  void add(std::string name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<float> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), next_);
    next_ += static_cast<float>(count);
    add(std::move(name), std::move(shape), std::move(values));
  }
  [[nodiscard]] std::vector<float>& values(std::string_view name) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name == name) return values_[i];
    }
    throw std::runtime_error("no tensor " + std::string(name));
  }
  void write(const fs::path& folder, std::string_view config) {
    fs::create_directories(folder);
    io::testing::put(folder / "config.json", config);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].bytes = std::as_bytes(std::span(values_[i]));
    }
    ASSERT_TRUE(io::write_safetensors(folder / "model.safetensors", tensors_).ok());
  }

 private:
  std::vector<io::Tensor> tensors_;
  std::vector<std::vector<float>> values_;
  float next_ = 1.0F;
};

// Rows of `width` numbers, in the order that `row_of` gives: row r of the result is row row_of(r).
template <class RowOf>
std::vector<float> with_rows(const std::vector<float>& from, std::size_t width, RowOf row_of) {
  std::vector<float> to(from.size());
  for (std::size_t row = 0; row * width < from.size(); ++row) {
    std::memcpy(to.data() + row * width, from.data() + row_of(row) * width, width * sizeof(float));
  }
  return to;
}

}  // namespace phasor::porting::testing
