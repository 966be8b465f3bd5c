// Compiled once per instruction set with PHASOR_KERNEL_LEVEL as its name.
#include "models/kernels/kernels.hpp"

#include "models/kernels/activations.hpp"
#include "models/kernels/dequantise.hpp"
#include "models/kernels/float_tile.hpp"
#include "models/kernels/layer_ops.hpp"
#include "models/kernels/stream.hpp"
#include "models/kernels/tile.hpp"

#define PHASOR_JOIN2(a, b) a##b
#define PHASOR_JOIN(a, b) PHASOR_JOIN2(a, b)

namespace phasor::models::kernels {

extern const Kernels PHASOR_JOIN(kernels_, PHASOR_KERNEL_LEVEL);
const Kernels PHASOR_JOIN(kernels_, PHASOR_KERNEL_LEVEL) = {
    .write_exact = write_steps<kExactSteps>,
    .write_fast = write_steps<kFastSteps>,
    .write_tile = write_tile,
    .write_second = write_second,
    .stream_exact = stream<kExactSteps>,
    .stream_fast = stream<kFastSteps>,
    .stream_floats = stream_floats,
    .dequantise = dequantise,
    .tile_tokens = kTileTokens,
    .unpacked_bytes = unpacked_bytes,
    .unpack = unpack,
    .tile = tile,
    .set_tokens = kRows,
    .write_floats = write_floats,
    .panel_groups = kPanelGroups,
    .float_tile = float_tile,
#if defined(__AVX512F__)
    .prefers_float_tiles = false,  // as fast as the library on an Emerald Rapids
#else
    .prefers_float_tiles = true,
#endif
    .layer = kLayerKernels,
};

}  // namespace phasor::models::kernels
