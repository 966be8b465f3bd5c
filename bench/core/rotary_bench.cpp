#include "core/rotary_bench.hpp"

#include <cmath>
#include <memory>
#include <string_view>

#include "core/buffer.hpp"
#include "core/limits.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/reference.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::bench {
namespace {

using core::DType;
using core::InstructionSet;
using core::PairLayout;

constexpr std::int64_t kHeads = 32, kDim = 128;
constexpr double kBase = 10000.0;

// The text after the shape in a row's name says how the call differs.
constexpr std::string_view kHeadsFirst = "/heads_first";

core::HeadsView heads(const Buffer& buffer, DType dtype, std::int64_t tokens,
                      std::string_view how = {}) {
  core::HeadsView view = how == kHeadsFirst
                             ? core::heads_first_view(buffer.floats(), 1, kHeads, tokens, kDim)
                             : core::heads_view(buffer.floats(), 1, tokens, kHeads, kDim);
  view.dtype = dtype;
  return view;
}

std::string shape_name(std::int64_t tokens) {
  return message("t", tokens, "_h", kHeads, "_d", kDim);
}

// A few tokens of the same call against the float64 definition.
bool agrees_with_reference(const core::Rotary& rotary, DType dtype,
                           const core::RotateOptions& options) {
  constexpr std::int64_t kTokens = 3;
  Buffer x(static_cast<std::size_t>(kTokens * kHeads * kDim) * 4);
  const core::HeadsView view = heads(x, dtype, kTokens);
  std::vector<double> exact(static_cast<std::size_t>(kTokens * kHeads * kDim));
  for (std::size_t i = 0; i < exact.size(); ++i) {
    exact[i] = std::sin(static_cast<double>(i));
    core::set_element(view, static_cast<std::int64_t>(i), exact[i]);
    exact[i] = core::element_of(view, static_cast<std::int64_t>(i));
  }
  const core::HeadsView wide = core::heads_view(exact.data(), 1, kTokens, kHeads, kDim);
  core::reference::rotate(rotary, core::positions_from(50), wide, wide);
  core::rotate(rotary, core::positions_from(50), view, options);
  const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 2e-3 : 1e-2;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (!(std::fabs(core::element_of(view, static_cast<std::int64_t>(i)) - exact[i]) <= tolerance))
      return false;
  }
  return true;
}

class Bench {
 public:
  Bench(const Plan& plan, const std::function<void(const Row&)>& done) : plan_(plan), done_(done) {}

  void run() {
    for (const InstructionSet isa : plan_.levels) {
      isa_ = isa;
      in_place();
      out_of_place();
      small();
      table();
    }
    if (plan_.beyond_caches) {
      isa_ = plan_.levels.back();
      beyond_caches();
    }
  }

 private:
  static constexpr std::int64_t kTokens = 4096;

  core::Rotary rotary(PairLayout layout) const {
    return {core::make_frequencies({kDim, kBase}), layout, kDim};
  }

  // Of a size that is only used if rows are measured.
  [[nodiscard]] Buffer buffer(std::size_t bytes) const {
    return Buffer(plan_.count == nullptr ? bytes : sizeof(float));
  }

  void report(const std::string& name, const std::string& against, double at_most,
              const std::function<bool()>& is_correct, const std::function<void()>& ours,
              const std::function<void()>& limit) {
    const std::string full = message(name, "/", core::name_of(isa_));
    if (!wants_row(plan_, full)) return;
    const bool correct = is_correct();
    Row row{full, against, at_most, {}, correct};
    if (correct) row.contest = compare(ours, limit, plan_.rounds);
    done_(row);
  }

  // Rotation in place against scaling in place: the same bytes read and written.
  void against_scale(std::string_view how, DType dtype, PairLayout layout, std::int64_t tokens,
                     int threads, const core::CosSinTable* table, double at_most, const Buffer& x,
                     const Buffer& limit_buffer) {
    const core::Rotary rotating = rotary(layout);
    const core::RotateOptions options{.table = table, .threads = threads, .isa = isa_};
    const core::HeadsView view = heads(x, dtype, tokens, how);
    const std::size_t floats =
        static_cast<std::size_t>(tokens * kHeads * kDim) * core::size_of(dtype) / sizeof(float);
    report(
        message("rotate/", core::name_of(layout), "/", core::name_of(dtype), "/",
                shape_name(tokens), how, "/threads", threads),
        "in-place scale", at_most, [&] { return agrees_with_reference(rotating, dtype, options); },
        [&] { core::rotate(rotating, core::positions_from(0), view, options); },
        [&] { scale_in_place(isa_, threads, limit_buffer.floats(), floats); });
  }

  void in_place() {
    const core::CosSinTable table =
        core::CosSinTable::build(core::make_frequencies({kDim, kBase}), {0, kTokens});
    const std::size_t bytes = static_cast<std::size_t>(kTokens * kHeads * kDim) * 4;
    const Buffer x = buffer(bytes);
    const bool wide = isa_ == InstructionSet::x86_64_v4;
    for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
      for (const int threads : {1, 2}) {
        if (threads > core::available_threads()) continue;
        against_scale("", DType::f32, layout, kTokens, threads, &table, 1.10, x, x);
      }
      against_scale("/no_table", DType::f32, layout, kTokens, 1, nullptr, 1.15, x, x);
      against_scale(kHeadsFirst, DType::f32, layout, kTokens, 1, &table, 1.30, x, x);
    }
    // Sixteen-bit data seen as floats would be numbers that multiply slowly, so the limit has its
    // own buffer.
    const Buffer limit = buffer(bytes / 2);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const double at_most =
          wide ? (dtype == DType::f16 ? 1.40 : 1.45) : (dtype == DType::f16 ? 1.75 : 1.90);
      const Buffer sixteen = buffer(bytes / 2);
      const core::HeadsView view = heads(sixteen, dtype, kTokens);
      for (std::int64_t i = 0; plan_.count == nullptr && i < kTokens * kHeads * kDim; ++i) {
        core::set_element(view, i, static_cast<double>(i % 251) * 0.01 - 1.25);
      }
      for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
        against_scale("", dtype, layout, kTokens, 1, &table, at_most, sixteen, limit);
      }
    }
  }

  void out_of_place() {
    const core::CosSinTable table =
        core::CosSinTable::build(core::make_frequencies({kDim, kBase}), {0, kTokens});
    const Buffer from = buffer(static_cast<std::size_t>(kTokens * kHeads * kDim) * 4);
    const Buffer to = buffer(static_cast<std::size_t>(kTokens * kHeads * kDim) * 4);
    for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
      const core::Rotary rotating = rotary(layout);
      const core::RotateOptions options{.table = &table, .threads = 1, .isa = isa_};
      report(
          message("rotate_out_of_place/", core::name_of(layout), "/f32/", shape_name(kTokens)),
          "streaming-store copy", 1.20,
          [&] { return agrees_with_reference(rotating, DType::f32, options); },
          [&] {
            core::rotate(rotating, core::positions_from(0), heads(from, DType::f32, kTokens),
                         heads(to, DType::f32, kTokens), options);
          },
          [&] { stream_copy(isa_, 1, from.floats(), to.floats(), from.count()); });
    }
  }

  // Inside the caches, and one token of decoding.
  void small() {
    const core::CosSinTable table =
        core::CosSinTable::build(core::make_frequencies({kDim, kBase}), {0, 64});
    for (const std::int64_t tokens : {std::int64_t{64}, std::int64_t{1}}) {
      const Buffer x(static_cast<std::size_t>(tokens * kHeads * kDim) * 4);
      for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
        against_scale("", DType::f32, layout, tokens, 1, &table, tokens == 1 ? 2.5 : 1.20, x, x);
      }
    }
  }

  void table() {
    constexpr std::int64_t kPositions = 131072;
    const core::Frequencies frequencies = core::make_frequencies({kDim, kBase});
    const std::size_t pairs = static_cast<std::size_t>(frequencies.pairs());
    // Both sides use fresh memory, as a program that builds a table does.
    report(
        "table/exact/131072x64", "std::sin and std::cos in double", 1.0 / 6.0, [] { return true; },
        [&] {
          static_cast<void>(core::CosSinTable::build(frequencies, {0, kPositions},
                                                     core::AngleMode::exact, 1, isa_));
        },
        [&] {
          const std::unique_ptr<float[]> theirs(
              new float[static_cast<std::size_t>(kPositions) * pairs * 2]);
          for (std::int64_t p = 0; p < kPositions; ++p) {
            float* row = theirs.get() + static_cast<std::size_t>(p) * pairs * 2;
            for (std::size_t i = 0; i < pairs; ++i) {
              const double angle = static_cast<double>(p) * frequencies.values()[i];
              row[i] = static_cast<float>(std::cos(angle));
              row[pairs + i] = static_cast<float>(std::sin(angle));
            }
          }
          asm volatile("" : : "r"(theirs.get()) : "memory");  // keeps the table
        });
  }

  void beyond_caches() {
    constexpr std::int64_t kMany = 32768;  // 512 MiB
    const core::CosSinTable table =
        core::CosSinTable::build(core::make_frequencies({kDim, kBase}), {0, kMany});
    const Buffer x = buffer(static_cast<std::size_t>(kMany * kHeads * kDim) * 4);
    for (const PairLayout layout : {PairLayout::interleaved, PairLayout::half}) {
      for (const int threads : {1, 2}) {
        if (threads > core::available_threads()) continue;
        against_scale("", DType::f32, layout, kMany, threads, &table, 1.15, x, x);
      }
    }
  }

  const Plan& plan_;
  const std::function<void(const Row&)>& done_;
  InstructionSet isa_ = InstructionSet::best;
};

}  // namespace

void run_rotary_bench(const Plan& plan, const std::function<void(const Row&)>& done) {
  Bench(plan, done).run();
}

}  // namespace phasor::bench
