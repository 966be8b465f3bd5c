// Mistakes in positions, their rows, and in the types of numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "porting/diagnose/port_mistakes.hpp"

namespace phasor::porting::testing {

std::vector<PortMistake> place_mistakes() {
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

std::vector<PortMistake> type_mistakes() {
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

std::vector<PortMistake> row_mistakes() {
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
      {"other sections", {"sections"}, {"mrope"}, grid([](Port& port) {
         for (std::size_t i = 0; i < port.axes.size(); ++i)
           port.axes[i] = i < 8 ? 0 : i < 36 ? 1 : 2;
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

}  // namespace phasor::porting::testing
