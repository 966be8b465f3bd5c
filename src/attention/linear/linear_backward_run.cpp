// The order of the backward pass: chunks left to right, then right to left, and its memory.
#include <algorithm>

#include "attention/linear/linear_backward.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"

namespace phasor::attention {

// Units [first, last) of one batch row, a chunk of tokens at a time.
void LinearBackward::run_row(std::int64_t first, std::int64_t last, std::int64_t thread,
                             LinearBackwardWorkspace& work) const {
  const std::int64_t b = first / call.k.heads;
  const auto for_each_unit = [&](const auto& visit) {
    for (std::int64_t u = first; u < last; ++u) visit(unit(u, u - first, thread, work));
  };
  const auto for_each_chunk = [&](std::int64_t from, std::int64_t to, const auto& visit) {
    for (std::int64_t at = from; at < to; at += call.chunk) {
      core::throw_if_cancelled();
      visit(at, std::min(call.chunk, to - at));
    }
  };
  const auto for_each_chunk_back = [&](std::int64_t from, std::int64_t to, const auto& visit) {
    for (std::int64_t end = to; end > from;) {
      core::throw_if_cancelled();
      const std::int64_t at = from + (end - from - 1) / call.chunk * call.chunk;
      visit(at, end - at);
      end = at;
    }
  };
  for_each_unit([&](const LinearBackwardUnit& u) { begin(u); });

  const bool does_queries = step.what != LinearStep::What::keys;
  const bool does_keys = step.what != LinearStep::What::queries;
  const std::int64_t keys_before =
      call.is_causal() ? std::max<std::int64_t>(call.offset, 0) : call.k.tokens;
  for_each_chunk(
      0, step.enters == nullptr ? keys_before : 0, [&](std::int64_t at, std::int64_t count) {
        make_key_rows(call, b, at, count, work.key_rows);
        for_each_unit([&](const LinearBackwardUnit& u) { add_keys(u, at, count, work); });
      });
  if (!call.is_causal()) {
    if (does_queries) {
      for_each_unit([](const LinearBackwardUnit& u) { *u.queries.exponent = *u.keys.exponent; });
    }
    for_each_chunk(0, does_queries ? call.q.tokens : 0, [&](std::int64_t at, std::int64_t count) {
      make_query_rows(call, b, at, count, work.query_rows);
      for_each_unit([&](const LinearBackwardUnit& u) { all_queries(u, at, count, work); });
    });
    for_each_chunk(0, does_keys ? call.k.tokens : 0, [&](std::int64_t at, std::int64_t count) {
      make_key_rows(call, b, at, count, work.key_rows);
      for_each_unit([&](const LinearBackwardUnit& u) { all_keys(u, at, count, work); });
    });
    return for_each_unit([&](const LinearBackwardUnit& u) { end(u); });
  }
  for_each_chunk(
      keys_before, does_queries ? call.k.tokens : 0, [&](std::int64_t at, std::int64_t count) {
        make_key_rows(call, b, at, count, work.key_rows);
        make_aligned_query_rows(call, b, at, count, work.key_rows, work.query_rows);
        for_each_unit([&](const LinearBackwardUnit& u) { causal_queries(u, at, count, work); });
      });
  for_each_unit([&](const LinearBackwardUnit& u) { end(u); });
  if (!does_keys) return;
  for_each_chunk_back(keys_before, call.k.tokens, [&](std::int64_t at, std::int64_t count) {
    make_key_rows(call, b, at, count, work.key_rows);
    make_aligned_query_rows(call, b, at, count, work.key_rows, work.query_rows);
    for_each_unit([&](const LinearBackwardUnit& u) { causal_keys(u, at, count, work); });
  });
  for_each_chunk_back(0, keys_before, [&](std::int64_t at, std::int64_t count) {
    make_key_rows(call, b, at, count, work.key_rows);
    for_each_unit([&](const LinearBackwardUnit& u) { causal_keys(u, at, count, work); });
  });
  // More queries than keys: the first see none.
  std::fill_n(work.to_inputs.d_inputs, room_for(call.chunk) * call.input_width, 0.0F);
  for (std::int64_t at = 0; at < -call.offset; at += call.chunk) {
    for (std::int64_t h = first % call.k.heads * call.group;
         h < ((last - 1) % call.k.heads + 1) * call.group; ++h) {
      write_tokens(call, work.to_inputs.d_inputs, call.input_width,
                   std::min(call.chunk, -call.offset - at), d_q, b, h, at);
    }
  }
}

namespace {

void run_linear_backward_part(void* context, int part, int parts) {
  const LinearBackward& backward = *static_cast<const LinearBackward*>(context);
  Carver carver = backward.scratch->part(part);
  LinearBackwardWorkspace work(backward.call, backward.slots, carver);
  const std::int64_t heads = backward.call.k.heads;
  const std::int64_t units = backward.call.k.batch * heads;
  const std::int64_t last = units * (part + 1) / parts;
  for (std::int64_t first = units * part / parts; first < last;) {
    const std::int64_t end = std::min(last, (first / heads + 1) * heads);
    backward.run_row(first, end, part, work);
    first = end;
  }
}

}  // namespace

LinearBackwardMemory make_linear_backward_memory(const LinearCall& call, LinearExtent extent) {
  LinearBackwardMemory memory;
  const std::int64_t units = call.k.batch * call.k.heads;
  memory.threads = linear_threads(call, units);
  memory.slots = std::min(call.k.heads, (units + memory.threads - 1) / memory.threads);
  Carver counter;
  const LinearBackwardWorkspace measure(call, memory.slots, counter);
  memory.scratch = Scratch(memory.threads, counter.used());
  const auto rows =
      static_cast<std::size_t>(call.is_causal() ? call.q.batch * call.q.heads * call.q.tokens : 0);
  memory.inverses.resize(rows);
  memory.d_denominators.resize(rows);
  memory.extent = extent;
  const std::int64_t held = extent == LinearExtent::part ? units : memory.threads * memory.slots;
  memory.cut_room = held * call.k.tokens + 1;
  memory.cuts.reset(new LinearCut[static_cast<std::size_t>(memory.cut_room)]);
  memory.cut_counts.resize(static_cast<std::size_t>(held));
  return memory;
}

void run_linear_backward(const LinearCall& call, LinearBackwardMemory& memory,
                         const core::ConstHeadsView& d_out, const core::HeadsView& d_q,
                         const core::HeadsView& d_k, const core::HeadsView& d_v,
                         const LinearStep& step) {
  LinearBackward backward{call,
                          d_out,
                          d_q,
                          d_k,
                          d_v,
                          memory.slots,
                          &memory.scratch,
                          memory.inverses.data(),
                          memory.d_denominators.data(),
                          memory.cuts.get(),
                          memory.cut_counts.data(),
                          memory.extent,
                          step};
  core::run_parts(memory.threads, run_linear_backward_part, &backward);
}

}  // namespace phasor::attention
