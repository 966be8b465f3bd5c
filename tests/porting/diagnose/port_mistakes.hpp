// Mistakes that porters make, each applied to a simulated port.
#pragma once

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "porting/diagnose/port_specs.hpp"

namespace phasor::porting::testing {

using core::PairLayout;
using io::NpyType;
using Random = std::mt19937;

inline std::int64_t below(Random& random, std::int64_t count) {
  return static_cast<std::int64_t>(random() % static_cast<unsigned>(count));
}
template <class T>
T one_of(Random& random, const std::vector<T>& list) {
  return list[static_cast<std::size_t>(below(random, static_cast<std::int64_t>(list.size())))];
}

struct PortMistake {
  std::string name;
  std::set<std::string> ids;  // any of them names the cause
  std::vector<std::string> specs;
  std::function<void(Port&, Random&)> make;
  bool coarse = true;  // visible in 16-bit tensors
};

inline const std::vector<std::string> kAny = {"llama",  "llama2_meta", "mistral", "gptj",
                                              "phi",    "linear",      "ntk",     "yarn_small",
                                              "llama3", "gemma",       "longrope"};
inline const std::vector<std::string> kWhole = {"llama",  "llama2_meta", "mistral",
                                                "linear", "llama3",      "yarn_small"};
inline const std::vector<std::string> kDefault = {"llama", "llama2_meta", "mistral",
                                                  "gptj",  "phi",         "gemma"};

inline void each_frequency(Port& port, const std::function<double(double i, double f)>& change) {
  for (std::size_t i = 0; i < port.frequencies.size(); ++i) {
    port.frequencies[i] = change(static_cast<double>(i), port.frequencies[i]);
  }
}
inline void other_spec(Port& port, const std::function<void(RopeSpec&)>& change) {
  RopeSpec spec = port.spec;
  change(spec);
  port.set_spec(spec);
}
inline void power_law(Port& port, const std::function<double(double i)>& exponent) {
  const double base = port.spec.base;
  each_frequency(port, [&](double i, double) { return std::pow(base, -exponent(i)); });
}
inline PairLayout other_layout(PairLayout layout) {
  return layout == PairLayout::half ? PairLayout::interleaved : PairLayout::half;
}
inline std::int64_t width_of(const Port& port) { return port.spec.rotary_dim; }
inline double dim_of(const Port& port) { return static_cast<double>(port.spec.rotary_dim); }

// new[i] = x[2i], new[i + n] = x[2i + 1]
inline std::int64_t to_half_source(std::int64_t j, std::int64_t width) {
  return j < width / 2 ? 2 * j : 2 * (j - width / 2) + 1;
}
inline std::int64_t to_interleaved_source(std::int64_t j, std::int64_t width) {
  return j % 2 == 0 ? j / 2 : width / 2 + j / 2;
}

inline void at_positions(Port& port,
                         std::function<double(std::int64_t b, std::int64_t t)> position) {
  port.position = [position](std::int64_t b, std::int64_t t, std::int64_t, int) {
    return position(b, t);
  };
}

[[nodiscard]] std::vector<PortMistake> sign_mistakes();
[[nodiscard]] std::vector<PortMistake> layout_mistakes();
[[nodiscard]] std::vector<PortMistake> exponent_mistakes();
[[nodiscard]] std::vector<PortMistake> place_mistakes();
[[nodiscard]] std::vector<PortMistake> scaling_mistakes();
[[nodiscard]] std::vector<PortMistake> type_mistakes();
[[nodiscard]] std::vector<PortMistake> row_mistakes();

}  // namespace phasor::porting::testing
