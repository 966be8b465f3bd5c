#include "config/gguf/scaling.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "phasor/encodings/rope.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::config {
namespace {

using encodings::Llama3Scaling;
using encodings::LongRopeScaling;
using encodings::YarnScaling;

constexpr std::string_view kType = "rope.scaling.type";
constexpr std::string_view kScalingFactor = "rope.scaling.factor";
constexpr std::string_view kOldFactor = "rope.scale_linear";
constexpr std::string_view kAttention = "rope.scaling.attn_factor";
constexpr std::string_view kOriginalLength = "rope.scaling.original_context_length";
constexpr std::string_view kLogMultiplier = "rope.scaling.yarn_log_multiplier";

constexpr std::string_view kEveryLength = "rope_freqs.weight";
constexpr std::string_view kLong = "rope_factors_long.weight";
constexpr std::string_view kShort = "rope_factors_short.weight";

// Divisors of the frequencies, one per pair; empty when the file has no such tensor.
[[nodiscard]] std::vector<double> read_factors(const io::GgufFile& file, std::string_view name,
                                               std::int64_t pairs) {
  for (const io::SkippedTensor& skipped : file.skipped()) {
    if (skipped.name == name) {
      throw Error(ErrorCode::unsupported, message(file.name(), ": tensor '", name,
                                                  "' has an unsupported type: ", skipped.type));
    }
  }
  const io::Tensor* tensor = file.find(name);
  if (tensor == nullptr) return {};
  if (tensor->size() != pairs) {
    throw Error(ErrorCode::invalid_argument,
                message(file.name(), ": tensor '", name, "' must have rotary_dim / 2 = ", pairs,
                        " elements, got ", tensor->size()));
  }
  std::vector<float> values(static_cast<std::size_t>(pairs));
  io::to_floats(*tensor, 0, values);
  return {values.begin(), values.end()};
}

struct FactorLists {
  std::vector<double> short_factor, long_factor;
  std::string source;

  [[nodiscard]] bool empty() const { return short_factor.empty(); }
};

[[nodiscard]] FactorLists read_lists(const io::GgufFile& file, std::int64_t pairs) {
  FactorLists lists;
  std::vector<double> factors = read_factors(file, kEveryLength, pairs);
  if (!factors.empty()) {
    lists.short_factor = factors;
    lists.long_factor = std::move(factors);
    lists.source = message("tensor ", kEveryLength);
    return lists;
  }
  lists.short_factor = read_factors(file, kShort, pairs);
  lists.long_factor = read_factors(file, kLong, pairs);
  if (lists.short_factor.empty() != lists.long_factor.empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        message(file.name(), ": tensor '", lists.long_factor.empty() ? kLong : kShort,
                "' is missing; the file has '", lists.long_factor.empty() ? kShort : kLong, "'"));
  }
  lists.source = message("tensors ", kShort, " and ", kLong);
  return lists;
}

// The llama3 scaling whose divisors a list holds, to float32's rounding; the divisor of the lowest
// frequency is its factor.
[[nodiscard]] std::optional<Llama3Scaling> as_llama3(const std::vector<double>& factors,
                                                     const GgufScalingInput& input) {
  constexpr double kTolerance = 1e-6;
  constexpr std::int64_t kOriginalLength = 8192;
  constexpr std::array<std::pair<double, double>, 2> kBands = {{{1.0, 4.0}, {1.0, 1.0}}};
  if (!(factors.back() > 1.0) || !std::isfinite(factors.back()) || !(input.base > 1.0))
    return std::nullopt;
  encodings::RopeSpec spec;
  spec.head_dim = spec.rotary_dim = input.rotary_dim;
  spec.base = input.base;
  const core::Frequencies plain = encodings::resolve_frequencies(spec);
  for (const auto& [low, high] : kBands) {
    const Llama3Scaling candidate{factors.back(), low, high, kOriginalLength};
    spec.scaling = candidate;
    const core::Frequencies scaled = encodings::resolve_frequencies(spec);
    bool same = true;
    for (std::size_t i = 0; i < factors.size() && same; ++i) {
      const double divisor = plain.values()[i] / scaled.values()[i];
      same = std::abs(divisor / factors[i] - 1.0) <= kTolerance;
    }
    if (same) return candidate;
  }
  return std::nullopt;
}

class ScalingReader {
 public:
  ScalingReader(GgufKeys& keys, const GgufArchitecture& architecture, const GgufScalingInput& input,
                std::vector<KeyNote>& notes)
      : keys_(keys), architecture_(architecture), input_(input), notes_(notes) {}

  [[nodiscard]] GgufScaling read() {
    const std::string type = read_type();
    read_factor();
    attention_ = keys_.number(kAttention).value_or(1.0);
    if (!(attention_ > 0.0) || !std::isfinite(attention_))
      keys_.refuse(kAttention, message("must be positive and finite, got ", attention_));
    original_ = keys_.count(kOriginalLength, kMaxLength);
    if (!original_) original_ = input_.context_length;
    lists_ = read_lists(keys_.file(), input_.rotary_dim / 2);
    read_yarn_keys(type);
    note_finetuned();

    if (type == "yarn") {
      make_yarn();
    } else {
      make_lists_or_linear(type);
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::string read_type() {
    // llama.cpp reads a missing type as linear, which without a factor is no scaling.
    const std::optional<std::string> stated = keys_.text(kType);
    const std::string type = stated.value_or("linear");
    if (type != "none" && type != "linear" && type != "yarn" && type != "longrope") {
      keys_.refuse(kType, message("must be none, linear, yarn or longrope, got ", type));
    }
    if (stated) source(kType);
    return type;
  }

  void read_factor() {
    std::string_view key = kScalingFactor;
    std::optional<double> factor = keys_.number(kScalingFactor);
    const std::optional<double> old = keys_.number(kOldFactor);
    if (!factor) {
      factor = old;
      key = kOldFactor;
    } else if (old) {
      notes_.push_back(
          {keys_.path_of(kOldFactor), message("not used: ", kScalingFactor, " is given")});
    }
    factor_ = factor.value_or(1.0);
    if (factor_ == 0.0) factor_ = 1.0;  // llama.cpp writes 0 for none
    if (!(factor_ > 0.0) || !std::isfinite(factor_))
      keys_.refuse(key, message("must be positive and finite, got ", factor_));
    if (factor) source(key);
  }

  void read_yarn_keys(const std::string& type) {
    const auto positive = [this](std::string_view key, double fallback) {
      const std::optional<double> value = keys_.number(key);
      if (value) source(key);
      return value.value_or(fallback);
    };
    yarn_.beta_fast = positive("rope.scaling.yarn_beta_fast", yarn_.beta_fast);
    yarn_.beta_slow = positive("rope.scaling.yarn_beta_slow", yarn_.beta_slow);
    constexpr std::string_view kBlend = "rope.scaling.yarn_ext_factor";
    const std::optional<double> blend = keys_.number(kBlend);
    // Negative: not set.
    if (blend && type == "yarn" && *blend >= 0.0 && *blend != 1.0) {
      if (architecture_.name == "grok") {
        yarn_.extrapolation_factor = *blend;
        source(kBlend);
      } else {
        notes_.push_back(
            {keys_.path_of(kBlend), "changes nothing: llama.cpp reads it for grok only"});
      }
    }
    constexpr std::string_view kStored = "rope.scaling.yarn_attn_factor";
    if (keys_.number(kStored)) {
      notes_.push_back({keys_.path_of(kStored),
                        "changes nothing: llama.cpp computes YaRN's amplitude from the factor"});
    }
    log_multiplier_ = keys_.number(kLogMultiplier).value_or(0.0);
    if (log_multiplier_ != 0.0) source(kLogMultiplier);
  }

  void note_finetuned() {
    constexpr std::string_view kFinetuned = "rope.scaling.finetuned";
    if (keys_.flag(kFinetuned) && !architecture_.finetuned_is_switch)
      notes_.push_back({keys_.path_of(kFinetuned), "describes the training; changes nothing"});
  }

  // The amplitude is g(1) = 1 + 0.1 ln factor; with a log multiplier g(mscale) / g(mscale_all_dim);
  // both times attn_factor.
  void make_yarn() {
    if (lists_.short_factor != lists_.long_factor) {
      throw Error(ErrorCode::unsupported,
                  message(keys_.file().name(), ": ", keys_.path_of(kType),
                          " yarn cannot be combined with factors by length: ", lists_.source));
    }
    if (!lists_.empty()) result_.sources.push_back({"frequency_factors", lists_.source});
    result_.frequency_factors = std::move(lists_.short_factor);
    if (!original_) keys_.refuse(kOriginalLength, "missing; yarn needs it or context_length");
    yarn_.factor = factor_;
    yarn_.original_length = *original_;
    double amplitude =
        yarn_.extrapolation_factor == 0.0 ? 1.0 : encodings::yarn_amplitude(factor_, 1.0);
    if (log_multiplier_ != 0.0) {
      if (architecture_.log_multiplier == GgufLogMultiplier::refused) {
        keys_.refuse(kLogMultiplier, message("not supported for architecture ", architecture_.name,
                                             ", got ", log_multiplier_));
      }
      const bool tenth = architecture_.log_multiplier == GgufLogMultiplier::tenth_all_dim;
      yarn_.mscale_all_dim = tenth ? log_multiplier_ / 0.1 : log_multiplier_;
      yarn_.mscale = tenth ? yarn_.mscale_all_dim : 1.0;
      amplitude = encodings::yarn_amplitude(factor_, yarn_.mscale) /
                  encodings::yarn_amplitude(factor_, yarn_.mscale_all_dim);
    }
    const double on_scores =
        amplitude * attention_ * encodings::yarn_amplitude(factor_, yarn_.mscale_all_dim);
    result_.latent_softmax_factor = on_scores * on_scores;
    if (attention_ != 1.0) {
      yarn_.attention_factor = amplitude * attention_;
      source(kAttention);
    }
    source_original();
    result_.scaling = yarn_;
  }

  void make_lists_or_linear(const std::string& type) {
    if (type == "none" && factor_ != 1.0) {
      notes_.push_back(
          {keys_.path_of(kScalingFactor), "changes nothing with the scaling type \"none\""});
    }
    const double factor = type == "none" ? 1.0 : factor_;
    if (lists_.empty() && type == "longrope") {
      keys_.refuse(kType, message("longrope needs the tensors ", kShort, " and ", kLong,
                                  ", which are missing"));
    }
    if (lists_.empty() && attention_ == 1.0) {
      if (factor != 1.0) result_.scaling = encodings::LinearScaling{factor};
      return;
    }
    const bool one_list = lists_.empty() || lists_.short_factor == lists_.long_factor;
    if (!lists_.empty()) result_.sources.push_back({"scaling", lists_.source});
    if (one_list && !lists_.empty() && attention_ == 1.0 && factor == 1.0) {
      if (const std::optional<Llama3Scaling> llama3 = as_llama3(lists_.short_factor, input_)) {
        result_.scaling = *llama3;
        return;
      }
    }
    if (attention_ != 1.0) source(kAttention);
    make_longrope(factor, one_list);
  }

  void make_longrope(double factor, bool one_list) {
    if (lists_.empty()) {
      lists_.short_factor.assign(static_cast<std::size_t>(input_.rotary_dim / 2), 1.0);
      lists_.long_factor = lists_.short_factor;
    }
    if (!one_list) {
      if (!original_) keys_.refuse(kOriginalLength, "missing; two lists need it or context_length");
      source_original();
    }
    LongRopeScaling scaling;
    scaling.short_factor = std::move(lists_.short_factor);
    scaling.long_factor = std::move(lists_.long_factor);
    for (double& value : scaling.short_factor) value *= factor;
    for (double& value : scaling.long_factor) value *= factor;
    scaling.original_length = original_.value_or(1);  // of no effect on two equal lists
    scaling.attention_factor = attention_;
    result_.scaling = std::move(scaling);
  }

  void source(std::string_view key) { result_.sources.push_back({"scaling", keys_.path_of(key)}); }
  void source_original() {
    source(keys_.has(kOriginalLength) ? kOriginalLength : "context_length");
  }

  GgufKeys& keys_;
  const GgufArchitecture& architecture_;
  const GgufScalingInput& input_;
  std::vector<KeyNote>& notes_;
  double factor_ = 1.0, attention_ = 1.0, log_multiplier_ = 0.0;
  std::optional<std::int64_t> original_;
  FactorLists lists_;
  YarnScaling yarn_;
  GgufScaling result_;
};

}  // namespace

GgufScaling read_gguf_scaling(GgufKeys& keys, const GgufArchitecture& architecture,
                              const GgufScalingInput& input, std::vector<KeyNote>& notes) {
  return ScalingReader(keys, architecture, input, notes).read();
}

}  // namespace phasor::config
