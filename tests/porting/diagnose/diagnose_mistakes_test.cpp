// Mistakes that porters make, and correct rotations: what check_config() says of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <numbers>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "phasor/porting/diagnose.hpp"
#include "porting/diagnose/port_specs.hpp"

namespace phasor::porting {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using core::PairLayout;
using io::NpyType;
using Random = std::mt19937;

std::int64_t below(Random& random, std::int64_t count) {
  return static_cast<std::int64_t>(random() % static_cast<unsigned>(count));
}
template <class T>
T one_of(Random& random, const std::vector<T>& list) {
  return list[static_cast<std::size_t>(below(random, static_cast<std::int64_t>(list.size())))];
}

struct PortMistake {
  std::string name;
  std::set<std::string> ids;  // any of them names the cause
  std::vector<std::string> specs;
  std::function<void(Port&, Random&)> make;
  bool coarse = true;  // visible in 16-bit tensors
};

const std::vector<std::string> kAny = {"llama",  "llama2_meta", "mistral", "gptj",
                                       "phi",    "linear",      "ntk",     "yarn_small",
                                       "llama3", "gemma",       "longrope"};
const std::vector<std::string> kWhole = {"llama",  "llama2_meta", "mistral",
                                         "linear", "llama3",      "yarn_small"};
const std::vector<std::string> kDefault = {"llama", "llama2_meta", "mistral",
                                           "gptj",  "phi",         "gemma"};

void each_frequency(Port& port, const std::function<double(double i, double f)>& change) {
  for (std::size_t i = 0; i < port.frequencies.size(); ++i) {
    port.frequencies[i] = change(static_cast<double>(i), port.frequencies[i]);
  }
}
void other_spec(Port& port, const std::function<void(RopeSpec&)>& change) {
  RopeSpec spec = port.spec;
  change(spec);
  port.set_spec(spec);
}
void power_law(Port& port, const std::function<double(double i)>& exponent) {
  const double base = port.spec.base;
  each_frequency(port, [&](double i, double) { return std::pow(base, -exponent(i)); });
}
PairLayout other_layout(PairLayout layout) {
  return layout == PairLayout::half ? PairLayout::interleaved : PairLayout::half;
}
std::int64_t width_of(const Port& port) { return port.spec.rotary_dim; }
double dim_of(const Port& port) { return static_cast<double>(port.spec.rotary_dim); }

// new[i] = x[2i], new[i + n] = x[2i + 1]
std::int64_t to_half_source(std::int64_t j, std::int64_t width) {
  return j < width / 2 ? 2 * j : 2 * (j - width / 2) + 1;
}
std::int64_t to_interleaved_source(std::int64_t j, std::int64_t width) {
  return j % 2 == 0 ? j / 2 : width / 2 + j / 2;
}

std::vector<PortMistake> signs() {
  const auto form = [](PairForm how) { return [how](Port& port, Random&) { port.form = how; }; };
  return {
      {"cos and sin swapped",
       {"cos_and_sin_swapped"},
       kAny,
       form([](double a, double b, double ca, double sa, double cb, double sb) {
         return std::array{a * sa - b * ca, b * sb + a * cb};
       })},
      {"sign of sine",
       {"turned_backwards"},
       kAny,
       form([](double a, double b, double ca, double sa, double cb, double sb) {
         return std::array{a * ca + b * sa, b * cb - a * sb};
       })},
      {"rotate_half without minus",
       {"rotate_half_without_minus"},
       kAny,
       form([](double a, double b, double ca, double sa, double cb, double sb) {
         return std::array{a * ca + b * sa, b * cb + a * sb};
       })},
      {"rotate_half with two minus",
       {"rotate_half_two_minus"},
       kAny,
       form([](double a, double b, double ca, double sa, double cb, double sb) {
         return std::array{a * ca - b * sa, b * cb - a * sb};
       })},
      {"first half negated",
       {"half_negated"},
       kAny,
       form([](double a, double b, double ca, double sa, double cb, double sb) {
         return std::array{-a * ca + b * sa, b * cb + a * sb};
       })},
      {"in place",
       {"overwritten"},
       {"llama", "llama2_meta", "mistral"},
       form([](double a, double b, double ca, double sa, double cb, double sb) {
         const double first = a * ca - b * sa;
         return std::array{first, b * cb + first * sb};
       })},
      {"sine missing",
       {"sine_missing"},
       kDefault,
       form([](double a, double b, double ca, double, double cb, double) {
         return std::array{a * ca, b * cb};
       })},
      {"halves not exchanged",
       {"rotate_half_without_swap"},
       kDefault,
       form([](double a, double b, double ca, double sa, double cb, double sb) {
         return std::array{a * ca - a * sa, b * cb + b * sb};
       })},
      {"applied twice", {"applied_twice"}, kAny, [](Port& port, Random&) { port.times = 2; }},
      {"not rotated",
       {"not_rotated"},
       kAny,
       [](Port& port, Random&) {
         port.idle = [](std::int64_t, std::int64_t, std::int64_t) { return true; };
       }},
  };
}

std::vector<PortMistake> layouts() {
  return {
      {"other layout",
       {"layout"},
       kAny,
       [](Port& port, Random&) {
         port.set_layout(other_layout(*port.spec.layout), 0, width_of(port));
       }},
      {"concatenated table, pairs",
       {"table_concatenated"},
       kWhole,
       [](Port& port, Random&) {
         port.set_layout(PairLayout::interleaved, 0, width_of(port));
         for (const auto& at : port.places) {
           port.entry_a.push_back(at[2] % (width_of(port) / 2));
           port.entry_b.push_back(at[3] % (width_of(port) / 2));
         }
       }},
      {"repeated table, halves",
       {"table_interleaved"},
       kWhole,
       [](Port& port, Random&) {
         port.set_layout(PairLayout::half, 0, width_of(port));
         for (const auto& at : port.places) {
           port.entry_a.push_back(at[2] / 2);
           port.entry_b.push_back(at[3] / 2);
         }
       }},
      {"permuted before, right way for the other layout",
       {"permuted", "layout"},
       kWhole,
       [](Port& port, Random&) {
         for (auto& at : port.places) {
           at[0] = to_half_source(at[0], width_of(port));
           at[1] = to_half_source(at[1], width_of(port));
         }
       }},
      {"permuted before, wrong direction",
       {"permuted", "layout"},
       kWhole,
       [](Port& port, Random&) {
         for (auto& at : port.places) {
           at[0] = to_interleaved_source(at[0], width_of(port));
           at[1] = to_interleaved_source(at[1], width_of(port));
         }
       }},
      {"permuted after",
       {"permuted", "layout"},
       kWhole,
       [](Port& port, Random&) {
         for (auto& at : port.places) {
           at[2] = to_half_source(at[2], width_of(port));
           at[3] = to_half_source(at[3], width_of(port));
         }
       }},
      {"layout and base",
       {"base"},
       {"llama", "mistral"},
       [](Port& port, Random&) {
         other_spec(port, [](RopeSpec& s) {
           s.base = s.base == 1e4 ? 5e5 : 1e4;
           s.layout = other_layout(*s.layout);
         });
       }},
      {"wrong width",
       {"rotary_dim"},
       {"gptj", "neox", "phi"},
       [](Port& port, Random& random) {
         const std::int64_t width =
             one_of<std::int64_t>(random, {width_of(port) / 2, width_of(port) * 2});
         other_spec(port, [&](RopeSpec& s) { s.rotary_dim = width; });
       }},
      {"whole head instead of a part",
       {"rotary_dim"},
       {"gptj", "neox", "phi"},
       [](Port& port, Random&) {
         other_spec(port, [](RopeSpec& s) { s.rotary_dim = s.head_dim; });
       }},
      {"part instead of the whole head",
       {"rotary_dim"},
       {"llama", "mistral", "llama2_meta"},
       [](Port& port, Random&) {
         other_spec(port, [](RopeSpec& s) { s.rotary_dim = s.head_dim / 2; });
       }},
      {"wrong end",
       {"rotary_offset"},
       {"gptj", "neox", "phi"},
       [](Port& port, Random&) {
         port.set_layout(*port.spec.layout, port.spec.head_dim - width_of(port), width_of(port));
       }},
      {"frequencies by head_dim",
       {"frequencies_by_head_dim"},
       {"gptj", "neox", "phi"},
       [](Port& port, Random&) {
         power_law(port,
                   [&](double i) { return 2.0 * i / static_cast<double>(port.spec.head_dim); });
       }},
      {"q heads only",
       {"heads_not_rotated"},
       kAny,
       [](Port& port, Random&) {
         port.heads = 6;
         port.idle = [](std::int64_t, std::int64_t, std::int64_t h) { return h >= 4; };
       }},
      {"one head",
       {"heads_not_rotated"},
       kAny,
       [](Port& port, Random&) {
         port.heads = 5;
         port.idle = [](std::int64_t, std::int64_t, std::int64_t h) { return h == 2; };
       }},
      {"angle by head",
       {"angle_by_head"},
       kDefault,
       [](Port& port, Random&) {
         port.give_positions = true;
         port.heads = 6;
         port.position = [](std::int64_t, std::int64_t, std::int64_t h, int) {
           return static_cast<double>(h);
         };
       }},
      {"angle by head, head count of the config",
       {"angle_by_head"},
       kDefault,
       [](Port& port, Random&) {
         port.heads = 6;
         port.told_heads = 6;
         port.offset = 0;
         port.position = [](std::int64_t, std::int64_t, std::int64_t h, int) {
           return static_cast<double>(h);
         };
       }},
  };
}

std::vector<PortMistake> exponents() {
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

void at_positions(Port& port, std::function<double(std::int64_t b, std::int64_t t)> position) {
  port.position = [position](std::int64_t b, std::int64_t t, std::int64_t, int) {
    return position(b, t);
  };
}

std::vector<PortMistake> places() {
  using Index = std::int64_t;
  const auto real = [](Index value) { return static_cast<double>(value); };
  return {
      {"off by one",
       {"positions_one_ahead"},
       kAny,
       [=](Port& port, Random&) {
         port.give_positions = true;
         at_positions(port, [&port, real](Index, Index t) { return real(port.offset + t + 1); });
       }},
      {"one behind",
       {"positions_one_behind"},
       kAny,
       [=](Port& port, Random&) {
         port.give_positions = true;
         port.offset += 3;
         at_positions(port, [&port, real](Index, Index t) { return real(port.offset + t - 1); });
       }},
      {"offset",
       {"positions_offset"},
       kAny,
       [=](Port& port, Random&) {
         port.give_positions = true;
         at_positions(port, [&port, real](Index, Index t) { return real(port.offset + t + 77); });
       }},
      {"clipped",
       {"positions_clipped"},
       kAny,
       [=](Port& port, Random&) {
         port.tokens = 40;
         at_positions(port, [&port, real](Index, Index t) {
           return real(port.offset + std::min<Index>(t, 31));
         });
         port.give_positions = true;
       }},
      {"restart",
       {"positions_restart"},
       kAny,
       [=](Port& port, Random&) {
         port.tokens = 40;
         at_positions(port, [real](Index, Index t) { return real(t % 16); });
       }},
      {"restart at a segment",
       {"positions_restart"},
       kAny,
       [=](Port& port, Random&) {
         port.tokens = 40;
         at_positions(port, [real](Index, Index t) { return real(t < 23 ? t : t - 23); });
       }},
      {"repeated at a cache border",
       {"position_repeated"},
       kAny,
       [=](Port& port, Random&) {
         port.tokens = 63;
         at_positions(port, [&port, real](Index, Index t) {
           return real(port.offset + (t < 40 ? t : t - 1));
         });
       }},
      {"skipped at a cache border",
       {"position_skipped"},
       kAny,
       [=](Port& port, Random&) {
         port.tokens = 63;
         at_positions(port, [&port, real](Index, Index t) {
           return real(port.offset + (t < 40 ? t : t + 1));
         });
       }},
      {"decode steps at 0",
       {"decode_positions"},
       kAny,
       [=](Port& port, Random&) {
         at_positions(port,
                      [&port, real](Index, Index t) { return real(t < 16 ? port.offset + t : 0); });
       }},
      {"reversed",
       {"positions_reversed"},
       kAny,
       [=](Port& port, Random&) {
         port.give_positions = true;
         at_positions(port, [&port, real](Index, Index t) {
           return real(port.offset + port.tokens - 1 - t);
         });
       }},
      {"step 2",
       {"positions_step", "applied_twice"},
       kAny,
       [=](Port& port, Random&) {
         at_positions(port, [&port, real](Index, Index t) { return real(port.offset + 2 * t); });
       }},
      {"all tokens alike",
       {"positions_all_equal"},
       kAny,
       [=](Port& port, Random&) {
         port.give_positions = true;
         at_positions(port, [real](Index, Index) { return real(7); });
       }},
      {"left padding",
       {"left_padding"},
       kAny,
       [=](Port& port, Random&) {
         port.give_positions = true;
         port.asked = [real](Index, Index t, Index, int) {
           return real(std::max<Index>(t - 5, 0));
         };
         at_positions(port, [real](Index, Index t) { return real(t); });
       }},
      {"padding of batch rows",
       {"left_padding"},
       kAny,
       [=](Port& port, Random&) {
         port.give_positions = true;
         port.batch = 3;
         port.asked = [real](Index b, Index t, Index, int) {
           return real(std::max<Index>(t - 2 * b, 0));
         };
         at_positions(port, [real](Index, Index t) { return real(t); });
       }},
      {"one batch row off by one",
       {"batch_row_off_by_one"},
       kAny,
       [=](Port& port, Random&) {
         port.batch = 4;
         at_positions(port,
                      [&port, real](Index b, Index t) { return real(port.offset + t + (b == 2)); });
       }},
      {"one batch row not rotated",
       {"batch_row_not_rotated"},
       kAny,
       [=](Port& port, Random&) {
         port.batch = 3;
         port.idle = [](Index b, Index, Index) { return b == 1; };
       }},
      {"positions across rows",
       {"positions_across_rows"},
       kAny,
       [=](Port& port, Random&) {
         port.batch = 2;
         port.give_positions = true;
         at_positions(port, [&port, real](Index b, Index t) {
           return real(port.offset + b * port.tokens + t);
         });
       }},
      {"bfloat16 positions",
       {"bfloat16_positions"},
       kAny,
       [=](Port& port, Random&) {
         port.offset = 500 + port.offset % 7;
         port.give_positions = true;
         port.position_type = NpyType::bf16;
       }},
      {"float16 positions",
       {"float16_positions"},
       kAny,
       [=](Port& port, Random&) {
         port.offset = 4100 + port.offset % 7;
         port.give_positions = true;
         port.position_type = NpyType::f16;
       }},
  };
}

std::vector<PortMistake> scalings() {
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

std::vector<PortMistake> precisions() {
  const auto types = [](NpyType position, NpyType frequency, NpyType angle, NpyType table) {
    return [=](Port& port, Random&) {
      port.give_positions = true;
      port.tokens = 60;
      port.position_type = position;
      port.frequency_type = frequency;
      port.angle_type = angle;
      port.table_type = table;
    };
  };
  constexpr auto f64 = NpyType::f64, bf16 = NpyType::bf16, f16 = NpyType::f16;
  return {
      {"bfloat16 table", {"bfloat16_table"}, kAny, types(f64, f64, f64, bf16)},
      {"float16 table", {"float16_table"}, kAny, types(f64, f64, f64, f16)},
      {"bfloat16 frequencies", {"bfloat16_frequencies"}, kAny, types(f64, bf16, f64, f64)},
      {"float16 frequencies", {"float16_frequencies"}, kAny, types(f64, f16, f64, f64)},
      {"bfloat16 angles", {"bfloat16_angles"}, kAny, types(f64, f64, bf16, f64)},
      {"float16 angles", {"float16_angles"}, kAny, types(f64, f64, f16, f64)},
      {"bfloat16 throughout",
       {"bfloat16_throughout", "bfloat16_angles", "bfloat16_frequencies"},
       kAny,
       types(bf16, bf16, bf16, f64)},
  };
}

std::vector<PortMistake> several_axes() {
  const std::vector<std::string> mropes = {"mrope", "mrope_interleaved"};
  const auto grid = [](std::function<void(Port&)> change) {
    return [change](Port& port, Random&) {
      port.tokens = 40;
      port.give_positions = true;
      give_grid(port);
      change(port);
    };
  };
  return {
      {"axes exchanged",
       {"axes_exchanged"},
       {"mrope", "mrope_interleaved", "axial", "pixtral"},
       grid([](Port& port) {
         for (int& axis : port.axes) {
           axis = port.axes.empty() || encodings::axis_count(port.spec.axes) == 2 ? 1 - axis
                  : axis == 1                                                     ? 2
                  : axis == 2                                                     ? 1
                                                                                  : 0;
         }
       })},
      {"text-only positions", {"axes_alike"}, mropes, grid([](Port& port) {
         at_positions(port, [](std::int64_t, std::int64_t t) { return static_cast<double>(t); });
       })},
      {"temporal positions for all axes", {"axes_alike"}, mropes, grid([](Port& port) {
         port.position = [&port](std::int64_t b, std::int64_t t, std::int64_t h, int) {
           return port.asked(b, t, h, 0);
         };
       })},
      {"interleaved for chunked", {"sections_order"}, mropes, grid([](Port& port) {
         const auto& asked = std::get<encodings::MropeAxes>(port.spec.axes);
         const bool chunked = asked.order == encodings::MropeAxes::Order::chunked;
         const auto t = static_cast<std::size_t>(asked.sections[0]),
                    h = static_cast<std::size_t>(asked.sections[1]),
                    w = static_cast<std::size_t>(asked.sections[2]);
         for (std::size_t i = 0; i < port.axes.size(); ++i) {
           const bool height = i % 3 == 1 && i < 3 * h, width = i % 3 == 2 && i < 3 * w;
           port.axes[i] = chunked ? (height ? 1 : width ? 2 : 0) : (i < t ? 0 : i < t + h ? 1 : 2);
         }
       })},
      {"sections exchanged", {"sections"}, {"mrope"}, grid([](Port& port) {
         other_spec(port, [](RopeSpec& s) {
           auto& axes = std::get<encodings::MropeAxes>(s.axes);
           std::swap(axes.sections[0], axes.sections[1]);
         });
       })},
      {"xpos missing",
       {"xpos_missing"},
       {"xpos"},
       [](Port& port, Random&) { port.growth.clear(); }},
      {"xpos scale_base",
       {"xpos_parameter"},
       {"xpos"},
       [](Port& port, Random&) {
         for (double& rate : port.growth) rate *= 2.0;
       }},
      {"axial kind", {"axes_order"}, {"axial"}, grid([](Port& port) {
         other_spec(port, [](RopeSpec& s) {
           s.axes = encodings::AxialAxes{encodings::AxialAxes::Kind::alternating};
         });
       })},
  };
}

std::vector<PortMistake> all_mistakes() {
  std::vector<PortMistake> all;
  for (auto* const list : {signs, layouts, exponents, places, scalings, precisions, several_axes}) {
    for (PortMistake& mistake : list()) {
      mistake.coarse = list != precisions;
      all.push_back(std::move(mistake));
    }
  }
  return all;
}

int seeds_of_environment() {
  const char* const text = std::getenv("PHASOR_MISTAKE_SEEDS");
  return text == nullptr ? 2 : std::max(1, std::atoi(text));
}

std::string told(const ConfigCheck& check) {
  std::string text = check.cause ? check.cause->id + ": " + check.cause->text : check.text;
  for (const FoundCause& other : check.alternatives) text += " | or " + other.id;
  for (const std::string& note : check.notes) text += " | " + note;
  return text;
}

TEST(DiagnoseMistakes, CausesAreNamed) {
  int named = 0, wrong = 0, unnamed = 0, missed = 0, count = 0;
  unsigned seed = 0;
  for (const PortMistake& mistake : all_mistakes()) {
    for (int k = 0; k < seeds_of_environment(); ++k) {
      Random random(++seed * 7919U + 13U);
      const std::string name = one_of(random, mistake.specs);
      const SpecAt at = spec_named(name);
      Port port(at.spec, at.context);
      port.seed = seed;
      port.tokens = 24 + below(random, 30);
      port.heads = 2 + below(random, 4);
      port.without_batch = below(random, 2) == 0;
      port.float32_angles = below(random, 2) == 0;
      port.heads_first = below(random, 4) == 0;
      if (below(random, 2) == 0) port.told_heads = 32;
      // Some mistakes are below the rounding of 16-bit tensors.
      if (mistake.coarse) {
        port.dtype =
            one_of<NpyType>(random, {NpyType::f32, NpyType::f32, NpyType::f16, NpyType::bf16});
        port.narrow_arithmetic = below(random, 2) == 0;
      }
      if (at.context) {
        port.offset = *at.context - 70;
        port.give_positions = true;
      } else {
        port.offset = one_of<std::int64_t>(random, {0, 0, 5, 130});
        port.give_positions = below(random, 2) == 0;
      }
      const bool ramps = name.find("yarn") == 0 || name.find("llama3") == 0;
      if (ramps && !at.context) port.offset = 3000 + below(random, 100);
      mistake.make(port, random);
      if (port.batch > 1) port.without_batch = false;
      const ConfigCheck check = port.check();
      ++count;
      bool ok = check.cause && mistake.ids.count(check.cause->id) != 0;
      for (const FoundCause& other : check.alternatives)
        ok = ok || mistake.ids.count(other.id) != 0;
      const char* verdict = "named";
      if (check.agrees) {
        ++missed;
        verdict = "FALSE OK";
      } else if (ok) {
        ++named;
      } else if (!check.cause) {
        ++unnamed;
        verdict = "unnamed";
      } else {
        ++wrong;
        verdict = "WRONG";
      }
      if (std::string(verdict) != "named" || std::getenv("PHASOR_MISTAKE_ALL") != nullptr) {
        std::cout << verdict << "  " << mistake.name << " (" << name << ", seed " << seed << ", "
                  << (port.give_positions ? "given" : "not given") << ", offset " << port.offset
                  << ", tokens " << port.tokens << ", type " << io::name_of(port.dtype)
                  << (port.heads_first ? ", heads first" : "") << "): " << told(check) << "\n"
                  << std::flush;
      }
    }
  }
  std::cout << count << " mistakes: " << named << " named, " << unnamed << " without a cause, "
            << wrong << " wrong, " << missed << " called correct\n";
  EXPECT_EQ(missed, 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(named, count * 95 / 100);
}

TEST(DiagnoseMistakes, CorrectRotationsPass) {
  int alarms = 0, count = 0;
  unsigned seed = 0;
  for (int round = 0; round < 10 * seeds_of_environment(); ++round) {
    for (const std::string& name : spec_names()) {
      Random random(++seed * 104729U + 7U);
      const SpecAt at = spec_named(name);
      Port port(at.spec, at.context);
      port.seed = seed;
      port.dtype = one_of<NpyType>(
          random, {NpyType::f32, NpyType::f32, NpyType::f16, NpyType::bf16, NpyType::f64});
      port.tokens = one_of<std::int64_t>(random, {1, 2, 3, 17, 40, 64});
      port.heads = one_of<std::int64_t>(random, {1, 2, 8});
      port.batch = one_of<std::int64_t>(random, {1, 1, 2});
      port.float32_angles = below(random, 2) == 0;
      port.narrow_arithmetic = below(random, 2) == 0;
      port.give_positions = below(random, 2) == 0;
      port.offset = one_of<std::int64_t>(random, {0, 0, 1, 100, 2000, 30000, 100000, 1000000});
      port.heads_first = below(random, 4) == 0 && port.tokens >= port.heads;
      if (at.context) {
        port.offset = *at.context - port.tokens;
        port.give_positions = true;
      }
      if (port.float32_angles && port.offset > 100000 && !port.give_positions) port.offset = 5000;
      if (name == "xpos") port.offset %= 1000;
      if (!port.axes.empty() && below(random, 2) == 0) {
        port.give_positions = true;
        give_grid(port);
      }
      port.without_batch = port.batch == 1 && below(random, 2) == 0;
      // A dump may hold a few of the model's heads.
      const std::int64_t count_of = below(random, 3);
      if (count_of > 0) port.told_heads = count_of == 1 ? port.heads : 32;
      const ConfigCheck check = port.check();
      ++count;
      if (!check.agrees) {
        ++alarms;
        std::cout << "ALARM  " + name + ", seed " + std::to_string(seed) + ", tokens " +
                         std::to_string(port.tokens) + ", heads " + std::to_string(port.heads) +
                         ", batch " + std::to_string(port.batch) + ", dtype " +
                         std::to_string(static_cast<int>(port.dtype)) + ", offset " +
                         std::to_string(port.offset) + (port.give_positions ? " given" : "") +
                         (port.float32_angles ? " f32" : "") +
                         (port.narrow_arithmetic ? " narrow" : "") +
                         (port.heads_first ? " heads first" : "") + ": " + told(check) + "\n"
                  << std::flush;
      }
    }
  }
  std::cout << count << " correct rotations: " << alarms << " false alarms\n";
  EXPECT_EQ(alarms, 0);
}

}  // namespace
}  // namespace phasor::porting
