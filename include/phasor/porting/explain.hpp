// Every layer's encoding of a model, resolved: what is done, with which numbers, and which key of
// the config each number came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phasor/export.h"
#include "phasor/porting/dialects.hpp"

namespace phasor::porting {

// One pair of a layer that rotates.
struct PairRotations {
  double frequency = 0.0;   // radians per position
  double wavelength = 0.0;  // 2 pi / frequency, positions; infinite for a pair that stands still
  // Turns within the trained length; none when that is not known.
  std::optional<double> rotations;
};

// Layers that share an encoding.
struct LayerExplanation {
  config::LayerGroup group;
  double amplitude = 1.0;
  // At the context that was asked for; images: the list that both axes share.
  std::vector<PairRotations> pairs;
  // The length that the frequencies were trained at: the original one of a scaling that has one,
  // else max_position_embeddings.
  std::optional<std::int64_t> trained_length;
};

struct Explanation {
  config::ModelConfig config;
  std::optional<std::int64_t> context;  // as asked for
  std::vector<LayerExplanation> layers;
  // Sentences, the gravest first: a context beyond the trained one, what engines read differently,
  // keys that change nothing.
  std::vector<std::string> warnings;
};

// refuses  what view_of() and resolve_frequencies() refuse
[[nodiscard]] PHASOR_API Result<Explanation> explain(
    const ReadableConfig& config, std::optional<std::int64_t> context = std::nullopt);

// {"model_type", "layers": [{"layers", "layer_type", "encoding", "layout", "head_dim",
// "rotary_dim", "base", "scaling": {"type", ...}, "amplitude", "softmax_scale", "frequencies",
// "wavelengths", "turns", "window", "sources": {...}, ...}], "warnings": [...], ...}
[[nodiscard]] PHASOR_API std::string explain_json(const Explanation& explanation);

// The parameters of a scaling in words: "yarn: factor 4, original_max_position_embeddings 32768,
// ..."; lists are summed up by their ends.
[[nodiscard]] PHASOR_API std::string scaling_text(const encodings::RopeScaling& scaling);
using config::plain_spec_json;

}  // namespace phasor::porting
