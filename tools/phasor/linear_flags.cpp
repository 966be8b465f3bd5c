#include "linear_flags.hpp"

#include <utility>

#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::tools {

std::optional<std::int64_t> LinearFlags::rotated_features() const {
  return rotates == "inputs" ? std::nullopt : feature_count;
}

void add_linear_flags(Verb& verb, LinearFlags& flags) {
  verb.flag("--feature-map", &flags.feature_map,
            "linear: elu+1 (default), softmax_exp or favor (Performer's random features)")
      .one_of({"elu+1", "softmax_exp", "favor"});
  verb.flag("--feature-count", &flags.feature_count, "favor: the number of features").at_least(1);
  verb.flag("--seed", &flags.seed, "favor: the seed of the random features (default 0)")
      .at_least(0);
  verb.flag(
          "--rotates", &flags.rotates,
          "linear: what the rope rotates: features (default, RoFormer (19)) or inputs, before the "
          "map")
      .one_of({"features", "inputs"});
}

void refuse_linear_flags(const LinearFlags& flags) {
  for (const auto& [flag, given] :
       {std::pair<const char*, bool>{"--feature-map", !flags.feature_map.empty()},
        {"--feature-count", flags.feature_count.has_value()},
        {"--seed", flags.seed.has_value()},
        {"--rotates", !flags.rotates.empty()}}) {
    if (given) refuse(message(flag, " requires --kind linear"));
  }
}

void check_linear_flags(const LinearFlags& flags) {
  const bool is_favor = flags.feature_map == "favor";
  if (is_favor != flags.feature_count.has_value()) {
    refuse(is_favor ? "--feature-map favor requires --feature-count"
                    : "--feature-count requires --feature-map favor");
  }
  if (flags.seed && !is_favor) refuse("--seed requires --feature-map favor");
}

attention::LinearOptions linear_options(const LinearFlags& flags) {
  attention::LinearOptions options;
  if (flags.feature_map == "favor") options.features = attention::FeatureMap::favor;
  if (flags.feature_map == "softmax_exp") options.features = attention::FeatureMap::softmax_exp;
  options.feature_count = flags.feature_count.value_or(0);
  options.seed = static_cast<std::uint64_t>(flags.seed.value_or(0));
  if (flags.rotates == "inputs") options.rotates = attention::Rotates::inputs;
  return options;
}

void describe(const LinearFlags& flags, io::Json& summary) {
  summary["feature_map"] = attention::name_of(linear_options(flags).features);
  if (flags.feature_count) {
    summary["feature_count"] = *flags.feature_count;
    summary["seed"] = flags.seed.value_or(0);
  }
  summary["rotates"] = flags.rotates.empty() ? "features" : flags.rotates;
}

}  // namespace phasor::tools
