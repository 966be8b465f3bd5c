// The docstrings of RopeSpec and Encoding, from the tables of their members.
#include <string>

#include "phasor/config/encoding.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/internal/field_text.hpp"
#include "spec.hpp"

namespace phasor::python {
namespace {

// "    factor: number, > 0; if missing: required. Divides every frequency."
template <class Owner>
[[nodiscard]] std::string lines_of(std::span<const encodings::Field<Owner>> fields,
                                   const Owner& standard) {
  std::string lines;
  for (const encodings::Field<Owner>& field : fields) {
    lines += message("    ", field.key, ": ", type_text(field),
                     "; if missing: ", missing_text(field, standard), ". ", field.meaning, "\n");
  }
  return lines;
}

}  // namespace

std::string spec_doc() {
  std::string doc = message(
      "A rotation as a value: frozen, hashable, printable; equal specs hash alike and "
      "eval(repr(spec)) == spec.\n\n"
      "f_i = base^(-2i/dim) are the unscaled frequencies, in radians per position. rotate() and "
      "attention() need a layout; cos_sin() and frequencies() do not.\n\n"
      "keywords\n",
      lines_of<encodings::RopeSpec>(encodings::spec_fields(), {}), "\nxpos={...}\n",
      lines_of<encodings::Xpos>(encodings::xpos_fields(), {}));
  for (const encodings::ScalingType* type : encodings::scaling_types()) {
    doc += message("\nscaling={\"type\": \"", type->name, "\", ...}: ", type->meaning, "\n",
                   lines_of<encodings::RopeScaling>(type->fields, type->make()));
  }
  return doc;
}

std::string encoding_doc() {
  std::string doc =
      "An encoding by name, with the members of the JSON form; tables may be arrays (float32 ones "
      "are read in place).\n\n"
      "Every name has its members, the shape of a table in [] and the default of a number in (), "
      "and scale, the factor on the scores.\n\n";
  for (const config::EncodingForm& form : config::encoding_forms())
    doc +=
        message("    ", form.name, ": ", form.members.empty() ? "no member" : form.members, "\n");
  return doc;
}

}  // namespace phasor::python
