// Tensors of every type that a matrix takes, with blocks of random codes and scales of ordinary size.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "phasor/core/view.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::models::testing {

using io::TensorType;

inline constexpr std::array kTypes = {
    TensorType::f64,  TensorType::f32,  TensorType::f16,   TensorType::bf16, TensorType::q8_0,
    TensorType::q4_0, TensorType::q4_1, TensorType::q5_0,  TensorType::q5_1, TensorType::q4_k,
    TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl};

// Where a block keeps its half-precision scales, and the bytes that are codes.
struct BlockPlan {
  std::vector<std::size_t> halves;
  std::size_t codes_begin = 0, codes_end = 0;
};
inline BlockPlan plan_of(TensorType type) {
  const std::size_t end = io::block_bytes(type);
  switch (type) {
    case TensorType::q8_0:
    case TensorType::q4_0:
    case TensorType::iq4_nl:
    case TensorType::q5_0:
      return {{0}, 2, end};
    case TensorType::q4_1:
    case TensorType::q5_1:
      return {{0, 2}, 4, end};
    case TensorType::q4_k:
    case TensorType::q5_k:
      return {{0, 2}, 16, end};
    case TensorType::q6_k:
      return {{208}, 0, 192};
    default:
      return {};
  }
}

class QuantisedTensor {
 public:
  QuantisedTensor(TensorType type, std::int64_t rows, std::int64_t columns, std::uint32_t seed)
      : bytes_(static_cast<std::size_t>(rows * columns / io::block_elements(type)) *
               io::block_bytes(type)) {
    tensor_.name = "w";
    tensor_.type = type;
    tensor_.shape = {rows, columns};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    if (io::block_elements(type) == 1) {
      fill_plain(type, random, normal);
    } else {
      for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random() & 255U);
      const BlockPlan plan = plan_of(type);
      for (std::size_t at = 0; at < bytes_.size(); at += io::block_bytes(type)) {
        for (const std::size_t half : plan.halves) set_half(at + half, 0.01F * normal(random));
      }
    }
    tensor_.bytes = bytes_;
  }
  QuantisedTensor(const QuantisedTensor&) = delete;
  QuantisedTensor& operator=(const QuantisedTensor&) = delete;

  [[nodiscard]] const io::Tensor& tensor() const { return tensor_; }
  [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }
  [[nodiscard]] std::vector<float> floats() const {
    std::vector<float> values(static_cast<std::size_t>(tensor_.size()));
    io::to_floats(tensor_, 0, values);
    return values;
  }
  void set_half(std::size_t byte, float value) {
    const core::Half half = core::to_half(value);
    std::memcpy(bytes_.data() + byte, &half.bits, 2);
  }

  // For each element the largest magnitude that its block's scales can represent.
  [[nodiscard]] std::vector<float> reach() const {
    std::vector<float> largest = floats();
    if (io::block_elements(tensor_.type) == 1) {
      for (float& value : largest) value = std::abs(value);
      return largest;
    }
    const BlockPlan plan = plan_of(tensor_.type);
    for (const unsigned code : {0x00U, 0xffU, 0x80U, 0x7fU}) {
      std::vector<std::byte> bytes = bytes_;
      for (std::size_t at = 0; at < bytes.size(); at += io::block_bytes(tensor_.type)) {
        std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at + plan.codes_begin),
                  bytes.begin() + static_cast<std::ptrdiff_t>(at + plan.codes_end),
                  static_cast<std::byte>(code));
      }
      io::Tensor other = tensor_;
      other.bytes = bytes;
      std::vector<float> values(largest.size());
      io::to_floats(other, 0, values);
      for (std::size_t i = 0; i < values.size(); ++i)
        largest[i] = std::max(std::abs(largest[i]), std::abs(values[i]));
    }
    return largest;
  }

 private:
  void fill_plain(TensorType type, std::mt19937& random, std::normal_distribution<float>& normal) {
    const std::size_t size = io::block_bytes(type);
    for (std::size_t at = 0; at < bytes_.size(); at += size) {
      const float value = normal(random);
      const double wide = static_cast<double>(value) * 1.0000000123;  // no float
      const core::Half half = core::to_half(value);
      const core::BFloat16 brain = core::to_bfloat16(value);
      const void* from = type == TensorType::f64   ? static_cast<const void*>(&wide)
                         : type == TensorType::f32 ? static_cast<const void*>(&value)
                         : type == TensorType::f16 ? static_cast<const void*>(&half.bits)
                                                   : static_cast<const void*>(&brain.bits);
      std::memcpy(bytes_.data() + at, from, size);
    }
  }

  std::vector<std::byte> bytes_;
  io::Tensor tensor_;
};

}  // namespace phasor::models::testing
