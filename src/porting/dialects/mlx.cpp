// mlx-lm and mlx-vlm.
#include "porting/dialects/reading.hpp"
#include "porting/dialects/shared_rules.hpp"

namespace phasor::porting {
namespace {

using encodings::DefaultScaling;
using encodings::LinearScaling;
using encodings::LongRopeScaling;

const RuleEntry kMlxLongRope = {
    {"mlx-longrope-always-long", "the long factors apply to sequences of every length", "",
     Evidence::read, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* longrope = std::get_if<LongRopeScaling>(&reading.rope.scaling);
      if (longrope == nullptr) return Effect{};
      reading.length = longrope->original_length + 1;
      if (given.state.context > longrope->original_length) return Effect{};
      return Effect{message("the long factors apply to a sequence of ", given.state.context)};
    }};

const RuleEntry kMlxExtrapolation = {
    {"mlx-yarn-extrapolation-factor", "YaRN's extrapolation_factor is not read", "", Evidence::read,
     Touches::everything},
    extrapolation_factor_ignored};

const RuleEntry kMlxVlmGemma = {
    {"mlxvlm-gemma3-global-scaling",
     "Gemma 3's rope_scaling is read and then ignored: the global layers are not scaled",
     "mlx-vlm #1709", Evidence::reported, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      const auto* linear = std::get_if<LinearScaling>(&reading.rope.scaling);
      if (linear == nullptr || !given.config.meaning.model_type.starts_with("gemma3"))
        return Effect{};
      const double factor = linear->factor;
      reading.rope.scaling = DefaultScaling{};
      return Effect{message("the factor ", digits(factor), " is ignored")};
    }};

}  // namespace

std::vector<DialectEntry> mlx_dialects() {
  return {
      {"mlx-lm", "mlx-lm", "mid-2026 sources", {&kMlxLongRope, &kMlxExtrapolation}},
      {"mlx-vlm", "mlx-vlm", "before #1709", {&kMlxVlmGemma}},
  };
}

}  // namespace phasor::porting
