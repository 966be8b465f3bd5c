// Tables of trained numbers in a JSON encoding: inline, in a .npy file, in the caller's memory, or
// sinusoidal rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/config/encoding.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/encodings/score_terms.hpp"

namespace phasor::config {

// The axes of a table in the order of its file: h(ead), r(ow), d(im); d must be the last, if
// present. `text` is the form that messages show.
struct TableAxes {
  std::string_view order, text;
};

// The file that a key names: in `folder` or below it. A document must not be able to read the other
// files of the machine. Links are followed: what can make one in the folder can put a file there.
//
// throws   Error(invalid_argument): an absolute name, or one with ".."
[[nodiscard]] std::filesystem::path file_named(const ObjectReader& reader, std::string_view key,
                                               const std::filesystem::path& folder);

class TableReader {
 public:
  // `loaded` gets the numbers of every table that is not read in place.
  TableReader(std::filesystem::path folder, std::span<const NamedTable> arrays,
              LoadedEncoding& loaded)
      : folder_(std::move(folder)), arrays_(arrays), loaded_(loaded) {}

  // An empty table when the key is absent.
  //
  // throws   Error with the key: not the name of a file or an array and not nested lists of numbers,
  //          lists of different lengths, a rank that `forms` do not have, no numbers, a file that
  //          read_npy() refuses or whose type is not float32, float16 or bfloat16
  [[nodiscard]] encodings::Table table(const ObjectReader& reader, std::string_view key,
                                       std::initializer_list<TableAxes> forms);
  [[nodiscard]] encodings::Table required(const ObjectReader& reader, std::string_view key,
                                          std::initializer_list<TableAxes> forms);

  // {"sinusoidal": {...}}: its rows; none when the key holds something else.
  [[nodiscard]] std::optional<encodings::Sinusoidal> sinusoidal(
      const ObjectReader& reader, std::string_view key, std::optional<std::int64_t> head_dim) const;
  // Its rows at these positions, shared by the heads.
  //
  // throws   Error(invalid_argument) for a table of more than 2^24 numbers
  struct Positions {
    std::int64_t first = 0, count = 0, step = 1;
  };
  [[nodiscard]] encodings::Table rows_of(const encodings::Sinusoidal& encoding,
                                         Positions positions);

 private:
  [[nodiscard]] encodings::Table array(const ObjectReader& reader, std::string_view key,
                                       std::initializer_list<TableAxes> forms);

  // Stores the numbers; the table points to them.
  void keep(std::vector<double> values, encodings::Table& table);
  void keep(std::vector<float> values, encodings::Table& table);

  std::filesystem::path folder_;
  std::span<const NamedTable> arrays_;
  LoadedEncoding& loaded_;
};

}  // namespace phasor::config
