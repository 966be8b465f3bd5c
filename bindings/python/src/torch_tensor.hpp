// What is special about torch tensors as arrays. torch is found in sys.modules, never imported.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

namespace phasor::python {

namespace nb = nanobind;

enum class TorchType : std::uint8_t {
  none,    // not a torch type
  tensor,  // torch.Tensor, or a subclass whose numbers are those of its memory
  wrapper,  // a subclass with its own __torch_dispatch__: FakeTensor, DTensor, jagged NestedTensor ...
};
[[nodiscard]] TorchType torch_type_of(PyTypeObject* type);

// throws   Error(unsupported) for a tensor that requires grad or carries a forward gradient, which
//          this function would lose
void require_no_gradient(nb::handle tensor, const char* where);

// Whether the numbers of the tensor are its memory negated, as in z.conj().imag.
[[nodiscard]] bool has_negative_bit(nb::handle tensor);

// A tensor whose memory cannot be read: throws Error(unsupported) that names its device, layout or
// type.
[[noreturn]] void refuse_tensor(nb::handle tensor, const char* where);

// Tells autograd that the memory of the tensor was written: a graph that saved it before then raises
// an error in backward(), instead of using the new numbers.
void bump_version(nb::handle tensor) noexcept;

}  // namespace phasor::python
