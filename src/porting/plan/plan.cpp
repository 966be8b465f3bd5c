#include "phasor/porting/config_reports.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "porting/plan/flags.hpp"
#include "porting/plan/scaling_keys.hpp"
#include "porting/plan/snippets.hpp"

namespace phasor::porting {
namespace {

using encodings::RopeSpec;

constexpr double kRotation = 2.0 * std::numbers::pi;

// YaRN's authors extend by up to 8 times with little loss and little or no training.
constexpr double kLargeFactor = 8.0;

// The description of a method; its formulas are in rope_scaling.hpp.
struct MethodText {
  std::string_view name;
  std::array<std::string_view, 2> trade_off;
  std::string_view fine_tuning;
  std::string_view engines;
};

constexpr std::array kMethods = {
    MethodText{"none",
               {"Nothing changes: the angles between nearby tokens stay those of training.",
                "Pairs with less than one full rotation in training reach new angles; attention "
                "usually fails there."},
               "training at the longer length is required",
               "every engine"},
    MethodText{"present",
               {"The config as it is, at the longer context.",
                "Beyond the length it was made for, it reaches new angles like any other."},
               "as for the original model",
               "see phasor diff"},
    MethodText{"linear",
               {"All angles stay within the range of training.",
                "All frequencies are reduced by the same factor, so neighbouring tokens are harder "
                "to distinguish; short texts get worse too."},
               "required; a short one is usually enough",
               "Hugging Face, vLLM and llama.cpp give the same angles"},
    MethodText{"ntk",
               {"The first frequency is unchanged and the last is divided by the whole factor.",
                "Low frequencies before the last are divided by less and still reach new angles: "
                "choose a longer context than needed."},
               "optional; improves the result",
               "every engine: only the base changes"},
    MethodText{
        "dynamic",
        {"Texts within the trained length are unchanged; the base grows with the sequence.",
         "Cached keys keep their old base, so the cache is inconsistent once the text is longer "
         "than the trained length."},
        "not required",
        "Hugging Face by sequence, vLLM fixed at load; not supported by llama.cpp (base only)"},
    MethodText{"yarn",
               {"High frequencies are unchanged, low ones are divided by the factor, with a ramp "
                "between; the amplitude sharpens attention.",
                "The scaling also applies to short texts, which get slightly worse."},
               "not required at small factors; a short one at large factors",
               "Hugging Face, vLLM and llama.cpp; only Hugging Face reads attention_factor, and "
               "with M-RoPE vLLM computes another correction range"},
    MethodText{"llama3",
               {"Pairs with more than 4 full rotations within the trained length are unchanged, "
                "those with less than one are divided by the factor.",
                "No amplitude: attention over many more tokens is less sharp than with YaRN."},
               "required: the models that use it were trained further",
               "Hugging Face, vLLM and llama.cpp give the same angles"},
    MethodText{"longrope",
               {"One factor per pair: the best ones are found by a search with the model, which "
                "this plan does not do.",
                "The factors below are YaRN's: a valid config and a start for the search."},
               "required after the search",
               "short or long factors are chosen by sequence in Hugging Face, by configured length "
               "in vLLM, by context size in llama.cpp; mlx-lm always uses the long ones"},
};

void describe(PlanMethod& method) {
  const auto* found = std::find_if(kMethods.begin(), kMethods.end(), [&](const MethodText& text) {
    return text.name == method.name;
  });
  method.trade_off = {std::string(found->trade_off[0]), std::string(found->trade_off[1])};
  method.fine_tuning = found->fine_tuning;
  method.engines = found->engines;
}

// The spec without its scaling.
[[nodiscard]] RopeSpec unscaled(RopeSpec rope) {
  if (auto* proportional = std::get_if<encodings::ProportionalScaling>(&rope.scaling)) {
    proportional->factor = 1.0;
  } else {
    rope.scaling = encodings::DefaultScaling{};
  }
  return rope;
}

// A scaling for a longer context than the original one: the weights were published for that length.
[[nodiscard]] bool is_extended(const config::ModelConfig& model, const RopeSpec& rope) {
  if (!model.max_position) return false;
  if (const auto* linear = std::get_if<encodings::LinearScaling>(&rope.scaling))
    return linear->factor > 1.0;
  const std::optional<std::int64_t> original = encodings::original_length(rope.scaling);
  return original && *model.max_position > *original;
}

void find_trained(const config::ModelConfig& model, const RopeSpec& rope,
                  const PlanOptions& options, Plan& plan) {
  if (options.trained) {
    plan.trained = *options.trained;
    plan.trained_source = "as requested";
  } else if (is_extended(model, rope)) {
    plan.extended = true;
    plan.trained = *model.max_position;
    plan.trained_source = message("published length: ", model.max_position_key,
                                  ", already extended by ", encodings::name_of(rope.scaling));
  } else if (const auto original = encodings::original_length(rope.scaling)) {
    plan.trained = *original;
    plan.trained_source = "the original length of its scaling";
  } else if (model.trained_length) {
    plan.trained = *model.trained_length;
    plan.trained_source = model.trained_length_key;
  } else if (model.max_position) {
    plan.trained = *model.max_position;
    plan.trained_source = "max_position_embeddings";
  } else {
    refuse(ErrorCode::invalid_argument,
           "plan: the trained length is missing: the config has no max_position_embeddings; set "
           "--trained");
  }
  if (plan.trained < 2) {
    refuse(ErrorCode::invalid_argument,
           message("plan: the trained length must be at least 2, got ", plan.trained));
  }
  if (plan.to <= plan.trained) {
    refuse(ErrorCode::invalid_argument,
           message("plan: the new context must be larger than the trained length ", plan.trained,
                   ", got ", plan.to));
  }
  if (plan.to >= kContextLimit) {
    refuse(ErrorCode::invalid_argument,
           message("plan: the new context must be below 2^40, got ", plan.to));
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
    // A margin for rounding: linear scaling ends exactly at the trained angles.
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

[[nodiscard]] encodings::YarnScaling yarn_of(double factor, std::int64_t trained) {
  encodings::YarnScaling yarn;
  yarn.factor = factor;
  yarn.original_length = trained;
  return yarn;
}

[[nodiscard]] encodings::LongRopeScaling longrope_start(const RopeSpec& plain, double factor,
                                                        std::int64_t trained) {
  RopeSpec yarn = plain;
  yarn.scaling = yarn_of(factor, trained);
  const core::Frequencies before = encodings::resolve_frequencies(plain);
  const core::Frequencies after = encodings::resolve_frequencies(yarn);
  encodings::LongRopeScaling slots;
  slots.original_length = trained;
  slots.factor = factor;
  for (std::size_t i = 0; i < before.values().size(); ++i) {
    slots.short_factor.push_back(1.0);
    // Four decimals, for a reader; rounded up, because a smaller factor reaches new angles. The
    // 1e-6 keeps integers.
    const double stretch = before.values()[i] / after.values()[i];
    slots.long_factor.push_back(std::ceil(stretch * 1e4 - 1e-6) / 1e4);
  }
  return slots;
}

// LongRoPE for a longer context: pairs with less than one rotation are divided by the whole factor, those
// with 32 or more stay, with a ramp between (NTK by parts).
void stretch_long_factors(encodings::LongRopeScaling& longrope, const RopeSpec& present,
                          const Plan& plan) {
  const core::Frequencies trained = encodings::resolve_frequencies(present, plan.trained);
  for (std::size_t i = 0; i < longrope.long_factor.size(); ++i) {
    const double rotations = static_cast<double>(plan.trained) * trained.values()[i] / kRotation;
    const double kept = std::clamp((rotations - 1.0) / (kBandRotations.front() - 1.0), 0.0, 1.0);
    const double stretch = 1.0 / (kept + (1.0 - kept) / plan.factor);
    longrope.long_factor[i] = std::ceil(longrope.long_factor[i] * stretch * 1e4 - 1e-6) / 1e4;
  }
  longrope.factor = static_cast<double>(plan.to) / static_cast<double>(longrope.original_length);
}

// The method of a config that is already extended: its own scaling for a longer context, or its base.
[[nodiscard]] RopeSpec further_spec_of(std::string_view name, const RopeSpec& present,
                                       const Plan& plan) {
  RopeSpec rope = present;
  const std::string_view type = encodings::name_of(present.scaling);
  if (name == "ntk") {
    const auto dim = static_cast<double>(rope.rotary_dim);
    if (rope.rotary_dim <= 2)
      refuse(ErrorCode::unsupported,
             "requires more than one pair: the exponent is dim / (dim - 2)");
    rope.base *= std::pow(plan.factor, dim / (dim - 2.0));
    // The amplitude follows the length of the config.
    if (auto* longrope = std::get_if<encodings::LongRopeScaling>(&rope.scaling))
      longrope->factor =
          static_cast<double>(plan.to) / static_cast<double>(longrope->original_length);
  } else if (name != type) {
    refuse(ErrorCode::unsupported,
           message("the weights were trained with ", type, ", and a config has one rope_type"));
  } else if (auto* linear = std::get_if<encodings::LinearScaling>(&rope.scaling)) {
    linear->factor *= plan.factor;
  } else if (auto* yarn = std::get_if<encodings::YarnScaling>(&rope.scaling)) {
    yarn->factor *= plan.factor;
  } else if (auto* llama3 = std::get_if<encodings::Llama3Scaling>(&rope.scaling)) {
    llama3->factor *= plan.factor;
  } else if (auto* longrope = std::get_if<encodings::LongRopeScaling>(&rope.scaling)) {
    stretch_long_factors(*longrope, present, plan);
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
         message("plan: layer '", wanted.empty() ? group.layer_type : wanted, "' has no rotation"));
}

[[nodiscard]] const PlanMethod* applying(const Plan& plan, std::string_view name) {
  const auto found = std::find_if(
      plan.methods.begin(), plan.methods.end(),
      [&](const auto& method) { return method.name == name && method.problem.empty(); });
  return found == plan.methods.end() ? nullptr : &*found;
}

// One method, and why.
void recommend(Plan& plan) {
  const PlanMethod* as_it_is = applying(plan, plan.extended ? "present" : "none");
  if (plan.window && *plan.window <= plan.trained) {
    plan.recommended = as_it_is->name;
    plan.reason = message("a query of these layers sees ", *plan.window,
                          " keys, fewer than the trained length");
    return;
  }
  if (as_it_is->out_of_distribution == 0) {
    plan.recommended = as_it_is->name;
    plan.reason = "no pair reaches an angle that did not occur in training";
    return;
  }
  std::vector<std::string_view> order = {"yarn", "linear", "ntk"};
  if (plan.extended) order = {encodings::name_of(as_it_is->rope.scaling), "ntk"};
  for (const std::string_view name : order) {
    const PlanMethod* method = applying(plan, name);
    if (method == nullptr) continue;
    plan.recommended = name;
    const auto unchanged =
        std::count_if(method->pairs.begin(), method->pairs.end(),
                      [](const PlanPair& pair) { return std::abs(pair.compression - 1.0) < 1e-9; });
    plan.reason = message(
        method->out_of_distribution, " of ", method->pairs.size(),
        " pairs reach new angles, instead of ", as_it_is->out_of_distribution, ", and ", unchanged,
        " keep the frequency of training",
        plan.extended && name != "ntk" ? "; it continues the scaling that the weights know" : "",
        plan.factor > kLargeFactor ? "; at this factor fine-tune, or expect a loss" : "");
    return;
  }
}

[[nodiscard]] Plan made(const ReadableConfig& config, const PlanOptions& options) {
  const config::ModelConfig& model = config.meaning;
  const std::size_t index = group_of(model, options.layer);
  const config::LayerGroup& group = model.groups[index];
  const RopeSpec& present = *group.rope;
  if (std::holds_alternative<encodings::AxialAxes>(present.axes) || present.xpos) {
    refuse(ErrorCode::unsupported,
           message("plan: ", present.xpos ? "xPos" : "the two axes of an image",
                   " cannot be extended by a config"));
  }
  if (!present.frequencies.empty() || !present.frequency_factors.empty() ||
      present.amplitude != 1.0) {
    refuse(ErrorCode::unsupported,
           message("plan: ",
                   !present.frequencies.empty()         ? "a list of frequencies"
                   : !present.frequency_factors.empty() ? "a list of frequency_factors"
                                                        : "an amplitude of its own",
                   " cannot be combined with the scalings of a config"));
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
  // The frequencies that the weights were trained with.
  const core::Frequencies frequencies = plan.extended
                                            ? encodings::resolve_frequencies(present, plan.trained)
                                            : encodings::resolve_frequencies(plain);
  for (std::size_t band = 0; band < kBands; ++band) {
    plan.bands[band].from_rotations = band < kBandRotations.size() ? kBandRotations[band] : 0.0;
    if (band > 0) plan.bands[band].to_rotations = kBandRotations[band - 1];
  }
  for (const double frequency : frequencies.values())
    ++plan.bands[band_of(static_cast<double>(plan.trained) * frequency / kRotation)].pairs;

  for (const MethodText& text : kMethods) {
    PlanMethod method;
    method.name = text.name;
    describe(method);
    const bool as_it_is = text.name == "none" || text.name == "present";
    if (text.name == "present" && present == plain) continue;
    if (text.name == "none" && plan.extended) continue;
    try {
      method.rope = text.name == "none"      ? plain
                    : text.name == "present" ? present
                    : plan.extended          ? further_spec_of(text.name, present, plan)
                                    : extended_spec(plain, text.name, plan.factor, plan.trained);
      measure(plan, frequencies, method);
      if (!as_it_is) write_snippets(config, index, plan.trained, plan.to, method);
      write_flags(config, plan.to, method);
    } catch (const Error& error) {
      method.problem = error.what();
    }
    plan.methods.push_back(std::move(method));
  }
  recommend(plan);
  return plan;
}

}  // namespace

encodings::RopeSpec extended_spec(const encodings::RopeSpec& spec, std::string_view method,
                                  double factor, std::int64_t trained) {
  const RopeSpec plain = unscaled(spec);
  RopeSpec rope = plain;
  if (method == "none") return rope;
  if (auto* proportional = std::get_if<encodings::ProportionalScaling>(&rope.scaling)) {
    if (method != "linear") {
      refuse(ErrorCode::unsupported,
             "a config has one rope_type, here proportional, which supports only a linear factor");
    }
    proportional->factor = factor;
    return rope;
  }
  if (method == "linear") {
    rope.scaling = encodings::LinearScaling{factor};
  } else if (method == "ntk") {
    const auto dim = static_cast<double>(rope.rotary_dim);
    if (rope.rotary_dim <= 2)
      refuse(ErrorCode::unsupported,
             "requires more than one pair: the exponent is dim / (dim - 2)");
    rope.base *= std::pow(factor, dim / (dim - 2.0));
  } else if (method == "dynamic") {
    rope.scaling = encodings::DynamicScaling{factor, std::nullopt, trained};
  } else if (method == "yarn") {
    rope.scaling = yarn_of(factor, trained);
  } else if (method == "llama3") {
    rope.scaling = encodings::Llama3Scaling{factor, 1.0, 4.0, trained};
  } else if (method == "longrope") {
    rope.scaling = longrope_start(plain, factor, trained);
  } else {
    refuse(message(
        "extended_spec: the method must be one of none, linear, ntk, dynamic, yarn, llama3, "
        "longrope, got \"",
        method, "\""));
  }
  encodings::validate(rope);
  return rope;
}

Result<Plan> plan(const ReadableConfig& config, const PlanOptions& options) {
  try {
    return made(config, options);
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace phasor::porting
