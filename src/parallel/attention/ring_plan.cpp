#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "parallel/attention/agreement.hpp"
#include "parallel/attention/ring_state.hpp"
#include "phasor/core/error.hpp"

namespace phasor::parallel {
namespace {

using attention::AttentionOptions;
using attention::AttentionPasses;
using attention::AttentionSizes;
using core::Positions;
using encodings::ScoreTerms;

void require_entries(const char* name, std::size_t got, std::int64_t wanted) {
  if (got == 0 || static_cast<std::int64_t>(got) == wanted) return;
  refuse(ErrorCode::shape_mismatch,
         message("ring attention: ", name, " must have ", wanted, " entries, got ", got));
}

constexpr std::size_t kUnplanned = static_cast<std::size_t>(-1);

// What a piece would not notice, or notice on some ranks only.
void check_request(const AttentionSizes& whole, const AttentionOptions& options,
                   const ParallelOptions& parallel) {
  const std::pair<const char*, std::int64_t> counts[] = {
      {"batch", whole.batch}, {"queries", whole.queries}, {"keys", whole.keys}};
  for (const auto& [name, count] : counts)
    if (count < 0) refuse(message("ring attention: ", name, " must not be negative, got ", count));
  const std::pair<const char*, std::int64_t> sides[] = {{"heads", whole.heads},
                                                        {"key_heads", whole.key_heads},
                                                        {"head_dim", whole.head_dim},
                                                        {"value_dim", whole.value_dim}};
  for (const auto& [name, size] : sides)
    if (size < 1) refuse(message("ring attention: ", name, " must be at least 1, got ", size));
  const auto unsupported = [](const std::string& what) {
    refuse(ErrorCode::unsupported, message("ring attention: ", what));
  };
  if (options.mask.kind != attention::Mask::Kind::none)
    unsupported(
        "a mask over all queries and keys is not supported; use causality, window, key_padding or "
        "boundaries");
  if (!options.key_lengths.empty())
    unsupported(message("key_lengths is not supported, got ", options.key_lengths.size(),
                        " lengths; use key_padding"));
  if (options.query_offset)
    unsupported(message("query_offset is not supported, got ", *options.query_offset));
  if (parallel.wire == WireType::bf16 && whole.arithmetic == core::DType::f64)
    unsupported("bf16 on the wire needs f32 arithmetic, got f64");
  if ((!options.query_boundaries.empty() || !options.key_boundaries.empty()) && whole.batch != 1)
    unsupported(message("packed sequences need batch 1, got ", whole.batch));
  require_entries("key_padding", options.key_padding.size(), whole.batch * whole.keys);
  require_entries("query_segments", options.query_segments.size(), whole.batch * whole.queries);
  require_entries("key_segments", options.key_segments.size(), whole.batch * whole.keys);
  const auto check_positions = [&](const std::optional<Positions>& given, std::int64_t tokens) {
    if (given) static_cast<void>(core::check_positions(*given, given->axes, whole.batch, tokens));
  };
  check_positions(options.query_positions, whole.queries);
  check_positions(options.key_positions, whole.keys);
}

// Rows of extra features are counted by token if no positions are given; a piece counts by position.
void check_extra(const ScoreTerms& terms, const AttentionOptions& options, const Layout& layout) {
  if (!terms.extra_query.given() || options.query_positions) return;
  const auto queries = layout.query_bounds(), keys = layout.key_bounds();
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    const std::int64_t query_count = queries[s + 1] - queries[s], key_count = keys[s + 1] - keys[s];
    if (query_count == key_count || query_count == 0 || key_count == 0) continue;
    refuse(
        ErrorCode::unsupported,
        message("ring attention: extra features need as many queries as keys or query_positions, "
                "got ",
                query_count, " queries and ", key_count, " keys"));
  }
}

bool reads_distances(const ScoreTerms& terms) noexcept {
  return terms.query_rows || terms.key_rows || terms.bias || terms.value_rows ||
         !terms.slopes.empty() || terms.extra_query.given() || terms.first_row.given() ||
         terms.first_column.given();
}

// The positions of some tokens: those given, or the defaults.
Positions positions_at(const std::optional<Positions>& given, std::int64_t batch,
                       std::span<const std::int64_t> tokens, std::vector<std::int64_t> by_default) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const auto own = [&](auto numbers, int axes, std::int64_t rows) {
    const auto kept = std::make_shared<decltype(numbers)>(std::move(numbers));
    Positions positions = core::positions_per_row(kept->data(), axes, rows, count);
    positions.keeper = kept;
    return positions;
  };
  if (!given) return own(std::move(by_default), 1, 0);
  const std::int64_t rows = given->batch == 0 ? 1 : batch;
  std::vector<double> numbers;
  for (int axis = 0; axis < given->axes; ++axis)
    for (std::int64_t b = 0; b < rows; ++b)
      for (const std::int64_t token : tokens) numbers.push_back(given->at(axis, b, token));
  if (given->kind == Positions::Kind::floats)
    return own(std::move(numbers), given->axes, given->batch);
  return own(std::vector<std::int64_t>(numbers.begin(), numbers.end()), given->axes, given->batch);
}

std::vector<std::int64_t> counted(std::int64_t first, std::int64_t stride, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    numbers[static_cast<std::size_t>(i)] = first + i * stride;
  return numbers;
}

// Where tokens are in their sequences; queries are aligned bottom-right.
std::vector<std::int64_t> places_in_sequences(const Layout& layout, core::Role role,
                                              std::span<const std::int64_t> tokens) {
  const auto queries = layout.query_bounds(), keys = layout.key_bounds();
  const auto bounds = role == core::Role::query ? queries : keys;
  std::vector<std::int64_t> places;
  for (const std::int64_t token : tokens) {
    const auto found = std::upper_bound(bounds.begin(), bounds.end(), token);
    const auto s = static_cast<std::size_t>(found - bounds.begin()) - 1;
    const std::int64_t ahead = (keys[s + 1] - keys[s]) - (queries[s + 1] - queries[s]);
    places.push_back(token - bounds[s] + (role == core::Role::query ? ahead : 0));
  }
  return places;
}

// values [batch, all] at some tokens.
template <class T>
std::vector<T> taken(std::span<const T> values, std::int64_t batch,
                     std::span<const std::int64_t> tokens) {
  const std::size_t all = batch == 0 ? 0 : values.size() / static_cast<std::size_t>(batch);
  std::vector<T> some;
  for (std::int64_t b = 0; b < batch; ++b)
    for (const std::int64_t token : tokens)
      some.push_back(values[static_cast<std::size_t>(b) * all + static_cast<std::size_t>(token)]);
  return some;
}

}  // namespace

void ShardBuffer::reserve(core::DType dtype, const AttentionSizes& whole, std::int64_t tokens) {
  dtype_ = dtype;
  batch_ = whole.batch;
  heads_ = whole.key_heads;
  key_dim_ = whole.head_dim;
  value_dim_ = whole.value_dim;
  tokens_ = tokens;
  memory_.resize(bytes().size());
}

std::size_t ShardBuffer::key_bytes() const noexcept {
  return static_cast<std::size_t>(batch_ * tokens_ * heads_ * key_dim_) * core::size_of(dtype_);
}

core::HeadsView ShardBuffer::keys() noexcept {
  return {
      memory_.data(),    dtype_,  batch_, tokens_, heads_, key_dim_, tokens_ * heads_ * key_dim_,
      heads_ * key_dim_, key_dim_};
}

core::HeadsView ShardBuffer::values() noexcept {
  return {memory_.data() + key_bytes(),
          dtype_,
          batch_,
          tokens_,
          heads_,
          value_dim_,
          tokens_ * heads_ * value_dim_,
          heads_ * value_dim_,
          value_dim_};
}

std::span<std::byte> ShardBuffer::bytes() noexcept {
  const std::int64_t numbers = batch_ * tokens_ * heads_ * (key_dim_ + value_dim_);
  return {memory_.data(), static_cast<std::size_t>(numbers) * core::size_of(dtype_)};
}

void ShardBuffer::clear() noexcept { std::ranges::fill(bytes(), std::byte{0}); }

core::HeadsView RingPlan::State::dense(std::vector<std::byte>& memory, std::int64_t tokens,
                                       std::int64_t heads, std::int64_t dim) const noexcept {
  return {memory.data(), arithmetic(),         whole.batch, tokens, heads,
          dim,           tokens * heads * dim, heads * dim, dim};
}

RingPlan::State::State(Communicator& communicator, ScoreTerms given, const AttentionSizes& sizes,
                       const AttentionOptions& wanted, const ParallelOptions& choices,
                       AttentionPasses for_passes)
    : ranks(communicator),
      whole(sizes),
      options(wanted),
      parallel(choices),
      passes(for_passes),
      layout(sizes, wanted, choices.order, communicator.size()),
      schedule(layout),
      rank(communicator.rank()),
      queries(layout.queries().count(rank)),
      keys(layout.keys().count(rank)),
      terms(std::move(given)) {
  check_extra(terms, options, layout);
  if (passes == AttentionPasses::forward_and_backward && terms.rotation &&
      options.keys == attention::KeyState::rotated) {
    refuse(ErrorCode::unsupported,
           "ring attention: the backward pass needs keys of KeyState::raw, got KeyState::rotated");
  }
  if (terms.rotation && !terms.query_rows && !terms.key_rows && !terms.segment_rows.given()) {
    rotary = terms.rotation;
    terms.rotation.reset();
    core::validate(*rotary);
    const auto local = [&](core::Role role) {
      const bool is_query = role == core::Role::query;
      const std::vector<std::int64_t> tokens =
          (is_query ? layout.queries() : layout.keys()).tokens_of(rank);
      return positions_at(is_query ? options.query_positions : options.key_positions, whole.batch,
                          tokens, places_in_sequences(layout, role, tokens));
    };
    query_positions = local(core::Role::query);
    key_positions = local(core::Role::key);
  }
  plan_pieces();
  allocate();
  // Those of the caller were copied where they are needed.
  for (auto* positions : {&options.query_positions, &options.key_positions}) positions->reset();
  options.key_padding = {};
  options.query_segments = options.key_segments = {};
  options.query_boundaries = options.key_boundaries = {};
}

void RingPlan::State::plan_pieces() {
  work.resize(static_cast<std::size_t>(ranks.size()));
  std::vector<PieceWork*> by_size;
  for (int shard = 0; shard < ranks.size(); ++shard) {
    auto& of_shard = work[static_cast<std::size_t>(shard)];
    for (const Piece& piece : layout.pieces(rank, shard)) of_shard.push_back({piece, kUnplanned});
    for (PieceWork& w : of_shard) by_size.push_back(&w);
  }
  // The largest first: the scratch that plans share is then allocated once.
  std::ranges::stable_sort(by_size, std::greater<>(), [](const PieceWork* w) {
    return std::pair(w->piece.queries + w->piece.keys, w->piece.keys);
  });
  for (PieceWork* const w : by_size) w->plan = plan_for(w->piece);
}

std::size_t RingPlan::State::plan_for(const Piece& piece) {
  const bool has_positions = terms.rotation || reads_distances(terms);
  const bool has_lists =
      has_positions || !options.key_padding.empty() || !options.query_segments.empty();
  if (!has_lists) {
    for (const auto& of_shard : work) {
      for (const PieceWork& other : of_shard) {
        const Piece& p = other.piece;
        const bool is_aligned = piece.causal || piece.window;
        if (other.plan != kUnplanned && p.queries == piece.queries && p.keys == piece.keys &&
            p.causal == piece.causal && p.window == piece.window &&
            (!is_aligned || p.offset == piece.offset))
          return other.plan;
      }
    }
  }
  AttentionSizes sizes = whole;
  sizes.queries = piece.queries;
  sizes.keys = piece.keys;
  AttentionOptions wanted = options;
  wanted.causality = piece.causal ? attention::Causality::bottom_right : attention::Causality::none;
  wanted.window = piece.window;
  wanted.query_boundaries = wanted.key_boundaries = {};
  wanted.query_positions.reset();
  wanted.key_positions.reset();
  if (has_positions || piece.causal || piece.window) wanted.query_offset = piece.offset;
  const std::vector<std::int64_t> query_tokens =
      counted(piece.query_token, piece.stride, piece.queries);
  const std::vector<std::int64_t> key_tokens = counted(piece.key_token, piece.stride, piece.keys);
  if (has_positions) {
    wanted.query_positions =
        positions_at(options.query_positions, whole.batch, query_tokens,
                     counted(piece.query_position, piece.stride, piece.queries));
    wanted.key_positions = positions_at(options.key_positions, whole.batch, key_tokens,
                                        counted(piece.key_position, piece.stride, piece.keys));
  }
  if (!options.key_padding.empty())
    wanted.key_padding = paddings.emplace_back(taken(options.key_padding, whole.batch, key_tokens));
  if (!options.query_segments.empty())
    wanted.query_segments =
        segments.emplace_back(taken(options.query_segments, whole.batch, query_tokens));
  if (!options.key_segments.empty())
    wanted.key_segments =
        segments.emplace_back(taken(options.key_segments, whole.batch, key_tokens));
  if (rotary) wanted.keys = attention::KeyState::raw;
  wanted.workspace = &scratch;
  plans.emplace_back(terms, sizes, wanted, passes);
  return plans.size() - 1;
}

void RingPlan::State::allocate() {
  const bool backward = passes == AttentionPasses::forward_and_backward;
  std::int64_t most_queries = 0, most_keys = 0;
  for (const auto& of_shard : work) {
    for (const PieceWork& w : of_shard) {
      most_queries = std::max(most_queries, w.piece.queries);
      most_keys = std::max(most_keys, w.piece.keys);
    }
  }
  // The largest shards that arrive in even and odd steps.
  std::array<std::int64_t, 2> largest{}, largest_chain{};
  bool early = false;
  for (int step = 1; step < ranks.size(); ++step) {
    const int shard = schedule.shard(rank, step);
    std::int64_t& most = largest[static_cast<std::size_t>(step % 2)];
    if (schedule.needs(rank, shard)) most = std::max(most, layout.keys().count(shard));
    early = early || comes_home(step);
  }
  largest_chain = largest;
  if (comes_home(ranks.size())) {
    std::int64_t& most = largest_chain[static_cast<std::size_t>(ranks.size() % 2)];
    most = std::max(most, keys);
  }
  const auto numbers = [&](std::int64_t rows, std::int64_t row) {
    return static_cast<std::size_t>(whole.batch * rows * row) * core::size_of(arithmetic());
  };
  home.reserve(wire(), whole, keys);
  for (std::size_t i = 0; i < 2; ++i) incoming[i].reserve(wire(), whole, largest[i]);
  if (rotary) {
    rotated_queries.resize(numbers(queries, whole.heads * whole.head_dim));
    if (wire() != arithmetic()) wide_keys.resize(numbers(keys, whole.key_heads * whole.head_dim));
  }
  const std::int64_t widest =
      backward ? std::max(whole.head_dim, whole.value_dim) : whole.value_dim;
  partial.resize(numbers(most_queries, whole.heads * widest));
  partial_log_sums.resize(numbers(most_queries, whole.heads));
  log_sums.resize(numbers(queries, whole.heads));
  if (!backward) return;
  for (std::size_t i = 0; i < 2; ++i) chains[i].reserve(wire(), whole, largest_chain[i]);
  early_chain.reserve(wire(), whole, early ? keys : 0);
  shard_sums.reserve(arithmetic(), whole,
                     wire() == arithmetic() ? 0 : std::max(largest[0], largest[1]));
  piece_gradients.reserve(arithmetic(), whole, most_keys);
}

RingPlan::RingPlan(Communicator& ranks, ScoreTerms terms, const AttentionSizes& whole,
                   const AttentionOptions& options, const ParallelOptions& parallel,
                   AttentionPasses passes) {
  on_every_rank(ranks, [&] { check_request(whole, options, parallel); });
  ranks.agree("the sizes of attention", sizes_text(whole));
  ranks.agree("the options of attention", options_text(options, whole, parallel, passes));
  ranks.agree("the terms of attention", terms_text(terms));
  on_every_rank(ranks, [&] {
    state_ = std::make_unique<State>(ranks, std::move(terms), whole, options, parallel, passes);
  });
}

RingPlan::~RingPlan() = default;
RingPlan::RingPlan(RingPlan&&) noexcept = default;
RingPlan& RingPlan::operator=(RingPlan&&) noexcept = default;

void RingPlan::update_tables() {
  for (attention::AttentionPlan& plan : state_->plans) plan.update_tables();
}

const Shards& RingPlan::queries() const noexcept { return state_->layout.queries(); }
const Shards& RingPlan::keys() const noexcept { return state_->layout.keys(); }
std::int64_t RingPlan::bytes_sent() const noexcept { return state_->sent; }

std::size_t RingPlan::bytes() const noexcept {
  const State& s = *state_;
  std::size_t bytes = sizeof(State) + s.scratch.bytes();
  for (const attention::AttentionPlan& plan : s.plans) bytes += plan.bytes();
  for (const auto* buffer : {&s.home, &s.incoming[0], &s.incoming[1], &s.chains[0], &s.chains[1],
                             &s.early_chain, &s.shard_sums, &s.piece_gradients, &s.home_sums})
    bytes += buffer->capacity();
  for (const auto* memory : {&s.rotated_queries, &s.wide_keys, &s.log_sums, &s.partial,
                             &s.partial_log_sums, &s.sums, &s.query_sums, &s.table_gradients})
    bytes += memory->capacity();
  for (const auto& padding : s.paddings) bytes += padding.capacity();
  for (const auto& list : s.segments) bytes += list.capacity() * sizeof(std::int32_t);
  return bytes;
}

}  // namespace phasor::parallel
