// Memory at a long sequence, and time and memory against the number of tokens.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ostream>

#include "attention/attention_bench.hpp"
#include "attention/encodings.hpp"
#include "attention/memory.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::bench {
namespace {

using CurveClock = std::chrono::steady_clock;

constexpr double kMib = 1024.0 * 1024.0;

std::optional<double> mib_of(const std::function<void()>& work) {
  const std::optional<std::int64_t> bytes = peak_growth(work);
  if (!bytes) return std::nullopt;
  return static_cast<double>(*bytes) / kMib;
}

// The median of at least three calls, more while they are short.
double median_ms(const std::function<void()>& work) {
  std::vector<double> times;
  double total = 0.0;
  while (times.size() < 3 || (total < 300.0 && times.size() < 25)) {
    const CurveClock::time_point begin = CurveClock::now();
    work();
    times.push_back(std::chrono::duration<double, std::milli>(CurveClock::now() - begin).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::string curve_line(std::string_view name, const Shape& shape,
                       const std::function<void()>& work) {
  // Memory is measured on the first call: later ones may reuse memory that it left allocated.
  const std::optional<double> mib = mib_of(work);
  const double ms = median_ms(work);
  const double n = static_cast<double>(shape.tokens);
  const double pairs = static_cast<double>(shape.heads) * n * (n + 1.0) / 2.0;
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "%.*s,%lld,%.4f,%.5f,", static_cast<int>(name.size()),
                name.data(), static_cast<long long>(shape.tokens), ms, ms * 1e6 / pairs);
  std::string line = text.data();
  if (mib) {
    std::snprintf(text.data(), text.size(), "%.2f", *mib);
    line += text.data();
  }
  return line;
}

}  // namespace

void run_attention_memory(core::InstructionSet isa,
                          const std::function<void(const MemoryRow&)>& done) {
  constexpr double kAtMost = 64.0;
  const Shape shape{.tokens = 16384};
  const std::string_view level = core::name_of(core::resolve_instruction_set(isa));
  for (const Kind kind : kKinds) {
    Problem problem(kind, shape);
    const bool correct = agrees_with_reference(kind, shape, isa, 1, Check::both);
    const std::string what = message(name_of(kind), "/f32/t", shape.tokens, "_h8_d64/", level);
    done({"memory/attend/" + what, mib_of([&] { problem.forward(isa, 1); }), kAtMost, correct});
    problem.prepare_backward(isa);
    done({"memory/attend_backward/" + what, mib_of([&] { problem.backward(isa, 1); }), kAtMost,
          correct});
  }
}

std::size_t count_attention_memory() noexcept { return 2 * std::size(kKinds); }

std::size_t count_attention_curves(const CurvePlan& plan) noexcept {
  std::size_t lengths = 0;
  for (std::int64_t tokens = 256; tokens <= plan.largest; tokens *= 2) ++lengths;
  return 1 + lengths * (std::size(kKinds) + 1);  // the header, then every encoding and linear_rope
}

void write_attention_curves(const CurvePlan& plan, std::ostream& csv,
                            const std::function<void(const std::string& line)>& done) {
  const auto write = [&](const std::string& line) {
    csv << line << '\n' << std::flush;
    done(line);
  };
  write("encoding,n,ms,ns_per_pair,scratch_mib");
  for (const Kind kind : kKinds) {
    for (std::int64_t tokens = 256; tokens <= plan.largest; tokens *= 2) {
      const Shape shape{.tokens = tokens};
      const Problem problem(kind, shape);
      write(curve_line(name_of(kind), shape, [&] { problem.forward(plan.isa, 1); }));
    }
  }
  for (std::int64_t tokens = 256; tokens <= plan.largest; tokens *= 2) {
    const Shape shape{.tokens = tokens};
    const Problem problem(Kind::rope, shape);
    const attention::LinearOptions options{
        .causality = attention::Causality::bottom_right, .threads = 1, .isa = plan.isa};
    write(curve_line("linear_rope", shape, [&] {
      attention::linear_attend(problem.terms().rotation, problem.q(), problem.k(), problem.v(),
                               problem.out(), options);
    }));
  }
}

}  // namespace phasor::bench
