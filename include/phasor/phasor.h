/* Phasor in C11: rotary position embedding of any type, exact, at memory speed; attention with every
 * encoding of position, caches, models, tokenizers, and the tools that explain a config.
 *
 * Failure   Every function that can fail returns a phasor_status and leaves its outputs untouched when
 *           it does: the caller's arrays, *out and the handles it was given are as they were.
 *           phasor_last_error() then says what was expected and what came. One exception: after
 *           PHASOR_INTERNAL (memory ran out while numbers were computed) arrays of numbers may be
 *           partly written; *out is untouched even then. No C++ exception crosses this header.
 * Threads   A function that takes a handle as pointer to const only reads it: any number of such calls
 *           may use one handle at the same time. A function that takes it as pointer to non-const
 *           changes it and needs it to itself, as _destroy does. So phasor_rope, phasor_table,
 *           phasor_encoding, phasor_config, phasor_tokenizer, phasor_text and phasor_ids never change
 *           and are free to share; phasor_cache, phasor_linear_state and phasor_sequence are shared
 *           while nobody changes them; phasor_model runs one forward or generate at a time.
 * Memory    What a _create, _parse, _load or _fork function hands out belongs to the caller, who gives
 *           it back once through the _destroy function of its type. A handle keeps no pointer to the
 *           arrays and handles it was made from, with one exception: a phasor_sequence needs its
 *           phasor_model.
 * Arrays    Lengths are counts of elements.
 * Structs   Those that may grow begin with struct_size, which the caller sets to sizeof the struct (the
 *           _init and phasor_positions_* functions do it). A struct of any size from its first version
 *           on is taken: members that an older caller does not have get the value that the comment
 *           names, members that only a newer caller has must be 0, and of a struct that is filled in no
 *           byte beyond the caller's size is written. Structs without struct_size never grow.
 * Choices   int32_t rather than enum types, so that a number outside the list is refused instead of
 *           undefined.
 */
#ifndef PHASOR_PHASOR_H
#define PHASOR_PHASOR_H

#include <stddef.h>
#include <stdint.h>

#include "phasor/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; phasor_version() tells the library's. While MAJOR is 0, a library serves
 * programs that were built with the same MINOR. */
#define PHASOR_VERSION_MAJOR 0
#define PHASOR_VERSION_MINOR 1
#define PHASOR_VERSION_PATCH 0
/* For comparisons in #if: 0.1.0 is 100, 1.2.3 is 10203. */
#define PHASOR_VERSION_NUMBER \
  (PHASOR_VERSION_MAJOR * 10000 + PHASOR_VERSION_MINOR * 100 + PHASOR_VERSION_PATCH)

typedef enum {
  PHASOR_OK = 0,
  PHASOR_INVALID_ARGUMENT,
  PHASOR_SHAPE_MISMATCH,
  PHASOR_OUT_OF_RANGE,
  PHASOR_UNSUPPORTED,
  PHASOR_IO,
  PHASOR_INTERNAL /* also when memory runs out */
} phasor_status;

/* This thread's last failure, as one line of text; "" before the first. Good until the thread's
 * next failure. */
PHASOR_API const char* phasor_last_error(void);
PHASOR_API const char* phasor_version(void);    /* "0.1.0" */
PHASOR_API int32_t phasor_version_number(void); /* PHASOR_VERSION_NUMBER of the library */

/* ---- Results whose length is known only when they are there
 * ---------------------------------------------------------------------------------------------- */

/* Text made by the library: JSON, decoded tokens. A handle rather than a buffer of the caller, since
 * the length is known only after the work, which nobody wants to do twice. */
typedef struct phasor_text phasor_text;
PHASOR_API const char* phasor_text_data(
    const phasor_text* text);                                /* UTF-8, ends with a 0; "" for NULL */
PHASOR_API size_t phasor_text_size(const phasor_text* text); /* bytes before that 0; 0 for NULL */
PHASOR_API void phasor_text_destroy(phasor_text* text);      /* NULL is fine */

/* Token ids made by the library. */
typedef struct phasor_ids phasor_ids;
PHASOR_API const int64_t* phasor_ids_data(
    const phasor_ids* ids);                                /* NULL for NULL; not NULL for no id */
PHASOR_API size_t phasor_ids_count(const phasor_ids* ids); /* 0 for NULL */
PHASOR_API void phasor_ids_destroy(phasor_ids* ids);       /* NULL is fine */

/* ---- Choices
 * ---------------------------------------------------------------------------------------------- */

typedef int32_t phasor_pair_layout;
enum {
  PHASOR_LAYOUT_UNSET = -1,       /* not chosen: refused by whatever needs a layout */
  PHASOR_INTERLEAVED = 0,         /* pair i = features (2i, 2i + 1) */
  PHASOR_HALF = 1,                /* pair i = features (i, i + rotary_dim / 2) */
  PHASOR_INTERLEAVED_TO_HALF = 2, /* reads the first, writes the second (DeepSeek V3) */
};

typedef int32_t phasor_direction;
enum {
  PHASOR_FORWARD = 0,   /* a R_m x, a the amplitude */
  PHASOR_TRANSPOSE = 1, /* a R_m^T x: the backward pass */
  PHASOR_INVERSE = 2,   /* (1/a) R_m^T x: undoes forward */
};

typedef int32_t phasor_angle_mode;
enum {
  PHASOR_ANGLES_EXACT = 0,
  PHASOR_ANGLES_FLOAT32 = 1, /* other engines' own rounding, step by step */
};

typedef int32_t phasor_dtype;
enum { PHASOR_F64 = 0, PHASOR_F32 = 1, PHASOR_F16 = 2, PHASOR_BF16 = 3 };
/* Sixteen-bit floats as their bits. From float: to nearest, ties to even; a NaN stays a NaN. */
PHASOR_API float phasor_f16_to_float(uint16_t bits);
PHASOR_API float phasor_bf16_to_float(uint16_t bits);
PHASOR_API uint16_t phasor_float_to_f16(float value);
PHASOR_API uint16_t phasor_float_to_bf16(float value);

typedef int32_t phasor_role;
enum { PHASOR_QUERY = 0, PHASOR_KEY = 1 }; /* only xPos tells them apart */

typedef int32_t phasor_instruction_set;
enum {
  PHASOR_ISA_BEST = 0, /* the highest level that this CPU has */
  PHASOR_ISA_GENERIC = 1,
  PHASOR_ISA_X86_64_V2 = 2,
  PHASOR_ISA_X86_64_V3 = 3,
  PHASOR_ISA_X86_64_V4 = 4,
};
/* The level that a choice comes to here; PHASOR_UNSUPPORTED when this CPU or this build does not
 * have it. */
PHASOR_API phasor_status phasor_resolve_instruction_set(phasor_instruction_set isa,
                                                        phasor_instruction_set* out);

/* ---- What to rotate by: a rope
 * ------------------------------------------------------------------------------ */

typedef int32_t phasor_scaling;
enum {
  PHASOR_SCALING_DEFAULT = 0,
  PHASOR_SCALING_LINEAR,       /* factor */
  PHASOR_SCALING_NTK,          /* factor, mixed_b */
  PHASOR_SCALING_DYNAMIC,      /* factor and original_length, or alpha */
  PHASOR_SCALING_NTK_BY_PARTS, /* factor, original_length, beta_0 ... extrapolation_factor */
  PHASOR_SCALING_YARN,         /* factor, original_length, beta_fast ... attention_factor */
  PHASOR_SCALING_LONGROPE, /* short_factor, long_factor, original_length, factor, attention_factor,
                              mscales */
  PHASOR_SCALING_LLAMA3,   /* factor, original_length, low_freq_factor, high_freq_factor */
  PHASOR_SCALING_PROPORTIONAL,   /* factor, proportion */
  PHASOR_SCALING_TELECHAT3_YARN, /* factor, original_length, beta_fast, beta_slow, yarn_bounds */
};

typedef int32_t phasor_yarn_bounds;
enum { PHASOR_YARN_TRUNCATED = 0, PHASOR_YARN_FRACTIONAL = 1 };

/* Which row of positions each frequency reads. */
typedef int32_t phasor_axes;
enum {
  PHASOR_ONE_AXIS = 0,
  PHASOR_MROPE_CHUNKED,       /* t...t h...h w...w (Qwen2-VL); sections */
  PHASOR_MROPE_INTERLEAVED,   /* thwthw... then t (Qwen3-VL); sections */
  PHASOR_MROPE_ALTERNATING,   /* hwhw... then t (ERNIE 4.5 VL); sections */
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

/* Only the members that the scaling, axes and xpos name are read. "0: none" members are optional.
 * Pointers are read during the call alone. */
typedef struct {
  uint32_t struct_size;
  phasor_pair_layout layout; /* init: PHASOR_LAYOUT_UNSET */
  int64_t head_dim;
  int64_t rotary_dim; /* 0: head_dim - rotary_offset */
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
  const int64_t* sections; /* [section_count]; they add up to rotary_dim / 2 */
  size_t section_count;
  double xpos_scale_base, xpos_gamma; /* init: 512, 0.4 */
  double xpos_centre;
} phasor_rope_spec;

/* Sets struct_size and the values named "init" above, the rest to 0; writes struct_size bytes. */
PHASOR_API phasor_status phasor_rope_spec_init(phasor_rope_spec* spec, size_t struct_size);

typedef struct phasor_rope
    phasor_rope; /* frequencies, amplitude, axes, layout: a spec at one context length */

/* context: how many tokens the sequence has, for scalings that ask; 0: not given. */
PHASOR_API phasor_status phasor_rope_create(const phasor_rope_spec* spec, int64_t context,
                                            phasor_rope** out);
/* From the text of a Hugging Face config.json, or of a plain spec {"head_dim": 128, "layout":
 * "half", ...}. layer: an index ("3") or a layer type ("full_attention"); NULL while all layers are
 * alike. layout: overrides the config's; PHASOR_LAYOUT_UNSET: as the config says. */
PHASOR_API phasor_status phasor_rope_from_config_text(const char* text, size_t length,
                                                      const char* layer, phasor_pair_layout layout,
                                                      int64_t context, phasor_rope** out);
/* The same from a file, or from a folder that holds config.json; also a GGUF file. */
PHASOR_API phasor_status phasor_rope_from_config_file(const char* path, const char* layer,
                                                      phasor_pair_layout layout, int64_t context,
                                                      phasor_rope** out);
PHASOR_API void phasor_rope_destroy(phasor_rope* rope); /* NULL is fine */

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in, unknown members with 0 */
  phasor_pair_layout layout;
  int64_t head_dim;
  int64_t rotary_dim;
  int64_t rotary_offset;
  int64_t pairs;      /* rotary_dim / 2 frequencies */
  int64_t axis_count; /* rows of positions that are needed */
  int64_t blocks;     /* 2 where each half of the window is paired by itself, else 1 */
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

/* ---- Tables
 * -----------------------------------------------------------------------------------------------
 */

typedef struct phasor_table phasor_table; /* cos and sin of positions [first, first + count) */

/* threads  0: as many as help; n: at most n */
PHASOR_API phasor_status phasor_table_create(const phasor_rope* rope, int64_t first, int64_t count,
                                             phasor_angle_mode angles, int32_t threads,
                                             phasor_table** out);
/* A new table of another range, sharing what both hold; the old one stays as it is. */
PHASOR_API phasor_status phasor_table_grow(const phasor_table* table, int64_t first, int64_t count,
                                           int32_t threads, phasor_table** out);
/* From rows that the caller already has: cos, sin [rows, pairs]; row r serves position first + r.
 */
PHASOR_API phasor_status phasor_table_from_rows(const float* cos, const float* sin, size_t rows,
                                                size_t pairs, int64_t first, phasor_table** out);
PHASOR_API phasor_status phasor_table_range(const phasor_table* table, int64_t* first,
                                            int64_t* count);
/* The rows of one position, [pairs] each, good while the table lives. */
PHASOR_API phasor_status phasor_table_rows(const phasor_table* table, int64_t position,
                                           const float** cos, const float** sin, size_t* pairs);
PHASOR_API void phasor_table_destroy(phasor_table* table); /* NULL is fine */

/* ---- Rotation
 * ---------------------------------------------------------------------------------------------- */

/* [batch, tokens, heads, head_dim]; strides count elements; features are contiguous. This struct
 * never grows. */
typedef struct {
  void* data; /* only read where a function says so */
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

/* All zeros but struct_size: forward, exact, no table, threads where they help, the best kernels.
 */
typedef struct {
  uint32_t struct_size;
  phasor_direction direction;
  phasor_angle_mode angles;
  int32_t threads;           /* n: at most n, the caller among them; 0: as many as help */
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
 * Views that overlap without being the same view are refused. Nothing is written on failure. */
PHASOR_API phasor_status phasor_rotate(const phasor_rope* rope, const phasor_positions* positions,
                                       const phasor_rotation* rotations, size_t rotation_count,
                                       const phasor_rotate_options* options);
/* q and k in place; k NULL: q alone. */
PHASOR_API phasor_status phasor_rotate_in_place(const phasor_rope* rope,
                                                const phasor_positions* positions,
                                                const phasor_heads* q, const phasor_heads* k,
                                                const phasor_rotate_options* options);

/* cos and sin that the caller has computed: element (batch b, token t, pair i) is at
 * b * batch_stride + t * token_stride + i * pair_stride, counted in elements; stride 0: one row serves
 * all. This struct never grows. */
typedef struct {
  const void* cos;
  const void* sin;
  phasor_dtype dtype; /* f16 and bf16 are widened; f64 is rounded once unless the data are f64 */
  int64_t pairs;
  int64_t batch_stride, token_stride, pair_stride;
} phasor_cos_sin_rows;
/* As phasor_rotate, by rows as they are: features [rotary_offset, rotary_offset + 2 pairs) of each head
 * are rotated. PHASOR_INVERSE is refused, since rows do not tell their amplitude. options: table and
 * angles are not read. */
PHASOR_API phasor_status phasor_rotate_by(const phasor_cos_sin_rows* rows,
                                          phasor_pair_layout layout, int64_t rotary_offset,
                                          const phasor_rotation* rotations, size_t rotation_count,
                                          const phasor_rotate_options* options);

/* Keys [batch, tokens, heads, head_dim] that were rotated by `from` at from_positions, rotated in place
 * to what `to` makes of the same keys at to_positions. threads as in phasor_rotate_options. */
PHASOR_API phasor_status phasor_rerotate(const phasor_rope* from,
                                         const phasor_positions* from_positions,
                                         const phasor_rope* to,
                                         const phasor_positions* to_positions,
                                         const phasor_heads* keys, int32_t threads);

/* ---- Long-term decay, RoFormer (35)-(37): one value per distance
 * ------------------------------------------ */

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

/* ---- Attention
 * ---------------------------------------------------------------------------------------------- */

typedef struct phasor_encoding phasor_encoding; /* with the trained numbers of its tables */

/* From JSON as `phasor attend --encoding` reads it: {"encoding": "t5", ...}, or a rope's config. json
 * ends with a 0; tables named as .npy files are looked for in `folder` (NULL: the current one) and read
 * now. What depends on the number of tokens (XLNet's first_distance, how many rows are sinusoidal) must
 * be said. */
PHASOR_API phasor_status phasor_encoding_parse(const char* json, const char* folder,
                                               phasor_encoding** out);
PHASOR_API void phasor_encoding_destroy(phasor_encoding* encoding); /* NULL is fine */

typedef int32_t phasor_causality;
enum {
  PHASOR_NOT_CAUSAL = 0, /* every query sees every key */
  PHASOR_CAUSAL = 1,     /* query i of Nq sees keys 0 .. Nk - Nq + i */
};

typedef int32_t phasor_mask_kind;
enum {
  PHASOR_MASK_BOOLEAN = 0,      /* uint8_t: 0 hides the key */
  PHASOR_MASK_ADDITIVE = 1,     /* float: added to the score; -infinity hides the key */
  PHASOR_MASK_ADDITIVE_F64 = 2, /* double, for q, k and v of f64 */
};
/* Values for (query, key): [batch, heads, Nq, Nk], strides counted in elements. An axis of length 1
 * serves every index, its stride is not read; a mask of fewer keys than Nk hides the rest. This struct
 * never grows. */
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
  PHASOR_KEYS_RAW = 0,     /* rotated here, as the queries are */
  PHASOR_KEYS_ROTATED = 1, /* rotated by the caller, as in a cache of its own */
};

/* All zeros but struct_size: not causal, the encoding's own scale, threads where they help, no mask, no
 * padding, one sequence per batch row, positions 0, 1, ... A pointer that is not NULL comes with the
 * count of its elements. */
typedef struct {
  uint32_t struct_size;
  phasor_causality causality;
  int64_t window;  /* a key is seen if |i - j| < window; 0: no window */
  double scale;    /* 0: the encoding's own */
  double soft_cap; /* c > 0: scores become c tanh(s / c); 0: none */
  int32_t threads; /* n: at most n, the caller among them; 0: as many as help */
  phasor_instruction_set isa;
  /* [batch, heads, queries]: the logarithm of each softmax's denominator. Written by phasor_attend
   * where it is not NULL, read by phasor_attend_backward. */
  float* log_sum_exp;
  size_t log_sum_exp_count;
  /* [batch, tokens]: for an XLNet encoding with segments alone. */
  const int32_t* query_segments;
  size_t query_segment_count;
  const int32_t* key_segments;
  size_t key_segment_count;
  /* f64: in place of log_sum_exp, which phasor_attend writes too where it is not NULL. */
  double* wide_log_sum_exp;
  size_t wide_log_sum_exp_count;

  const phasor_mask* mask; /* NULL: none */
  /* [batch]: keys at or after the length are padding; the causal mask is aligned with the last key
   * before it. */
  const int64_t* key_lengths;
  size_t key_length_count;
  /* [batch, Nk]: 0 hides the key, left or right padding; positions do not move. */
  const uint8_t* key_padding;
  size_t key_padding_count;
  /* Packed sequences, batch 1: 0, ..., Nq and 0, ..., Nk, one more than sequences. Sequence s of the
   * queries sees sequence s of the keys alone; relative positions count inside a sequence. */
  const int64_t* query_boundaries;
  size_t query_boundary_count;
  const int64_t* key_boundaries;
  size_t key_boundary_count;
  /* For encodings that rotate. NULL: keys at 0, 1, ..., queries aligned with the last keys, in each
   * packed sequence by itself. */
  const phasor_positions* query_positions;
  const phasor_positions* key_positions;
  phasor_key_state key_state;
  phasor_angle_mode angles;
  /* [batch, heads, Nq, Nk] each, score_count elements; written by phasor_attend where not NULL. Scores
   * before soft cap and masks, and after the soft cap (both 0 for pairs that never meet: padding, other
   * packed sequences); after both; and their softmax. */
  float* scores;
  float* capped_scores;
  float* masked_scores;
  float* probabilities;
  size_t score_count;
} phasor_attend_options;

/* RoFormer (2) with the encoding's terms, in tiles: memory grows with the number of tokens, not with its
 * square. encoding NULL: none; options NULL: the defaults.
 * q [batch, Nq, heads, d], k [batch, Nk, key_heads, d], v [batch, Nk, key_heads, dv],
 * out [batch, Nq, heads, dv]; heads a multiple of key_heads; f32, f16 or bf16, each its own, or all
 * f64: arithmetic is then float64, in plain loops.
 * A query that sees no key gets zeros. out must not overlap an input. */
PHASOR_API phasor_status phasor_attend(const phasor_encoding* encoding, const phasor_heads* q,
                                       const phasor_heads* k, const phasor_heads* v,
                                       const phasor_heads* out,
                                       const phasor_attend_options* options);
/* The gradients of sum(out * d_out) with respect to q, k and v, overwritten; types as phasor_attend.
 * `out` and log_sum_exp (f64: wide_log_sum_exp) are what phasor_attend wrote for the same arguments. The
 * gradients of the encoding's own tables are in
 * the C++ API alone: here an encoding is read, not trained. */
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
};

/* All zeros but struct_size: not causal, elu + 1, threads where they help, positions 0, 1, ... */
typedef struct {
  uint32_t struct_size;
  phasor_causality causality;
  phasor_feature_map features;
  int32_t threads;
  phasor_instruction_set isa;
  /* NULL: keys at 0, 1, ... (with a state: after its tokens), queries aligned with the last keys. */
  const phasor_positions* query_positions;
  const phasor_positions* key_positions;
  /* [batch, Nk]: 0 leaves the key out of both sums; positions do not move. */
  const uint8_t* key_padding;
  size_t key_padding_count;
} phasor_linear_options;

/* RoFormer (19): the numerator rotated by `rope` (NULL: (18), no rotation), the denominator not. Shapes
 * and types as phasor_attend. A query that sees no key gets zeros. */
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

/* The sums over the keys so far, float32: what linear attention needs of the past, the same size for any
 * number of tokens. */
typedef struct phasor_linear_state phasor_linear_state;
PHASOR_API phasor_status phasor_linear_state_create(int64_t batch, int64_t key_heads,
                                                    int64_t head_dim, int64_t value_dim,
                                                    phasor_linear_state** out);
/* An independent state with the same past. */
PHASOR_API phasor_status phasor_linear_state_fork(const phasor_linear_state* state,
                                                  phasor_linear_state** out);
/* As it was when it was made. */
PHASOR_API phasor_status phasor_linear_state_reset(phasor_linear_state* state);
/* How many tokens the calls so far have brought, padding included; 0 for NULL. */
PHASOR_API int64_t phasor_linear_state_tokens(const phasor_linear_state* state);
PHASOR_API void phasor_linear_state_destroy(phasor_linear_state* state); /* NULL is fine */
/* phasor_linear_attend of the tokens that follow: keys of earlier calls count, and the state moves on.
 * options must say PHASOR_CAUSAL; q has as many tokens as k; rope, sizes and features as in earlier
 * calls; not f64. On failure the state is as it was. */
PHASOR_API phasor_status phasor_linear_continue(phasor_linear_state* state, const phasor_rope* rope,
                                                const phasor_heads* q, const phasor_heads* k,
                                                const phasor_heads* v, const phasor_heads* out,
                                                const phasor_linear_options* options);

/* ---- KV cache
 * ---------------------------------------------------------------------------------------------- */

/* Keys and values of the tokens so far. Keys are rotated when they are appended; when tokens move, their
 * keys are rotated again. Every call that fails leaves the cache as it was. */
typedef struct phasor_cache phasor_cache;

typedef int32_t phasor_cache_mode;
enum {
  PHASOR_CACHE_COMPACT = 0,    /* rotated keys alone; the error grows with the number of moves */
  PHASOR_CACHE_DRIFT_FREE = 1, /* raw keys too; the error is always that of one rotation */
};

typedef struct {
  uint32_t struct_size;
  phasor_dtype dtype; /* of keys and values: f32, f16 or bf16 */
  int64_t batch, key_heads, head_dim, value_dim;
  int64_t capacity;        /* tokens; fixed, allocated at once */
  const phasor_rope* rope; /* NULL: keys are kept as they come; read during the call alone */
  phasor_cache_mode mode;
} phasor_cache_spec;

PHASOR_API phasor_status phasor_cache_create(const phasor_cache_spec* spec, phasor_cache** out);
/* An independent cache with the same tokens; capacity 0: the same, else at least its tokens. */
PHASOR_API phasor_status phasor_cache_fork(const phasor_cache* cache, int64_t capacity,
                                           phasor_cache** out);
PHASOR_API void phasor_cache_destroy(phasor_cache* cache); /* NULL is fine */

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in, unknown members with 0 */
  phasor_dtype dtype;
  int64_t batch, key_heads, head_dim, value_dim, capacity;
  int64_t tokens;
  int64_t next_position; /* of the next token when phasor_cache_append is not told one */
  int64_t axis_count;    /* rows of positions: that of the rope, 1 without one */
  phasor_cache_mode mode;
  int32_t rotates; /* 1: keys are rotated by a rope; 0: kept as they come */
} phasor_cache_info;
PHASOR_API phasor_status phasor_cache_describe(const phasor_cache* cache, phasor_cache_info* info);
/* Each token's position, [axis_count, tokens]; count = axis_count * tokens. */
PHASOR_API phasor_status phasor_cache_positions(const phasor_cache* cache, double* positions,
                                                size_t count);
/* Rotated keys [batch, tokens, key_heads, head_dim] and values [batch, tokens, key_heads, value_dim] as
 * views into the cache, to be read alone, good until the next call that changes it. Either may be NULL. */
PHASOR_API phasor_status phasor_cache_views(const phasor_cache* cache, phasor_heads* keys,
                                            phasor_heads* values);

/* Rotates k [batch, n, key_heads, head_dim] from the caller's memory into the cache and copies v [batch,
 * n, key_heads, value_dim], both of the cache's dtype. positions NULL: next_position and on; positions
 * that differ between batch rows are refused. PHASOR_OUT_OF_RANGE when they do not fit. */
PHASOR_API phasor_status phasor_cache_append(phasor_cache* cache, const phasor_heads* k,
                                             const phasor_heads* v,
                                             const phasor_positions* positions, int32_t threads);
/* Keeps the first `tokens`. */
PHASOR_API phasor_status phasor_cache_truncate(phasor_cache* cache, int64_t tokens);
/* Drops tokens [first, last) and closes the gap in memory; later tokens keep their positions until
 * phasor_cache_shift. */
PHASOR_API phasor_status phasor_cache_evict(phasor_cache* cache, int64_t first, int64_t last);
/* Adds delta to the positions of tokens [first, last), every axis alike, and rotates their keys so. */
PHASOR_API phasor_status phasor_cache_shift(phasor_cache* cache, int64_t first, int64_t last,
                                            int64_t delta, int32_t threads);
/* The same tokens under another rope, at the same positions (NULL) or at new ones. */
PHASOR_API phasor_status phasor_cache_rerotate(phasor_cache* cache, const phasor_rope* rope,
                                               const phasor_positions* positions, int32_t threads);

/* Attention of q [batch, Nq, heads, head_dim] over the cache into out [batch, Nq, heads, value_dim].
 * Queries are rotated with the cache's rope, by default as the cache's last tokens. encoding: what is
 * added to that; one that rotates must rotate as the cache does; NULL: nothing.
 * options: as phasor_attend; key_positions, PHASOR_KEYS_ROTATED, float32 angles, log_sum_exp and scores
 * are refused. */
PHASOR_API phasor_status phasor_cache_attend(const phasor_cache* cache,
                                             const phasor_encoding* encoding, const phasor_heads* q,
                                             const phasor_heads* out,
                                             const phasor_attend_options* options);

/* ---- Threads
 * ---------------------------------------------------------------------------------------------- */

/* The CPUs that this process may use: those of its affinity mask, and no more than the quota of its
 * control group. While a parallel-for with `threads` is set, that number. */
PHASOR_API int32_t phasor_available_threads(void);

/* A parallel-for of the program, so that one set of threads serves it and Phasor. `run` calls
 * task(context, part, parts) exactly once for each part in [0, parts), on any threads and in any
 * order, and returns when all are done. Several threads may call it at once, and a task may call it
 * again. A call whose parts were not run once each fails with PHASOR_INTERNAL, its outputs
 * undefined. */
typedef struct {
  uint32_t struct_size;
  int32_t threads; /* what phasor_available_threads() says; 0: as without a parallel-for */
  void (*run)(void* user, int32_t parts, void (*task)(void* context, int32_t part, int32_t parts),
              void* context);
  void* user;
} phasor_parallel_for;

/* Hands the parts of all later calls to `parallel_for`, or to Phasor's own threads when it is NULL.
 * Calls under way end as they began: `user` must live until they have. */
PHASOR_API phasor_status phasor_set_parallel_for(const phasor_parallel_for* parallel_for);

/* ---- Models
 * ---------------------------------------------------------------------------------------------- */

/* A decoder from a folder of config.json and safetensors, or from a GGUF file. */
typedef struct phasor_model phasor_model;
/* Keys and values of one sequence of a model; destroy it before the model. A call that fails leaves it as
 * it was. */
typedef struct phasor_sequence phasor_sequence;

typedef int32_t phasor_precision;
enum {
  PHASOR_EXACT = 0, /* as float32 activations give */
  PHASOR_FAST = 1,  /* activations of quantised weights rounded to eight bits */
};

/* All zeros but struct_size: exact, threads where they help. */
typedef struct {
  uint32_t struct_size;
  phasor_precision precision;
  int32_t threads;
  phasor_instruction_set isa;
} phasor_model_options;

PHASOR_API phasor_status phasor_model_load(const char* path, const phasor_model_options* options,
                                           phasor_model** out);
PHASOR_API void phasor_model_destroy(phasor_model* model);             /* NULL is fine */
PHASOR_API int64_t phasor_model_vocabulary(const phasor_model* model); /* 0 for NULL */

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in, unknown members with 0 */
  int64_t layers, hidden, vocabulary;
  int64_t heads, key_heads, head_dim;
  int64_t trained_length; /* tokens; 0: the config does not tell */
  int64_t parameters;
  int64_t weight_bytes; /* as kept in memory */
} phasor_model_info;
PHASOR_API phasor_status phasor_model_describe(const phasor_model* model, phasor_model_info* info);

/* Room for `capacity` tokens. */
PHASOR_API phasor_status phasor_sequence_create(const phasor_model* model, int64_t capacity,
                                                phasor_sequence** out);
/* An independent sequence with the same tokens and room for `capacity`. */
PHASOR_API phasor_status phasor_sequence_fork(const phasor_sequence* sequence, int64_t capacity,
                                              phasor_sequence** out);
PHASOR_API void phasor_sequence_destroy(phasor_sequence* sequence);         /* NULL is fine */
PHASOR_API int64_t phasor_sequence_tokens(const phasor_sequence* sequence); /* 0 for NULL */
/* Keeps the first `tokens`. */
PHASOR_API phasor_status phasor_sequence_truncate(phasor_sequence* sequence, int64_t tokens);
/* Drops tokens [keep, keep + drop) and moves the later ones to their places, their keys rotated again. */
PHASOR_API phasor_status phasor_sequence_shift(phasor_sequence* sequence, int64_t keep,
                                               int64_t drop);
/* Runs `count` ids after those that the sequence has. The last token's logits, [vocabulary], are written
 * where logits is not NULL. One call at a time for a model, of this and of phasor_generate. */
PHASOR_API phasor_status phasor_model_forward(phasor_model* model, phasor_sequence* sequence,
                                              const int64_t* ids, size_t count, float* logits,
                                              size_t logits_count);

typedef int32_t phasor_window_full;
enum {
  PHASOR_WINDOW_REFUSE =
      0, /* a prompt and answer that do not fit are refused before anything runs */
  PHASOR_WINDOW_SHIFT = 1, /* drop the oldest half after the first `keep` tokens */
};

/* Filters apply in this order: repetition penalty, temperature, top_k, top_p, min_p. */
typedef struct {
  uint32_t struct_size;
  phasor_window_full when_full;
  int64_t tokens;            /* at most; init: 128 */
  double temperature;        /* init: 0, the largest logit */
  int64_t top_k;             /* 0: all */
  double top_p;              /* init: 1 */
  double min_p;              /* init: 0 */
  double repetition_penalty; /* init: 1 */
  int64_t repetition_window; /* the last tokens that count as seen; 0: all; init: 64 */
  uint64_t seed;
  const int64_t*
      stops; /* [stop_count] ids that end the answer, beside those of the model's config */
  size_t stop_count;
  int64_t context; /* the window; 0: the trained length, or what is needed */
  int64_t keep;    /* the first tokens stay through every shift; init: 4 */
  int64_t chunk;   /* tokens of a prompt that run at once; init: 512 */
} phasor_generate_options;
/* Sets struct_size and the values named "init" above, the rest to 0; writes struct_size bytes. */
PHASOR_API phasor_status phasor_generate_options_init(phasor_generate_options* options,
                                                      size_t struct_size);

/* Called with each token as it comes; 0 ends the answer. It must not call into the same model. */
typedef int32_t (*phasor_on_token)(void* user, int64_t id);
/* Generates an answer to the ids of a prompt; the ids that end it are not given out. options NULL: the
 * values named "init"; on_token NULL: none. The same seed gives the same answer on every machine. For a
 * conversation whose past is kept, run phasor_model_forward over one sequence. */
PHASOR_API phasor_status phasor_generate(phasor_model* model, const int64_t* prompt,
                                         size_t prompt_count,
                                         const phasor_generate_options* options,
                                         phasor_on_token on_token, void* user, phasor_ids** out);

/* ---- Tokenizers
 * ---------------------------------------------------------------------------------------------- */

typedef struct phasor_tokenizer phasor_tokenizer;

/* From a GGUF file, or a folder that holds tokenizer.json, tokenizer.model or vocab.txt. */
PHASOR_API phasor_status phasor_tokenizer_load(const char* path, phasor_tokenizer** out);
/* From the text of a tokenizer.json. */
PHASOR_API phasor_status phasor_tokenizer_parse(const char* json, size_t length,
                                                phasor_tokenizer** out);
PHASOR_API void phasor_tokenizer_destroy(phasor_tokenizer* tokenizer); /* NULL is fine */
PHASOR_API int64_t phasor_tokenizer_vocabulary(const phasor_tokenizer* tokenizer); /* 0 for NULL */

typedef int32_t phasor_special_text;
enum {
  PHASOR_SPECIAL_PARSE = 0,   /* "<|im_end|>" in the text is that token */
  PHASOR_SPECIAL_AS_TEXT = 1, /* it is plain text: for untrusted input */
};
/* The ids of UTF-8 text; neither begin nor end tokens are added. */
PHASOR_API phasor_status phasor_tokenizer_encode(const phasor_tokenizer* tokenizer,
                                                 const char* text, size_t length,
                                                 phasor_special_text special, phasor_ids** out);
/* The ids of a prompt: special texts parsed, the begin token first where the model was trained so. */
PHASOR_API phasor_status phasor_tokenizer_encode_prompt(const phasor_tokenizer* tokenizer,
                                                        const char* text, size_t length,
                                                        phasor_ids** out);
/* The text of all ids as a reader sees it: special tokens left out, bytes that are not UTF-8 replaced by
 * U+FFFD. */
PHASOR_API phasor_status phasor_tokenizer_decode(const phasor_tokenizer* tokenizer,
                                                 const int64_t* ids, size_t count,
                                                 phasor_text** out);
/* The bytes of one token, which may be a part of a character; a special token's own text. */
PHASOR_API phasor_status phasor_tokenizer_piece(const phasor_tokenizer* tokenizer, int64_t id,
                                                phasor_text** out);
/* The id of a token by its exact text; -1 when there is none. */
PHASOR_API phasor_status phasor_tokenizer_find(const phasor_tokenizer* tokenizer, const char* token,
                                               size_t length, int64_t* id);

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in, unknown members with 0 */
  int32_t add_begin;    /* 1: a prompt starts with `begin` */
  int64_t begin, end, pad, unknown, mask, classify, separate; /* -1: the vocabulary has none */
} phasor_special_tokens;
PHASOR_API phasor_status phasor_tokenizer_specials(const phasor_tokenizer* tokenizer,
                                                   phasor_special_tokens* specials);
/* The ids that end an answer: `end` and those that end a turn of a conversation. */
PHASOR_API phasor_status phasor_tokenizer_stops(const phasor_tokenizer* tokenizer,
                                                phasor_ids** out);

/* ---- Porting: what `phasor VERB --json` prints, one JSON object each
 * ---------------------------------------------------------------------------------------------- */

/* A config as its author wrote it, with the keys that each number came from. */
typedef struct phasor_config phasor_config;
/* From the text of a config.json or of a plain spec; from a file, a folder or a GGUF file. */
PHASOR_API phasor_status phasor_config_parse(const char* text, size_t length, phasor_config** out);
PHASOR_API phasor_status phasor_config_read(const char* path, phasor_config** out);
PHASOR_API void phasor_config_destroy(phasor_config* config); /* NULL is fine */
/* As phasor_rope_from_config_text. */
PHASOR_API phasor_status phasor_rope_from_config(const phasor_config* config, const char* layer,
                                                 phasor_pair_layout layout, int64_t context,
                                                 phasor_rope** out);

/* Every layer's encoding, resolved. context 0: none. */
PHASOR_API phasor_status phasor_explain_json(const phasor_config* config, int64_t context,
                                             phasor_text** out);

/* All zeros but struct_size: hf, vllm and llama.cpp, at the config's own length. */
typedef struct {
  uint32_t struct_size;
  const char* between; /* names with commas between, as "hf,vllm"; NULL: "hf,vllm,llama.cpp" */
  const char* layer;   /* as phasor_rope_from_config_text; NULL: every group that rotates */
  int64_t context;     /* 0: max_position_embeddings */
  int64_t max_length;  /* what a server was started for; 0: what the config gives */
  int64_t shifts;      /* how often the stored keys were shifted */
} phasor_diff_options;
/* Where engines differ on a config. options NULL: the defaults. */
PHASOR_API phasor_status phasor_diff_json(const phasor_config* config,
                                          const phasor_diff_options* options, phasor_text** out);
/* Every engine's rules that phasor_diff_json knows. */
PHASOR_API phasor_status phasor_dialects_json(phasor_text** out);

/* Ways to a context of `to` tokens. trained 0: as the config says; layer as phasor_rope_from_config_text,
 * NULL: the only one, or full_attention. */
PHASOR_API phasor_status phasor_plan_json(const phasor_config* config, int64_t to, int64_t trained,
                                          const char* layer, phasor_text** out);

/* What rotated `before` into `after`, two views of one shape, only read. positions: of one axis; NULL:
 * ascending by one from an offset that is searched for. config: also say where the answer is not what
 * this layer asks for; NULL: none. context: for scalings that ask; 0: from the last position. */
PHASOR_API phasor_status phasor_diagnose_json(const phasor_heads* before, const phasor_heads* after,
                                              const phasor_positions* positions,
                                              const phasor_config* config, const char* layer,
                                              int64_t context, phasor_text** out);

/* How wrong another engine's table is. table: rows [row_count, pairs] with token_stride between rows,
 * batch_stride not read. positions [row_count, axis_count]; NULL: 0, 1, ... on every axis. context 0:
 * the largest position + 1 where the numbers depend on it. threshold: radians and relative amplitude,
 * the command's default is 1e-3. */
PHASOR_API phasor_status phasor_audit_json(const phasor_config* config, const char* layer,
                                           const phasor_cos_sin_rows* table, size_t row_count,
                                           const double* positions, size_t position_count,
                                           int64_t context, double threshold, phasor_text** out);

/* From a checkpoint's q and k weights alone, whether they are in interleaved or half order. */
PHASOR_API phasor_status phasor_weight_order_json(const char* path, phasor_text** out);
/* Tensors, types and sizes of a checkpoint, from its headers alone. */
PHASOR_API phasor_status phasor_describe_json(const char* path, phasor_text** out);
/* Copies a checkpoint's folder, its q and k weights put into the layout `to`. from:
 * PHASOR_LAYOUT_UNSET: as the config says. A call that fails after it began to write leaves a folder
 * marked as unfinished, which the same call continues. */
PHASOR_API phasor_status phasor_convert_checkpoint(const char* source, const char* destination,
                                                   phasor_pair_layout to, phasor_pair_layout from,
                                                   phasor_text** out);

#ifdef __cplusplus
}
#endif

#endif
