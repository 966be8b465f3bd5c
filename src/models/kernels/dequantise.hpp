// A group of packed rows back to floats, as columns: a vector of rows for each column, vectors of one
// column `stride` floats from those of the next, parts of the group `part_stride` from each other.
#pragma once

#include "models/kernels/formats.hpp"

namespace {

template <class Type>
void dequantise_type(const Weights& weights, std::int64_t group, float* out, std::int64_t stride,
                     std::int64_t part_stride) {
  for (int part = 0; part < kParts; ++part) {
    const std::byte* const data = weights.data + group * weights.group_bytes;
    float* to = out + part * part_stride;
    for (std::int64_t u = 0; u < weights.units; ++u) {
      const typename Type::Head head = Type::head(data + head_offset(kLayout<Type>, u), part);
      const std::byte* code = data + code_offset(kLayout<Type>, u);
      for (int b = 0; b < Type::kBlocks; ++b) {
        Ints codes[kWords];
        read_codes<Type::kStored>(code + word_offset(part), codes);
        const Float minimum = head.minimum_of(b);
        PHASOR_UNROLL
        for (int w = 0; w < kWords; ++w) {
          const Float scale = head.scale_of(b, w * Type::kHalves / kWords);
          PHASOR_UNROLL
          for (int j = 0; j < 4; ++j) {
            const Ints level = shifted_right(codes[w], 8 * j) & splat_int(255);
            // As io::to_floats: the product has no rounding, the sum has one.
            Float value = to_float(level - splat_int(Type::kZero)) * scale;
            if constexpr (Type::kMinima) value += minimum;
            store(to + (4 * w + j) * stride, value);
          }
        }
        code += Type::kCodeBytes;
        to += kBlock * stride;
      }
    }
  }
}

template <class Type>
void widen_storage(const Weights& weights, std::int64_t group, float* out, std::int64_t stride,
                   std::int64_t part_stride) {
  const auto* in =
      reinterpret_cast<const typename Type::Element*>(weights.data + group * weights.group_bytes);
  for (std::int64_t c = 0; c < weights.units; ++c, in += kGroupRows, out += stride) {
    PHASOR_UNROLL
    for (int part = 0; part < kParts; ++part)
      store(out + part * part_stride, Type::read(in + part * kFloats));
  }
}

void dequantise_parts(const Weights& weights, std::int64_t group, float* out, std::int64_t stride,
                      std::int64_t part_stride) {
  with_format(weights.format, [&](auto type) {
    dequantise_type<decltype(type)>(weights, group, out, stride, part_stride);
  });
  with_storage(weights.format, [&](auto type) {
    widen_storage<decltype(type)>(weights, group, out, stride, part_stride);
  });
}

void dequantise(const Weights& weights, std::int64_t group, float* out, std::int64_t stride) {
  dequantise_parts(weights, group, out, stride, kFloats);
}

}  // namespace
