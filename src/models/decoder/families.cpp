#include "models/decoder/families.hpp"

#include <algorithm>
#include <vector>

#include "phasor/core/internal/message_text.hpp"

namespace phasor::models {
namespace {

[[nodiscard]] BiasRule gguf_rule(BiasRule rule) {
  const bool keyed = rule == BiasRule::by_attention_bias || rule == BiasRule::by_mlp_bias;
  return keyed ? BiasRule::if_present : rule;
}

// Converting to GGUF adds the 1 of rms_from_one to the weights, orders fused rows in sections and
// drops the keys about biases.
[[nodiscard]] DecoderFamily gguf_decoder(const config::Family& row) {
  DecoderFamily family{*row.decoder, row.gguf->name, WeightFormat::gguf, HeadOrder::sections};
  family.names = family.gguf_names;
  family.ties_embeddings = family.gguf_ties_embeddings;
  if (family.norm == NormKind::rms_from_one) family.norm = NormKind::rms;
  for (BiasRule* rule : {&family.attention_bias, &family.output_bias, &family.feed_forward_bias,
                         &family.head_bias}) {
    *rule = gguf_rule(*rule);
  }
  if (family.logit_scale) family.logit_scale = 1.0;
  family.transposed = false;
  return family;
}

[[nodiscard]] std::vector<DecoderFamily> all_decoders() {
  std::vector<DecoderFamily> all;
  for (const config::Family& row : config::families()) {
    if (!row.decoder) continue;
    all.push_back({*row.decoder, row.model_type, WeightFormat::safetensors, row.head_order()});
    if (row.decoder->gguf_names != nullptr) all.push_back(gguf_decoder(row));
  }
  return all;
}

[[nodiscard]] const std::vector<DecoderFamily>& decoders() {
  static const std::vector<DecoderFamily> kAll = all_decoders();
  return kAll;
}

}  // namespace

const DecoderFamily* find_decoder(std::string_view name, WeightFormat format) {
  const auto row = std::find_if(decoders().begin(), decoders().end(), [&](const auto& family) {
    return family.name == name && family.format == format;
  });
  return row == decoders().end() ? nullptr : &*row;
}

std::string decoder_names(WeightFormat format) {
  std::vector<std::string_view> names;
  for (const DecoderFamily& family : decoders()) {
    if (family.format == format) names.push_back(family.name);
  }
  return core::list_text(names);
}

std::string numbered(std::string_view pattern, std::int64_t layer, std::int64_t expert) {
  std::string name;
  std::int64_t next = layer;
  while (!pattern.empty()) {
    const std::size_t place = pattern.find("{}");
    name += pattern.substr(0, place);
    if (place == std::string_view::npos) break;
    name += std::to_string(next);
    next = expert;
    pattern.remove_prefix(place + 2);
  }
  return name;
}

}  // namespace phasor::models
