#include "attention/softmax/few_queries.hpp"

#include <algorithm>
#include <atomic>
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

std::int64_t units_of(const Call& call) {
  return static_cast<std::int64_t>(call.sequences.size()) * call.key_heads;
}

// The keys of a head are read in pieces, which threads take one by one: three key heads keep two threads
// busy. They depend on the shape of the call alone, so that the bits do not depend on the threads: a call
// has kItems of them, unless less than kPieceBytes would be left to one.
struct Pieces {
  std::int64_t keys, count;
};
constexpr std::int64_t kItems = 24, kPieceBytes = core::kThreadBytes / 2;

// Of a key and its value.
std::int64_t key_bytes(const Call& call) {
  return (call.head_dim + call.value_dim) * static_cast<std::int64_t>(core::size_of(call.k.dtype));
}

std::int64_t least_piece(const Call& call) {
  return rounded_up(kPieceBytes / key_bytes(call) + 1, kWidest);
}

std::int64_t most_pieces(const Call& call) {
  const std::int64_t units = std::max<std::int64_t>(1, units_of(call));
  return (kItems + units - 1) / units;
}

Pieces pieces_of(const Call& call, std::int64_t keys) {
  std::int64_t seen = keys;
  if (call.options.window) {
    const std::int64_t window = std::min(*call.options.window, keys);
    const std::int64_t sides = call.options.causality == Causality::bottom_right ? 1 : 2;
    seen = std::min(keys, sides * window + kFewQueries);
  }
  const std::int64_t most = most_pieces(call);
  const std::int64_t each =
      std::max(least_piece(call), rounded_up((seen + most - 1) / most, kWidest));
  return {each, std::max<std::int64_t>(1, (seen + each - 1) / each)};
}

// The result of a row over one piece: its maximum and sum, then its output, not yet divided.
std::int64_t partial_floats(const Call& call) { return 2 + strides_of(call).value; }

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

// Ways through the keys and values: bytes to prefetch ahead, and places to read a single query's keys from.
// Prefetching makes reading a tenth to a third faster on some CPUs, and a quarter slower on others, whose own
// prefetching it disturbs; so it is measured (ADR 22). Numbers do not depend on it.
struct Way {
  std::int64_t bytes_ahead;
  int places;
};
constexpr Way kWays[] = {{0, 1}, {4096, 1}, {12288, 1}, {0, 2}, {4096, 2}, {12288, 2}};
constexpr int kWaysOfOnePlace = 3;  // the first ones
static_assert(std::size(kWays) <= core::MeasuredChoice::kMostWays);

// Keys and values are read one after the other.
kernels::RowWalk walk_of(const Call& call, const Way& way) {
  const auto element = static_cast<std::int64_t>(core::size_of(call.k.dtype));
  return {way.bytes_ahead / (std::max(call.head_dim, call.value_dim) * element), way.places};
}

// The choice between them for calls that read so many bytes of keys and values; null: too few to tell.
// Whether a call finds them in a cache depends on what else the caller does as well: models decode
// layer after layer. So it is measured below the size of a cache, too.
core::MeasuredChoice* choice_of(const Call& call, std::int64_t bytes) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 16;
  constexpr int kSizes = 12;
  if (bytes < kLeast) return nullptr;
  static core::MeasuredChoice choices[core::kChoiceLevels][kSizes][2][2];
  return &choices[static_cast<int>(call.options.isa)][core::size_class(bytes, kLeast, kSizes)]
                 [call.k.dtype == core::DType::f32 ? 1 : 0][call.group > 1 ? 1 : 0];
}

struct Decode {
  const Call& call;
  core::HeadsView out;
  const AttentionExtras& extras;
  Pieces pieces;
  Room room;
  float* memory;    // of every part
  float* partials;  // [key head of a sequence][its rows][pieces]; not used if there is one piece
  core::MeasuredChoice* choice;  // between kWays; null: the first
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

// Up to kFewRows rows that read one key head, from row `first` of it on.
struct Chunk {
  const Sequence& s;
  std::int64_t key_head, unit;  // unit: the key head, counted over all sequences
  std::int64_t first, count;
  Row rows[kFewRows];

  Chunk(const Call& call, std::int64_t of_unit, std::int64_t from)
      : s(call.sequences[static_cast<std::size_t>(of_unit / call.key_heads)]),
        key_head(of_unit % call.key_heads),
        unit(of_unit),
        first(from),
        count(std::min(kFewRows, call.group * s.queries - from)) {
    for (std::int64_t r = 0; r < count; ++r)
      rows[r] = {key_head * call.group + (first + r) / s.queries, (first + r) % s.queries};
  }
};

// The keys of a piece of those that any row of the chunk sees.
SeenKeys keys_of_piece(const Decode& decode, const Chunk& chunk, std::int64_t piece) {
  SeenKeys all{chunk.s.keys, 0};
  for (const Row& row : std::span(chunk.rows, static_cast<std::size_t>(chunk.count))) {
    const SeenKeys seen = range_of(decode.call, chunk.s, chunk.s.offset + row.i);
    all = {std::min(all.first, seen.first), std::max(all.last, seen.last)};
  }
  const std::int64_t first = all.first + piece * decode.pieces.keys;
  return {first, std::max(first, std::min(all.last, first + decode.pieces.keys))};
}

float* partial_of(const Decode& decode, const Chunk& chunk, std::int64_t r, std::int64_t piece) {
  const Call& call = decode.call;
  const std::int64_t row = chunk.unit * call.group * call.most_queries + chunk.first + r;
  return decode.partials + (row * decode.pieces.count + piece) * partial_floats(call);
}

// The row's place in [batch, heads, queries].
std::int64_t flat_row(const Call& call, const Sequence& s, const Row& row) {
  return (s.batch * call.heads + row.head) * call.q.tokens + s.first_query + row.i;
}

// Writes the output of a row, whose weights were taken relative to 2^maximum and have this sum.
void write_row(const Decode& decode, const Sequence& s, const Row& row, float maximum, float sum,
               float* out) {
  const Call& call = decode.call;
  for (std::int64_t i = 0; i < call.value_dim; ++i) out[i] = sum == 0.0F ? 0.0F : out[i] / sum;
  const kernels::Rows to = rows_of(decode.out, s.batch, row.head, s.first_query + row.i);
  call.kernels.write_rows(out, strides_of(call).value, 1, call.value_dim, to.storage,
                          const_cast<void*>(to.data), to.stride);
  if (decode.extras.log_sum_exp == nullptr || sum == 0.0F) return;
  decode.extras.log_sum_exp[flat_row(call, s, row)] =
      static_cast<float>(static_cast<double>(maximum) * kLn2 + std::log(static_cast<double>(sum)));
}

// Weights of a piece to probabilities, where they are asked for: to = factor * from, which may be `to`.
void write_probabilities(const Decode& decode, const Sequence& s, const Row& row, SeenKeys keys,
                         const float* from, float factor) {
  if (decode.extras.probabilities == nullptr) return;
  const Call& call = decode.call;
  float* const to = decode.extras.probabilities + flat_row(call, s, row) * call.k.tokens +
                    s.first_key + keys.first;
  for (std::int64_t j = 0; j < keys.last - keys.first; ++j)
    to[j] = factor * (from == nullptr ? to[j] : from[j]);
}

void fill_chunk(const Decode& decode, const Chunk& chunk, const Memory& memory) {
  const Call& call = decode.call;
  const std::int64_t stride = strides_of(call).content;
  QuerySide side;
  for (std::int64_t r = 0; r < chunk.count; ++r) {
    side.head = chunk.rows[r].head;
    // Each clears the rest of its panel; the next row is written after it.
    fill_queries(call, chunk.s, side, chunk.rows[r].i, 1,
                 {memory.content + r * stride, nullptr, nullptr, memory.raw, nullptr});
  }
}

// The rows of a chunk, which fill_chunk() has read, over one piece.
void attend_piece(const Decode& decode, const Chunk& chunk, std::int64_t piece,
                  const kernels::RowWalk& walk, const Memory& memory) {
  const Call& call = decode.call;
  const Sequence& s = chunk.s;
  const Strides strides = strides_of(call);
  const SeenKeys piece_keys = keys_of_piece(decode, chunk, piece);
  const std::int64_t first = piece_keys.first, keys = piece_keys.last - first;
  float maxima[kFewRows], sums[kFewRows] = {};
  std::fill_n(maxima, kFewRows, kHidden);
  std::fill_n(memory.out, kFewRows * strides.value, 0.0F);
  if (keys > 0) {
    call.kernels.score_rows(memory.content, strides.content, chunk.count,
                            rows_of(call.k, s.batch, chunk.key_head, s.first_key + first), keys,
                            call.head_dim, walk, memory.beside, memory.scores,
                            decode.room.score_row);
    for (std::int64_t r = 0; r < chunk.count; ++r) {
      float* const own = memory.scores + r * decode.room.score_row;
      const SeenKeys seen = range_of(call, s, s.offset + chunk.rows[r].i);
      finish_scores(call, s, chunk.rows[r], seen, first, first + keys, own);
      call.kernels.exp_row(own, keys, &maxima[r], &sums[r]);
    }
    call.kernels.weigh_rows(memory.scores, decode.room.score_row, chunk.count,
                            rows_of(call.v, s.batch, chunk.key_head, s.first_key + first), keys,
                            call.value_dim, walk.ahead, memory.out, strides.value);
  }
  for (std::int64_t r = 0; r < chunk.count; ++r) {
    const Row& row = chunk.rows[r];
    float* const out = memory.out + r * strides.value;
    const float* const weights = memory.scores + r * decode.room.score_row;
    if (decode.pieces.count > 1) {
      float* const partial = partial_of(decode, chunk, r, piece);
      partial[0] = maxima[r];
      partial[1] = sums[r];
      std::copy_n(out, strides.value, partial + 2);
      write_probabilities(decode, s, row, piece_keys, weights, 1.0F);
    } else {
      write_probabilities(decode, s, row, piece_keys, weights,
                          sums[r] == 0.0F ? 0.0F : 1.0F / sums[r]);
      write_row(decode, s, row, maxima[r], sums[r], out);
    }
  }
}

// Joins the pieces of a row: each weight was taken relative to the maximum of its piece.
void join_pieces(const Decode& decode, const Chunk& chunk, std::int64_t r, float* out) {
  const Call& call = decode.call;
  const auto partial = [&](std::int64_t piece) { return partial_of(decode, chunk, r, piece); };
  float maximum = kHidden, factors[kItems];
  for (std::int64_t piece = 0; piece < decode.pieces.count; ++piece)
    maximum = std::max(maximum, partial(piece)[0]);
  double sum = 0.0;
  std::fill_n(out, call.value_dim, 0.0F);
  for (std::int64_t piece = 0; piece < decode.pieces.count; ++piece) {
    const float* const from = partial(piece);
    // A piece without a visible key adds nothing.
    factors[piece] = from[1] == 0.0F ? 0.0F : std::exp2(from[0] - maximum);
    if (from[1] == 0.0F) continue;
    sum += static_cast<double>(factors[piece]) * static_cast<double>(from[1]);
    call.kernels.add_rows(from + 2, 0, factors[piece], 1, call.value_dim, out, 0);
  }
  const auto total = static_cast<float>(sum);
  for (std::int64_t piece = 0; piece < decode.pieces.count; ++piece) {
    write_probabilities(decode, chunk.s, chunk.rows[r], keys_of_piece(decode, chunk, piece),
                        nullptr, total == 0.0F ? 0.0F : factors[piece] / total);
  }
  write_row(decode, chunk.s, chunk.rows[r], maximum, total, out);
}

// In the fastest way, or timed if that is not known yet. A shorter piece costs more a key, and is not timed.
void attend_timed(const Decode& decode, const Chunk& chunk, std::int64_t piece,
                  const Memory& memory) {
  const SeenKeys keys = keys_of_piece(decode, chunk, piece);
  const std::int64_t count = keys.last - keys.first;
  const auto attend = [&](int way) {
    attend_piece(decode, chunk, piece, walk_of(decode.call, kWays[way]), memory);
  };
  if (decode.choice == nullptr) return attend(0);
  if (decode.pieces.count > 1 && count < decode.pieces.keys)
    return attend(std::max(decode.choice->kept(), 0));
  // Heads that share keys are several queries.
  const int ways = decode.call.group > 1 ? kWaysOfOnePlace : static_cast<int>(std::size(kWays));
  decode.choice->run(ways, static_cast<float>(count), attend);
}

// Keys read between two looks at the caller's cancellation: about a millisecond.
constexpr std::int64_t kKeysPerLook = 16384;

std::int64_t rows_of_unit(const Call& call, std::int64_t unit) {
  return call.group * call.sequences[static_cast<std::size_t>(unit / call.key_heads)].queries;
}

void decode_part(void* context, int part, int) {
  Decode& decode = *static_cast<Decode*>(context);
  const Call& call = decode.call;
  const Memory memory(decode, part);
  const std::int64_t count = decode.pieces.count, items = units_of(call) * count;
  std::int64_t read = 0, filled = -1;  // filled: the unit whose only chunk is in memory
  for (std::int64_t item = decode.next++; item < items; item = decode.next++) {
    const std::int64_t unit = item / count, rows = rows_of_unit(call, unit);
    for (std::int64_t at = 0; at < rows; at += kFewRows) {
      if ((read += decode.pieces.keys) > kKeysPerLook) {
        core::throw_if_cancelled();
        read = 0;
      }
      const Chunk chunk(call, unit, at);
      if (filled != unit) fill_chunk(decode, chunk, memory);
      attend_timed(decode, chunk, item % count, memory);
    }
    filled = rows <= kFewRows ? unit : -1;
  }
}

void join_part(void* context, int part, int) {
  Decode& decode = *static_cast<Decode*>(context);
  const Call& call = decode.call;
  const Memory memory(decode, part);
  for (std::int64_t unit = decode.next++; unit < units_of(call); unit = decode.next++) {
    for (std::int64_t at = 0; at < rows_of_unit(call, unit); at += kFewRows) {
      const Chunk chunk(call, unit, at);
      for (std::int64_t r = 0; r < chunk.count; ++r) join_pieces(decode, chunk, r, memory.out);
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

// Of so many keys and values of every head.
std::int64_t bytes_of(const Call& call, std::int64_t keys) {
  return units_of(call) * keys * key_bytes(call);
}

std::int64_t useful_parts(const Call& call, std::int64_t bytes, std::int64_t items) {
  return std::min<std::int64_t>(call.threads,
                                std::clamp<std::int64_t>(bytes / core::kThreadBytes, 1, items));
}

// Floats of the results of all pieces.
std::int64_t all_partials(const Call& call, std::int64_t pieces) {
  const std::int64_t rows = units_of(call) * call.group * call.most_queries;
  return pieces == 1 ? 0 : rounded_up(rows * pieces * partial_floats(call), kWidest);
}

}  // namespace

void prepare_few_queries(const Call& call) {
  const std::int64_t most = std::max(call.most_keys, call.memory.room_for_keys);
  // Fewer keys may make more pieces.
  const std::int64_t least = least_piece(call);
  const std::int64_t pieces =
      std::clamp<std::int64_t>((most + least - 1) / least, 1, most_pieces(call));
  const std::int64_t parts = useful_parts(call, bytes_of(call, most), units_of(call) * pieces);
  call.memory.few.reserve(all_partials(call, pieces) +
                          parts * decode_room(call, pieces_of(call, most).keys).all());
}

void attend_few_queries(const Call& call, core::HeadsView out, const AttentionExtras& extras) {
  prepare_few_queries(call);
  const std::int64_t bytes = bytes_of(call, call.most_keys);
  const Pieces pieces = pieces_of(call, call.most_keys);
  const std::int64_t partials = all_partials(call, pieces.count);
  Decode decode{call,
                out,
                extras,
                pieces,
                decode_room(call, pieces.keys),
                call.memory.few.data() + partials,
                call.memory.few.data(),
                choice_of(call, bytes),
                {}};
  const std::int64_t parts = useful_parts(call, bytes, units_of(call) * pieces.count);
  core::run_parts(static_cast<int>(parts), decode_part, &decode);
  if (pieces.count == 1) return;
  decode.next = 0;
  const auto joined = partials * static_cast<std::int64_t>(sizeof(float));
  core::run_parts(static_cast<int>(std::min(parts, useful_parts(call, joined, units_of(call)))),
                  join_part, &decode);
}

}  // namespace phasor::attention
