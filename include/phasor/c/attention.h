/* Softmax and linear attention with every encoding, and KV caches. phasor/phasor.h states what holds for every call. */
#ifndef PHASOR_C_ATTENTION_H
#define PHASOR_C_ATTENTION_H

#include "phasor/c/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Attention ---- */

typedef struct phasor_encoding phasor_encoding; /* a position encoding with its trained tables */

/* From JSON as `phasor attend --encoding` reads it: {"encoding": "t5", ...}, or a rope's config. json is
 * a 0-terminated string. Tables named as .npy files are read during the call, from `folder` (NULL: the
 * current one) or a folder below it: absolute names and ".." are refused. Values that depend on the number of tokens (XLNet's first_distance, the number of
 * sinusoidal rows) must be given. */
PHASOR_API phasor_status phasor_encoding_parse(const char* json, const char* folder,
                                               phasor_encoding** out);
PHASOR_API void phasor_encoding_destroy(phasor_encoding* encoding); /* NULL: does nothing */

typedef int32_t phasor_causality;
enum {
  PHASOR_NOT_CAUSAL = 0, /* every query sees every key */
  PHASOR_CAUSAL = 1,     /* aligned bottom-right: query i of Nq sees keys 0 .. Nk - Nq + i */
};

typedef int32_t phasor_mask_kind;
enum {
  PHASOR_MASK_BOOLEAN = 0,      /* uint8_t: 0 hides the key */
  PHASOR_MASK_ADDITIVE = 1,     /* float: added to the score; -infinity hides the key */
  PHASOR_MASK_ADDITIVE_F64 = 2, /* double, for q, k and v of f64 */
};
/* Values for (query, key): [batch, heads, Nq, Nk], strides counted in elements. An axis of length 1
 * is broadcast, its stride is not read. With fewer keys than Nk the remaining keys are hidden. This
 * struct never grows. */
typedef struct {
  const void* data;
  phasor_mask_kind kind;
  int64_t batch, heads, queries, keys;
  int64_t batch_stride, head_stride, query_stride, key_stride;
} phasor_mask;
/* A dense [batch, heads, queries, keys] mask. */
static inline phasor_mask phasor_dense_mask(const void* data, phasor_mask_kind kind, int64_t batch,
                                            int64_t heads, int64_t queries, int64_t keys) {
  phasor_mask mask;
  mask.data = data;
  mask.kind = kind;
  mask.batch = batch;
  mask.heads = heads;
  mask.queries = queries;
  mask.keys = keys;
  mask.batch_stride = heads * queries * keys;
  mask.head_stride = queries * keys;
  mask.query_stride = keys;
  mask.key_stride = 1;
  return mask;
}

typedef int32_t phasor_key_state;
enum {
  PHASOR_KEYS_RAW = 0,     /* not rotated yet: the call rotates them */
  PHASOR_KEYS_ROTATED = 1, /* the caller has rotated them, as in a KV cache of its own */
};

/* All zeros except struct_size: not causal, the encoding's own scale, threads as useful, no mask, no
 * padding, one sequence per batch row, positions 0, 1, ... A pointer that is not NULL needs the count of
 * its elements. */
typedef struct {
  uint32_t struct_size;
  phasor_causality causality;
  int64_t window;  /* a key is seen if |i - j| < window; 0: no window */
  double scale;    /* 0: the encoding's own */
  double soft_cap; /* c > 0: scores become c tanh(s / c); 0: none */
  int32_t threads; /* n: at most n, the calling thread included; 0: as many as useful */
  phasor_instruction_set isa;
  /* [batch, heads, queries]: the logarithm of each softmax's denominator. Written by phasor_attend
   * unless NULL, read by phasor_attend_backward. */
  float* log_sum_exp;
  size_t log_sum_exp_count;
  /* [batch, tokens]: segment ids, for an XLNet encoding with segments only. */
  const int32_t* query_segments;
  size_t query_segment_count;
  const int32_t* key_segments;
  size_t key_segment_count;
  /* For f64 tensors, instead of log_sum_exp; phasor_attend writes both unless NULL. */
  double* wide_log_sum_exp;
  size_t wide_log_sum_exp_count;

  const phasor_mask* mask; /* NULL: none */
  /* [batch]: keys at or after the length are padding; the causal mask is aligned with the last key
   * before it. */
  const int64_t* key_lengths;
  size_t key_length_count;
  /* [batch, Nk]: 0 hides the key, for left or right padding; tokens are counted as before. */
  const uint8_t* key_padding;
  size_t key_padding_count;
  /* Packed sequences, batch 1: sequences + 1 boundaries, 0, ..., Nq and 0, ..., Nk. Sequence s of the
   * queries sees sequence s of the keys only; relative positions count inside a sequence. */
  const int64_t* query_boundaries;
  size_t query_boundary_count;
  const int64_t* key_boundaries;
  size_t key_boundary_count;
  /* Read by rotations and by terms of distances, not by causality and window, which count tokens. Terms
   * of distances need whole numbers on one axis. NULL: keys at 0, 1, ..., queries aligned with the last
   * keys, in each packed sequence by itself. */
  const phasor_positions* query_positions;
  const phasor_positions* key_positions;
  phasor_key_state key_state;
  phasor_angle_mode angles;
  /* [batch, heads, Nq, Nk] each, score_count elements; written by phasor_attend unless NULL. scores:
   * before soft cap and masks; capped_scores: after the soft cap (both are 0 for pairs that are never
   * computed: padding, other packed sequences); masked_scores: after both; probabilities: their
   * softmax. */
  float* scores;
  float* capped_scores;
  float* masked_scores;
  float* probabilities;
  size_t score_count;
} phasor_attend_options;

/* RoFormer (2) with the encoding's terms, in tiles: memory grows with the number of tokens, not with its
 * square. encoding NULL: none; options NULL: the defaults.
 * q [batch, Nq, heads, d], k [batch, Nk, key_heads, d], v [batch, Nk, key_heads, dv],
 * out [batch, Nq, heads, dv]; heads a multiple of key_heads; f32, f16 or bf16 in any
 * mixture, or all f64: arithmetic is then float64, in plain loops.
 * A query that sees no key gives zeros. out must not overlap an input. */
PHASOR_API phasor_status phasor_attend(const phasor_encoding* encoding, const phasor_heads* q,
                                       const phasor_heads* k, const phasor_heads* v,
                                       const phasor_heads* out,
                                       const phasor_attend_options* options);
/* The gradients of sum(out * d_out) with respect to q, k and v, overwritten; types as phasor_attend.
 * `out` and log_sum_exp (f64: wide_log_sum_exp) are what phasor_attend wrote for the same arguments. The
 * gradients of the encoding's own tables are available in the C++ API only. */
PHASOR_API phasor_status phasor_attend_backward(const phasor_encoding* encoding,
                                                const phasor_heads* q, const phasor_heads* k,
                                                const phasor_heads* v, const phasor_heads* out,
                                                const phasor_heads* d_out, const phasor_heads* d_q,
                                                const phasor_heads* d_k, const phasor_heads* d_v,
                                                const phasor_attend_options* options);

typedef int32_t phasor_feature_map;
enum {
  PHASOR_ELU_PLUS_ONE = 0, /* elu(x) + 1, for queries and keys */
  PHASOR_SOFTMAX_EXP = 1,  /* queries: softmax over the features; keys: exp */
  /* Performer's positive orthogonal random features (FAVOR+): feature_count numbers whose products
   * approximate exp(q . k / sqrt(head_dim)). docs/attention.md has the formula. */
  PHASOR_FAVOR = 2,
};

typedef int32_t phasor_rotates;
enum {
  PHASOR_ROTATES_FEATURES = 0, /* phi(q) and phi(k), in the numerator: RoFormer (19) */
  PHASOR_ROTATES_INPUTS = 1,   /* q and k before the map, in numerator and denominator */
};

/* All zeros except struct_size: not causal, elu + 1, threads as useful, positions 0, 1, ... */
typedef struct {
  uint32_t struct_size;
  phasor_causality causality;
  phasor_feature_map features;
  int32_t threads;
  phasor_instruction_set isa;
  /* NULL: keys at 0, 1, ... (with a state: after its tokens), queries aligned with the last keys. */
  const phasor_positions* query_positions;
  const phasor_positions* key_positions;
  /* [batch, Nk]: 0 leaves the key out of both sums; positions do not change. */
  const uint8_t* key_padding;
  size_t key_padding_count;
  /* PHASOR_FAVOR: the number of features, 1 to 65536, and the seed of their matrix. Other maps: 0. */
  int64_t feature_count;
  uint64_t seed;
  phasor_rotates rotates;
} phasor_linear_options;

/* RoFormer (19): the numerator is rotated by `rope` (NULL: (18), no rotation), the denominator is not;
 * PHASOR_ROTATES_INPUTS rotates q and k instead. The rope's head_dim is the width of what it rotates:
 * feature_count for the features of PHASOR_FAVOR, else head_dim.
 * Shapes and types as phasor_attend. A query that sees no key gives zeros. */
PHASOR_API phasor_status phasor_linear_attend(const phasor_rope* rope, const phasor_heads* q,
                                              const phasor_heads* k, const phasor_heads* v,
                                              const phasor_heads* out,
                                              const phasor_linear_options* options);
/* The gradients of sum(out * d_out) with respect to q, k and v, overwritten; types as
 * phasor_linear_attend. */
PHASOR_API phasor_status phasor_linear_attend_backward(
    const phasor_rope* rope, const phasor_heads* q, const phasor_heads* k, const phasor_heads* v,
    const phasor_heads* d_out, const phasor_heads* d_q, const phasor_heads* d_k,
    const phasor_heads* d_v, const phasor_linear_options* options);

/* The sums over the keys so far, float32: all that linear attention needs of earlier tokens. Its size
 * does not depend on their number. PHASOR_FAVOR: head_dim is feature_count. */
typedef struct phasor_linear_state phasor_linear_state;
PHASOR_API phasor_status phasor_linear_state_create(int64_t batch, int64_t key_heads,
                                                    int64_t head_dim, int64_t value_dim,
                                                    phasor_linear_state** out);
/* An independent copy. */
PHASOR_API phasor_status phasor_linear_state_fork(const phasor_linear_state* state,
                                                  phasor_linear_state** out);
/* Forgets all tokens. */
PHASOR_API phasor_status phasor_linear_state_reset(phasor_linear_state* state);
/* The number of tokens of all calls so far, padding included; 0 for NULL. */
PHASOR_API int64_t phasor_linear_state_tokens(const phasor_linear_state* state);
PHASOR_API void phasor_linear_state_destroy(phasor_linear_state* state); /* NULL: does nothing */
/* phasor_linear_attend for the next tokens: queries see the keys of earlier calls too, and the new keys
 * are added to the state. options must have PHASOR_CAUSAL; q has as many tokens as k; rope, sizes,
 * features, seed and rotates as in earlier calls; not f64. On failure the state is unchanged. */
PHASOR_API phasor_status phasor_linear_continue(phasor_linear_state* state, const phasor_rope* rope,
                                                const phasor_heads* q, const phasor_heads* k,
                                                const phasor_heads* v, const phasor_heads* out,
                                                const phasor_linear_options* options);

/* ---- KV cache ---- */

/* Keys and values of the tokens so far. Keys are rotated when they are appended, and rotated again when
 * the position of their token changes. A call that fails leaves the cache unchanged. */
typedef struct phasor_cache phasor_cache;

typedef int32_t phasor_cache_mode;
enum {
  PHASOR_CACHE_COMPACT = 0,    /* rotated keys only; the error grows with each new rotation */
  PHASOR_CACHE_DRIFT_FREE = 1, /* unrotated keys too; the error is always that of one rotation */
};

typedef struct {
  uint32_t struct_size;
  phasor_dtype dtype; /* of keys and values: f32, f16 or bf16 */
  int64_t batch, key_heads, head_dim, value_dim;
  int64_t capacity;        /* tokens; fixed, allocated at once */
  const phasor_rope* rope; /* NULL: keys are not rotated; read during the call only */
  phasor_cache_mode mode;
} phasor_cache_spec;

PHASOR_API phasor_status phasor_cache_create(const phasor_cache_spec* spec, phasor_cache** out);
/* An independent copy; capacity 0: the same, else at least the number of its tokens. */
PHASOR_API phasor_status phasor_cache_fork(const phasor_cache* cache, int64_t capacity,
                                           phasor_cache** out);
PHASOR_API void phasor_cache_destroy(phasor_cache* cache); /* NULL: does nothing */

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in, unknown members with 0 */
  phasor_dtype dtype;
  int64_t batch, key_heads, head_dim, value_dim, capacity;
  int64_t tokens;
  int64_t next_position; /* of the next token, when phasor_cache_append gets no positions */
  int64_t axis_count;    /* axes of positions: those of the rope, 1 without one */
  phasor_cache_mode mode;
  int32_t rotates; /* 1: keys are rotated by a rope; 0: keys are not rotated */
} phasor_cache_info;
PHASOR_API phasor_status phasor_cache_describe(const phasor_cache* cache, phasor_cache_info* info);
/* Each token's position, [axis_count, tokens]; count = axis_count * tokens. */
PHASOR_API phasor_status phasor_cache_positions(const phasor_cache* cache, double* positions,
                                                size_t count);
/* Rotated keys [batch, tokens, key_heads, head_dim] and values [batch, tokens, key_heads, value_dim] as
 * read-only views into the cache, valid until the next call that changes it. Either may be NULL. */
PHASOR_API phasor_status phasor_cache_views(const phasor_cache* cache, phasor_heads* keys,
                                            phasor_heads* values);

/* Rotates k [batch, n, key_heads, head_dim] from the caller's memory into the cache and copies v [batch,
 * n, key_heads, value_dim], both of the cache's dtype. positions NULL: next_position, next_position + 1,
 * ...; they must be the same in every batch row. PHASOR_OUT_OF_RANGE if the capacity is exceeded. */
PHASOR_API phasor_status phasor_cache_append(phasor_cache* cache, const phasor_heads* k,
                                             const phasor_heads* v,
                                             const phasor_positions* positions, int32_t threads);
/* Keeps the first `tokens`. */
PHASOR_API phasor_status phasor_cache_truncate(phasor_cache* cache, int64_t tokens);
/* Removes tokens [first, last) and closes the gap in memory; later tokens keep their positions until
 * phasor_cache_shift. */
PHASOR_API phasor_status phasor_cache_evict(phasor_cache* cache, int64_t first, int64_t last);
/* Adds delta to the positions of tokens [first, last) on every axis, and rotates their keys to match. */
PHASOR_API phasor_status phasor_cache_shift(phasor_cache* cache, int64_t first, int64_t last,
                                            int64_t delta, int32_t threads);
/* Rotates all keys to another rope, at the same positions (NULL) or at new ones. */
PHASOR_API phasor_status phasor_cache_rerotate(phasor_cache* cache, const phasor_rope* rope,
                                               const phasor_positions* positions, int32_t threads);

/* Attention of q [batch, Nq, heads, head_dim] over the cache into out [batch, Nq, heads, value_dim].
 * Queries are by default at the positions of the cache's last tokens, and are rotated there with the
 * cache's rope. encoding: further terms, NULL: none; distances are those between positions; one that
 * rotates must have the cache's rotation.
 * options: as phasor_attend; key_positions, PHASOR_KEYS_ROTATED, float32 angles, log_sum_exp and scores
 * are not supported. */
PHASOR_API phasor_status phasor_cache_attend(const phasor_cache* cache,
                                             const phasor_encoding* encoding, const phasor_heads* q,
                                             const phasor_heads* out,
                                             const phasor_attend_options* options);

#ifdef __cplusplus
}
#endif

#endif
