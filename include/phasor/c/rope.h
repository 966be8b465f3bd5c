/* RoPE: specifications, tables, rotation and long-term decay. phasor/phasor.h states what holds for every call. */
#ifndef PHASOR_C_ROPE_H
#define PHASOR_C_ROPE_H

#include "phasor/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- RoPE: a specification, and a rope made from it ---- */

typedef int32_t phasor_scaling;
enum {
  PHASOR_SCALING_DEFAULT = 0,
  PHASOR_SCALING_LINEAR,       /* factor */
  PHASOR_SCALING_NTK,          /* factor, mixed_b */
  PHASOR_SCALING_DYNAMIC,      /* factor and original_length, or alpha */
  PHASOR_SCALING_NTK_BY_PARTS, /* factor, original_length, beta_0 ... extrapolation_factor */
  PHASOR_SCALING_YARN,         /* factor, original_length, beta_fast ... attention_factor,
                                  extrapolation_factor */
  PHASOR_SCALING_LONGROPE, /* short_factor, long_factor, original_length, factor, attention_factor,
                              mscales */
  PHASOR_SCALING_LLAMA3,   /* factor, original_length, low_freq_factor, high_freq_factor */
  PHASOR_SCALING_PROPORTIONAL,   /* factor, proportion */
  PHASOR_SCALING_TELECHAT3_YARN, /* factor, original_length, beta_fast, beta_slow, yarn_bounds */
};

typedef int32_t phasor_yarn_bounds;
enum { PHASOR_YARN_TRUNCATED = 0, PHASOR_YARN_FRACTIONAL = 1 };

/* Which axis of the positions each frequency reads. */
typedef int32_t phasor_axes;
enum {
  PHASOR_ONE_AXIS = 0,
  PHASOR_MROPE_CHUNKED,       /* t...t h...h w...w e...e (Qwen2-VL); 3 or 4 sections */
  PHASOR_MROPE_INTERLEAVED,   /* thwthw... then t (Qwen3-VL), or e; 3 or 4 sections */
  PHASOR_MROPE_ALTERNATING,   /* hwhw... then t (ERNIE 4.5 VL); 3 sections */
  PHASOR_AXIAL_CONCATENATED,  /* Qwen2-VL vision */
  PHASOR_AXIAL_ALTERNATING,   /* Pixtral */
  PHASOR_AXIAL_PER_HALF_HEAD, /* Gemma 4 vision, ChatGLM v1 */
};

typedef int32_t phasor_xpos;
enum {
  PHASOR_XPOS_NONE = 0,
  PHASOR_XPOS_FIXED,        /* xpos_centre */
  PHASOR_XPOS_MIDDLE_FLOOR, /* floor(context / 2) */
  PHASOR_XPOS_MIDDLE_CEIL,  /* ceil(context / 2) */
};

/* Only the members that the chosen scaling, axes and xpos need are read. Members marked "0: none" are
 * optional. Pointers are read during the call only. */
typedef struct {
  uint32_t struct_size;
  phasor_pair_layout layout; /* init: PHASOR_LAYOUT_UNSET */
  int64_t head_dim;          /* 0: 2 * frequency_count */
  int64_t rotary_dim;        /* 0: head_dim - rotary_offset */
  int64_t rotary_offset;
  double base; /* init: 10000 */

  phasor_scaling scaling;
  phasor_yarn_bounds yarn_bounds;
  double factor; /* init: 1 */
  int64_t original_length;
  double alpha;                             /* 0: none */
  double mixed_b;                           /* 0: none */
  double beta_0, beta_1;                    /* init: 1.25, 0.75 */
  double gamma_0, gamma_1;                  /* init: 16, 2 */
  double ntk_factor, extrapolation_factor;  /* init: 1, 1 */
  double beta_fast, beta_slow;              /* init: 32, 1 */
  double mscale, mscale_all_dim;            /* 0: none */
  double attention_factor;                  /* 0: none */
  double low_freq_factor, high_freq_factor; /* init: 1, 4 */
  double proportion;                        /* init: 1 */
  const double* short_factor;               /* [factor_count], rotary_dim / 2 */
  const double* long_factor;                /* [factor_count] */
  size_t factor_count;
  double short_mscale, long_mscale; /* 0: none */

  phasor_axes axes;
  phasor_xpos xpos;
  const int64_t* sections;            /* [section_count]; their sum is rotary_dim / 2 */
  size_t section_count;               /* rows of positions */
  double xpos_scale_base, xpos_gamma; /* init: 512, 0.4 */
  double xpos_centre;

  /* Radians per position in place of base^(-2i/rotary_dim), one for each pair; base
   * keeps its init value, scaling is default or linear. 0 of them: none. */
  const double* frequencies; /* [frequency_count], rotary_dim / 2 */
  size_t frequency_count;
  /* Divide the scaled frequencies, one for each pair (ggml's freq_factors). 0 of them: none. */
  const double* frequency_factors; /* [frequency_factor_count], rotary_dim / 2 */
  size_t frequency_factor_count;
  double amplitude; /* init: 1; times that of the scaling */
} phasor_rope_spec;

/* Sets struct_size and the values named "init" above, the rest to 0; writes struct_size bytes. */
PHASOR_API phasor_status phasor_rope_spec_init(phasor_rope_spec* spec, size_t struct_size);

typedef struct phasor_rope
    phasor_rope; /* frequencies, amplitude, axes, layout: a spec at one context length */

/* context: number of tokens of the sequence, for scalings that depend on it; 0: unknown. */
PHASOR_API phasor_status phasor_rope_create(const phasor_rope_spec* spec, int64_t context,
                                            phasor_rope** out);
/* From the text of a Hugging Face config.json, or of a plain spec {"head_dim": 128, "layout":
 * "half", ...}. layer: an index ("3") or a layer type ("full_attention"); NULL if all layers
 * are the same. layout: overrides the config's; PHASOR_LAYOUT_UNSET: the config's own. */
PHASOR_API phasor_status phasor_rope_from_config_text(const char* text, size_t length,
                                                      const char* layer, phasor_pair_layout layout,
                                                      int64_t context, phasor_rope** out);
/* The same from a file, a folder that contains config.json, or a GGUF file. */
PHASOR_API phasor_status phasor_rope_from_config_file(const char* path, const char* layer,
                                                      phasor_pair_layout layout, int64_t context,
                                                      phasor_rope** out);
PHASOR_API void phasor_rope_destroy(phasor_rope* rope); /* NULL: does nothing */

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in, unknown members with 0 */
  phasor_pair_layout layout;
  int64_t head_dim;
  int64_t rotary_dim;
  int64_t rotary_offset;
  int64_t pairs;      /* rotary_dim / 2 frequencies */
  int64_t axis_count; /* axes of positions that are needed */
  int64_t blocks;     /* 2: each half of the rotated features is paired by itself; else 1 */
  double amplitude;
} phasor_rope_info;
PHASOR_API phasor_status phasor_rope_describe(const phasor_rope* rope, phasor_rope_info* info);
/* count must be `pairs`. */
PHASOR_API phasor_status phasor_rope_frequencies(const phasor_rope* rope, double* frequencies,
                                                 size_t count);
PHASOR_API phasor_status phasor_rope_axes(const phasor_rope* rope, uint8_t* axes, size_t count);

/* cos and sin of one token's angles, times the amplitude. positions [axis_count]; cos, sin [count],
 * count = pairs */
PHASOR_API phasor_status phasor_cos_sin_f32(const phasor_rope* rope, const double* positions,
                                            size_t position_count, phasor_angle_mode angles,
                                            float* cos, float* sin, size_t count);
PHASOR_API phasor_status phasor_cos_sin_f64(const phasor_rope* rope, const double* positions,
                                            size_t position_count, double* cos, double* sin,
                                            size_t count);

/* ---- Tables ---- */

typedef struct phasor_table phasor_table; /* cos and sin of positions [first, first + count) */

/* threads  0: as many as are useful; n: at most n */
PHASOR_API phasor_status phasor_table_create(const phasor_rope* rope, int64_t first, int64_t count,
                                             phasor_angle_mode angles, int32_t threads,
                                             phasor_table** out);
/* A new table of another range; rows in both ranges are copied, not recomputed. The old table is
 * unchanged. */
PHASOR_API phasor_status phasor_table_grow(const phasor_table* table, int64_t first, int64_t count,
                                           int32_t threads, phasor_table** out);
/* From rows that the caller already has: cos, sin [rows, pairs]; row r is for position first + r.
 */
PHASOR_API phasor_status phasor_table_from_rows(const float* cos, const float* sin, size_t rows,
                                                size_t pairs, int64_t first, phasor_table** out);
PHASOR_API phasor_status phasor_table_range(const phasor_table* table, int64_t* first,
                                            int64_t* count);
/* The rows of one position, [pairs] each, valid until the table is destroyed. */
PHASOR_API phasor_status phasor_table_rows(const phasor_table* table, int64_t position,
                                           const float** cos, const float** sin, size_t* pairs);
PHASOR_API void phasor_table_destroy(phasor_table* table); /* NULL: does nothing */

/* ---- Rotation ---- */

/* [batch, tokens, heads, head_dim]; strides count elements and may be negative; features are
 * contiguous. A view whose elements reach over more than 2^56 bytes is PHASOR_OUT_OF_RANGE. This struct
 * never grows. */
typedef struct {
  void* data; /* inputs are only read */
  phasor_dtype dtype;
  int64_t batch, tokens, heads, head_dim;
  int64_t batch_stride, token_stride, head_stride;
} phasor_heads;

/* A dense [batch, tokens, heads, head_dim] buffer. */
static inline phasor_heads phasor_dense_heads(void* data, phasor_dtype dtype, int64_t batch,
                                              int64_t tokens, int64_t heads, int64_t head_dim) {
  phasor_heads view;
  view.data = data;
  view.dtype = dtype;
  view.batch = batch;
  view.tokens = tokens;
  view.heads = heads;
  view.head_dim = head_dim;
  view.batch_stride = tokens * heads * head_dim;
  view.token_stride = heads * head_dim;
  view.head_stride = head_dim;
  return view;
}

typedef int32_t phasor_positions_kind;
enum {
  PHASOR_POSITIONS_OFFSET = 0, /* token t is at offset + t */
  PHASOR_POSITIONS_INTEGERS,   /* integers [axes, batch, tokens]; batch 0: [axes, tokens] for every
                                  batch row */
  PHASOR_POSITIONS_FLOATS,     /* floats, likewise */
  PHASOR_POSITIONS_PACKED,     /* integers [sequences + 1] = 0, ..., tokens: each sequence starts at
                                  offset; batch 1 */
};
typedef struct {
  uint32_t struct_size;
  phasor_positions_kind kind;
  const int64_t* integers;
  const double* floats;
  int64_t axes; /* 0 counts as 1 */
  int64_t batch;
  int64_t tokens;
  int64_t offset;
  int64_t sequences;
} phasor_positions;

static inline phasor_positions phasor_positions_from(int64_t offset) {
  phasor_positions positions = {
      sizeof(phasor_positions), PHASOR_POSITIONS_OFFSET, 0, 0, 1, 0, 0, 0, 0};
  positions.offset = offset;
  return positions;
}
static inline phasor_positions phasor_positions_integers(const int64_t* integers, int64_t axes,
                                                         int64_t batch, int64_t tokens) {
  phasor_positions positions = phasor_positions_from(0);
  positions.kind = PHASOR_POSITIONS_INTEGERS;
  positions.integers = integers;
  positions.axes = axes;
  positions.batch = batch;
  positions.tokens = tokens;
  return positions;
}
static inline phasor_positions phasor_positions_floats(const double* floats, int64_t axes,
                                                       int64_t batch, int64_t tokens) {
  phasor_positions positions = phasor_positions_integers(0, axes, batch, tokens);
  positions.kind = PHASOR_POSITIONS_FLOATS;
  positions.floats = floats;
  return positions;
}
static inline phasor_positions phasor_positions_packed(const int64_t* boundaries, int64_t sequences,
                                                       int64_t offset) {
  phasor_positions positions = phasor_positions_from(offset);
  positions.kind = PHASOR_POSITIONS_PACKED;
  positions.integers = boundaries;
  positions.sequences = sequences;
  return positions;
}

/* All zeros except struct_size: forward, exact, no table, threads as useful, the best kernels. */
typedef struct {
  uint32_t struct_size;
  phasor_direction direction;
  phasor_angle_mode angles;
  int32_t threads;           /* n: at most n, the calling thread included; 0: as many as useful */
  const phasor_table* table; /* of the same rope; NULL: rows are computed per token */
  phasor_instruction_set isa;
} phasor_rotate_options;

/* One tensor to rotate; in place when `in` is NULL or equal to `out`. This struct never grows. */
typedef struct {
  const phasor_heads* in; /* only read */
  const phasor_heads* out;
  phasor_role role;
} phasor_rotation;

/* Rotates queries, keys, or both in one call, RoFormer (34). options NULL: the defaults.
 * Views that overlap without being the same view are an error. Nothing is written on failure. */
PHASOR_API phasor_status phasor_rotate(const phasor_rope* rope, const phasor_positions* positions,
                                       const phasor_rotation* rotations, size_t rotation_count,
                                       const phasor_rotate_options* options);
/* q and k in place; k NULL: only q. */
PHASOR_API phasor_status phasor_rotate_in_place(const phasor_rope* rope,
                                                const phasor_positions* positions,
                                                const phasor_heads* q, const phasor_heads* k,
                                                const phasor_rotate_options* options);

/* cos and sin that the caller has computed: element (batch b, token t, pair i) is at
 * b * batch_stride + t * token_stride + i * pair_stride, counted in elements; stride 0: one row for
 * all. This struct never grows. */
typedef struct {
  const void* cos;
  const void* sin;
  phasor_dtype dtype; /* f16 and bf16 are widened; f64 is rounded once unless the data are f64 */
  int64_t pairs;
  int64_t batch_stride, token_stride, pair_stride;
} phasor_cos_sin_rows;
/* As phasor_rotate, with the caller's cos and sin: rotates features [rotary_offset, rotary_offset +
 * 2 pairs) of each head. PHASOR_INVERSE is not supported: the amplitude of the rows is unknown.
 * options: table and angles are not read. */
PHASOR_API phasor_status phasor_rotate_by(const phasor_cos_sin_rows* rows,
                                          phasor_pair_layout layout, int64_t rotary_offset,
                                          const phasor_rotation* rotations, size_t rotation_count,
                                          const phasor_rotate_options* options);

/* Rotates keys in place that `from` has rotated at from_positions, so that they become what `to` gives
 * for the same keys at to_positions. keys [batch, tokens, heads, head_dim]; threads as in
 * phasor_rotate_options. */
PHASOR_API phasor_status phasor_rerotate(const phasor_rope* from,
                                         const phasor_positions* from_positions,
                                         const phasor_rope* to,
                                         const phasor_positions* to_positions,
                                         const phasor_heads* keys, int32_t threads);

/* ---- Long-term decay, RoFormer (35)-(37): one value for each distance ---- */

PHASOR_API phasor_status phasor_mean_partial_sums(const phasor_rope* rope, const double* distances,
                                                  size_t count, double* out);
/* q, k [feature_count], feature_count = rotary_dim, pair i = features (2i, 2i + 1) */
PHASOR_API phasor_status phasor_abel_bounds(const phasor_rope* rope, const double* q,
                                            const double* k, size_t feature_count,
                                            const double* distances, size_t count, double* out);
PHASOR_API phasor_status phasor_rotated_scores(const phasor_rope* rope, const double* q,
                                               const double* k, size_t feature_count,
                                               const double* distances, size_t count, double* out);

typedef int32_t phasor_query_key;
enum { PHASOR_INDEPENDENT = 0, PHASOR_EQUAL = 1 };
/* Mean score of queries and keys whose features have this mean and variance. */
PHASOR_API phasor_status phasor_mean_rotated_scores(const phasor_rope* rope, double mean,
                                                    double variance, phasor_query_key relation,
                                                    const double* distances, size_t count,
                                                    double* out);

#ifdef __cplusplus
}
#endif

#endif
