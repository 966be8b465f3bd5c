// Mistakes in signs, pairs, tables, widths and heads.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "porting/diagnose/port_mistakes.hpp"

namespace phasor::porting::testing {

std::vector<PortMistake> sign_mistakes() {
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

std::vector<PortMistake> layout_mistakes() {
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

}  // namespace phasor::porting::testing
