// The Encoding class, and the `encoding=` argument resolved to score terms.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/encodings/score_terms.hpp"

namespace phasor::python {

class PySpec;

[[nodiscard]] bool is_list(nb::handle object);  // or a tuple
[[nodiscard]] nb::dict as_dict(nb::handle mapping);
// Throws Error(invalid_argument) for a name that is none of the `known` arrays.
[[noreturn]] void refuse_array(std::string_view where, std::string_view name,
                               std::span<const std::string_view> known);
// An array as the table that config::parse_encoding reads in place.
//
// throws   Error(unsupported) if the elements are not floats
[[nodiscard]] config::NamedTable named(std::string_view name, const Array& array);

// The JSON form of an encoding; a table that is an array of the caller is {"array": MEMBER}.
struct PyEncoding {
  std::string name;
  std::string json;
  std::filesystem::path folder = ".";  // where .npy names are looked up
  // By member; in {"encoding": [...]} by "index.member".
  std::vector<std::pair<std::string, nb::object>> tables;

  // A rope without head_dim: it is checked when attention gives the width.
  bool needs_shape = false;

  // From the JSON form as a dictionary, with arrays as tables.
  //
  // throws   Error(invalid_argument | unsupported) for a member that is neither JSON nor a float
  //          array
  [[nodiscard]] static PyEncoding from_dict(nb::handle dictionary);
  // throws   Error as config::parse_encoding, for what can be checked without the attention shape
  void check() const;
  [[nodiscard]] static PyEncoding from_file(const std::filesystem::path& path);
  // The same encoding with some arrays replaced, by member.
  [[nodiscard]] PyEncoding with_tables(nb::handle tables) const;
  [[nodiscard]] std::string text() const;

  // Needs the GIL; the result is valid without it as long as the arrays are. Without arrays the last
  // result is cached, so that files are not read again for every call.
  [[nodiscard]] std::shared_ptr<const config::LoadedEncoding> load(
      const encodings::AttentionShape& shape, std::span<const config::NamedTable> arrays) const;

 private:
  mutable std::shared_ptr<const config::LoadedEncoding> last_;
  mutable encodings::AttentionShape last_shape_;
};

// `encoding=` of a call: a RopeSpec, an Encoding, its JSON form, a list of those, or None.
class EncodingArgument {
 public:
  // throws   Error(invalid_argument) for another kind of object; as config::parse_encoding and
  //          encodings::resolve
  EncodingArgument(nb::handle object, const encodings::AttentionShape& shape);
  EncodingArgument(const EncodingArgument&) = delete;
  EncodingArgument& operator=(const EncodingArgument&) = delete;

  [[nodiscard]] const encodings::ScoreTerms& terms() const noexcept { return terms_; }

 private:
  friend class TableGradients;

  // One of several encodings; `prefix` is put before the names of its tables.
  struct Part {
    std::string prefix;
    nb::object keeper;  // another thread may change the list while the GIL is released
    const PySpec* spec = nullptr;
    const PyEncoding* encoding = nullptr;
  };
  // An array of a part, held for the call.
  struct Held {
    const Part* part;
    const std::string* member;
    std::string name;   // with the prefix
    std::string where;  // for messages
    Array array;
    Held(const Part& of, const std::string& with, nb::handle object);
  };

  void add(nb::handle object, std::string prefix);
  // The terms; `table_of(Held)` gives the NamedTable of each array.
  template <class TableOf>
  [[nodiscard]] encodings::ScoreTerms resolve(
      const TableOf& table_of,
      std::vector<std::shared_ptr<const config::LoadedEncoding>>& loaded) const;

  encodings::AttentionShape shape_;
  std::deque<PyEncoding> made_;  // from dictionaries and files
  std::deque<Part> parts_;
  std::deque<Held> held_;
  std::vector<std::shared_ptr<const config::LoadedEncoding>> loaded_;
  encodings::ScoreTerms terms_;
};

// `d_tables=` of a backward call: the arrays that the gradients of tables are added to.
class TableGradients {
 public:
  enum class Arithmetic : std::uint8_t { f32, f64 };

  // throws   Error(invalid_argument): not a mapping, not a table of the encoding, the table itself;
  //          Error(shape_mismatch): not the shape of its table; Error(unsupported): neither float32
  //          nor float64
  TableGradients(nb::handle d_tables, const EncodingArgument& encoding, Arithmetic arithmetic);
  [[nodiscard]] const encodings::ScoreTermGradients& terms() const noexcept { return terms_; }
  // Adds the gradients that were not accumulated in place. Does not need the GIL.
  void finish();

 private:
  struct Target {
    const EncodingArgument::Held* table;
    std::string where;
    Array array;
    // Used if attention cannot write to the array: it is not dense, or float64 with float32
    // arithmetic.
    std::vector<float> scratch;
    std::vector<double> wide_scratch;
    Target(const EncodingArgument::Held& of, nb::handle object);
    [[nodiscard]] config::NamedTable named() const;
    [[nodiscard]] const void* address() const;
  };
  void add(const EncodingArgument& encoding, nb::handle key, nb::handle value,
           Arithmetic arithmetic);
  [[nodiscard]] encodings::TableGradient gradient_of(const encodings::Table& table) const;

  void add_kerple_rows(const encodings::Table& bias, Arithmetic arithmetic);

  std::deque<Target> targets_;
  std::vector<std::shared_ptr<const config::LoadedEncoding>> loaded_;
  encodings::ScoreTermGradients terms_;
  // KERPLE's bias is computed from r1 and r2: attention adds to these rows, finish() makes the
  // gradients of r1 and r2 from them. nullopt: neither is wanted.
  std::optional<encodings::Kerple> kerple_;
  std::vector<float> kerple_rows_;
  std::vector<double> wide_kerple_rows_;
};

}  // namespace phasor::python
