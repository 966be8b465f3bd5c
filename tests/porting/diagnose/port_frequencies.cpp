// Mistakes in exponents, scalings and amplitudes.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "porting/diagnose/port_mistakes.hpp"

namespace phasor::porting::testing {

std::vector<PortMistake> exponent_mistakes() {
  const auto law = [](std::function<double(const Port&, double)> exponent) {
    return [exponent](Port& port, Random&) {
      power_law(port, [&](double i) { return exponent(port, i); });
    };
  };
  const auto times = [](double factor) {
    return [factor](Port& port, Random&) {
      each_frequency(port, [&](double, double f) { return f * factor; });
    };
  };
  constexpr double kPi = std::numbers::pi;
  return {
      {"exponent i/d", {"exponent_halved"}, kDefault, law([](const Port& p, double i) {
         return i / dim_of(p);
       })},
      {"exponent 2i/(d/2)", {"exponent_doubled"}, kDefault, law([](const Port& p, double i) {
         return 4.0 * i / dim_of(p);
       })},
      {"integer division", {"exponent_integer_division"}, kDefault, law([](const Port&, double) {
         return 0.0;
       })},
      {"exponent over d - 1", {"exponent_dim"}, kDefault, law([](const Port& p, double i) {
         return 2.0 * i / (dim_of(p) - 1.0);
       })},
      {"exponent over d - 2", {"exponent_dim"}, kDefault, law([](const Port& p, double i) {
         return 2.0 * i / (dim_of(p) - 2.0);
       })},
      {"one-based", {"exponent_one_based"}, kDefault, law([](const Port& p, double i) {
         return 2.0 * (i + 1.0) / dim_of(p);
       })},
      {"base squared",
       {"exponent_doubled"},
       kAny,
       [](Port& port, Random&) { other_spec(port, [](RopeSpec& s) { s.base *= s.base; }); }},
      {"base rooted",
       {"exponent_halved"},
       kAny,
       [](Port& port, Random&) {
         other_spec(port, [](RopeSpec& s) { s.base = std::sqrt(s.base); });
       }},
      {"frequencies reversed",
       {"frequencies_reversed"},
       kDefault,
       [](Port& port, Random&) { std::reverse(port.frequencies.begin(), port.frequencies.end()); }},
      {"times pi", {"times_pi"}, kAny, times(kPi)},
      {"times 2 pi", {"times_two_pi"}, kAny, times(2.0 * kPi)},
      {"degrees", {"degrees"}, kAny, times(kPi / 180.0)},
      {"degrees as radians", {"degrees"}, kAny, times(180.0 / kPi)},
      {"base of another model",
       {"base"},
       kAny,
       [](Port& port, Random& random) {
         other_spec(port, [&](RopeSpec& s) {
           const double base = one_of<double>(random, {1e4, 5e5, 1e6, 7.5e5, 1.5e5});
           s.base = base == s.base ? 123456.0 : base;
         });
       }},
      {"odd base",
       {"base"},
       kDefault,
       [](Port& port, Random& random) {
         other_spec(port, [&](RopeSpec& s) {
           s.base *= 1.05 + 0.01 * static_cast<double>(below(random, 50));
         });
       }},
      {"scaled although the config is not",
       {"factor", "angles_scaled"},
       kDefault,
       times(1.0 / 4.0)},
      {"layer of another base and halved width",
       {"rotary_dim", "frequencies_by_head_dim"},
       {"gptj", "phi"},
       [](Port& port, Random&) {
         const auto d = static_cast<double>(port.spec.head_dim);
         other_spec(port, [](RopeSpec& s) { s.rotary_dim /= 2; });
         power_law(port, [&](double i) { return 2.0 * i / d; });
       }},
  };
}

std::vector<PortMistake> scaling_mistakes() {
  const auto spec = [](std::function<void(RopeSpec&)> change) {
    return [change](Port& port, Random&) { other_spec(port, change); };
  };
  const auto yarn_of = [](RopeSpec& s) -> encodings::YarnScaling& {
    return std::get<encodings::YarnScaling>(s.scaling);
  };
  const auto llama3_of = [](RopeSpec& s) -> encodings::Llama3Scaling& {
    return std::get<encodings::Llama3Scaling>(s.scaling);
  };
  const auto plain = [](const Port& port, double i) {
    return std::pow(port.spec.base, -2.0 * i / dim_of(port));
  };
  // YaRN's blend as the paper has it, with the pieces a port may exchange.
  const auto yarn_blend = [plain](Port& port, double fast, double slow, bool truncate,
                                  bool invert) {
    const auto& s = std::get<encodings::YarnScaling>(port.spec.scaling);
    const double d = dim_of(port);
    const auto find = [&](double rotations) {
      return d *
             std::log(static_cast<double>(s.original_length) /
                      (rotations * 2.0 * std::numbers::pi)) /
             (2.0 * std::log(port.spec.base));
    };
    double low = find(fast), high = find(slow);
    if (truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, d - 1.0);
    if (low == high) high += 0.001;
    each_frequency(port, [&](double i, double) {
      double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      if (invert) ramp = 1.0 - ramp;
      return plain(port, i) / s.factor * ramp + plain(port, i) * (1.0 - ramp);
    });
  };
  const std::vector<std::string> yarns = {"yarn", "yarn_small", "yarn_exact"};
  const std::vector<std::string> llamas = {"llama3", "llama32"};
  const std::vector<std::string> far = {"yarn_small", "yarn_exact", "llama3", "llama32"};
  return {
      {"scaling not applied",
       {"scaling_ignored"},
       {"linear", "ntk", "yarn_small", "yarn_exact", "llama3", "longrope"},
       spec([](RopeSpec& s) { s.scaling = encodings::DefaultScaling{}; })},
      {"wrong factor",
       {"factor"},
       {"linear", "ntk", "yarn_small", "llama3", "llama32"},
       spec([](RopeSpec& s) {
         std::visit(
             [](auto& scaling) {
               if constexpr (requires { scaling.factor; }) scaling.factor *= 2.5;
             },
             s.scaling);
       })},
      {"factor of a neighbour",
       {"factor"},
       {"linear", "ntk", "yarn_exact", "llama32"},
       spec([](RopeSpec& s) {
         std::visit(
             [](auto& scaling) {
               if constexpr (requires { scaling.factor; })
                 scaling.factor = 8.0 == scaling.factor ? 32.0 : 8.0;
             },
             s.scaling);
       })},
      {"factor inverted, linear",
       {"factor_inverted"},
       {"linear"},
       [](Port& port, Random&) {
         each_frequency(port, [](double, double f) { return f * 64.0; });
       }},
      {"factor inverted, yarn",
       {"factor_inverted", "factor"},
       {"yarn_small", "yarn_exact"},
       spec([=](RopeSpec& s) { yarn_of(s).factor = 1.0 / yarn_of(s).factor; })},
      {"factor inverted, llama3", {"factor_inverted", "factor"}, llamas, spec([=](RopeSpec& s) {
         llama3_of(s).factor = 1.0 / llama3_of(s).factor;
       })},
      {"betas swapped",
       {"yarn_betas_swapped", "ramp_inverted"},
       yarns,
       [=](Port& port, Random&) {
         const auto& s = std::get<encodings::YarnScaling>(port.spec.scaling);
         yarn_blend(port, s.beta_slow, s.beta_fast, s.truncate, false);
       }},
      {"ramp inverted",
       {"ramp_inverted"},
       yarns,
       [=](Port& port, Random&) {
         const auto& s = std::get<encodings::YarnScaling>(port.spec.scaling);
         yarn_blend(port, s.beta_fast, s.beta_slow, s.truncate, true);
       }},
      {"truncate", {"yarn_truncate"}, {"yarn_small", "yarn_exact"}, spec([=](RopeSpec& s) {
         yarn_of(s).truncate = !yarn_of(s).truncate;
       })},
      {"original length, yarn",
       {"original_length", "yarn_ramp_ends"},
       {"yarn_small", "yarn_exact"},
       spec([=](RopeSpec& s) { yarn_of(s).original_length *= 4; })},
      {"original length is the extended one",
       {"original_length", "yarn_ramp_ends"},
       {"yarn_small", "yarn_exact"},
       spec([=](RopeSpec& s) {
         yarn_of(s).original_length *= static_cast<std::int64_t>(yarn_of(s).factor);
       })},
      {"original length, llama3", {"original_length"}, llamas, spec([=](RopeSpec& s) {
         llama3_of(s).original_length *= 4;
       })},
      {"original length, llama3, odd", {"original_length"}, llamas, spec([=](RopeSpec& s) {
         llama3_of(s).original_length = 5000;
       })},
      {"low and high swapped",
       {"llama3_factors_swapped", "ramp_missing"},
       llamas,
       [=](Port& port, Random&) {
         const auto& s = std::get<encodings::Llama3Scaling>(port.spec.scaling);
         each_frequency(port, [&](double i, double) {
           const double f = plain(port, i), wavelength = 2.0 * std::numbers::pi / f;
           const auto original = static_cast<double>(s.original_length);
           return wavelength > original / s.high_freq_factor ? f / s.factor : f;
         });
       }},
      {"llama3 ramp inverted",
       {"ramp_inverted"},
       llamas,
       [=](Port& port, Random&) {
         const auto& s = std::get<encodings::Llama3Scaling>(port.spec.scaling);
         each_frequency(port, [&](double i, double f) {
           const double plain_f = plain(port, i);
           const double r =
               static_cast<double>(s.original_length) * plain_f / (2.0 * std::numbers::pi);
           if (r < s.low_freq_factor || r > s.high_freq_factor) return f;
           const double smooth = (r - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
           return smooth * plain_f / s.factor + (1.0 - smooth) * plain_f;
         });
       }},
      {"llama3 without a blend",
       {"ramp_missing", "llama3_factors_swapped", "high_freq_factor"},
       llamas,
       [=](Port& port, Random&) {
         const auto& s = std::get<encodings::Llama3Scaling>(port.spec.scaling);
         each_frequency(port, [&](double i, double) {
           const double f = plain(port, i);
           const double r = static_cast<double>(s.original_length) * f / (2.0 * std::numbers::pi);
           return r < s.low_freq_factor ? f / s.factor : f;
         });
       }},
      {"linear for yarn",
       {"scaling_type", "ramp_missing"},
       {"yarn_small", "yarn_exact", "llama32"},
       spec([](RopeSpec& s) {
         double factor = 1.0;
         std::visit(
             [&](const auto& scaling) {
               if constexpr (requires { scaling.factor; }) factor = scaling.factor;
             },
             s.scaling);
         s.scaling = encodings::LinearScaling{factor};
       })},
      {"amplitude dropped",
       {"amplitude_dropped"},
       {"yarn_small", "yarn", "longrope"},
       [](Port& port, Random&) { port.amplitude = 1.0; }},
      {"amplitude squared",
       {"amplitude_twice"},
       {"yarn_small", "yarn", "longrope"},
       [](Port& port, Random&) { port.amplitude *= port.amplitude; }},
      {"another amplitude",
       {"amplitude"},
       {"yarn_small", "llama", "longrope"},
       [](Port& port, Random&) { port.amplitude *= 1.07; }},
      {"short list for long",
       {"longrope_list"},
       {"longrope", "longrope_short"},
       spec([](RopeSpec& s) {
         auto& list = std::get<encodings::LongRopeScaling>(s.scaling);
         std::swap(list.short_factor, list.long_factor);
       })},
      {"list multiplied",
       {"longrope_multiplied"},
       {"longrope", "longrope_short"},
       [=](Port& port, Random&) {
         each_frequency(port,
                        [&](double i, double f) { return plain(port, i) * plain(port, i) / f; });
       }},
      {"dynamic never grown",
       {"context_ignored", "scaling_ignored"},
       {"dynamic"},
       spec([](RopeSpec& s) { s.scaling = encodings::DefaultScaling{}; })},
      {"dynamic at another length",
       {"context", "base", "base_and_scaling_ignored"},
       {"dynamic"},
       [](Port& port, Random&) {
         port.context = 12000;
         other_spec(port, [](RopeSpec&) {});
         port.context = 6000;
       }},
      {"ntk without its exponent", {"ntk_exponent"}, {"ntk"}, spec([](RopeSpec& s) {
         s.base *= std::get<encodings::NtkScaling>(s.scaling).factor;
         s.scaling = encodings::DefaultScaling{};
       })},
      {"scaling twice",
       {"scaling_twice", "factor"},
       {"linear"},
       [](Port& port, Random&) { each_frequency(port, [](double, double f) { return f / 8.0; }); }},
      {"another model's config",
       {"base", "base_and_scaling_ignored"},
       far,
       [](Port& port, Random&) {
         port.set_spec(plain_spec(port.spec.head_dim, 1e6, PairLayout::half));
       }},
  };
}

}  // namespace phasor::porting::testing
