// Python's RopeSpec: the value, its plain spec, and the rotation it was last resolved to.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::python {

class PySpec {
 public:
  PySpec() = default;
  explicit PySpec(const encodings::RopeSpec& spec);

  encodings::RopeSpec value;
  std::string plain;  // the plain spec as JSON, keys in a fixed order: equal specs have equal text

  // The rotation at a context length; the last one is cached for decode steps. Call it with the GIL
  // held; the result may be used without.
  //
  // throws   as encodings::resolve
  [[nodiscard]] std::shared_ptr<const core::Rotary> rotary(
      std::optional<std::int64_t> context) const;

 private:
  mutable std::shared_ptr<const core::Rotary> last_;
  mutable std::optional<std::int64_t> last_context_;
};

// cos and sin of a range of positions, computed once.
struct PyTable {
  core::CosSinTable table;
};

// The docstrings of RopeSpec and Encoding: every keyword, scaling and encoding with its members.
[[nodiscard]] std::string spec_doc();
[[nodiscard]] std::string encoding_doc();

// A RopeSpec, or anything that RopeSpec.from_hf takes.
[[nodiscard]] const PySpec& spec_of(nanobind::handle object, PySpec& room, const char* where);

}  // namespace phasor::python
