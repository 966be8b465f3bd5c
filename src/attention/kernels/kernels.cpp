// Compiled once per instruction set with PHASOR_KERNEL_LEVEL as its name.
#include "attention/kernels/kernels.hpp"

#include "attention/kernels/backward.hpp"
#include "attention/kernels/few_rows.hpp"
#include "attention/kernels/linear.hpp"
#include "attention/kernels/pack.hpp"
#include "attention/kernels/softmax.hpp"

#define PHASOR_JOIN2(a, b) a##b
#define PHASOR_JOIN(a, b) PHASOR_JOIN2(a, b)

namespace phasor::attention::kernels {

extern const Kernels PHASOR_JOIN(kernels_, PHASOR_KERNEL_LEVEL);
const Kernels PHASOR_JOIN(kernels_, PHASOR_KERNEL_LEVEL) = {
    .read_rows = read_rows,
    .write_rows = write_rows,
    .scale_rows = scale_rows,
    .add_rows = add_rows,
    .sum_rows = sum_rows,
    .pack_columns = pack_columns,
    .pack_values = pack_values,
    .attend_block = attend_block,
    .backward_far = backward_far,
    .backward_head = backward_head,
    .score_rows = score_rows,
    .weigh_rows = weigh_rows,
    .exp_row = exp_row,
    .add_line = add_line,
    .soft_cap_row = soft_cap_row,
    .linear = kLinearKernels,
};

}  // namespace phasor::attention::kernels
