// Compares ways to extend the context: what each scaling does to every frequency, which angles
// training never showed, and the config keys to paste.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phasor/export.h"
#include "phasor/porting/explain.hpp"

namespace phasor::porting {

// Pairs are grouped into bands by their full rotations within the trained length: at least 32, 8 to
// 32, 1 to 8, and less than one: training never showed all angles of those.
inline constexpr std::array<double, 3> kBandRotations = {32.0, 8.0, 1.0};
inline constexpr std::size_t kBands = kBandRotations.size() + 1;

struct PlanOptions {
  std::int64_t to = 0;  // the longer context
  // None: the original length of the config's scaling, else max_position_embeddings.
  std::optional<std::int64_t> trained = std::nullopt;
  std::string layer;  // an index or a layer type; empty: the only one, or full_attention
};

// One pair under one method. f: unscaled frequency, f': the method's, L: trained length, N: to.
struct PlanPair {
  double wavelength = 0.0;         // 2 pi / f, positions; infinite for f = 0
  double rotations_trained = 0.0;  // L f / 2 pi
  double frequency = 0.0;          // f'
  double rotations_at_to = 0.0;    // N f' / 2 pi
  // f' / f: at 1 the angle between neighbours is that of training; below 1 it is smaller.
  double compression = 1.0;
  // Reaches angles that did not occur in training: L f < 2 pi and N f' > L f.
  bool out_of_distribution = false;
};

struct PlanBand {
  double from_rotations = 0.0;
  std::optional<double> to_rotations;  // none: no upper bound
  std::int64_t pairs = 0;
};

// A method in one band; zeros if the band has no pair.
struct BandEffect {
  std::int64_t out_of_distribution = 0;  // pairs
  double least_compression = 1.0, most_compression = 1.0;
  // The largest N f' / L f: above 1 the band reaches larger angles than in training.
  double furthest = 0.0;
};

// Keys to paste into a config, and keys to remove from it first.
struct PlanSnippet {
  std::string json;                 // an object, indented; empty if the method has no such form
  std::vector<std::string> remove;  // keys that contradict it
  std::string problem;  // why there is none, or why it was not checked; empty: merged into the
                        // config and parsed again, it gave these frequencies
};

struct PlanMethod {
  std::string name;  // "none", "present", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope"
  std::string problem;  // why the method does not apply; empty: it applies
  encodings::RopeSpec rope;
  double amplitude = 1.0;
  std::vector<PlanPair> pairs;
  std::array<BandEffect, kBands> bands;
  std::int64_t out_of_distribution = 0;  // pairs
  std::array<std::string, 2> trade_off;
  std::string fine_tuning;
  std::string engines;
  PlanSnippet rope_parameters;  // the form of transformers 5
  PlanSnippet rope_scaling;     // the form of transformers 4
};

struct Plan {
  std::string model_type;
  std::string layer_type;
  std::vector<std::int64_t> layers;
  std::optional<std::int64_t> window;  // sliding window of these layers
  std::int64_t trained = 0;
  std::string trained_source;
  std::int64_t to = 0;
  double factor = 1.0;  // to / trained
  std::int64_t head_dim = 0, rotary_dim = 0;
  double base = 0.0;
  std::array<PlanBand, kBands> bands;
  std::vector<PlanMethod> methods;
};

// error    `to` not above the trained length, or >= 2^40; a trained length that is unknown or
//          below 2; a layer that does not exist or does not rotate; images and xPos, which no config
//          can extend
// cost     one evaluation of the frequencies per method, two parses of the config
[[nodiscard]] PHASOR_API Result<Plan> plan(const ReadableConfig& config,
                                           const PlanOptions& options);

[[nodiscard]] PHASOR_API std::string plan_json(const Plan& plan);
// One row per method and pair: method, pair, wavelength, turns_trained, frequency, turns_at_n, ood,
// compression.
[[nodiscard]] PHASOR_API std::string plan_csv(const Plan& plan);

}  // namespace phasor::porting
