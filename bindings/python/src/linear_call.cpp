#include "linear_call.hpp"

#include "attention_call.hpp"
#include "spec.hpp"

namespace phasor::python {
namespace {

using attention::FeatureMap;
using attention::Rotates;

[[nodiscard]] FeatureMap features_of(std::string_view name) {
  for (const FeatureMap features :
       {FeatureMap::elu_plus_one, FeatureMap::softmax_exp, FeatureMap::favor}) {
    if (attention::name_of(features) == name) return features;
  }
  refuse(
      message("linear_attention: features must be elu_plus_one, softmax_exp or favor, got ", name));
}
[[nodiscard]] Rotates rotates_of(std::string_view name) {
  for (const Rotates rotates : {Rotates::features, Rotates::inputs}) {
    if (attention::name_of(rotates) == name) return rotates;
  }
  refuse(message("linear_attention: rotates must be features or inputs, got ", name));
}

}  // namespace

LinearOptionsArgument::LinearOptionsArgument(const LinearArguments& arguments, std::int64_t batch,
                                             std::int64_t keys)
    : key_padding_(arguments.key_padding, "linear_attention: key_padding"), keys_(keys) {
  require_rows(key_padding_, "linear_attention: key_padding", batch, keys);
  options_.causality =
      arguments.causal ? attention::Causality::bottom_right : attention::Causality::none;
  options_.features = features_of(arguments.features);
  options_.feature_count = arguments.feature_count;
  options_.seed = arguments.seed;
  options_.rotates = rotates_of(arguments.rotates);
  options_.query_positions =
      positions_of(arguments.query_positions, "linear_attention: query_positions");
  options_.key_positions = positions_of(arguments.key_positions, "linear_attention: key_positions");
  options_.key_padding = key_padding_.get();
  options_.threads = arguments.threads;
}

std::optional<core::Rotary> LinearOptionsArgument::rotary(nb::handle encoding,
                                                          std::optional<std::int64_t> context,
                                                          std::int64_t keys) const {
  if (encoding.is_none()) return std::nullopt;
  PySpec room;
  const PySpec& given = spec_of(encoding, room, "linear_attention: encoding");
  const std::optional<double> largest = options_.key_positions
                                            ? options_.key_positions->largest(keys_)
                                            : static_cast<double>(keys - 1);
  return *given.rotary(encodings::context_for(given.value, context, largest));
}

}  // namespace phasor::python
