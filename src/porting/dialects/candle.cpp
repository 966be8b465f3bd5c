// candle (candle-transformers).
#include <algorithm>
#include <array>

#include "phasor/io/internal/json.hpp"
#include "porting/dialects/reading.hpp"
#include "porting/plan/scaling_keys.hpp"
#include "porting/rounding.hpp"

namespace phasor::porting {
namespace {

// The 16-bit type that the config gives the weights.
[[nodiscard]] std::optional<core::DType> narrow_type_of(const ReadableConfig& config) {
  if (config.text.empty()) return std::nullopt;
  io::Json parsed = io::parse_python_object(config.text);
  for (const io::Json* part : {&text_part(parsed), &parsed}) {
    for (const std::string_view key : {"dtype", "torch_dtype"}) {
      const auto found = part->find(key);
      if (found == part->end() || !found->is_string()) continue;
      for (const core::DType type : {core::DType::bf16, core::DType::f16}) {
        if (found->get<std::string>() == type_name(type)) return type;
      }
    }
  }
  return std::nullopt;
}

const RuleEntry kCandleNarrowTable = {
    {"candle-table-in-model-dtype",
     "qwen2, phi3, gemma and gemma2 compute positions, frequencies and angles in the dtype of the "
     "weights: bfloat16 cannot represent every position above 256, float16 above 2048",
     "candle #3520, #3698", Evidence::reported, Touches::frequencies},
    [](EngineReading& reading, const Circumstances& given) {
      constexpr std::array<std::string_view, 4> kModels = {"qwen2", "phi3", "gemma", "gemma2"};
      const auto type = narrow_type_of(given.config);
      if (!type || std::find(kModels.begin(), kModels.end(), given.config.meaning.model_type) ==
                       kModels.end()) {
        return Effect{};
      }
      reading.path = FloatPath::narrow;
      reading.type = *type;
      const std::int64_t last = given.state.context - 1;
      return Effect{message("the table is computed in ", type_name(*type), ": position ", last,
                            " becomes ", rounded(static_cast<double>(last), *type))};
    }};

}  // namespace

std::vector<DialectEntry> candle_dialects() {
  return {{"candle", "candle", "0.11, before #3520", {&kCandleNarrowTable}}};
}

}  // namespace phasor::porting
