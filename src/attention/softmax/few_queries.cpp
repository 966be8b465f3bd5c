#include "attention/softmax/few_queries.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>

#include "attention/softmax/head_side.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/measured_choice.hpp"

namespace phasor::attention {
namespace {

using kernels::kFewRows;
using kernels::kPanelRows;
using kernels::kWidest;
using kernels::rounded_up;

constexpr std::int64_t kFewQueries = 4;
constexpr float kHidden = -std::numeric_limits<float>::infinity();

// One row of scores: query `i` of a sequence at `head`.
struct Row {
  std::int64_t head, i;
};

// The parts of a thread's memory, in floats.
struct Room {
  std::int64_t content, raw, out;
  std::int64_t beside, score_row, scores;

  [[nodiscard]] std::int64_t cleared() const noexcept { return content + raw + out; }
  [[nodiscard]] std::int64_t all() const noexcept { return cleared() + beside + scores; }
};
Room decode_room(const Call& call, std::int64_t keys) {
  const Strides strides = strides_of(call);
  const std::int64_t score_row = rounded_up(keys, kWidest) + kWidest;
  return {(kFewRows + kPanelRows) * strides.content,
          kPanelRows * strides.relative,
          kFewRows * strides.value,
          kFewRows * kernels::beside_floats(strides.content),
          score_row,
          kFewRows * score_row};
}

// Keys to prefetch ahead. Reading is a tenth faster with it on some CPUs, and a quarter slower on others,
// whose own prefetching it disturbs: it is measured (ADR 22). Numbers do not depend on it.
constexpr std::int64_t kKeysAhead[] = {0, 16};
constexpr int kWays = static_cast<int>(std::size(kKeysAhead));

// The choice between them for calls that read so many bytes of keys and values; null: too few to tell.
// Whether a call finds them in a cache depends on what else the caller does as well: models decode
// layer after layer. So it is measured below the size of a cache, too.
core::MeasuredChoice* choice_of(const Call& call, std::int64_t bytes) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 16;
  constexpr int kSizes = 12, kLevels = static_cast<int>(core::InstructionSet::x86_64_v4) + 1;
  if (bytes < kLeast) return nullptr;
  static core::MeasuredChoice choices[kLevels][kSizes][2][2];
  const auto times = static_cast<std::uint64_t>(bytes / kLeast);
  const int size = std::min(static_cast<int>(std::bit_width(times)) - 1, kSizes - 1);
  return &choices[static_cast<int>(call.options.isa)][size]
                 [call.k.dtype == core::DType::f32 ? 1 : 0][call.group > 1 ? 1 : 0];
}

struct Decode {
  const Call& call;
  core::HeadsView out;
  const AttentionExtras& extras;
  Room room;
  float* memory;                 // of every part
  core::MeasuredChoice* choice;  // between kKeysAhead; null: the first
  std::atomic<std::int64_t> next{0};
};

struct Memory {
  float *content, *raw, *out, *beside, *scores;
  Memory(const Decode& decode, int part)
      : content(decode.memory + part * decode.room.all()),
        raw(content + decode.room.content),
        out(raw + decode.room.raw),
        beside(out + decode.room.out),
        scores(beside + decode.room.beside) {
    // Columns after the last feature are read but not written; another call may have written them.
    std::fill_n(content, decode.room.cleared(), 0.0F);
  }
};

// The keys that a query at `position` may see: [first, last).
struct SeenKeys {
  std::int64_t first, last;
};
SeenKeys range_of(const Call& call, const Sequence& s, std::int64_t position) {
  SeenKeys range{0, s.keys};
  if (call.options.causality == Causality::bottom_right)
    range.last = std::min(range.last, position + 1);
  if (call.options.window) {
    range.first = std::max(range.first, position - *call.options.window + 1);
    range.last = std::min(range.last, position + *call.options.window);
  }
  return {std::min(range.first, s.keys), std::max<std::int64_t>(range.last, 0)};
}

// A table's bias is constant beyond the ends of its map, a slope's is a line on either side of the
// query: only the distances between have a value of their own. scores[0] belongs to key `first`.
void add_bias(const Call& call, std::int64_t head, std::int64_t position, std::int64_t first,
              std::int64_t last, float* scores) {
  if (first >= last) return;
  if (call.terms.bias) {
    const encodings::RelativeMap& map = call.terms.bias->map;
    const auto bias = [&](std::int64_t j) {
      return static_cast<float>(call.table_bias_of(head, position - j) * kLog2e);
    };
    const std::int64_t begin = std::clamp(position - map.last(), first, last);
    const std::int64_t end = std::clamp(position - map.first + 1, begin, last);
    const float before = bias(first), after = bias(last - 1);
    for (std::int64_t j = first; j < begin; ++j) scores[j - first] += before;
    for (std::int64_t j = begin; j < end; ++j) scores[j - first] += bias(j);
    for (std::int64_t j = end; j < last; ++j) scores[j - first] += after;
  }
  if (call.terms.slopes.empty()) return;
  const auto slope = static_cast<float>(call.terms.slopes[static_cast<std::size_t>(head)] * kLog2e);
  const std::int64_t middle = std::clamp(position, first, last);
  call.kernels.add_line(scores, middle - first, slope, first - position);
  call.kernels.add_line(scores + middle - first, last - middle, -slope, middle - position);
}

// The same of query i, whose keys may have any position: run by run of those that count up.
void add_bias(const Call& call, const Sequence& s, const Row& row, std::int64_t first,
              std::int64_t last, float* scores) {
  const std::int64_t position = call.query_position(s, row.i) - s.origin;
  if (!call.is_scattered()) return add_bias(call, row.head, position, first, last, scores);
  const std::int32_t* const runs =
      call.memory.places.key_runs.data() + s.batch * call.k.tokens + s.first_key;
  for (std::int64_t at = first, end = at; at < last; at = end) {
    end = std::min<std::int64_t>(runs[at], last);
    const std::int64_t place = call.key_position(s, at) - s.origin;
    add_bias(call, row.head, position - place + at, at, end, scores + at - first);
  }
}

// Bias, soft cap and masks of one row; scores[0] belongs to key `first`.
void finish_scores(const Call& call, const Sequence& s, const Row& row, SeenKeys seen,
                   std::int64_t first, std::int64_t last, float* scores) {
  add_bias(call, s, row, first, last, scores);
  if (call.options.soft_cap != 0.0) {
    call.kernels.soft_cap_row(scores, last - first,
                              static_cast<float>(call.options.soft_cap * kLog2e));
  }
  const Mask& mask = call.options.mask;
  if (mask.kind != Mask::Kind::none) {
    const std::int64_t at = s.batch * mask.batch_stride + row.head * mask.head_stride +
                            (s.first_query + row.i) * mask.query_stride;
    for (std::int64_t j = first; j < last; ++j) {
      const std::int64_t key = s.first_key + j;
      float& score = scores[j - first];
      if (key >= mask.keys) {
        score = kHidden;
      } else if (mask.kind == Mask::Kind::boolean) {
        if (static_cast<const std::uint8_t*>(mask.data)[at + key * mask.key_stride] == 0)
          score = kHidden;
      } else {
        const float value = static_cast<const float*>(mask.data)[at + key * mask.key_stride];
        score = value == kHidden ? kHidden : score + value * static_cast<float>(kLog2e);
      }
    }
  }
  std::fill(scores, scores + std::clamp(seen.first, first, last) - first, kHidden);
  std::fill(scores + std::clamp(seen.last, first, last) - first, scores + last - first, kHidden);
}

// Up to kFewRows rows that read one key head.
void attend_rows(const Decode& decode, const Sequence& s, std::span<const Row> rows,
                 std::int64_t ahead, const Memory& memory) {
  const Call& call = decode.call;
  const Strides strides = strides_of(call);
  const auto count = static_cast<std::int64_t>(rows.size());
  QuerySide side;
  for (std::int64_t r = 0; r < count; ++r) {
    side.head = rows[static_cast<std::size_t>(r)].head;
    // Each clears the rest of its panel; the next row is written after it.
    fill_queries(call, s, side, rows[static_cast<std::size_t>(r)].i, 1,
                 {memory.content + r * strides.content, nullptr, nullptr, memory.raw, nullptr});
  }
  SeenKeys all{s.keys, 0};
  for (const Row& row : rows) {
    const SeenKeys seen = range_of(call, s, s.offset + row.i);
    all = {std::min(all.first, seen.first), std::max(all.last, seen.last)};
  }
  const std::int64_t keys = std::max<std::int64_t>(0, all.last - all.first);
  const std::int64_t key_head = rows.front().head / call.group;
  float* const scores = memory.scores;
  call.kernels.score_rows(memory.content, strides.content, count,
                          rows_of(call.k, s.batch, key_head, s.first_key + all.first), keys,
                          call.head_dim, ahead, memory.beside, scores, decode.room.score_row);
  float maxima[kFewRows], sums[kFewRows];
  for (std::int64_t r = 0; r < count; ++r) {
    const Row& row = rows[static_cast<std::size_t>(r)];
    float* const own = scores + r * decode.room.score_row;
    finish_scores(call, s, row, range_of(call, s, s.offset + row.i), all.first, all.first + keys,
                  own);
    call.kernels.exp_row(own, keys, &maxima[r], &sums[r]);
  }
  std::fill_n(memory.out, kFewRows * strides.value, 0.0F);
  call.kernels.weigh_rows(scores, decode.room.score_row, count,
                          rows_of(call.v, s.batch, key_head, s.first_key + all.first), keys,
                          call.value_dim, ahead, memory.out, strides.value);
  for (std::int64_t r = 0; r < count; ++r) {
    const Row& row = rows[static_cast<std::size_t>(r)];
    const std::int64_t query = s.first_query + row.i;
    float* const out = memory.out + r * strides.value;
    const float factor = sums[r] == 0.0F ? 0.0F : 1.0F / sums[r];
    for (std::int64_t i = 0; i < call.value_dim; ++i)
      out[i] = sums[r] == 0.0F ? 0.0F : out[i] / sums[r];
    const kernels::Rows to = rows_of(decode.out, s.batch, row.head, query);
    call.kernels.write_rows(out, strides.value, 1, call.value_dim, to.storage,
                            const_cast<void*>(to.data), to.stride);
    const std::int64_t flat = (s.batch * call.heads + row.head) * call.q.tokens + query;
    if (decode.extras.log_sum_exp != nullptr && sums[r] != 0.0F) {
      decode.extras.log_sum_exp[flat] = static_cast<float>(static_cast<double>(maxima[r]) * kLn2 +
                                                           std::log(static_cast<double>(sums[r])));
    }
    if (decode.extras.probabilities == nullptr) continue;
    float* const to_row = decode.extras.probabilities + flat * call.k.tokens + s.first_key;
    for (std::int64_t j = 0; j < keys; ++j)
      to_row[all.first + j] = scores[r * decode.room.score_row + j] * factor;
  }
}

// In the fastest way, or timed if that is not known yet.
void attend_timed(const Decode& decode, const Sequence& s, std::span<const Row> rows,
                  const Memory& memory) {
  core::MeasuredChoice* const choice = decode.choice;
  const int kept = choice == nullptr ? 0 : choice->kept();
  if (kept >= 0) return attend_rows(decode, s, rows, kKeysAhead[kept], memory);
  const int way = choice->next(kWays);
  const auto begin = std::chrono::steady_clock::now();
  attend_rows(decode, s, rows, kKeysAhead[way], memory);
  const std::chrono::duration<float, std::nano> time = std::chrono::steady_clock::now() - begin;
  if (s.keys > 0) choice->record(kWays, way, time.count() / static_cast<float>(s.keys));
}

// Keys read between two looks at the caller's cancellation: about a millisecond.
constexpr std::int64_t kKeysPerLook = 16384;

void decode_part(void* context, int part, int) {
  Decode& decode = *static_cast<Decode*>(context);
  const Call& call = decode.call;
  const Memory memory(decode, part);
  const std::int64_t items = static_cast<std::int64_t>(call.sequences.size()) * call.key_heads;
  Row rows[kFewRows];
  std::int64_t read = 0;
  for (std::int64_t item = decode.next++; item < items; item = decode.next++) {
    const Sequence& s = call.sequences[static_cast<std::size_t>(item / call.key_heads)];
    const std::int64_t first = item % call.key_heads * call.group;
    const std::int64_t all = call.group * s.queries;
    for (std::int64_t at = 0; at < all; at += kFewRows) {
      if ((read += s.keys) > kKeysPerLook) {
        core::throw_if_cancelled();
        read = 0;
      }
      const std::int64_t count = std::min<std::int64_t>(kFewRows, all - at);
      for (std::int64_t r = 0; r < count; ++r)
        rows[r] = {first + (at + r) / s.queries, (at + r) % s.queries};
      attend_timed(decode, s, {rows, static_cast<std::size_t>(count)}, memory);
    }
  }
}

}  // namespace

bool suits_few_queries(const Call& call, const AttentionExtras& extras) noexcept {
  const encodings::ScoreTerms& terms = call.terms;
  // Padding may hold anything, NaN included; only the tiled path reads it as zeros.
  return call.most_queries <= kFewQueries && call.options.key_padding.empty() &&
         !call.key_rotator && call.extra_dim == 0 && !terms.query_rows && !terms.key_rows &&
         !terms.value_rows && !terms.segment_rows.given() && extras.scores == nullptr &&
         extras.capped_scores == nullptr && extras.masked_scores == nullptr;
}

namespace {

// Of so many keys and values of `element` bytes.
std::int64_t bytes_of(const Call& call, std::int64_t keys, std::size_t element) {
  const std::int64_t items = static_cast<std::int64_t>(call.sequences.size()) * call.key_heads;
  return items * keys * (call.head_dim + call.value_dim) * static_cast<std::int64_t>(element);
}

// Threads that gain, over so many keys of at most `element` bytes.
std::int64_t decode_parts(const Call& call, std::int64_t keys, std::size_t element) {
  const std::int64_t items = static_cast<std::int64_t>(call.sequences.size()) * call.key_heads;
  const std::int64_t useful =
      std::clamp<std::int64_t>(bytes_of(call, keys, element) / core::kThreadBytes, 1, items);
  return std::min<std::int64_t>(call.threads, useful);
}

}  // namespace

void prepare_few_queries(const Call& call) {
  const std::int64_t most = std::max(call.most_keys, call.memory.room_for_keys);
  call.memory.few.reserve(decode_parts(call, most, sizeof(float)) * decode_room(call, most).all());
}

void attend_few_queries(const Call& call, core::HeadsView out, const AttentionExtras& extras) {
  prepare_few_queries(call);
  const std::size_t element = core::size_of(call.k.dtype);
  Decode decode{call,
                out,
                extras,
                decode_room(call, call.most_keys),
                call.memory.few.data(),
                choice_of(call, bytes_of(call, call.most_keys, element)),
                {}};
  const std::int64_t parts = decode_parts(call, call.most_keys, element);
  core::run_parts(static_cast<int>(parts), decode_part, &decode);
}

}  // namespace phasor::attention
