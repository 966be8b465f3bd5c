// RoFormer checkpoints that tests change before they write them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "phasor/io/npy.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/models/roformer.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::models::testing {

inline std::filesystem::path golden_case(const std::string& name) {
  return std::filesystem::path(PHASOR_GOLDEN_DIR) / "models" / name;
}
inline std::vector<double> doubles(const std::filesystem::path& file) {
  return io::to_doubles(io::read_npy(file).value_or_throw()).value_or_throw();
}
inline std::vector<std::int64_t> integers(const std::filesystem::path& file) {
  return io::to_integers(io::read_npy(file).value_or_throw()).value_or_throw();
}

struct Weight {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// config.json and float32 tensors by name.
struct Files {
  std::string config;
  std::map<std::string, Weight> weights;

  static Files of_golden(const std::string& name) {
    const std::filesystem::path folder = golden_case(name) / "model";
    Files files{io::testing::get(folder / "config.json"), {}};
    const auto checkpoint = io::SafetensorsCheckpoint::open(folder).value_or_throw();
    for (const io::Tensor& tensor : checkpoint.shards().front().file.tensors()) {
      Weight weight{tensor.shape, std::vector<float>(static_cast<std::size_t>(tensor.size()))};
      io::to_floats(tensor, 0, weight.values);
      files.weights[tensor.name] = std::move(weight);
    }
    return files;
  }

  void change_config(std::string_view from, std::string_view to) {
    const std::size_t at = config.find(from);
    if (at == std::string::npos) throw std::runtime_error("no such text in config.json");
    config.replace(at, from.size(), to);
  }
  // Random weights around `middle`, the same on every machine.
  void add(const std::string& name, std::vector<std::int64_t> shape, float middle, float width,
           std::mt19937_64& random) {
    std::size_t size = 1;
    for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
    Weight weight{std::move(shape), std::vector<float>(size)};
    for (float& value : weight.values) {
      value = middle + width * (static_cast<float>(random() >> 40) * 0x1p-23F - 1.0F);
    }
    weights[name] = std::move(weight);
  }

  // `rounded` is stored as bfloat16.
  void write(const std::filesystem::path& folder, std::string_view rounded = {}) const {
    std::filesystem::create_directories(folder);
    io::testing::put(folder / "config.json", config);
    std::vector<io::Tensor> tensors;
    std::vector<std::uint16_t> halves;
    for (const auto& [name, weight] : weights) {
      io::Tensor tensor{name, io::TensorType::f32, weight.shape,
                        std::as_bytes(std::span(weight.values))};
      if (name == rounded) {
        for (const float value : weight.values) halves.push_back(core::to_bfloat16(value).bits);
        tensor.type = io::TensorType::bf16;
        tensor.bytes = std::as_bytes(std::span(halves));
      }
      tensors.push_back(std::move(tensor));
    }
    ASSERT_TRUE(io::write_safetensors(folder / "model.safetensors", tensors).ok());
  }
};

inline void expect_near(std::span<const float> got, std::span<const double> expected, double atol,
                        double rtol) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], atol + rtol * std::abs(expected[i])) << "at " << i;
  }
}

}  // namespace phasor::models::testing
