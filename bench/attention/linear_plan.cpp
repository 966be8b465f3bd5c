#include "attention/linear_plan.hpp"

#include "attention/encodings.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::bench {
namespace {

using attention::LinearUse;

// A run must not take longer than a call.
constexpr double kAgainstCall = 1.0;

class LinearPlanBench {
 public:
  LinearPlanBench(const AttentionPlan& plan, core::InstructionSet isa,
                  const std::function<void(const Row&)>& done)
      : plan_(plan), isa_(isa), done_(done) {}

  void run() const {
    for (const std::int64_t tokens : {64, 512}) forward(tokens);
    step();
  }

 private:
  [[nodiscard]] std::string name_of(const char* what, const Shape& shape) const {
    return message("linear_plan/", what, "/f32/t", shape.tokens, "_h", shape.heads, "_d", shape.dim,
                   "/", core::name_of(isa_));
  }
  [[nodiscard]] bool wanted(const std::string& name) const { return wants_row(plan_, name); }
  [[nodiscard]] attention::LinearOptions options() const {
    return {.causality = attention::Causality::bottom_right, .threads = 1, .isa = isa_};
  }

  void forward(std::int64_t tokens) const {
    const Shape shape{.tokens = tokens};
    const std::string name = name_of("forward", shape);
    if (!wanted(name)) return;
    const Problem p(Kind::rope, shape);
    attention::LinearPlan plan(p.terms().rotation, attention::linear_sizes(p.q(), p.k(), p.v()),
                               options());
    const auto run = [&] { plan.run(p.q(), p.k(), p.v(), p.out()); };
    const auto call = [&] {
      attention::linear_attend(p.terms().rotation, p.q(), p.k(), p.v(), p.out(), options());
    };
    run();
    const Wide q(p.q()), k(p.k()), v(p.v()), expected(p.out());
    attention::linear_attend(p.terms().rotation, q.view, k.view, v.view, expected.view, options());
    report(name, is_close(p.out(), expected.values), run, call);
  }

  // One token of a stream. Both start from the same state, and their states stay equal.
  void step() const {
    const Shape shape{.tokens = 1};
    const std::string name = name_of("step", shape);
    if (!wanted(name)) return;
    const Problem p(Kind::rope, shape);
    attention::LinearState planned(1, shape.key_heads, shape.dim, shape.dim), called = planned;
    attention::LinearPlan plan(p.terms().rotation, attention::linear_sizes(p.q(), p.k(), p.v()),
                               options(), LinearUse::stream);
    const auto run = [&] { plan.run(p.q(), p.k(), p.v(), p.out(), planned); };
    const auto call = [&] {
      attention::linear_attend(p.terms().rotation, p.q(), p.k(), p.v(), p.out(), options(),
                               &called);
    };
    run();
    const Wide got(p.out());
    call();
    report(name, is_close(p.out(), got.values), run, call);
  }

  void report(const std::string& name, bool correct, const std::function<void()>& ours,
              const std::function<void()>& other) const {
    Row row{name, "one call", kAgainstCall, {}, correct};
    if (correct) row.contest = compare(ours, other, plan_.rounds);
    done_(row);
  }

  const AttentionPlan& plan_;
  core::InstructionSet isa_;
  const std::function<void(const Row&)>& done_;
};

}  // namespace

void run_linear_plan_bench(const AttentionPlan& plan, core::InstructionSet isa,
                           const std::function<void(const Row&)>& done) {
  LinearPlanBench(plan, isa, done).run();
}

}  // namespace phasor::bench
