// Mistakes that porters make, and correct rotations: what check_config() says of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <numbers>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "phasor/porting/diagnose.hpp"
#include "porting/diagnose/port_mistakes.hpp"

namespace phasor::porting {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using core::PairLayout;
using io::NpyType;

std::vector<PortMistake> all_mistakes() {
  std::vector<PortMistake> all;
  for (auto* const list : {sign_mistakes, layout_mistakes, exponent_mistakes, place_mistakes,
                           scaling_mistakes, type_mistakes, row_mistakes}) {
    for (PortMistake& mistake : list()) {
      mistake.coarse = list != type_mistakes;
      all.push_back(std::move(mistake));
    }
  }
  return all;
}

int seeds_of_environment() {
  const char* const text = std::getenv("PHASOR_MISTAKE_SEEDS");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
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

// [batch, heads, tokens, dim] with fewer heads than the config has: the axis along which the angles
// change holds the tokens, whatever else is wrong.
TEST(DiagnoseMistakes, TokensAreTheAxisAlongWhichAnglesChange) {
  const SpecAt at = spec_named("llama3");
  for (const std::int64_t heads : {1, 2, 4}) {
    Port port(at.spec, at.context);
    port.heads = heads;
    port.tokens = 40;
    port.heads_first = true;
    port.told_heads = 32;
    port.dtype = NpyType::bf16;
    RopeSpec other = at.spec;
    other.scaling = encodings::YarnScaling{8.0, 8192};
    port.set_spec(other);
    const ConfigCheck check = port.check();
    EXPECT_FALSE(check.agrees);
    if (check.cause) {
      EXPECT_NE(check.cause->id, "angle_by_head") << heads;
      EXPECT_NE(check.cause->id, "axes_mixed") << heads;
    }
    EXPECT_EQ(check.axes, (std::vector<std::string>{"batch", "heads", "tokens", "dim"})) << heads;
  }
}

// More tokens than are searched far away, in any order.
TEST(DiagnoseMistakes, PositionsOfManyTokensAreFound) {
  Port port(plain_spec(64, 1e4, PairLayout::half));
  port.tokens = 1200;
  port.heads = 2;
  std::vector<double> order(1200);
  std::iota(order.begin(), order.end(), 0.0);
  std::mt19937 random(5);
  std::shuffle(order.begin(), order.end(), random);
  port.position = [&](std::int64_t, std::int64_t t, std::int64_t, int) {
    return order[static_cast<std::size_t>(t)];
  };
  const ConfigCheck check = port.check();
  ASSERT_TRUE(check.cause);
  EXPECT_EQ(check.cause->id, "positions");
  const Port::Tensors tensors = port.run();
  const Diagnosis blind = diagnose({&tensors.before, &tensors.after, nullptr, {}});
  EXPECT_EQ(blind.positions, "found");
  EXPECT_EQ(blind.found_positions, order);
}

// The bound of the header: a feature may be off by it, and no more.
TEST(DiagnoseMistakes, TheBoundIsTheStatedOne) {
  for (const NpyType type : {NpyType::f32, NpyType::f16, NpyType::bf16}) {
    const double unit = type == NpyType::f32 ? 0x1p-24 : type == NpyType::f16 ? 0x1p-11 : 0x1p-8;
    Port port(plain_spec(8, 1e4, PairLayout::half));
    port.tokens = 3;
    port.heads = 1;
    port.dtype = type;
    const Port::Tensors exact = port.run();
    const std::vector<double> x = io::to_doubles(exact.before).value_or_throw();
    const io::NpyArray positions = port.positions();
    // Token 2, pair 1: features 1 and 5.
    const std::size_t at = 2 * 8 + 1;
    const double frequency = port.frequencies[1], angle = 2.0 * frequency;
    const double a = x[at], b = x[at + 4];
    const double length = std::hypot(a, b);
    const double bound = kRotationRoundings * unit *
                             (std::abs(a * std::cos(angle)) + std::abs(b * std::sin(angle))) +
                         (kCosSinFloat32 + kFloat32Angle * angle) * length;
    const double right = a * std::cos(angle) - b * std::sin(angle);
    for (const double part : {0.0, 0.7, -0.7, 1.9, -1.9}) {
      std::vector<double> y = x;
      for (std::size_t t = 0; t < 3; ++t) {
        for (std::size_t i = 0; i < 4; ++i) {
          const double angle_of_pair = static_cast<double>(t) * port.frequencies[i];
          const std::size_t near = 8 * t + i, far = near + 4;
          y[near] = x[near] * std::cos(angle_of_pair) - x[far] * std::sin(angle_of_pair);
          y[far] = x[far] * std::cos(angle_of_pair) + x[near] * std::sin(angle_of_pair);
        }
      }
      y[at] = right + part * bound;
      const io::NpyArray after = array_of(type, exact.after.shape, y);
      const ConfigCheck check = check_config({&exact.before, &after, &positions, {}}, port.spec);
      EXPECT_EQ(check.agrees, std::abs(part) < 1.0) << io::name_of(type) << " " << part;
    }
  }
}

}  // namespace
}  // namespace phasor::porting
