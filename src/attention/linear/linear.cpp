#include "phasor/attention/linear.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <vector>

#include "attention/linear/linear_plan.hpp"
#include "attention/softmax/call.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/extent.hpp"

namespace phasor::attention {

std::string_view name_of(FeatureMap features) noexcept {
  static constexpr core::EnumNames<FeatureMap::favor> kNames("elu_plus_one", "softmax_exp",
                                                             "favor");
  return kNames[features];
}

std::string_view name_of(Rotates rotates) noexcept {
  static constexpr core::EnumNames<Rotates::inputs> kNames("features", "inputs");
  return kNames[rotates];
}

LinearState::LinearState(std::int64_t batch, std::int64_t key_heads, std::int64_t head_dim,
                         std::int64_t value_dim)
    : batch_(batch), key_heads_(key_heads), head_dim_(head_dim), value_dim_(value_dim) {
  if (batch < 0 || key_heads < 1 || head_dim < 1 || value_dim < 1) {
    refuse(ErrorCode::shape_mismatch,
           message("LinearState: batch must not be negative and the other sizes at least 1, got "
                   "batch ",
                   batch, ", key_heads ", key_heads, ", head_dim ", head_dim, ", value_dim ",
                   value_dim));
  }
  const std::array<core::Dimension, 4> sums{
      {{batch, 0}, {key_heads, 0}, {head_dim, 0}, {value_dim, 0}}};
  if (!core::is_addressable(sums, sizeof(float))) throw std::bad_alloc();
  const std::int64_t heads = batch * key_heads;
  sums_.resize(static_cast<std::size_t>(
      heads * Sums::floats_for(head_dim, kernels::rounded_up(value_dim, kernels::kWidest),
                               kernels::rounded_up(head_dim, kernels::kWidest))));
  exponents_.assign(static_cast<std::size_t>(heads), kNoExponent);
}

void LinearState::reset() noexcept {
  tokens_ = 0;
  features_.reset();
  std::fill(sums_.begin(), sums_.end(), 0.0F);
  std::fill(exponents_.begin(), exponents_.end(), kNoExponent);
}

namespace {

// The scratch of one thread.
struct LinearWorkspace {
  KeyChunk keys;
  QueryChunk queries;
  ChunkRows key_rows, query_rows;
  float* key_columns;   // [width][columns of the chunk]: R phi(k), transposed
  float* weights;       // [chunk][columns of the chunk]
  float* denominators;  // [chunk]
  float* key_sums;      // [chunk][width]: sum of phi(k) up to each token
  float* key_total;     // [width]
  float* numerators;    // [chunk][value_width]
  float* sums;          // a state for each key head, without a state of the caller
  float* exponents;

  // slots    states that the thread needs of its own
  LinearWorkspace(const LinearCall& call, std::int64_t slots, Carver& carver)
      : keys(carve_keys(call, carver)), queries(carve_queries(call, carver)) {
    const std::int64_t rows = room_for(call.chunk);
    const std::int64_t columns = chunk_columns(call);
    key_rows.memory = carver.take(call.row_floats());
    query_rows.memory = carver.take(call.row_floats());
    key_columns = carver.take(call.width * columns);
    weights = carver.take(rows * columns);
    denominators = carver.take(rows);
    key_sums = carver.take(rows * call.width);
    key_total = carver.take(call.width);
    numerators = carver.take(rows * call.value_width);
    sums = carver.take(slots * call.sum_floats());
    exponents = carver.take(slots);
  }
  static std::int64_t chunk_columns(const LinearCall& call) noexcept {
    return kernels::rounded_up(call.chunk, kernels::kWidest);
  }
};

// A key head of a batch row, with some of the query heads that read it.
struct LinearUnit {
  std::int64_t b, key_head;
  std::int64_t first_head, last_head;
  bool owns_state;
  Sums sums;
};

struct LinearForward {
  const LinearCall& call;
  core::HeadsView out;
  LinearState* state;
  float* state_memory;  // of the state after the call; null without one
  float* state_exponents;
  std::int64_t shares;  // units of a key head
  Scratch* scratch;
  std::int64_t slots;
  bool streams;  // the output is written past the caches
  LinearStep step;

  [[nodiscard]] std::int64_t units() const noexcept { return call.q.batch * call.k.heads * shares; }
  [[nodiscard]] LinearUnit unit(std::int64_t index, std::int64_t slot,
                                const LinearWorkspace& work) const;
  void begin(const LinearUnit& unit) const;
  void end(const LinearUnit& unit) const;
  void run(std::int64_t first, std::int64_t last, LinearWorkspace& work) const;
  void run_row(std::int64_t first, std::int64_t last, LinearWorkspace& work) const;
  void add_keys(const LinearUnit& unit, std::int64_t first, std::int64_t count,
                LinearWorkspace& work) const;
  void attend_chunks(const LinearUnit& unit, std::int64_t first, std::int64_t count,
                     LinearWorkspace& work) const;
  void attend_chunk(const LinearUnit& unit, LinearWorkspace& work) const;
  void attend_to_sums(const LinearUnit& unit, std::int64_t first, std::int64_t count,
                      LinearWorkspace& work) const;
  void finish(const LinearUnit& unit, std::int64_t h, std::int64_t first, std::int64_t count,
              LinearWorkspace& work) const;
};

LinearUnit LinearForward::unit(std::int64_t index, std::int64_t slot,
                               const LinearWorkspace& work) const {
  const std::int64_t head = index / shares, share = index % shares;
  LinearUnit unit;
  unit.b = head / call.k.heads;
  unit.key_head = head % call.k.heads;
  unit.first_head = unit.key_head * call.group + call.group * share / shares;
  unit.last_head = unit.key_head * call.group + call.group * (share + 1) / shares;
  // All shares read the state, one of them updates it: only that one works in the state's memory.
  unit.owns_state = state != nullptr && share == 0;
  unit.sums = unit.owns_state
                  ? LinearStateAccess::sums(*state, state_memory, state_exponents, head)
                  : Sums::at(work.sums + slot * call.sum_floats(), work.exponents + slot, call.dim,
                             call.value_width, call.width);
  return unit;
}

void LinearForward::begin(const LinearUnit& unit) const {
  if (unit.owns_state) return;
  if (step.enters != nullptr) {
    return load_sums(*step.enters, unit.b * call.k.heads + unit.key_head, unit.sums);
  }
  if (state == nullptr) {
    std::fill_n(unit.sums.products, unit.sums.floats, 0.0F);
    *unit.sums.exponent = kNoExponent;
    return;
  }
  const Sums past = LinearStateAccess::sums(*state, LinearStateAccess::memory(*state),
                                            LinearStateAccess::exponents(*state),
                                            unit.b * call.k.heads + unit.key_head);
  std::copy_n(past.products, past.floats, unit.sums.products);
  *unit.sums.exponent = *past.exponent;
}

// All shares of a key head have the same sums: one of them stores them.
void LinearForward::end(const LinearUnit& unit) const {
  if (step.leaves == nullptr || unit.first_head != unit.key_head * call.group) return;
  store_sums(unit.sums, *step.leaves, unit.b * call.k.heads + unit.key_head);
}

// Keys that every later query sees.
void LinearForward::add_keys(const LinearUnit& unit, std::int64_t first, std::int64_t count,
                             LinearWorkspace& work) const {
  read_keys(call, unit.b, unit.key_head, first, count, work.key_rows, work.keys);
  const float exponent = exponent_for(call, work.keys, *unit.sums.exponent);
  change_exponent(call, SumsOf::keys, exponent, unit.sums);
  map_keys(call, unit.b, exponent, work.key_rows, work.keys);
  call.kernels.linear.running_sums(work.keys.features, call.width, count, call.width,
                                   unit.sums.vectors, work.key_sums, call.width, work.key_total);
  add_keys_to_sums(call, work.keys, work.key_total, unit.sums);
}

// Causal: keys [first, first + count) and the queries at their positions.
void LinearForward::attend_chunks(const LinearUnit& unit, std::int64_t first, std::int64_t count,
                                  LinearWorkspace& work) const {
  const std::int64_t end = first + count;
  for (std::int64_t at = first; at < end; at += work.keys.count) {
    read_keys(call, unit.b, unit.key_head, at, end - at, work.key_rows, work.keys);
    work.keys.count = shared_chunk(call, work.keys, *unit.sums.exponent);
    const float exponent = exponent_for(call, work.keys, *unit.sums.exponent);
    change_exponent(call, SumsOf::keys, exponent, unit.sums);
    map_keys(call, unit.b, exponent, work.key_rows, work.keys);
    attend_chunk(unit, work);
  }
}

// (19) for a chunk against the state and itself; then the chunk is added to the state.
void LinearForward::attend_chunk(const LinearUnit& unit, LinearWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  const KeyChunk& keys = work.keys;
  const std::int64_t columns = LinearWorkspace::chunk_columns(call);
  kernels.running_sums(keys.features, call.width, keys.count, call.width, unit.sums.vectors,
                       work.key_sums, call.width, work.key_total);
  // One token sees all of its chunk: it is added to the state first.
  const bool alone = keys.count == 1;
  if (alone) {
    add_keys_to_sums(call, work.keys, work.key_total, unit.sums);
  } else {
    kernels.transpose(keys.rotated, call.width, keys.count, call.dim, work.key_columns, columns);
  }
  for (std::int64_t h = unit.first_head; h < unit.last_head; ++h) {
    const std::int64_t query = keys.first - call.offset;
    load_queries(call, unit.b, h, query, keys.count, work.query_rows, work.queries);
    const kernels::Matrix numerators{work.numerators, call.value_width, 1};
    const kernels::Matrix rotated{work.queries.rotated, call.width, 1};
    kernels.multiply(rotated, {unit.sums.products, unit.sums.columns, 1}, numerators, keys.count,
                     call.dim, call.value_width, 0);
    if (!alone) {
      const kernels::Matrix weights{work.weights, columns, 1};
      kernels.causal_weights(rotated, {work.key_columns, columns, 1}, weights, keys.count,
                             call.dim);
      kernels.add_weighted(weights, {keys.values, call.value_width, 1}, numerators, keys.count,
                           call.value_width);
    }
    kernels.dots(work.queries.features, call.width, work.key_sums, call.width, keys.count,
                 call.width, work.denominators);
    finish(unit, h, query, keys.count, work);
  }
  if (alone) return;
  add_keys_to_sums(call, work.keys, work.key_total, unit.sums);
}

// Not causal: queries [first, first + count) against the sums over all keys.
void LinearForward::attend_to_sums(const LinearUnit& unit, std::int64_t first, std::int64_t count,
                                   LinearWorkspace& work) const {
  const kernels::LinearKernels& kernels = call.kernels.linear;
  for (std::int64_t h = unit.first_head; h < unit.last_head; ++h) {
    load_queries(call, unit.b, h, first, count, work.query_rows, work.queries);
    kernels.multiply({work.queries.rotated, call.width, 1},
                     {unit.sums.products, unit.sums.columns, 1},
                     {work.numerators, call.value_width, 1}, count, call.dim, call.value_width, 0);
    kernels.dots(work.queries.features, call.width, unit.sums.vectors, 0, count, call.width,
                 work.denominators);
    finish(unit, h, first, count, work);
  }
}

// Numerators over denominators, written.
void LinearForward::finish(const LinearUnit& unit, std::int64_t h, std::int64_t first,
                           std::int64_t count, LinearWorkspace& work) const {
  invert(work.denominators, count);
  if (streams) {
    auto* rows = static_cast<float*>(const_cast<void*>(rows_of(out, unit.b, h, first).data));
    return call.kernels.linear.stream_scaled_rows(work.numerators, call.value_width,
                                                  work.denominators, count, call.value_dim, rows,
                                                  out.token_stride);
  }
  call.kernels.linear.scaled_rows(work.numerators, call.value_width, work.denominators, 1, count,
                                  call.value_width, work.numerators, call.value_width, 0);
  write_tokens(call, work.numerators, call.value_width, count, out, unit.b, h, first);
}

// Units [first, last) of one batch row, a chunk of tokens at a time.
void LinearForward::run_row(std::int64_t first, std::int64_t last, LinearWorkspace& work) const {
  const std::int64_t b = first / (call.k.heads * shares);
  const auto for_each_unit = [&](const auto& visit) {
    for (std::int64_t u = first; u < last; ++u) visit(unit(u, u - first, work));
  };
  const auto for_each_chunk = [&](std::int64_t from, std::int64_t to, const auto& visit) {
    for (std::int64_t at = from; at < to; at += call.chunk) {
      core::throw_if_cancelled();
      visit(at, std::min(call.chunk, to - at));
    }
  };
  for_each_unit([&](const LinearUnit& u) { begin(u); });

  const bool sums_only = step.what == LinearStep::What::sum_keys;
  const std::int64_t keys_before = step.what == LinearStep::What::queries ? 0
                                   : call.is_causal() && !sums_only
                                       ? std::max<std::int64_t>(call.offset, 0)
                                       : call.k.tokens;
  for_each_chunk(0, keys_before, [&](std::int64_t at, std::int64_t count) {
    make_key_rows(call, b, at, count, work.key_rows);
    for_each_unit([&](const LinearUnit& u) { add_keys(u, at, count, work); });
  });
  if (sums_only) return for_each_unit([&](const LinearUnit& u) { end(u); });
  if (!call.is_causal()) {
    for_each_chunk(0, call.q.tokens, [&](std::int64_t at, std::int64_t count) {
      make_query_rows(call, b, at, count, work.query_rows);
      for_each_unit([&](const LinearUnit& u) { attend_to_sums(u, at, count, work); });
    });
    return;
  }
  for_each_chunk(keys_before, call.k.tokens, [&](std::int64_t at, std::int64_t count) {
    make_key_rows(call, b, at, count, work.key_rows);
    make_aligned_query_rows(call, b, at, count, work.key_rows, work.query_rows);
    for_each_unit([&](const LinearUnit& u) { attend_chunks(u, at, count, work); });
  });
  // More queries than keys: the first see none.
  std::fill_n(work.numerators, room_for(call.chunk) * call.value_width, 0.0F);
  for (std::int64_t at = 0; at < -call.offset; at += call.chunk) {
    for_each_unit([&](const LinearUnit& u) {
      for (std::int64_t h = u.first_head; h < u.last_head; ++h) {
        write_tokens(call, work.numerators, call.value_width,
                     std::min(call.chunk, -call.offset - at), out, b, h, at);
      }
    });
  }
}

void LinearForward::run(std::int64_t first, std::int64_t last, LinearWorkspace& work) const {
  const std::int64_t per_row = call.k.heads * shares;
  while (first < last) {
    const std::int64_t end = std::min(last, (first / per_row + 1) * per_row);
    run_row(first, end, work);
    first = end;
  }
}

// Whether the output is written past the caches: it would evict everything else, and is aligned to
// whole cache lines.
bool is_streamed(const core::HeadsView& out) {
  if (out.dtype != core::DType::f32) return false;
  constexpr std::int64_t kStreamFloats = std::int64_t{1} << 20;
  if (out.batch * out.tokens * out.heads * out.head_dim < kStreamFloats) return false;
  const std::int64_t alignment =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(out.data) / sizeof(float)) |
      out.batch_stride | out.token_stride | out.head_stride | out.head_dim;
  return alignment % kernels::kWidest == 0;
}

void run_linear_part(void* context, int part, int parts) {
  const LinearForward& forward = *static_cast<const LinearForward*>(context);
  Carver carver = forward.scratch->part(part);
  LinearWorkspace work(forward.call, forward.slots, carver);
  const std::int64_t units = forward.units();
  // Also after a cancelled run: no store may reach memory that its owner has freed.
  struct Fence {
    const LinearForward& forward;
    ~Fence() {
      if (forward.streams) forward.call.kernels.linear.fence();
    }
  };
  const Fence fence{forward};
  forward.run(units * part / parts, units * (part + 1) / parts, work);
}

}  // namespace

LinearForwardMemory make_linear_forward_memory(const LinearCall& call, StateUse state) {
  LinearForwardMemory memory;
  memory.threads = linear_threads(call, call.q.batch * call.q.heads);
  const std::int64_t heads = call.k.batch * call.k.heads;
  memory.shares = std::min(call.group, (memory.threads + heads - 1) / heads);
  if (state == StateUse::none || memory.shares > 1) {
    memory.slots = std::min(call.k.heads * memory.shares,
                            (heads * memory.shares + memory.threads - 1) / memory.threads);
  }
  // A call that can take long works on a copy, so that it can be cancelled; the copy costs less than a
  // chunk of tokens.
  if (state == StateUse::given && (memory.shares > 1 || call.k.tokens > call.chunk)) {
    memory.next_sums.resize(static_cast<std::size_t>(heads * call.sum_floats()));
    memory.next_exponents.resize(static_cast<std::size_t>(heads));
  }
  Carver counter;
  const LinearWorkspace measure(call, memory.slots, counter);
  memory.scratch = Scratch(memory.threads, counter.used());
  return memory;
}

void run_linear_forward(const LinearCall& call, LinearForwardMemory& memory,
                        const core::HeadsView& out, LinearState* state, const LinearStep& step) {
  LinearForward forward{call,
                        out,
                        state,
                        nullptr,
                        nullptr,
                        memory.shares,
                        &memory.scratch,
                        memory.slots,
                        is_streamed(out),
                        step};
  const bool copies = !memory.next_sums.empty();
  if (state != nullptr) {
    float* const sums = LinearStateAccess::memory(*state);
    float* const exponents = LinearStateAccess::exponents(*state);
    if (copies) {
      std::copy_n(sums, memory.next_sums.size(), memory.next_sums.begin());
      std::copy_n(exponents, memory.next_exponents.size(), memory.next_exponents.begin());
    }
    forward.state_memory = copies ? memory.next_sums.data() : sums;
    forward.state_exponents = copies ? memory.next_exponents.data() : exponents;
  }
  std::optional<core::CancellationScope> finishes;
  if (state != nullptr && !copies) {
    core::throw_if_cancelled();
    finishes.emplace(nullptr);  // the state is changed in place
  }
  core::run_parts(memory.threads, run_linear_part, &forward);
  if (state == nullptr) return;
  if (copies) {
    std::copy(memory.next_sums.begin(), memory.next_sums.end(), LinearStateAccess::memory(*state));
    std::copy(memory.next_exponents.begin(), memory.next_exponents.end(),
              LinearStateAccess::exponents(*state));
  }
  LinearStateAccess::advance(*state, call.k.tokens, call.options, call.k.head_dim);
}

void linear_attend(const std::optional<core::Rotary>& rotary, core::ConstHeadsView q,
                   core::ConstHeadsView k, core::ConstHeadsView v, core::HeadsView out,
                   const LinearOptions& options, LinearState* state) {
  LinearPlan plan(rotary, linear_sizes(q, k, v), options,
                  state == nullptr ? LinearUse::forward : LinearUse::stream);
  state == nullptr ? plan.run(q, k, v, out) : plan.run(q, k, v, out, *state);
}

}  // namespace phasor::attention
