#include "phasor/porting/plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "porting/plan/scaling_keys.hpp"
#include "porting/plan/snippets.hpp"

namespace phasor::porting {
namespace {

using encodings::RopeSpec;

constexpr double kRotation = 2.0 * std::numbers::pi;

// What a method says of itself; its formulas stand in rope_scaling.hpp.
struct Words {
  std::string_view name;
  std::array<std::string_view, 2> trade_off;
  std::string_view fine_tuning;
  std::string_view engines;
};

constexpr std::array kWords = {
    Words{"none",
          {"Nothing changes: nearby tokens keep their angles.",
           "Pairs that never completed a turn meet angles that training never showed; attention "
           "usually collapses there."},
          "training at the longer length is the only remedy",
          "every engine"},
    Words{"present",
          {"What the config carries now, at the longer context.",
           "Beyond the length it was made for it extrapolates like any other."},
          "as the model was made",
          "see phasor diff"},
    Words{"linear",
          {"Every angle stays within what training showed.",
           "All pairs slow down alike, so neighbours become harder to tell apart; short texts "
           "suffer too."},
          "needed: a short one usually suffices",
          "Hugging Face, vLLM and llama.cpp give the same angles"},
    Words{
        "ntk",
        {"The fastest pair keeps its speed and the slowest is stretched by the whole factor.",
         "Slow pairs before it are stretched by less and still meet new angles: plan for more than "
         "needed."},
        "often works without; better with",
        "a changed base: every engine"},
    Words{"dynamic",
          {"Texts within the trained length are untouched; the base grows with the sequence.",
           "Keys stored earlier keep their old base, so a cache is inconsistent once the text is "
           "longer."},
          "made to work without",
          "Hugging Face by sequence, vLLM fixed at load, llama.cpp not at all (base only)"},
    Words{"yarn",
          {"Fast pairs keep their speed, slow ones are stretched, a ramp between; the amplitude "
           "sharpens attention.",
           "The stretch also applies to short texts, which lose a little."},
          "works without at small factors; a short one at large factors",
          "Hugging Face, vLLM and llama.cpp; a stored attention_factor is read by Hugging Face "
          "alone, and under M-RoPE vLLM moves the correction range"},
    Words{"llama3",
          {"Pairs of more than 4 turns within the trained length keep their speed, those of less "
           "than one are stretched.",
           "No amplitude: attention over many more tokens is less sharp than with YaRN."},
          "needed: the models that carry it were trained on",
          "Hugging Face, vLLM and llama.cpp give the same angles"},
    Words{
        "longrope",
        {"One factor per pair: the best ones are found by a search on the model, which this plan "
         "does not do.",
         "The slots below hold YaRN's stretch, so that the config is valid and a search has a "
         "start."},
        "needed after the search",
        "the list is chosen by sequence in Hugging Face, by configured length in vLLM, by context "
        "size in llama.cpp, always long in mlx-lm"},
};

void describe(PlanMethod& method) {
  const auto* found = std::find_if(kWords.begin(), kWords.end(),
                                   [&](const Words& words) { return words.name == method.name; });
  method.trade_off = {std::string(found->trade_off[0]), std::string(found->trade_off[1])};
  method.fine_tuning = found->fine_tuning;
  method.engines = found->engines;
}

// The frequencies training would have seen without any scaling.
[[nodiscard]] RopeSpec unscaled(RopeSpec rope) {
  if (auto* proportional = std::get_if<encodings::ProportionalScaling>(&rope.scaling)) {
    proportional->factor = 1.0;
  } else {
    rope.scaling = encodings::DefaultScaling{};
  }
  return rope;
}

void find_trained(const config::ModelConfig& model, const RopeSpec& rope,
                  const PlanOptions& options, Plan& plan) {
  if (options.trained) {
    plan.trained = *options.trained;
    plan.trained_source = "as asked";
  } else if (const auto original = encodings::original_length(rope.scaling)) {
    plan.trained = *original;
    plan.trained_source = "the original length of its scaling";
  } else if (model.max_position) {
    plan.trained = *model.max_position;
    plan.trained_source = "max_position_embeddings";
  } else {
    refuse(ErrorCode::invalid_argument,
           "plan: the trained length must be given, in the config or with --trained, got none");
  }
  if (plan.trained < 2) {
    refuse(ErrorCode::invalid_argument,
           message("plan: the trained length must be at least 2, got ", plan.trained));
  }
  if (plan.to <= plan.trained) {
    refuse(ErrorCode::invalid_argument,
           message("plan: the context to reach must be above the trained length ", plan.trained,
                   " (within it there is nothing to do), got ", plan.to));
  }
  if (plan.to >= kContextLimit) {
    refuse(ErrorCode::invalid_argument,
           message("plan: the context to reach must be below 2^40, got ", plan.to));
  }
}

[[nodiscard]] std::size_t band_of(double rotations) {
  std::size_t band = 0;
  while (band < kBandRotations.size() && rotations < kBandRotations[band]) ++band;
  return band;
}

void measure(const Plan& plan, const core::Frequencies& plain, PlanMethod& method) {
  const core::Frequencies scaled = encodings::resolve_frequencies(method.rope, plan.to);
  method.amplitude = scaled.amplitude();
  const auto trained = static_cast<double>(plan.trained);
  const auto to = static_cast<double>(plan.to);
  std::array<bool, kBands> seen{};
  for (std::size_t i = 0; i < plain.values().size(); ++i) {
    const double before = plain.values()[i], after = scaled.values()[i];
    PlanPair pair;
    pair.wavelength = before == 0.0 ? std::numeric_limits<double>::infinity() : kRotation / before;
    pair.rotations_trained = trained * before / kRotation;
    pair.frequency = after;
    pair.rotations_at_to = to * after / kRotation;
    pair.compression = before == 0.0 ? 1.0 : after / before;
    // A margin for rounding: linear ends exactly where training ended.
    pair.out_of_distribution = pair.rotations_trained < 1.0 &&
                               pair.rotations_at_to > pair.rotations_trained * (1.0 + 1e-9);
    const std::size_t index = band_of(pair.rotations_trained);
    BandEffect& band = method.bands[index];
    band.out_of_distribution += pair.out_of_distribution ? 1 : 0;
    method.out_of_distribution += pair.out_of_distribution ? 1 : 0;
    band.least_compression =
        seen[index] ? std::min(band.least_compression, pair.compression) : pair.compression;
    band.most_compression =
        seen[index] ? std::max(band.most_compression, pair.compression) : pair.compression;
    if (before > 0.0)
      band.furthest = std::max(band.furthest, pair.rotations_at_to / pair.rotations_trained);
    seen[index] = true;
    method.pairs.push_back(pair);
  }
}

[[nodiscard]] encodings::YarnScaling yarn_of(const Plan& plan) {
  encodings::YarnScaling yarn;
  yarn.factor = plan.factor;
  yarn.original_length = plan.trained;
  return yarn;
}

[[nodiscard]] encodings::LongRopeScaling longrope_start(const RopeSpec& plain, const Plan& plan) {
  RopeSpec yarn = plain;
  yarn.scaling = yarn_of(plan);
  const core::Frequencies before = encodings::resolve_frequencies(plain);
  const core::Frequencies after = encodings::resolve_frequencies(yarn);
  encodings::LongRopeScaling slots;
  slots.original_length = plan.trained;
  slots.factor = plan.factor;
  for (std::size_t i = 0; i < before.values().size(); ++i) {
    slots.short_factor.push_back(1.0);
    // Four decimals: a start for a search needs no more, and a person has to read them. Rounded
    // up, since a stretch that falls short shows new angles; the 1e-6 keeps whole ones whole.
    const double stretch = before.values()[i] / after.values()[i];
    slots.long_factor.push_back(std::ceil(stretch * 1e4 - 1e-6) / 1e4);
  }
  return slots;
}

// The spec of a method; throws Error with the reason where it does not apply.
[[nodiscard]] RopeSpec spec_of(std::string_view name, const RopeSpec& plain, const Plan& plan) {
  RopeSpec rope = plain;
  if (auto* proportional = std::get_if<encodings::ProportionalScaling>(&rope.scaling)) {
    if (name != "linear") {
      refuse(ErrorCode::unsupported,
             "a config has one rope_type, and here it is proportional, which takes a linear factor "
             "only");
    }
    proportional->factor = plan.factor;
    return rope;
  }
  if (name == "linear") {
    rope.scaling = encodings::LinearScaling{plan.factor};
  } else if (name == "ntk") {
    const auto dim = static_cast<double>(rope.rotary_dim);
    if (rope.rotary_dim <= 2)
      refuse(ErrorCode::unsupported,
             "it needs more than one pair: the exponent is dim / (dim - 2)");
    rope.base *= std::pow(plan.factor, dim / (dim - 2.0));
  } else if (name == "dynamic") {
    rope.scaling = encodings::DynamicScaling{plan.factor, std::nullopt, plan.trained};
  } else if (name == "yarn") {
    rope.scaling = yarn_of(plan);
  } else if (name == "llama3") {
    rope.scaling = encodings::Llama3Scaling{plan.factor, 1.0, 4.0, plan.trained};
  } else {
    rope.scaling = longrope_start(plain, plan);
  }
  encodings::validate(rope);
  return rope;
}

[[nodiscard]] std::size_t group_of(const config::ModelConfig& model, const std::string& layer) {
  std::string wanted = layer;
  const auto is_full = [](const config::LayerGroup& group) {
    return group.layer_type == "full_attention" && group.rope;
  };
  if (wanted.empty() && std::any_of(model.groups.begin(), model.groups.end(), is_full))
    wanted = "full_attention";
  const config::LayerGroup group = config::select_layer(model, wanted).value_or_throw();
  for (std::size_t i = 0; i < model.groups.size(); ++i) {
    if (model.groups[i].layer_type != group.layer_type || model.groups[i].layers != group.layers)
      continue;
    if (!model.groups[i].rope) break;
    return i;
  }
  refuse(ErrorCode::unsupported,
         message("plan: the layer must rotate, got layer '",
                 wanted.empty() ? group.layer_type : wanted, "', which has no rotation"));
}

[[nodiscard]] Plan made(const ReadableConfig& config, const PlanOptions& options) {
  const config::ModelConfig& model = config.meaning;
  const std::size_t index = group_of(model, options.layer);
  const config::LayerGroup& group = model.groups[index];
  const RopeSpec& present = *group.rope;
  if (std::holds_alternative<encodings::AxialAxes>(present.axes) || present.xpos) {
    refuse(ErrorCode::unsupported,
           message("plan: the layer must turn by one kind of position, got ",
                   present.xpos ? "xPos" : "the two axes of an image"));
  }
  Plan plan;
  plan.model_type = model.model_type;
  plan.layer_type = group.layer_type;
  plan.layers = group.layers;
  plan.window = group.window;
  plan.to = options.to;
  find_trained(model, present, options, plan);
  plan.factor = static_cast<double>(plan.to) / static_cast<double>(plan.trained);
  plan.head_dim = present.head_dim;
  plan.rotary_dim = present.rotary_dim;
  plan.base = present.base;

  const RopeSpec plain = unscaled(present);
  const core::Frequencies frequencies = encodings::resolve_frequencies(plain);
  for (std::size_t band = 0; band < kBands; ++band) {
    plan.bands[band].from_rotations = band < kBandRotations.size() ? kBandRotations[band] : 0.0;
    if (band > 0) plan.bands[band].to_rotations = kBandRotations[band - 1];
  }
  for (const double frequency : frequencies.values())
    ++plan.bands[band_of(static_cast<double>(plan.trained) * frequency / kRotation)].pairs;

  for (const Words& words : kWords) {
    PlanMethod method;
    method.name = words.name;
    describe(method);
    const bool as_it_is = words.name == "none" || words.name == "present";
    if (words.name == "present" && present == plain) continue;
    try {
      method.rope = words.name == "none"      ? plain
                    : words.name == "present" ? present
                                              : spec_of(words.name, plain, plan);
      measure(plan, frequencies, method);
      if (!as_it_is) write_snippets(config, index, plan.trained, plan.to, method);
    } catch (const Error& error) {
      method.problem = error.what();
    }
    plan.methods.push_back(std::move(method));
  }
  return plan;
}

}  // namespace

Result<Plan> plan(const ReadableConfig& config, const PlanOptions& options) {
  try {
    return made(config, options);
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace phasor::porting
