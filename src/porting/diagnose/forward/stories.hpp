// How people describe positions that are not the expected ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace phasor::porting::forward {

struct Story {
  std::string id, text;
};

// The positions of one row: at least one, as many of both kinds.
struct PositionRow {
  std::vector<double> found, asked;
  bool given = false;  // the asked ones; otherwise any offset is right
};

// What happened to the positions, by the first rule that holds; nullopt: nothing.
[[nodiscard]] std::optional<Story> story_of(const PositionRow& row);

// Whether found = asked + by.
[[nodiscard]] bool shifted_by(const std::vector<double>& found, const std::vector<double>& asked,
                              double by);

}  // namespace phasor::porting::forward
