#include "porting/plan/scaling_keys.hpp"

#include <variant>

namespace phasor::porting {
namespace {

constexpr const char* kFactor = "factor";
constexpr const char* kOriginal = "original_max_position_embeddings";

class KeyWriter {
 public:
  KeyWriter(DefaultKeys defaults, io::Json& to) : defaults_(defaults), to_(to) {}

  void operator()(const encodings::DefaultScaling&) const {}
  void operator()(const encodings::LinearScaling& scaling) const { to_[kFactor] = scaling.factor; }
  void operator()(const encodings::NtkScaling& scaling) const {
    to_[kFactor] = scaling.factor;
    if (scaling.mixed_b) to_["mixed_b"] = *scaling.mixed_b;
  }
  void operator()(const encodings::DynamicScaling& scaling) const {
    to_[kFactor] = scaling.factor;
    if (scaling.alpha) to_["alpha"] = *scaling.alpha;
    // A config gives it as max_position_embeddings, outside.
    if (defaults_ == DefaultKeys::write && !scaling.alpha)
      to_["max_position_embeddings"] = scaling.original_length;
  }
  void operator()(const encodings::NtkByPartsScaling& scaling) const {
    const encodings::NtkByPartsScaling usual;
    to_[kFactor] = scaling.factor;
    to_[kOriginal] = scaling.original_length;
    write("beta_0", scaling.beta_0, usual.beta_0);
    write("beta_1", scaling.beta_1, usual.beta_1);
    write("gamma_0", scaling.gamma_0, usual.gamma_0);
    write("gamma_1", scaling.gamma_1, usual.gamma_1);
    write("ntk_factor", scaling.ntk_factor, usual.ntk_factor);
    write("extrapolation_factor", scaling.extrapolation_factor, usual.extrapolation_factor);
  }
  void operator()(const encodings::YarnScaling& scaling) const {
    const encodings::YarnScaling usual;
    to_[kFactor] = scaling.factor;
    to_[kOriginal] = scaling.original_length;
    write("beta_fast", scaling.beta_fast, usual.beta_fast);
    write("beta_slow", scaling.beta_slow, usual.beta_slow);
    write("truncate", scaling.truncate, usual.truncate);
    if (scaling.attention_factor) to_["attention_factor"] = *scaling.attention_factor;
    if (scaling.mscale != 0.0) to_["mscale"] = scaling.mscale;
    if (scaling.mscale_all_dim != 0.0) to_["mscale_all_dim"] = scaling.mscale_all_dim;
  }
  void operator()(const encodings::LongRopeScaling& scaling) const {
    to_[kFactor] = scaling.factor;
    to_[kOriginal] = scaling.original_length;
    to_["short_factor"] = scaling.short_factor;
    to_["long_factor"] = scaling.long_factor;
    if (scaling.attention_factor) to_["attention_factor"] = *scaling.attention_factor;
    if (scaling.short_mscale) to_["short_mscale"] = *scaling.short_mscale;
    if (scaling.long_mscale) to_["long_mscale"] = *scaling.long_mscale;
  }
  void operator()(const encodings::Llama3Scaling& scaling) const {
    to_[kFactor] = scaling.factor;
    to_["low_freq_factor"] = scaling.low_freq_factor;
    to_["high_freq_factor"] = scaling.high_freq_factor;
    to_[kOriginal] = scaling.original_length;
  }
  void operator()(const encodings::ProportionalScaling& scaling) const {
    to_["partial_rotary_factor"] = scaling.proportion;
    write(kFactor, scaling.factor, 1.0);
  }

 private:
  template <class T>
  void write(const char* key, T value, T usual) const {
    if (defaults_ == DefaultKeys::write || value != usual) to_[key] = value;
  }

  DefaultKeys defaults_;
  io::Json& to_;
};

}  // namespace

void write_scaling_keys(const encodings::RopeScaling& scaling, DefaultKeys defaults, io::Json& to) {
  std::visit(KeyWriter(defaults, to), scaling);
}

}  // namespace phasor::porting
