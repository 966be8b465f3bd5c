// The flags that choose a config, a layer and a context length, and the positions a verb works at.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.hpp"
#include "phasor/core/angles.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor::tools {

struct SpecOptions {
  std::string config;  // a file, or a directory that holds config.json
  std::string layer;   // an index or a layer type; empty: the only one
  std::optional<std::int64_t> context;
};
enum class ConfigFlag : std::uint8_t { required, optional };
// --config, --layer, --context
void add_spec_options(Verb& verb, SpecOptions& options, ConfigFlag config = ConfigFlag::required);

// throws   Error: the config is refused, the layer is not there or does not rotate
[[nodiscard]] encodings::RopeSpec read_spec(const SpecOptions& options);

// The list a reader of the config expects: for images the one that both axes share.
[[nodiscard]] core::Frequencies listed_frequencies(const encodings::RopeSpec& spec,
                                                   std::optional<std::int64_t> context);

// --angles exact|float32, as text until parsed
void add_angles_option(Verb& verb, std::string& angles);
[[nodiscard]] core::AngleMode parse_angles(std::string_view name);

// Positions as they came: integers or floats, with the shape of their file.
struct RawPositions {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> integers;  // one of the two holds the elements
  std::vector<double> floats;
  bool are_integers = true;
};
// throws   Error: not a readable .npy, not numbers, or not finite
[[nodiscard]] RawPositions read_positions(const std::string& path);
// A range "A:B" (A, A + 1, ..., B - 1) or a path.
[[nodiscard]] RawPositions parse_positions(const std::string& text);
[[nodiscard]] RawPositions count_positions(std::int64_t first, std::int64_t count);

// The rows that a file of positions has for a spec: M-RoPE has one per section, also where no
// frequency reads it.
[[nodiscard]] int position_rows(const encodings::RopeSpec& spec);

// Positions spread to one row per axis of the spec and per batch row: [axes, batch, tokens].
class PositionGrid {
 public:
  // batch  none when the tensor has no batch axis; positions then may be [tokens] or [axes, tokens]
  //
  // throws   Error(shape_mismatch) naming the shapes that would fit and the one that came
  PositionGrid(const encodings::RopeSpec& spec, const RawPositions& raw,
               std::optional<std::int64_t> batch, std::int64_t tokens);

  [[nodiscard]] core::Positions view() const noexcept;
  // The positions of one token, one per axis.
  void token(std::int64_t index, std::vector<double>& per_axis) const;
  // None when there is no token.
  [[nodiscard]] std::optional<double> largest() const noexcept;

 private:
  int axes_ = 1;
  std::int64_t batch_ = 1, tokens_ = 0;
  bool are_integers_ = true;
  std::vector<std::int64_t> integers_;
  std::vector<double> floats_;
};

// The context length to resolve at: the flag, or, where the numbers depend on it, the largest
// position + 1, which is then said on stderr.
[[nodiscard]] std::optional<std::int64_t> context_for(const encodings::RopeSpec& spec,
                                                      const SpecOptions& options,
                                                      const PositionGrid& positions,
                                                      std::string_view verb);

// Throws the Error that stands in the place of success.
void or_throw(const Result<Done>& result);

// "[2, 5, 64]"
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace phasor::tools
