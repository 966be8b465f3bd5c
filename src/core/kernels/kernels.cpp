// Compiled once per instruction set with PHASOR_KERNEL_LEVEL as its name.
#include "phasor/core/internal/kernels/kernels.hpp"

#include "core/kernels/angles.hpp"
#include "core/kernels/rotate.hpp"

#define PHASOR_JOIN2(a, b) a##b
#define PHASOR_JOIN(a, b) PHASOR_JOIN2(a, b)

namespace phasor::core::kernels {

extern const Kernels PHASOR_JOIN(kernels_, PHASOR_KERNEL_LEVEL);
const Kernels PHASOR_JOIN(kernels_, PHASOR_KERNEL_LEVEL) = {
    .rotate = {{rotate<Interleaved<F32>>, rotate<Half<F32>>},
               {rotate<Interleaved<F16>>, rotate<Half<F16>>},
               {rotate<InterleavedBf16>, rotate<HalfBf16>}},
    .rotate_f64 = {rotate_f64<false>, rotate_f64<true>},
    .stream_bytes = stream_bytes,
    .fence = fence,
    .row_f32 = angle_row<float>,
    .row_f64 = angle_row<double>,
};

}  // namespace phasor::core::kernels
