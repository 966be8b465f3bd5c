// What general.architecture says that a GGUF file leaves out: facts of llama.cpp's own loader.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace phasor::config {

// How the kernel of an architecture pairs features.
enum class GgufRotation : std::uint8_t {
  none,               // no rotation: learned or sinusoidal positions, ALiBi, recurrence
  interleaved,        // pairs of neighbours
  half,               // pairs half the rotary width apart
  sections,           // half; sections t, h, w in frequency order
  mixed_sections,     // half; thwthw...
  half_or_sections,   // half without sections, else as `sections`
  pairs_or_sections,  // interleaved without sections, else as `sections`
};

enum class GgufLayers : std::uint8_t {
  all_alike,
  windows,         // sliding layers turn as the full ones do
  local_base,      // sliding layers have their own base and no scaling
  full_unrotated,  // full layers do not turn
  skip_interval,   // every n-th layer does not turn
  linear_but,      // every n-th layer attends, the others are recurrent
};

enum class GgufSoftmax : std::uint8_t {
  head_dim,  // head_dim^-1/2
  one,
  latent,   // width of the whole key ^-1/2, with YaRN's amplitude squared
  largest,  // as head_dim, but (embedding_length / heads)^-1/2 at `largest_layers`
  unknown,
};

// What rope.scaling.yarn_log_multiplier holds.
enum class GgufLogMultiplier : std::uint8_t {
  refused,
  all_dim,        // mscale_all_dim, beside mscale 1
  tenth_all_dim,  // 0.1 mscale_all_dim, beside an equal mscale
};

// A window that files do not state, or that only some files have.
enum class GgufWindow : std::uint8_t {
  if_stated,        // without the key every layer is full
  default_4096,     // 4096 without the key
  chunks_of_8192,   // Llama 4: a query sees its chunk
  default_4096_64,  // EXAONE 4: 4096 when there are 64 layers, else no window at all
  both_sides,       // a query sees half of the width to each side
};

struct GgufArchitecture {
  std::string_view name;
  GgufRotation rotation = GgufRotation::none;
  GgufLayers layers = GgufLayers::all_alike;
  std::int64_t interval = 0;
  bool full_first = false;  // the first layer of each interval is the full one, not the last
  GgufWindow window = GgufWindow::if_stated;
  std::optional<double> local_base{};  // none: that of the full layers
  GgufSoftmax softmax = GgufSoftmax::head_dim;
  std::int64_t largest_layers = 0;
  bool latent = false;  // a part of rope.dimension_count features turns, beside the compressed key
  GgufLogMultiplier log_multiplier = GgufLogMultiplier::refused;
  bool finetuned_is_switch = false;  // rope.scaling.finetuned false: nothing turns
  std::int64_t alibi_layers = 0;     // the model of so many layers uses ALiBi instead
};

// Null for an architecture that is not in the table.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture(std::string_view name) noexcept;

}  // namespace phasor::config
