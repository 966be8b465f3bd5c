// Specs of real models, for simulated ports.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "porting/diagnose/port.hpp"

namespace phasor::porting::testing {

struct SpecAt {
  RopeSpec spec;
  std::optional<std::int64_t> context;
};

inline RopeSpec plain_spec(std::int64_t head_dim, double base, core::PairLayout layout,
                           std::int64_t rotary_dim = 0) {
  RopeSpec spec;
  spec.head_dim = head_dim;
  spec.rotary_dim = rotary_dim == 0 ? head_dim : rotary_dim;
  spec.base = base;
  spec.layout = layout;
  return spec;
}

inline SpecAt spec_named(const std::string& name) {
  constexpr auto kHalf = core::PairLayout::half;
  constexpr auto kInterleaved = core::PairLayout::interleaved;
  const auto scaled = [](RopeSpec spec, RopeScaling scaling) {
    spec.scaling = std::move(scaling);
    return spec;
  };
  const auto growing = [](std::int64_t pairs, double last) {
    std::vector<double> list;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double part = static_cast<double>(i) / static_cast<double>(pairs - 1);
      list.push_back(1.05 + (last - 1.0) * part * part);
    }
    return list;
  };
  if (name == "llama") return {plain_spec(128, 1e4, kHalf), {}};
  if (name == "llama2_meta") return {plain_spec(128, 1e4, kInterleaved), {}};
  if (name == "mistral") return {plain_spec(128, 1e6, kHalf), {}};
  if (name == "small") return {plain_spec(32, 1e4, kHalf), {}};
  if (name == "gptj") return {plain_spec(256, 1e4, kInterleaved, 64), {}};
  if (name == "neox") return {plain_spec(64, 1e4, kHalf, 16), {}};
  if (name == "phi") return {plain_spec(80, 1e4, kHalf, 32), {}};
  if (name == "gemma") return {plain_spec(256, 1e4, kHalf), {}};
  if (name == "linear") {
    return {scaled(plain_spec(64, 1e6, kHalf), encodings::LinearScaling{8.0}), {}};
  }
  if (name == "ntk") {
    return {scaled(plain_spec(128, 1e4, kHalf), encodings::NtkScaling{4.0, {}}), {}};
  }
  if (name == "dynamic") {
    return {scaled(plain_spec(64, 1e4, kHalf), encodings::DynamicScaling{2.0, {}, 2048}), 6000};
  }
  if (name == "yarn") {
    return {scaled(plain_spec(128, 1e6, kHalf), yarn(4.0, 32768)), {}};
  }
  if (name == "yarn_small") {
    return {scaled(plain_spec(64, 1e4, kHalf), yarn(16.0, 4096)), {}};
  }
  if (name == "yarn_exact") {
    return {scaled(plain_spec(64, 150000.0, kHalf), yarn(32.0, 4096, false)), {}};
  }
  if (name == "longrope" || name == "longrope_short") {
    encodings::LongRopeScaling scaling;
    scaling.short_factor = growing(48, 3.0);
    scaling.long_factor = growing(48, 60.0);
    scaling.original_length = 4096;
    scaling.factor = 32.0;
    return {scaled(plain_spec(96, 1e4, kHalf), scaling), name == "longrope" ? 8192 : 2048};
  }
  if (name == "llama3") {
    return {scaled(plain_spec(128, 5e5, kHalf), encodings::Llama3Scaling{8.0, 1.0, 4.0, 8192}), {}};
  }
  if (name == "llama32") {
    return {scaled(plain_spec(64, 5e5, kHalf), encodings::Llama3Scaling{32.0, 1.0, 4.0, 8192}), {}};
  }
  if (name == "mrope" || name == "mrope_interleaved") {
    RopeSpec spec = plain_spec(128, 1e6, kHalf);
    const bool chunked = name == "mrope";
    spec.axes = encodings::MropeAxes{
        chunked ? std::vector<std::int64_t>{16, 24, 24} : std::vector<std::int64_t>{24, 20, 20},
        chunked ? encodings::MropeAxes::Order::chunked : encodings::MropeAxes::Order::interleaved};
    return {spec, {}};
  }
  if (name == "axial") {
    RopeSpec spec = plain_spec(64, 1e4, kHalf);
    spec.axes = encodings::AxialAxes{encodings::AxialAxes::Kind::concatenated};
    return {spec, {}};
  }
  if (name == "pixtral") {
    RopeSpec spec = plain_spec(64, 1e4, kHalf);
    spec.axes = encodings::AxialAxes{encodings::AxialAxes::Kind::alternating};
    return {spec, {}};
  }
  if (name == "xpos") {
    RopeSpec spec = plain_spec(64, 1e4, kInterleaved);
    spec.xpos = encodings::Xpos{};
    return {spec, {}};
  }
  throw std::invalid_argument(name);
}

inline const std::vector<std::string>& spec_names() {
  static const std::vector<std::string> kNames = {
      "llama",          "llama2_meta", "mistral",    "small",      "gptj",
      "neox",           "phi",         "gemma",      "linear",     "ntk",
      "dynamic",        "yarn",        "yarn_small", "yarn_exact", "longrope",
      "longrope_short", "llama3",      "llama32",    "mrope",      "mrope_interleaved",
      "axial",          "pixtral",     "xpos"};
  return kNames;
}

// Image-like positions: text, then a grid, then text.
inline void give_grid(Port& port) {
  const std::int64_t text = port.tokens / 4, width = 4;
  const std::int64_t offset = port.offset;
  const std::int64_t grid = std::max<std::int64_t>(port.tokens / 2, 1);
  const bool two = encodings::axis_count(port.spec.axes) == 2;
  port.asked = [=](std::int64_t, std::int64_t t, std::int64_t, int axis) {
    if (two) return static_cast<double>(axis == 0 ? t / width : t % width);
    if (t < text) return static_cast<double>(offset + t);
    const std::int64_t at = t - text;
    if (at >= grid) return static_cast<double>(offset + text + grid / width + at - grid);
    const std::int64_t place = axis == 0 ? 0 : axis == 1 ? at / width : at % width;
    return static_cast<double>(offset + text + place);
  };
}

}  // namespace phasor::porting::testing
