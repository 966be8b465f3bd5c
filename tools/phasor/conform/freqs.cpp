// Golden kind rope_freqs: a config in each of its forms against frequencies, amplitude and softmax
// scale.
#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "phasor/config/config.hpp"
#include "phasor/encodings/internal/listed_frequencies.hpp"

namespace phasor::tools {
namespace {

using json = io::Json;
using Lengths = std::vector<std::optional<std::int64_t>>;

Lengths lengths_of(const Case& golden) {
  Lengths lengths;
  for (const json& length : member<json>(golden, "seq_lens")) {
    lengths.push_back(length.is_null() ? std::nullopt : std::optional(length.get<std::int64_t>()));
  }
  return lengths;
}

// One layer type of one form of the config, at every length.
void check_set(const config::LayerGroup& group, const json& set, const Lengths& lengths,
               const std::string& where, Comparison& comparison) {
  const auto name = optional_member<std::string>(set, "inv_freq", where);
  if (!group.rope || !name) {
    if (group.rope.has_value() != name.has_value()) {
      refuse(message(where, name ? ": the layer must rotate, but it has no rotation"
                                 : ": the layer must have no rotation, but it rotates"));
    }
    return;
  }
  Computed got;
  for (const std::optional<std::int64_t>& length : lengths) {
    const core::Frequencies resolved = encodings::listed_frequencies(*group.rope, length);
    const std::span<const double> row = resolved.values();
    got.shape = {static_cast<std::int64_t>(lengths.size()), static_cast<std::int64_t>(row.size())};
    got.values.insert(got.values.end(), row.begin(), row.end());
    if (const auto amplitude = optional_member<std::string>(set, "attention_scaling", where)) {
      comparison.scalar(*amplitude, resolved.amplitude());
    }
  }
  comparison.result(*name, got);
  comparison.scalar(
      optional_member<std::string>(set, "softmax_scale", where).value_or("softmax_scale"),
      group.softmax_scale);
}

void rope_freqs(const Case& golden, Comparison& comparison) {
  const Lengths lengths = lengths_of(golden);
  const auto configs = member<json>(golden, "configs");
  const auto sets = member<std::vector<json>>(golden, "sets");
  if (configs.empty() || sets.empty()) {
    refuse("case.json: 'configs' or 'sets' is empty");
  }
  for (const io::JsonMember* const form : configs.sorted_items()) {
    const auto file = member<std::string>(configs, form->key.c_str(), "case.json: configs");
    const config::ModelConfig model = config::read_config(golden.directory / file).value_or_throw();
    for (const json& set : sets) {
      const std::string layer = optional_member<std::string>(set, "layer_type", file).value_or("");
      const config::LayerGroup group = config::select_layer(model, layer).value_or_throw();
      check_set(group, set, lengths, layer.empty() ? file : file + " " + layer, comparison);
    }
  }
}

}  // namespace

void add_frequency_kinds(Kinds& kinds) { kinds["rope_freqs"] = rope_freqs; }

}  // namespace phasor::tools
