#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "config/gguf/keys.hpp"
#include "config/gguf/positions.hpp"
#include "config/gguf/scaling.hpp"
#include "config/hf/layer_plan.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/internal/families.hpp"
#include "phasor/io/internal/file_text.hpp"

namespace phasor::config {
namespace {

using encodings::MropeAxes;
using encodings::RopeSpec;

// Far beyond any model: a damaged file must not allocate all memory.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHeadDim = std::int64_t{1} << 16;

constexpr double kDefaultBase = 10000.0;  // llama.cpp's, of every architecture

constexpr std::string_view kRope = "rope";
constexpr std::string_view kNoRope = "no_rope";
constexpr std::string_view kRecurrent = "recurrent";

constexpr std::string_view kAttentionInterval = "full_attention_interval";
constexpr std::string_view kKeyHeads = "attention.head_count_kv";
constexpr std::string_view kWindow = "attention.sliding_window";
constexpr std::string_view kLocalBase = "rope.freq_base_swa";
constexpr std::string_view kPattern = "attention.sliding_window_pattern";

class GgufConfigReader {
 public:
  GgufConfigReader(const io::GgufFile& file, const GgufArchitecture& architecture)
      : keys_(file, architecture.name), architecture_(architecture) {}

  [[nodiscard]] ModelConfig read() {
    config_.model_type = architecture_.name;
    layer_count_ = keys_.count("block_count", kMaxLayers);
    config_.max_position = keys_.count("context_length", kMaxLength);
    if (config_.max_position) config_.max_position_key = keys_.path_of("context_length");
    read_heads();
    if (rotations()) {
      read_rotating_groups();
    } else {
      read_groups_without_rotation();
    }
    finish_keys();
    return std::move(config_);
  }

 private:
  // One value, or one per layer.
  [[nodiscard]] std::vector<std::int64_t> per_layer(std::string_view key) {
    std::vector<std::int64_t> values = keys_.integers(key).value_or(std::vector<std::int64_t>{});
    const auto count = static_cast<std::int64_t>(values.size());
    if (count > 1 && layer_count_ && count != *layer_count_)
      keys_.refuse(key,
                   message("must have one entry per layer (", *layer_count_, "), got ", count));
    for (const std::int64_t value : values) {
      if (value < 0 || value > kMaxWidth)
        keys_.refuse(key, message("must be from 0 to ", kMaxWidth, ", got ", value));
    }
    return values;
  }

  // The count of all layers that have any; nullopt, with a note, when they differ.
  [[nodiscard]] std::optional<std::int64_t> shared(const std::vector<std::int64_t>& counts,
                                                   std::string_view key) {
    std::optional<std::int64_t> one;
    for (const std::int64_t count : counts) {
      if (count == 0) continue;
      if (one && *one != count) {
        config_.notes.push_back({keys_.path_of(key), "differs from layer to layer"});
        return std::nullopt;
      }
      one = count;
    }
    return one;
  }

  void read_heads() {
    const std::vector<std::int64_t> heads = per_layer("attention.head_count");
    key_heads_ = per_layer(kKeyHeads);
    config_.heads = shared(heads, "attention.head_count");
    config_.key_heads = shared(key_heads_, kKeyHeads);
    if (!config_.key_heads && key_heads_.empty()) config_.key_heads = config_.heads;

    const std::optional<std::int64_t> width = keys_.count("embedding_length", kMaxWidth);
    const auto first = std::find_if(heads.begin(), heads.end(), [](auto n) { return n > 0; });
    if (width && first != heads.end()) embedding_per_head_ = *width / *first;
    const std::optional<std::int64_t> stated = keys_.count("attention.key_length", kMaxHeadDim);
    const std::optional<std::int64_t> whole = keys_.count("attention.key_length_mla", kMaxHeadDim);
    key_width_ = whole ? *whole : stated.value_or(embedding_per_head_);
    key_width_source_ = whole    ? keys_.path_of("attention.key_length_mla")
                        : stated ? keys_.path_of("attention.key_length")
                                 : message(keys_.path_of("embedding_length"), " / ",
                                           keys_.path_of("attention.head_count"));
    config_.head_dim = key_width_;
  }

  [[nodiscard]] bool rotations() {
    if (architecture_.rotation == GgufRotation::none) return false;
    if (architecture_.alibi_layers != 0 && layer_count_ == architecture_.alibi_layers) {
      config_.notes.push_back(
          {keys_.path_of("block_count"), message("the model of ", architecture_.alibi_layers,
                                                 " layers uses ALiBi instead of a rotation")});
      return false;
    }
    // Read here too when it is no switch: read_gguf_scaling() notes it then.
    const std::optional<bool> finetuned = keys_.flag("rope.scaling.finetuned");
    if (architecture_.finetuned_is_switch && finetuned && !*finetuned) {
      config_.notes.push_back({keys_.path_of("rope.scaling.finetuned"),
                               "false switches the rotation off in this architecture"});
      return false;
    }
    return true;
  }

  void read_groups_without_rotation() {
    LayerGroup group;
    group.layers.resize(static_cast<std::size_t>(layer_count_.value_or(0)));
    std::iota(group.layers.begin(), group.layers.end(), std::int64_t{0});
    group.sources.push_back({"layout", by_architecture()});
    set_softmax(group, 1.0);
    group.positions = read_gguf_positions(keys_, architecture_.name, config_);
    config_.groups.push_back(std::move(group));
    for (const std::string& key : keys_.not_understood()) {
      if (!key.starts_with(keys_.path_of("rope."))) continue;
      keys_.mark_understood(std::string_view(key).substr(keys_.path_of("").size()));
      config_.notes.push_back({key, "has no effect: no layer rotates"});
    }
  }

  [[nodiscard]] std::string by_architecture() const {
    return message("architecture ", architecture_.name);
  }

  void read_rotating_groups() {
    if (key_width_ < 1) {
      keys_.refuse_missing("attention.key_length",
                           "expected it, or attention.head_count and embedding_length");
    }
    std::vector<Source> sources;
    const RopeSpec spec = read_spec(sources);
    GgufScalingInput input{spec.rotary_dim, spec.base, config_.max_position};
    GgufScaling scaling = read_gguf_scaling(keys_, architecture_, input, config_.notes);
    RopeSpec full = spec;
    full.scaling = std::move(scaling.scaling);
    full.frequency_factors = std::move(scaling.frequency_factors);
    encodings::validate(full);
    std::vector<Source> full_sources = sources;
    full_sources.insert(full_sources.end(), scaling.sources.begin(), scaling.sources.end());
    if (scaling.sources.empty()) full_sources.push_back({"scaling", "none in the file"});

    const std::vector<std::string> types = read_types();
    for (const std::string_view type :
         {std::string_view(kFullAttention), std::string_view(kSlidingAttention), kRope, kNoRope,
          kRecurrent}) {
      if (std::find(types.begin(), types.end(), type) == types.end()) continue;
      LayerGroup group;
      group.layer_type = type;
      if (layer_count_) {
        for (std::size_t i = 0; i < types.size(); ++i) {
          if (types[i] == type) group.layers.push_back(static_cast<std::int64_t>(i));
        }
      }
      set_rope(group, full, full_sources, spec, sources);
      if (type != kRecurrent) set_softmax(group, scaling.latent_softmax_factor);
      config_.groups.push_back(std::move(group));
    }
    if (config_.groups.size() == 1 && config_.groups[0].layer_type == kFullAttention)
      config_.groups[0].layer_type.clear();
    if (config_.groups.size() > 1) {
      for (LayerGroup& group : config_.groups) group.sources.push_back({"layers", layers_source_});
    }
    if (config_.groups.size() > 1 && layers_source_ == by_architecture()) {
      config_.notes.push_back(
          {"general.architecture",
           "which layers are of which type is known from the architecture, not read"});
    }
  }

  // Without scaling.
  [[nodiscard]] RopeSpec read_spec(std::vector<Source>& sources) {
    RopeSpec spec;
    const std::optional<std::int64_t> stated = keys_.count("rope.dimension_count", kMaxHeadDim);
    if (architecture_.latent && !stated)
      keys_.refuse_missing("rope.dimension_count", "latent attention needs it");
    spec.head_dim = architecture_.latent ? *stated : key_width_;
    config_.head_dim = spec.head_dim;
    spec.rotary_dim = stated.value_or(spec.head_dim);
    sources.push_back({"head_dim", architecture_.latent ? keys_.path_of("rope.dimension_count")
                                                        : key_width_source_});
    sources.push_back(
        {"rotary_dim", stated ? keys_.path_of("rope.dimension_count") : "the whole head"});
    const std::optional<double> base = keys_.number("rope.freq_base");
    spec.base = base.value_or(kDefaultBase);
    sources.push_back(
        {"base", base ? keys_.path_of("rope.freq_base") : "default of llama.cpp: 10000"});
    set_axes(spec, sources);
    sources.push_back({"layout", message(by_architecture(), " (pairing of llama.cpp's kernel)")});
    encodings::validate(spec);
    return spec;
  }

  void set_axes(RopeSpec& spec, std::vector<Source>& sources) {
    constexpr std::string_view kSections = "rope.dimension_sections";
    const GgufRotation rotation = architecture_.rotation;
    spec.layout =
        rotation == GgufRotation::interleaved || rotation == GgufRotation::pairs_or_sections
            ? core::PairLayout::interleaved
            : core::PairLayout::half;
    if (rotation == GgufRotation::interleaved || rotation == GgufRotation::half) return;
    std::optional<std::vector<std::int64_t>> sections = keys_.integers(kSections);
    const bool required =
        rotation == GgufRotation::sections || rotation == GgufRotation::mixed_sections;
    if (!sections) {
      if (required) keys_.refuse_missing(kSections, "this architecture needs it");
      return;
    }
    // A fourth row that no frequency reads need not be given.
    if (sections->size() == 4 && sections->back() == 0) sections->pop_back();
    if (!required && std::all_of(sections->begin(), sections->end(), [](auto n) { return n == 0; }))
      return;
    if (sections->size() != 3 && sections->size() != 4) {
      keys_.refuse(kSections, message("must be 3 or 4 integers, got ", sections->size()));
    }
    spec.layout = core::PairLayout::half;
    spec.axes = MropeAxes{*std::move(sections), rotation == GgufRotation::mixed_sections
                                                    ? MropeAxes::Order::interleaved
                                                    : MropeAxes::Order::chunked};
    sources.push_back({"sections", keys_.path_of(kSections)});
  }

  // Rotation, base and window of a group by its type.
  void set_rope(LayerGroup& group, const RopeSpec& full, const std::vector<Source>& full_sources,
                const RopeSpec& plain, const std::vector<Source>& plain_sources) {
    const GgufLayers rule = architecture_.layers;
    const bool sliding = group.layer_type == kSlidingAttention;
    if (sliding) {
      group.window = window_;
      group.sources.push_back({"window", window_source_});
    }
    if (group.layer_type == kNoRope || group.layer_type == kRecurrent ||
        (rule == GgufLayers::full_unrotated && windowed_ && group.layer_type == kFullAttention)) {
      group.sources.push_back(
          {"layout", message(by_architecture(), ": these layers do not rotate")});
      return;
    }
    const bool local = sliding && rule == GgufLayers::local_base;
    group.rope = local ? plain : full;
    const std::vector<Source>& sources = local ? plain_sources : full_sources;
    group.sources.insert(group.sources.end(), sources.begin(), sources.end());
    if (local) group.sources.push_back({"scaling", message(by_architecture(), ": unscaled")});
    if (sliding) set_local_base(group);
  }

  void set_local_base(LayerGroup& group) {
    const std::optional<double> stated = keys_.number(kLocalBase);
    if (!stated && !architecture_.local_base) return;
    group.rope->base = stated ? *stated : *architecture_.local_base;
    encodings::validate(*group.rope);
    std::erase_if(group.sources, [](const Source& source) { return source.what == "base"; });
    group.sources.push_back({"base", stated ? keys_.path_of(kLocalBase)
                                            : message("sliding layers of ", by_architecture())});
  }

  // One type per layer; each possible type once when the file does not say how many layers it has.
  [[nodiscard]] std::vector<std::string> read_types() {
    const std::int64_t interval = architecture_.interval;
    const auto nth = [&](std::int64_t layer, std::int64_t period) {
      return layer % period == (architecture_.full_first ? 0 : period - 1);
    };
    const std::int64_t count = layer_count_.value_or(std::max<std::int64_t>(interval, 1));
    std::vector<std::string> types(static_cast<std::size_t>(count), std::string(kFullAttention));
    const auto fill = [&](auto type_of) {
      for (std::int64_t layer = 0; layer < count; ++layer)
        types[static_cast<std::size_t>(layer)] = type_of(layer);
    };
    layers_source_ = by_architecture();
    read_window();
    switch (architecture_.layers) {
      case GgufLayers::all_alike:
        break;
      case GgufLayers::skip_interval:
        fill([&](std::int64_t layer) { return nth(layer, interval) ? kNoRope : kRope; });
        break;
      case GgufLayers::linear_but: {
        const std::int64_t period = keys_.count(kAttentionInterval, kMaxLayers).value_or(interval);
        if (keys_.has(kAttentionInterval)) layers_source_ = keys_.path_of(kAttentionInterval);
        fill([&](std::int64_t layer) { return nth(layer, period) ? kFullAttention : kRecurrent; });
        break;
      }
      case GgufLayers::windows:
      case GgufLayers::local_base:
      case GgufLayers::full_unrotated:
        if (!windowed_) break;
        const std::vector<std::int64_t> pattern =
            keys_.integers(kPattern).value_or(std::vector<std::int64_t>{interval});
        check_pattern(pattern);
        if (keys_.has(kPattern)) layers_source_ = keys_.path_of(kPattern);
        fill([&](std::int64_t layer) {
          const bool slides = pattern.size() == 1 ? !nth(layer, pattern[0])
                                                  : pattern[static_cast<std::size_t>(layer)] != 0;
          return slides ? kSlidingAttention : kFullAttention;
        });
        break;
    }
    // Layers without keys have no attention: convolutions, state spaces, or nothing.
    if (layer_count_ && static_cast<std::int64_t>(key_heads_.size()) == count && count > 1) {
      for (std::size_t i = 0; i < types.size(); ++i) {
        if (key_heads_[i] != 0) continue;
        types[i] = kRecurrent;
        layers_source_ = keys_.path_of(kKeyHeads);
      }
    }
    return types;
  }

  // A period, or one entry per layer, not 0 where it slides.
  void check_pattern(const std::vector<std::int64_t>& pattern) {
    if (pattern.size() == 1 && pattern[0] >= 1) return;
    if (pattern.size() != 1 && layer_count_ &&
        static_cast<std::int64_t>(pattern.size()) == *layer_count_)
      return;
    keys_.refuse(kPattern, message("must be a positive integer or have one entry per layer, got ",
                                   pattern.size(), " entries"));
  }

  void read_window() {
    const bool possible = architecture_.layers == GgufLayers::windows ||
                          architecture_.layers == GgufLayers::local_base ||
                          architecture_.layers == GgufLayers::full_unrotated;
    const std::optional<std::vector<std::int64_t>> stated = keys_.integers(kWindow);
    if (!possible) {
      if (stated) {
        config_.notes.push_back(
            {keys_.path_of(kWindow), "llama.cpp applies no window in this architecture"});
      }
      return;
    }
    const GgufWindow rule = architecture_.window;
    if (stated && (stated->size() != 1 || stated->front() < 0 || stated->front() > kMaxLength)) {
      keys_.refuse(kWindow, message("must be one integer from 0 to ", kMaxLength, ", got ",
                                    stated->size() == 1 ? message(stated->front())
                                                        : message(stated->size(), " values")));
    }
    if (rule == GgufWindow::default_4096_64 && layer_count_ != 64) return;
    window_ = stated ? stated->front() : 0;
    window_source_ = keys_.path_of(kWindow);
    if (rule == GgufWindow::chunks_of_8192) {
      window_ = 8192;
      window_source_ = message(by_architecture(), ": chunks of 8192");
      config_.notes.push_back({"general.architecture",
                               "the window is a chunk: a query sees the keys of its own chunk"});
    } else if (!stated && rule != GgufWindow::if_stated && rule != GgufWindow::both_sides) {
      window_ = 4096;
      window_source_ = message("default of ", by_architecture());
    }
    windowed_ = window_ > 0;
    if (!windowed_ && keys_.has(kLocalBase)) {
      keys_.mark_understood(kLocalBase);
      config_.notes.push_back({keys_.path_of(kLocalBase), "has no effect without a window"});
    }
    if (rule == GgufWindow::both_sides) window_ = window_ / 2 * 2 + 1;
  }

  void set_softmax(LayerGroup& group, double latent_factor) {
    constexpr std::string_view kScale = "attention.scale";
    const std::optional<double> stated = keys_.number(kScale);
    const auto inverse_root = [](std::int64_t width) {
      return width < 1 ? 0.0 : 1.0 / std::sqrt(static_cast<double>(width));
    };
    std::string source = message(key_width_source_, ", its -1/2 power");
    switch (architecture_.softmax) {
      case GgufSoftmax::unknown:
        break;
      case GgufSoftmax::one:
        group.softmax_scale = 1.0;
        source = by_architecture();
        break;
      case GgufSoftmax::largest:
        group.softmax_scale = inverse_root(
            layer_count_ == architecture_.largest_layers ? embedding_per_head_ : key_width_);
        if (layer_count_ == architecture_.largest_layers)
          source = message("architecture ", architecture_.name, " of ", *layer_count_, " layers");
        break;
      case GgufSoftmax::head_dim:
        group.softmax_scale = inverse_root(key_width_);
        break;
      case GgufSoftmax::latent:
        group.softmax_scale = inverse_root(key_width_);
        if (architecture_.log_multiplier == GgufLogMultiplier::tenth_all_dim)
          group.softmax_scale *= latent_factor;
        if (latent_factor != 1.0) source += ", times YaRN's amplitudes squared";
        break;
    }
    if (stated && *stated != 0.0 && std::isfinite(*stated)) {
      group.softmax_scale = *stated;
      source = keys_.path_of(kScale);
    }
    if (group.softmax_scale != 0.0) group.sources.push_back({"softmax_scale", source});
  }

  // Counted in the original length of YaRN, or else in the context's (llama.cpp).
  void read_query_scale() {
    constexpr std::string_view kScale = "attention.temperature_scale";
    if (!architecture_.query_scale) return;
    const double beta = keys_.number(kScale).value_or(0.0);
    if (beta == 0.0) return;
    constexpr std::string_view kLength = "rope.scaling.original_context_length";
    const std::optional<std::int64_t> original = keys_.count(kLength, kMaxLength);
    const encodings::QueryScale scale{beta, original ? *original : config_.max_position.value_or(0),
                                      0};
    encodings::validate(scale);
    for (LayerGroup& group : config_.groups) {
      group.query_scale = scale;
      group.sources.push_back({"query_scale", keys_.path_of(kScale)});
    }
  }

  void finish_keys() {
    if (keys_.has("attention.max_alibi_bias")) {
      config_.notes.push_back(
          {keys_.path_of("attention.max_alibi_bias"), "ALiBi's slopes: a bias, not a rotation"});
      keys_.mark_understood("attention.max_alibi_bias");
    }
    read_query_scale();
    for (const std::string_view key :
         {"attention.temperature_scale", "attention.temperature_length"}) {
      if (!keys_.has(key) || architecture_.query_scale) continue;
      config_.notes.push_back(
          {keys_.path_of(key), "scales queries by their position; no part of the rotation"});
      keys_.mark_understood(key);
    }
    config_.unread_keys = keys_.not_understood();
    const std::string rope = keys_.path_of("rope.");
    for (const std::string& key : config_.unread_keys) {
      if (!key.starts_with(rope)) continue;
      throw Error(ErrorCode::unsupported, message(keys_.file().name(), ": unknown key \"",
                                                  io::one_line(key), "\"", keys_.suggest(key)));
    }
  }

  GgufKeys keys_;
  const GgufArchitecture& architecture_;
  ModelConfig config_;
  std::optional<std::int64_t> layer_count_;
  std::vector<std::int64_t> key_heads_;
  std::int64_t embedding_per_head_ = 0;
  std::int64_t key_width_ = 0;  // of a whole head; latent attention rotates a part of it
  std::string key_width_source_;
  bool windowed_ = false;
  std::int64_t window_ = 0;
  std::string window_source_, layers_source_;
};

// Text of a file as a one-line message may show it.
[[nodiscard]] std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 80));
  for (char& character : shown) {
    if (character < ' ' || character > '~') character = '?';
  }
  return shown;
}

}  // namespace

Result<ModelConfig> config_of_gguf(const io::GgufFile& file) {
  try {
    const std::optional<std::string> name = file.text("general.architecture").value_or_throw();
    if (!name) {
      return Error(ErrorCode::invalid_argument,
                   message(file.name(), ": missing key \"general.architecture\""));
    }
    const Family* family = find_architecture(*name);
    if (family == nullptr) {
      const std::string shown = printable(*name);
      return Error(ErrorCode::unsupported,
                   message(file.name(), ": unknown general.architecture \"", shown,
                           "\": its pairing is not known", suggest_architecture(shown)));
    }
    return GgufConfigReader(file, *family->gguf).read();
  } catch (const Error& error) {
    // Errors of encodings::validate() do not have the name of the file.
    const std::string text = error.what();
    return text.starts_with(file.name() + ": ")
               ? error
               : Error(error.code(), message(file.name(), ": ", text));
  }
}

}  // namespace phasor::config
