#include "attention/attention_bench.hpp"

#include <array>
#include <span>
#include <thread>

#include "attention/encodings.hpp"
#include "attention/linear_plan.hpp"
#include "attention/peak.hpp"
#include "core/buffer.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::bench {
namespace {

using attention::Causality;
using attention::FeatureMap;
using core::InstructionSet;
using Extent = AttentionPlan::Extent;

// The largest ratios allowed.
constexpr double kAgainstPeak = 1.0 / 0.80;
constexpr double kBackward = 2.6, kTwoThreads = 1.0 / 1.8, kTwoThreadsBackward = 0.53,
                 kTwoCallers = 1.15, kFlat = 1.2;
constexpr double kAgainstF32 = 1.05;
double at_most_against_none(Kind kind) {
  switch (kind) {
    case Kind::none:
      return 1.0;
    case Kind::rope:
      return 1.05;
    case Kind::t5:
    case Kind::alibi:
    case Kind::alibi_steep:
    case Kind::shaw_keys:
      return 1.12;
    case Kind::shaw_values:
      return 1.10;
    case Kind::shaw:
      return 1.12 * 1.10;
    case Kind::deberta:
      return 1.25;
    case Kind::deberta_wide:
    case Kind::xlnet:
      return 1.4;
    case Kind::transformer_xl:
      return 1.35;
    case Kind::tupe:
    case Kind::tupe_untied:
      return 1.3;
  }
  return 1.0;
}

std::string shape_name(const Shape& shape) {
  std::string name = message("t", shape.tokens, "_h", shape.heads);
  if (shape.key_heads != shape.heads) name += message("k", shape.key_heads);
  name += message("_d", shape.dim);
  if (shape.causality == Causality::none) name += "/not_causal";
  return name;
}

std::int64_t pairs_of(const Shape& shape) {
  const std::int64_t n = shape.tokens;
  return shape.heads * (shape.causality == Causality::none ? n * n : n * (n + 1) / 2);
}

class AttentionBench {
 public:
  AttentionBench(const AttentionPlan& plan, const std::function<void(const Row&)>& done)
      : plan_(plan), done_(done) {}

  void run() {
    const bool full = plan_.extent == Extent::full;
    for (const InstructionSet isa : plan_.levels) {
      if (!full && isa != plan_.levels.back()) continue;
      isa_ = isa;
      against_peak({});
      if (full) {
        against_peak({.tokens = 4096});
        against_peak({.tokens = 4096, .dim = 128});
        for (const Shape& shape : kOtherShapes) against_peak(shape);
      }
      encodings({}, full ? std::span<const Kind>(kKinds).subspan(1) : kBriefKinds);
      if (full) {
        against_kind(Kind::shaw_keys, message(name_of(Kind::shaw_keys)), Kind::shaw, {},
                     "/values_alone", 1.10);
        for (const Shape& shape : kOtherShapes) encodings(shape, kOtherKinds);
      }
      for (const Kind kind : kKinds) {
        if (full || kind == Kind::none) backward(kind);
      }
      if (full) {
        backward_against_peak({});
        backward_against_peak({.tokens = 4096});
      }
      threads();
      for (const core::DType dtype : {core::DType::f16, core::DType::bf16}) against_f32(dtype);
      for (const Causality causality : {Causality::bottom_right, Causality::none}) {
        for (const FeatureMap features : {FeatureMap::elu_plus_one, FeatureMap::favor}) {
          linear(8192, causality, features);
          if (full) linear(131072, causality, features);
        }
      }
      plan({.tokens = 64}, Kind::rope);
      plan({.tokens = 64}, Kind::transformer_xl);
      run_linear_plan_bench(plan_, isa_, done_);
      decode({.key_heads = 8});
      decode({.key_heads = 2});
      if (full) {
        for (const Kind kind : {Kind::rope, Kind::alibi}) decode({.key_heads = 8, .kind = kind});
        for (const core::DType dtype : {core::DType::f16, core::DType::bf16}) {
          for (const std::int64_t key_heads : {8, 2})
            decode({.key_heads = key_heads, .dtype = dtype});
        }
        decode({.key_heads = 2, .tokens = kInCache});
      }
    }
  }

 private:
  static constexpr std::int64_t kRagged = 2000;
  static constexpr std::array kOtherShapes = {Shape{.dim = 128},
                                              Shape{.causality = Causality::none},
                                              Shape{.tokens = kRagged}, Shape{.key_heads = 2}};
  static constexpr std::array kBriefKinds = {Kind::rope,      Kind::t5,      Kind::alibi,
                                             Kind::shaw_keys, Kind::deberta, Kind::transformer_xl};
  static constexpr std::array kOtherKinds = {Kind::rope,  Kind::t5,      Kind::alibi,
                                             Kind::shaw,  Kind::deberta, Kind::transformer_xl,
                                             Kind::xlnet, Kind::tupe};

  [[nodiscard]] std::string full_name(const std::string& name) const {
    return message(name, "/", core::name_of(isa_));
  }
  // Checked before anything is allocated for a row.
  [[nodiscard]] bool wanted(const std::string& name) const {
    return wants_row(plan_, full_name(name));
  }

  void report(const std::string& name, const std::string& against, double at_most, bool correct,
              const std::function<void()>& ours, const std::function<void()>& other) {
    Row row{full_name(name), against, at_most, {}, correct};
    if (correct) row.contest = compare(ours, other, plan_.rounds);
    done_(row);
  }

  // Two products of every query with every key that it sees: 2 d multiply-adds a pair. The limit
  // does as many in registers, and neither exponentials nor loads.
  void against_peak(const Shape& shape) {
    const std::string name = message("attend/none/f32/", shape_name(shape));
    if (!wanted(name)) return;
    const Problem problem(Kind::none, shape);
    const std::int64_t multiply_adds = pairs_of(shape) * 2 * shape.dim;
    report(
        name, "fused multiply-adds in registers", kAgainstPeak,
        agrees_with_reference(Kind::none, shape, isa_), [&] { problem.forward(isa_, 1); },
        [&] { multiply_add(isa_, multiply_adds); });
  }

  void encodings(const Shape& shape, std::span<const Kind> kinds) {
    for (const Kind kind : kinds)
      against_kind(Kind::none, "no encoding", kind, shape, "", at_most_against_none(kind));
  }

  void against_kind(Kind other_kind, const std::string& against, Kind kind, const Shape& shape,
                    const std::string& suffix, double at_most) {
    const std::string name = message("attend/", name_of(kind), "/f32/", shape_name(shape), suffix);
    if (!wanted(name)) return;
    const Problem other(other_kind, shape), problem(kind, shape);
    report(
        name, against, at_most, agrees_with_reference(kind, shape, isa_),
        [&] { problem.forward(isa_, 1); }, [&] { other.forward(isa_, 1); });
  }

  // With the gradient of every table.
  void backward(Kind kind) {
    const Shape shape;
    const std::string name = message("attend_backward/", name_of(kind), "/f32/", shape_name(shape));
    if (!wanted(name)) return;
    Problem problem(kind, shape);
    problem.prepare_backward(isa_);
    report(
        name, "its own forward", kBackward,
        agrees_with_reference(kind, shape, isa_, 1, Check::both),
        [&] { problem.backward(isa_, 1); }, [&] { problem.forward(isa_, 1); });
  }

  // Five products of every query with every key that it sees.
  void backward_against_peak(const Shape& shape) {
    const std::string name = message("attend_backward/none/f32/", shape_name(shape), "/peak");
    if (!wanted(name)) return;
    Problem problem(Kind::none, shape);
    problem.prepare_backward(isa_);
    const std::int64_t multiply_adds = pairs_of(shape) * 5 * shape.dim;
    report(
        name, "fused multiply-adds in registers", kAgainstPeak,
        agrees_with_reference(Kind::none, shape, isa_, 1, Check::both),
        [&] { problem.backward(isa_, 1); }, [&] { multiply_add(isa_, multiply_adds); });
  }

  // The same numbers stored in two bytes each: arithmetic is float32 in both.
  void against_f32(core::DType dtype) {
    const Shape plain, shape{.dtype = dtype};
    const std::string name = message("none/", core::name_of(dtype), "/", shape_name(shape));
    const std::string forward = "attend/" + name, backward = "attend_backward/" + name;
    if (wanted(forward)) {
      const Problem other(Kind::none, plain), problem(Kind::none, shape);
      report(
          forward, "f32", kAgainstF32, agrees_with_reference(Kind::none, shape, isa_),
          [&] { problem.forward(isa_, 1); }, [&] { other.forward(isa_, 1); });
    }
    if (plan_.extent == Extent::brief || !wanted(backward)) return;
    Problem other(Kind::none, plain), problem(Kind::none, shape);
    other.prepare_backward(isa_);
    problem.prepare_backward(isa_);
    report(
        backward, "f32", kAgainstF32,
        agrees_with_reference(Kind::none, shape, isa_, 1, Check::both),
        [&] { problem.backward(isa_, 1); }, [&] { other.backward(isa_, 1); });
  }

  void threads() {
    if (core::available_threads() < 2) return;
    const Shape shape;
    const std::string name = message("none/f32/", shape_name(shape), "/threads2");
    const std::string forward = "attend/" + name, backward = "attend_backward/" + name;
    if (wanted(forward)) {
      const Problem problem(Kind::none, shape);
      report(
          forward, "1 thread", kTwoThreads, agrees_with_reference(Kind::none, shape, isa_, 2),
          [&] { problem.forward(isa_, 2); }, [&] { problem.forward(isa_, 1); });
    }
    two_callers(shape);
    if (plan_.extent == Extent::brief || !wanted(backward)) return;
    Problem problem(Kind::none, shape);
    problem.prepare_backward(isa_);
    report(
        backward, "1 thread", kTwoThreadsBackward,
        agrees_with_reference(Kind::none, shape, isa_, 2, Check::both),
        [&] { problem.backward(isa_, 2); }, [&] { problem.backward(isa_, 1); });
  }

  // Two threads that each attend with two threads, against one that makes both calls.
  void two_callers(const Shape& shape) {
    const std::string name = message("attend/none/f32/", shape_name(shape), "/callers2");
    if (!wanted(name)) return;
    const Problem one(Kind::none, shape), two(Kind::none, shape);
    report(
        name, "one caller, one call after the other", kTwoCallers,
        agrees_with_reference(Kind::none, shape, isa_, 2),
        [&] {
          std::thread other([&] { two.forward(isa_, 2); });
          one.forward(isa_, 2);
          other.join();
        },
        [&] {
          one.forward(isa_, 2);
          two.forward(isa_, 2);
        });
  }

  // One long sequence against as many tokens in sequences of 1024: 1 if the time per token
  // does not depend on the length of its sequence. favor: twice as many features as head_dim.
  void linear(std::int64_t tokens, Causality causality, FeatureMap features) {
    const Shape shape{.tokens = tokens, .causality = causality};
    const std::string name =
        message("linear_attend/", features == FeatureMap::favor ? "favor" : "rope", "/f32/",
                shape_name(shape));
    if (!wanted(name)) return;
    const Problem large(Kind::rope, shape);
    const Problem small(Kind::rope, {.tokens = kShort, .causality = causality});
    const attention::LinearOptions options = linear_options(shape, features);
    const auto attend = [&options](const Problem& problem) {
      attention::linear_attend(problem.terms().rotation, problem.q(), problem.k(), problem.v(),
                               problem.out(), options);
    };
    report(
        name, "as many tokens, 1024 at a time", kFlat, linear_agrees(causality, features),
        [&] { attend(large); },
        [&] {
          for (std::int64_t done = 0; done < tokens; done += kShort) attend(small);
        });
  }

  [[nodiscard]] attention::LinearOptions linear_options(const Shape& shape,
                                                        FeatureMap features) const {
    attention::LinearOptions options{
        .causality = shape.causality, .features = features, .threads = 1, .isa = isa_};
    if (features == FeatureMap::favor) {
      options.feature_count = 2 * shape.dim;
      options.rotates = attention::Rotates::inputs;
    }
    return options;
  }

  [[nodiscard]] bool linear_agrees(Causality causality, FeatureMap features) const {
    const Problem problem(Kind::rope, {.tokens = 203, .causality = causality});
    const attention::LinearOptions options = linear_options(problem.shape(), features);
    attention::linear_attend(problem.terms().rotation, problem.q(), problem.k(), problem.v(),
                             problem.out(), options);
    const Wide q(problem.q()), k(problem.k()), v(problem.v()), expected(problem.out());
    attention::linear_attend(problem.terms().rotation, q.view, k.view, v.view, expected.view,
                             options);
    return is_close(problem.out(), expected.values);
  }

  // A plan that is run again, against one call that plans and runs: what checks, rows, tables and
  // allocations cost. Many runs at a time: one takes some 100 microseconds.
  void plan(const Shape& shape, Kind kind) {
    const std::string name =
        message("attend/", name_of(kind), "/f32/", shape_name(shape), "/planned");
    if (!wanted(name)) return;
    constexpr int kRuns = 20;
    const Problem problem(kind, shape);
    attention::AttentionPlan planned(problem.terms(),
                                     {.queries = shape.tokens,
                                      .keys = shape.tokens,
                                      .heads = shape.heads,
                                      .key_heads = shape.key_heads,
                                      .head_dim = shape.dim,
                                      .value_dim = shape.dim},
                                     problem.options(isa_, 1));
    report(
        name, "one call", 1.0, agrees_with_reference(kind, shape, isa_),
        [&] {
          for (int i = 0; i < kRuns; ++i)
            planned.run(problem.q(), problem.k(), problem.v(), problem.out());
        },
        [&] {
          for (int i = 0; i < kRuns; ++i) problem.forward(isa_, 1);
        });
  }

  struct Decode {
    std::int64_t key_heads;
    Kind kind = Kind::none;
    core::DType dtype = core::DType::f32;
    std::int64_t tokens = 8192;
  };
  static constexpr std::int64_t kInCache = 1024;  // tokens whose keys and values fit the L2 cache

  // The largest ratio allowed. Four queries that share a key do as many multiply-adds for each number of
  // the cache, and numbers of 16 bits are read twice as fast: both together have no limit.
  static double at_most_of(const Decode& row, bool is_shared) {
    if (row.tokens == kInCache) return 0.0;
    if (!is_shared) return 1.2;
    return row.dtype == core::DType::f32 ? 1.3 : 0.0;
  }

  // One query over a cache against reading the cache's own bytes once, or, if the caches of the CPU hold
  // it, against the multiply-adds alone.
  void decode(const Decode& row) {
    constexpr std::int64_t kHeads = 8, kDim = 64;
    const std::int64_t key_heads = row.key_heads, tokens = row.tokens;
    const Kind kind = row.kind;
    const core::DType dtype = row.dtype;
    const std::string name = message("decode/", name_of(kind), "/", core::name_of(dtype), "/cache",
                                     tokens, "_h", kHeads, "k", key_heads, "_d", kDim);
    if (!wanted(name)) return;
    const Problem past(kind, {.tokens = tokens, .key_heads = key_heads, .dtype = dtype});
    attention::KVCache cache({.key_heads = key_heads,
                              .head_dim = kDim,
                              .value_dim = kDim,
                              .capacity = tokens,
                              .dtype = dtype,
                              .rotary = past.terms().rotation});
    cache.append(past.k(), past.v());
    const Buffer q(kHeads * kDim * sizeof(float)), out(kHeads * kDim * sizeof(float));
    fill_normal(q.floats(), q.count(), 5);
    const core::HeadsView query = core::heads_view(q.floats(), 1, 1, kHeads, kDim);
    const core::HeadsView result = core::heads_view(out.floats(), 1, 1, kHeads, kDim);
    const attention::AttentionOptions options{
        .causality = Causality::bottom_right, .threads = 1, .isa = isa_};
    const auto attend = [&] { cache.attend(past.terms(), query, result, options); };
    attend();
    const Wide wide_q(query), k(past.k()), v(past.v()), expected(result);
    attention::attend(past.terms(), wide_q.view, k.view, v.view, expected.view, options);
    const bool correct = is_close(result, expected.values);
    const double at_most = at_most_of(row, key_heads != kHeads);
    if (tokens == kInCache) {
      return report(name, "fused multiply-adds in registers", at_most, correct, attend,
                    [&] { multiply_add(isa_, tokens * kHeads * 2 * kDim); });
    }
    const auto count =
        static_cast<std::size_t>(tokens * key_heads * kDim) * core::size_of(dtype) / sizeof(float);
    report(name, "reading the cache", at_most, correct, attend, [&] {
      read_through(isa_, static_cast<const float*>(cache.keys().data), count);
      read_through(isa_, static_cast<const float*>(cache.values().data), count);
    });
  }

  static constexpr std::int64_t kShort = 1024;
  const AttentionPlan& plan_;
  const std::function<void(const Row&)>& done_;
  InstructionSet isa_ = InstructionSet::best;
};

}  // namespace

void run_attention_bench(const AttentionPlan& plan, const std::function<void(const Row&)>& done) {
  AttentionBench(plan, done).run();
}

}  // namespace phasor::bench
