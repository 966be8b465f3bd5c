// Reads one encoding of a model that rotates nothing; absolute positions are in position_encodings.cpp,
// relative ones in relative_positions.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/hf/position_encodings.hpp"

namespace phasor::config {

// Far more heads than any model has; keeps a damaged config from filling the memory.
inline constexpr std::int64_t kMaxHeads = 100000;
// The same of rows of a table: products of them stay exact.
inline constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;

inline constexpr std::string_view kInput = "input", kScores = "scores";

// Two numbers: an integer stands for both, an image has height and width.
struct Extent {
  std::int64_t height = 0, width = 0;
  std::string key;
};

class PositionReader {
 public:
  PositionReader(const ObjectReader& top, std::string_view model_type, const PositionFacts& facts,
                 PositionSide side)
      : top_(top), model_type_(model_type), facts_(facts), side_(side) {}
  [[nodiscard]] std::optional<PositionEncoding> read();

 private:
  using Value = decltype(PositionParameter::value);
  void start(std::string_view name, std::string_view acts_on) {
    made_ = PositionEncoding{std::string(name), std::string(acts_on), {}};
  }
  void put(std::string_view name, Value value, std::string key) {
    made_.parameters.push_back({std::string(name), std::move(value), std::move(key)});
  }
  void put_text(std::string_view name, std::string_view value, std::string key) {
    put(name, std::string(value), std::move(key));
  }
  [[nodiscard]] std::string source(std::string_view what = "default") const;
  // An integer of the config, or the family's; nullopt: neither.
  [[nodiscard]] std::optional<FoundInteger> given(std::string_view key, std::int64_t known) const;
  void put_integer(std::string_view name, std::string_view key, std::int64_t known);
  void put_flag(std::string_view name, std::string_view key, bool known);
  void put_width(std::string_view name);
  void put_heads();
  [[nodiscard]] std::optional<PositionEncoding> learned();
  // Rows of the table, the row of position 0, and the positions that have a row.
  void put_rows();
  [[nodiscard]] std::int64_t first_row() const;
  [[nodiscard]] std::optional<PositionEncoding> bert();
  [[nodiscard]] std::optional<Extent> extent(std::string_view key) const;
  // Height and width of the grid of patches.
  [[nodiscard]] std::optional<Extent> grid() const;
  [[nodiscard]] std::optional<PositionEncoding> patches();
  [[nodiscard]] std::optional<PositionEncoding> sinusoidal(encodings::Sinusoidal::Variant variant);
  [[nodiscard]] std::optional<PositionEncoding> axial();
  [[nodiscard]] std::optional<PositionEncoding> boxes();
  [[nodiscard]] std::optional<PositionEncoding> alibi(double max_bias, std::string from);
  [[nodiscard]] std::optional<PositionEncoding> mpt();
  [[nodiscard]] std::optional<PositionEncoding> t5();
  // Word boxes: the distance in the text, and those of the left and lower edges.
  [[nodiscard]] std::optional<PositionEncoding> boxes_bias();
  // "c2p|p2c", or a list of the two.
  [[nodiscard]] std::vector<std::string> attention_terms() const;
  [[nodiscard]] std::optional<PositionEncoding> deberta();
  void put_terms_of_transformer_xl(std::int64_t clamp);
  [[nodiscard]] std::optional<PositionEncoding> transformer_xl();
  [[nodiscard]] std::optional<PositionEncoding> xlnet();
  [[nodiscard]] std::optional<PositionEncoding> conformer();
  [[nodiscard]] std::optional<PositionEncoding> shaw();
  [[nodiscard]] std::optional<PositionEncoding> window_bias();
  [[nodiscard]] std::optional<PositionEncoding> grid_bias();
  [[nodiscard]] std::optional<PositionEncoding> convolution();

  const ObjectReader& top_;
  std::string model_type_;
  const PositionFacts& facts_;
  PositionSide side_;
  PositionEncoding made_;
};

}  // namespace phasor::config
