// What the passes of linear attention share: the sizes and views of a run, the running sums, and chunks
// of keys and queries in scratch.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "attention/kernels/kernels.hpp"
#include "attention/linear/random_features.hpp"
#include "attention/linear/scratch.hpp"
#include "attention/rotation_rows.hpp"
#include "phasor/attention/internal/linear_part.hpp"
#include "phasor/attention/linear.hpp"

namespace phasor::attention {

// Tokens of one product. Larger chunks do more work against themselves, d + dv a token for half of
// them; smaller ones update the state more often. Every head of a thread does a chunk before the next
// chunk begins, while the tokens' other heads are still in the cache.
inline constexpr std::int64_t kChunk = 64;

// One head's sum of outer products a b^T [rows, columns] and of vectors [width], with their Kahan
// corrections: four arrays, one after the other, from `products` on.
struct Sums {
  float* products = nullptr;
  float* products_carry = nullptr;
  float* vectors = nullptr;
  float* vectors_carry = nullptr;
  float* exponent = nullptr;  // exponentials: keys are in units of 2^e
  std::int64_t columns = 0;   // floats of a row of products
  std::int64_t floats = 0;    // of all four

  [[nodiscard]] static std::int64_t floats_for(std::int64_t rows, std::int64_t columns,
                                               std::int64_t width) noexcept;
  [[nodiscard]] static Sums at(float* memory, float* exponent, std::int64_t rows,
                               std::int64_t columns, std::int64_t width) noexcept;
};

// The exponent before the first key.
inline constexpr float kNoExponent = -3.402823466e38F;

// The sums of head `index` of a part, to and from float32.
void load_sums(const PartSums& from, std::int64_t index, const Sums& to) noexcept;
void store_sums(const Sums& from, PartSums& to, std::int64_t index) noexcept;

// The memory of a state.
struct LinearStateAccess {
  [[nodiscard]] static Sums sums(const LinearState& state, float* memory, float* exponents,
                                 std::int64_t head) noexcept;
  static float* memory(LinearState& state) noexcept { return state.sums_.data(); }
  static float* exponents(LinearState& state) noexcept { return state.exponents_.data(); }
  // The map of the keys: that of the earlier calls, or `call`'s if there were none.
  [[nodiscard]] static bool has_map_of(const LinearState& state, const LinearOptions& options,
                                       std::int64_t input_dim) noexcept {
    return !state.features_ ||
           (state.features_ == options.features && state.input_dim_ == input_dim &&
            state.seed_ == seed_of(options) && state.rotates_ == options.rotates);
  }
  [[nodiscard]] static LinearOptions map_of(const LinearState& state) noexcept {
    LinearOptions options;
    options.features = state.features_.value_or(options.features);
    options.seed = state.seed_;
    options.rotates = state.rotates_;
    return options;
  }
  static void advance(LinearState& state, std::int64_t tokens, const LinearOptions& options,
                      std::int64_t input_dim) noexcept {
    state.tokens_ += tokens;
    state.features_ = options.features;
    state.input_dim_ = input_dim;
    state.seed_ = seed_of(options);
    state.rotates_ = options.rotates;
  }

 private:
  // Other maps have no seed.
  [[nodiscard]] static std::uint64_t seed_of(const LinearOptions& options) noexcept {
    return options.features == FeatureMap::favor ? options.seed : 0;
  }
};

// Rows of cos and sin of every token, computed once; null: computed chunk by chunk.
struct KeptRows {
  const float* forward = nullptr;
  const float* transposed = nullptr;  // for the backward pass
  bool per_batch_row = false;         // [batch, tokens], otherwise [tokens]
};

// The sizes, options and positions of a plan, and the views of the present run. Points to the plan's
// rotary and options.
struct LinearCall {
  core::ConstHeadsView q, k, v;  // without data until the run
  const LinearOptions& options;
  const kernels::Kernels& kernels;
  std::shared_ptr<const RandomFeatures> random;  // FeatureMap::favor only
  std::optional<RotationRows> rotations;
  core::Positions query_positions, key_positions;
  KeptRows kept_queries, kept_keys;
  bool rows_are_shared;             // one row of cos and sin serves a token's query and its key
  std::int64_t group;               // query heads of a key head
  std::int64_t offset;              // query i is at the position of key offset + i
  std::int64_t dim, value_dim;      // of phi and of v
  std::int64_t width, value_width;  // floats of a row of scratch
  std::int64_t input_width;         // of a row of q or k before the map
  std::int64_t chunk;               // the most tokens of a chunk

  // Float64 views: wide_linear.hpp, not the kernels.
  [[nodiscard]] bool is_wide() const noexcept { return q.dtype == core::DType::f64; }
  [[nodiscard]] bool is_empty() const noexcept {
    return q.batch == 0 || (q.tokens == 0 && k.tokens == 0);
  }
  [[nodiscard]] bool is_causal() const noexcept {
    return options.causality == Causality::bottom_right;
  }
  [[nodiscard]] bool is_favor() const noexcept { return random != nullptr; }
  // Features are exponentials, of x or of W x.
  [[nodiscard]] bool is_exp() const noexcept {
    return options.features == FeatureMap::softmax_exp || is_favor();
  }
  [[nodiscard]] bool rotates(Rotates what) const noexcept {
    return rotations.has_value() && options.rotates == what;
  }
  [[nodiscard]] std::int64_t sum_floats() const noexcept {
    return Sums::floats_for(dim, value_width, width);
  }
  // Scratch for the rows of a chunk.
  [[nodiscard]] std::int64_t row_floats() const noexcept {
    return rotations && kept_keys.forward == nullptr ? rotations->floats_for(chunk) : 0;
  }
  [[nodiscard]] bool is_padding(std::int64_t b, std::int64_t key) const noexcept {
    return !options.key_padding.empty() &&
           options.key_padding[static_cast<std::size_t>(b * k.tokens + key)] == 0;
  }
};

inline constexpr const char* kLinearWhere = "linear attention";

// Positions are those of the options, or of a sequence that begins at 0.
//
// throws   Error as LinearPlan
[[nodiscard]] LinearCall checked_linear_call(const std::optional<core::Rotary>& rotary,
                                             const LinearSizes& sizes,
                                             const LinearOptions& options);
// throws   Error unless `view` has the shape [batch, tokens, heads] of `like` and `dim` features
void check_linear_view(const char* name, const core::ConstHeadsView& view,
                       const core::ConstHeadsView& like, std::int64_t dim);
// throws   Error unless the elements of an output are distinct and overlap none of `others`
void check_linear_output(const char* name, const core::HeadsView& view,
                         std::initializer_list<core::ConstHeadsView> others);
// The number of threads that are worth their cost, at most `units`.
[[nodiscard]] int linear_threads(const LinearCall& call, std::int64_t units);

// Rows of cos and sin of a chunk; null without a rotation.
struct ChunkRows {
  std::int64_t first = 0;  // token
  const float* forward = nullptr;
  const float* transposed = nullptr;
  float* memory = nullptr;             // for rows that are not kept
  float* transposed_memory = nullptr;  // backward only
};
void make_key_rows(const LinearCall& call, std::int64_t b, std::int64_t first, std::int64_t count,
                   ChunkRows& rows);
void make_query_rows(const LinearCall& call, std::int64_t b, std::int64_t first, std::int64_t count,
                     ChunkRows& rows);

// Causal: the rows of the queries at the positions of keys [first, first + count).
void make_aligned_query_rows(const LinearCall& call, std::int64_t b, std::int64_t first,
                             std::int64_t count, const ChunkRows& key_rows, ChunkRows& query_rows);

// A chunk of keys and values in scratch, rows of call.width and call.value_width.
struct KeyChunk {
  float* inputs = nullptr;  // favor: k, rows of call.input_width; else the same memory as features
  float* features = nullptr;  // phi(k)
  float* rotated = nullptr;   // R phi(k); the same memory if features are not rotated
  float* values = nullptr;
  float* largest = nullptr;  // of each row: exponents before the map
  // favor, of each row: e^(-|k'|^2 / 2) = factors 2^-wholes, and room for exponents.
  float* wholes = nullptr;
  float* factors = nullptr;
  float* exponents = nullptr;
  std::int64_t first = 0, count = 0;
  float exponent = 0.0F;
};
[[nodiscard]] KeyChunk carve_keys(const LinearCall& call, Carver& carver);
// Reads keys and values [first, first + count) of key head g. Features are what map_keys() takes the
// exponential or elu of.
void read_keys(const LinearCall& call, std::int64_t b, std::int64_t g, std::int64_t first,
               std::int64_t count, const ChunkRows& rows, KeyChunk& keys);
// How many of the keys that were read may share a chunk without an effect on queries that do not see
// them: a key that is not finite gets its own chunk, and exponents grow by kExponentGrowth at most.
[[nodiscard]] std::int64_t shared_chunk(const LinearCall& call, const KeyChunk& keys,
                                        float exponent);
// The exponent that keys [0, count) of the chunk need, `before` or more.
[[nodiscard]] float exponent_for(const LinearCall& call, const KeyChunk& keys, float before);
// phi and R phi, in units of 2^exponent.
void map_keys(const LinearCall& call, std::int64_t b, float exponent, const ChunkRows& rows,
              KeyChunk& keys);
// Converts sums from units of 2^*sums.exponent to units of 2^exponent: sums of keys shrink when it
// grows, sums of queries shrink when it falls.
void change_exponent(const LinearCall& call, SumsOf of, float exponent, const Sums& sums);

// Adds the chunk to sum (R phi(k)) v^T and sum phi(k); `total` is the chunk's own sum of phi(k).
void add_keys_to_sums(const LinearCall& call, const KeyChunk& keys, const float* total,
                      const Sums& sums);

struct QueryChunk {
  float* inputs = nullptr;  // as of KeyChunk
  float* features = nullptr;
  float* rotated = nullptr;
  float* exponents = nullptr;  // of each row; cancels in (19)
};
[[nodiscard]] QueryChunk carve_queries(const LinearCall& call, Carver& carver);
void load_queries(const LinearCall& call, std::int64_t b, std::int64_t h, std::int64_t first,
                  std::int64_t count, const ChunkRows& rows, QueryChunk& queries);

// d x from d phi(x), both in scratch.
struct InputGradients {
  float* d_inputs = nullptr;  // [chunk][call.input_width]; the memory of d phi unless favor
  float* sums = nullptr;      // favor: [chunk]
};
[[nodiscard]] InputGradients carve_input_gradients(const LinearCall& call, float* d_features,
                                                   Carver& carver);
// Overwrites d phi(x) of `count` tokens from token `first` on.
//
// inputs   favor: the keys; null for queries, where the part of |x'|^2 is zero
void unmap(const LinearCall& call, const float* features, const float* inputs,
           const ChunkRows& rows, std::int64_t first, std::int64_t count, float* d_features,
           const InputGradients& to);

// Rows of `stride` floats, zeros after the last feature.
void read_tokens(const LinearCall& call, const core::ConstHeadsView& view, std::int64_t b,
                 std::int64_t h, std::int64_t first, std::int64_t count, float* out,
                 std::int64_t stride);
void write_tokens(const LinearCall& call, const float* in, std::int64_t stride, std::int64_t count,
                  const core::HeadsView& view, std::int64_t b, std::int64_t h, std::int64_t first);
// 1 / x, and 0 for 0: no key counts.
void invert(float* x, std::int64_t count) noexcept;

}  // namespace phasor::attention
