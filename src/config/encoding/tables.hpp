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
#include "phasor/encodings/absolute.hpp"
#include "phasor/encodings/trained_table.hpp"

namespace phasor::config {

// The axes of a table in the order of its file: h(ead), r(ow), d(im); the last must be d where
// there is one. `text` is what a message shows.
struct TableAxes {
  std::string_view order, text;
};

class TableReader {
 public:
  // `loaded` gets the numbers of every table that is not read in place.
  TableReader(std::filesystem::path folder, std::span<const NamedTable> arrays,
              LoadedEncoding& loaded)
      : folder_(std::move(folder)), arrays_(arrays), loaded_(loaded) {}

  // A table that is not there when the key is absent.
  //
  // throws   Error naming the key: neither a file's name nor an array's nor nested lists of numbers,
  //          lists that differ in length, another rank than `forms` have, no number at all, a file
  //          that read_npy() refuses, one of a type other than float32, float16 and bfloat16
  [[nodiscard]] encodings::Table table(const ObjectReader& reader, std::string_view key,
                                       std::initializer_list<TableAxes> forms);
  [[nodiscard]] encodings::Table required(const ObjectReader& reader, std::string_view key,
                                          std::initializer_list<TableAxes> forms);

  // {"sinusoidal": {...}}: its rows; none when the key holds something else.
  [[nodiscard]] std::optional<encodings::Sinusoidal> sinusoidal(
      const ObjectReader& reader, std::string_view key, std::optional<std::int64_t> head_dim) const;
  // Its rows at these positions, shared by the heads.
  //
  // throws   Error(invalid_argument) for a table that a few words of a file would make huge
  struct Positions {
    std::int64_t first = 0, count = 0, step = 1;
  };
  [[nodiscard]] encodings::Table rows_of(const encodings::Sinusoidal& encoding,
                                         Positions positions);

 private:
  [[nodiscard]] encodings::Table array(const ObjectReader& reader, std::string_view key,
                                       std::initializer_list<TableAxes> forms);

  // Takes the numbers in; the table gets their address.
  void keep(std::vector<double> values, encodings::Table& table);
  void keep(std::vector<float> values, encodings::Table& table);

  std::filesystem::path folder_;
  std::span<const NamedTable> arrays_;
  LoadedEncoding& loaded_;
};

}  // namespace phasor::config
