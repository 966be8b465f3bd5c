/* Phasor in C11: exact rotary position embedding (RoPE) of every type, at memory speed; attention with
 * every position encoding, KV caches, decoder models, tokenizers, and reports about a config.
 *
 * Failure   Every function that can fail returns a phasor_status and leaves its outputs untouched when
 *           it does: arrays, *out and handles are unchanged. phasor_last_error() then returns one
 *           line that shows the value that was wrong. One exception: after PHASOR_INTERNAL (out of
 *           memory during a computation) and PHASOR_CANCELLED arrays of numbers may be partly written;
 *           *out and handles are unchanged even then. No C++ exception leaves a function of this
 *           header.
 * Threads   A function that takes a handle as a pointer to const only reads it: any number of threads
 *           may call such functions on one handle at the same time. A function that takes a pointer to
 *           non-const changes the handle, as _destroy does: no other call may use that handle
 *           meanwhile. phasor_rope, phasor_table, phasor_encoding, phasor_config, phasor_tokenizer,
 *           phasor_text and phasor_ids never change and can be shared freely. phasor_model runs one
 *           forward or generate at a time.
 * Memory    What a _create, _parse, _load or _fork function returns belongs to the caller, who calls
 *           the _destroy function of its type once. A handle keeps no pointer to the arrays and
 *           handles it was made from, with one exception: a phasor_sequence needs its phasor_model.
 * Arrays    Lengths are counts of elements.
 * Structs   A struct that may grow in later versions begins with struct_size, which the caller sets to
 *           sizeof the struct (the _init and phasor_positions_* functions do it). Every size since the
 *           struct's first version is accepted, up to 1024 bytes: members that an older caller does not have get their
 *           default, members that only a newer caller has must be 0. The library never writes beyond
 *           the caller's struct_size. Structs without struct_size never grow.
 * Choices   int32_t rather than enum types, so that a number outside the list is an error instead of
 *           undefined behaviour.
 */
#ifndef PHASOR_PHASOR_H
#define PHASOR_PHASOR_H

#include <stddef.h>
#include <stdint.h>

#include "phasor/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; phasor_version() returns the library's. While MAJOR is 0, a library works
 * with programs that were built with the same MINOR. */
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
  PHASOR_INTERNAL, /* also when memory runs out */
  PHASOR_CANCELLED /* phasor_cancellation_request() */
} phasor_status;

/* This thread's last error, as one line of text; "" before the first. Valid until the thread's next
 * error. */
PHASOR_API const char* phasor_last_error(void);
PHASOR_API const char* phasor_version(void);    /* "0.1.0" */
PHASOR_API int32_t phasor_version_number(void); /* PHASOR_VERSION_NUMBER of the library */

/* ---- Results of unknown length
 * ---------------------------------------------------------------------------------------------- */

/* Text made by the library: JSON, decoded tokens. A handle rather than a caller's buffer, because the
 * length is known only after the work is done. */
typedef struct phasor_text phasor_text;
PHASOR_API const char* phasor_text_data(
    const phasor_text* text);                                /* UTF-8, ends with a 0; "" for NULL */
PHASOR_API size_t phasor_text_size(const phasor_text* text); /* bytes before that 0; 0 for NULL */
PHASOR_API void phasor_text_destroy(phasor_text* text);      /* NULL: does nothing */

/* Token ids made by the library. */
typedef struct phasor_ids phasor_ids;
PHASOR_API const int64_t* phasor_ids_data(
    const phasor_ids* ids);                                /* NULL for NULL; not NULL for no id */
PHASOR_API size_t phasor_ids_count(const phasor_ids* ids); /* 0 for NULL */
PHASOR_API void phasor_ids_destroy(phasor_ids* ids);       /* NULL: does nothing */

/* ---- Choices
 * ---------------------------------------------------------------------------------------------- */

typedef int32_t phasor_pair_layout;
enum {
  PHASOR_LAYOUT_UNSET = -1,       /* not chosen: an error where a layout is needed */
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
  PHASOR_ANGLES_FLOAT32 = 1, /* float32 at every step, rounded as other engines round */
};

typedef int32_t phasor_dtype;
enum { PHASOR_F64 = 0, PHASOR_F32 = 1, PHASOR_F16 = 2, PHASOR_BF16 = 3 };
/* Sixteen-bit floats as bit patterns. From float: rounded to nearest, ties to even; NaN stays NaN. */
PHASOR_API float phasor_f16_to_float(uint16_t bits);
PHASOR_API float phasor_bf16_to_float(uint16_t bits);
PHASOR_API uint16_t phasor_float_to_f16(float value);
PHASOR_API uint16_t phasor_float_to_bf16(float value);

typedef int32_t phasor_role;
enum { PHASOR_QUERY = 0, PHASOR_KEY = 1 }; /* they differ under xPos only */

typedef int32_t phasor_instruction_set;
enum {
  PHASOR_ISA_BEST = 0, /* the highest level that this CPU has */
  PHASOR_ISA_GENERIC = 1,
  PHASOR_ISA_X86_64_V2 = 2,
  PHASOR_ISA_X86_64_V3 = 3,
  PHASOR_ISA_X86_64_V4 = 4,
};
/* The level that a choice selects on this machine; PHASOR_UNSUPPORTED if this CPU or this build does
 * not have it. */
PHASOR_API phasor_status phasor_resolve_instruction_set(phasor_instruction_set isa,
                                                        phasor_instruction_set* out);

/* ---- RoPE: a specification, and a rope made from it
 * ------------------------------------------------------------------------------ */

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

/* ---- Tables
 * -----------------------------------------------------------------------------------------------
 */

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

/* ---- Rotation
 * ---------------------------------------------------------------------------------------------- */

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

/* ---- Long-term decay, RoFormer (35)-(37): one value for each distance
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
} phasor_linear_options;

/* RoFormer (19): the numerator is rotated by `rope` (NULL: (18), no rotation), the denominator is not.
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
 * does not depend on their number. */
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
 * are added to the state. options must have PHASOR_CAUSAL; q has as many tokens as k; rope, sizes and
 * features as in earlier calls; not f64. On failure the state is unchanged. */
PHASOR_API phasor_status phasor_linear_continue(phasor_linear_state* state, const phasor_rope* rope,
                                                const phasor_heads* q, const phasor_heads* k,
                                                const phasor_heads* v, const phasor_heads* out,
                                                const phasor_linear_options* options);

/* ---- KV cache
 * ---------------------------------------------------------------------------------------------- */

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

/* ---- Threads
 * ---------------------------------------------------------------------------------------------- */

/* The CPUs that this process may use: those of its affinity mask, and no more than the quota of its
 * control group. While a parallel-for with `threads` is set, that number. */
PHASOR_API int32_t phasor_available_threads(void);

/* A parallel-for of the program, so that the program and Phasor share one set of threads. `run` calls
 * task(context, part, parts) exactly once for each part in [0, parts), on any threads and in any
 * order, and returns when all are done. Several threads may call it at once, and a task may call it
 * again. If a part is not run exactly once, the Phasor call fails with PHASOR_INTERNAL and its outputs
 * are undefined. */
typedef struct {
  uint32_t struct_size;
  int32_t threads; /* the value of phasor_available_threads(); 0: as without a parallel-for */
  void (*run)(void* user, int32_t parts, void (*task)(void* context, int32_t part, int32_t parts),
              void* context);
  void* user;
} phasor_parallel_for;

/* Runs the parts of all later calls with `parallel_for`, or on Phasor's own threads if it is NULL.
 * Calls that have started keep the previous one: `user` must stay valid until they return. */
PHASOR_API phasor_status phasor_set_parallel_for(const phasor_parallel_for* parallel_for);

/* ---- Cancellation
 * ---------------------------------------------------------------------------------------------- */

/* A request to stop. Calls of a thread that watches it, and the threads that work for them, look at it
 * every few milliseconds and return PHASOR_CANCELLED once it is requested, until it is reset. */
typedef struct phasor_cancellation phasor_cancellation;
PHASOR_API phasor_status phasor_cancellation_create(phasor_cancellation** out);
/* From any thread, or from a signal handler. NULL: does nothing. */
PHASOR_API void phasor_cancellation_request(phasor_cancellation* cancellation);
PHASOR_API void phasor_cancellation_reset(phasor_cancellation* cancellation);
/* No other thread may watch it any more; the calling one then watches nothing. NULL: does nothing. */
PHASOR_API void phasor_cancellation_destroy(phasor_cancellation* cancellation);
/* What later calls of this thread watch; NULL: nothing. */
PHASOR_API void phasor_set_cancellation(const phasor_cancellation* cancellation);

/* ---- Models
 * ---------------------------------------------------------------------------------------------- */

/* A decoder from a folder of config.json and safetensors, or from a GGUF file. */
typedef struct phasor_model phasor_model;
/* Keys and values of one sequence of a model; destroy it before the model. A call that fails leaves it
 * unchanged. */
typedef struct phasor_sequence phasor_sequence;

typedef int32_t phasor_precision;
enum {
  PHASOR_EXACT = 0, /* float32 activations */
  PHASOR_FAST = 1,  /* activations are rounded to eight bits before quantised weights */
};

/* All zeros except struct_size: exact, threads as useful. */
typedef struct {
  uint32_t struct_size;
  phasor_precision precision;
  int32_t threads;
  phasor_instruction_set isa;
} phasor_model_options;

PHASOR_API phasor_status phasor_model_load(const char* path, const phasor_model_options* options,
                                           phasor_model** out);
PHASOR_API void phasor_model_destroy(phasor_model* model);             /* NULL: does nothing */
PHASOR_API int64_t phasor_model_vocabulary(const phasor_model* model); /* 0 for NULL */

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in, unknown members with 0 */
  int64_t layers, hidden, vocabulary;
  int64_t heads, key_heads, head_dim;
  int64_t trained_length; /* tokens; 0: unknown */
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
PHASOR_API void phasor_sequence_destroy(phasor_sequence* sequence);         /* NULL: does nothing */
PHASOR_API int64_t phasor_sequence_tokens(const phasor_sequence* sequence); /* 0 for NULL */
/* Keeps the first `tokens`. */
PHASOR_API phasor_status phasor_sequence_truncate(phasor_sequence* sequence, int64_t tokens);
/* Removes tokens [keep, keep + drop), moves later tokens to their positions and rotates their keys to
 * match. */
PHASOR_API phasor_status phasor_sequence_shift(phasor_sequence* sequence, int64_t keep,
                                               int64_t drop);
/* Runs `count` more ids of the sequence. The last token's logits, [vocabulary], are written unless
 * logits is NULL. One call at a time per model, of this and of phasor_generate. Numbers that exceed
 * float32 are PHASOR_OUT_OF_RANGE, with the first layer where they do; the sequence is unchanged. */
PHASOR_API phasor_status phasor_model_forward(phasor_model* model, phasor_sequence* sequence,
                                              const int64_t* ids, size_t count, float* logits,
                                              size_t logits_count);

typedef int32_t phasor_window_full;
enum {
  PHASOR_WINDOW_REFUSE = 0, /* an error, before anything runs, if prompt and answer do not fit */
  PHASOR_WINDOW_SHIFT = 1,  /* remove the oldest half after the first `keep` tokens */
};

/* Filters apply in this order: repetition penalty, temperature, top_k, top_p, min_p. */
typedef struct {
  uint32_t struct_size;
  phasor_window_full when_full;
  int64_t tokens;            /* at most; init: 128 */
  double temperature;        /* init: 0, always the largest logit */
  int64_t top_k;             /* 0: all */
  double top_p;              /* init: 1 */
  double min_p;              /* init: 0 */
  double repetition_penalty; /* init: 1 */
  int64_t repetition_window; /* the last tokens that count as seen; 0: all; init: 64 */
  uint64_t seed;
  const int64_t*
      stops; /* [stop_count] ids that end the answer, besides those of the model's config */
  size_t stop_count;
  int64_t context; /* tokens of the window; 0: the trained length, or as many as needed */
  int64_t keep;    /* the first tokens that no shift removes; init: 4 */
  int64_t chunk;   /* prompt tokens per forward pass; init: 512 */
} phasor_generate_options;
/* Sets struct_size and the values named "init" above, the rest to 0; writes struct_size bytes. */
PHASOR_API phasor_status phasor_generate_options_init(phasor_generate_options* options,
                                                      size_t struct_size);

/* Called with each new token; returning 0 ends the answer. It must not call the same model. */
typedef int32_t (*phasor_on_token)(void* user, int64_t id);
/* Generates an answer to the ids of a prompt; the ids that end it are left out. options NULL: the values
 * named "init"; on_token NULL: none. The same seed gives the same answer on every machine. To keep the
 * keys and values of a conversation, call phasor_model_forward on one sequence instead. */
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
PHASOR_API void phasor_tokenizer_destroy(phasor_tokenizer* tokenizer); /* NULL: does nothing */
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
/* The ids of a prompt: special texts are parsed, and the begin token is added if the model was trained
 * with one. */
PHASOR_API phasor_status phasor_tokenizer_encode_prompt(const phasor_tokenizer* tokenizer,
                                                        const char* text, size_t length,
                                                        phasor_ids** out);
/* The text of all ids, without special tokens; bytes that are not UTF-8 become U+FFFD. */
PHASOR_API phasor_status phasor_tokenizer_decode(const phasor_tokenizer* tokenizer,
                                                 const int64_t* ids, size_t count,
                                                 phasor_text** out);
/* The bytes of one token, which may be part of a character; of a special token its text. */
PHASOR_API phasor_status phasor_tokenizer_piece(const phasor_tokenizer* tokenizer, int64_t id,
                                                phasor_text** out);
/* The id of the token with exactly this text; -1 if there is none. */
PHASOR_API phasor_status phasor_tokenizer_find(const phasor_tokenizer* tokenizer, const char* token,
                                               size_t length, int64_t* id);

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in, unknown members with 0 */
  int32_t add_begin;    /* 1: a prompt starts with `begin` */
  int64_t begin, end, pad, unknown, mask, classify, separate; /* -1: not in the vocabulary */
} phasor_special_tokens;
PHASOR_API phasor_status phasor_tokenizer_specials(const phasor_tokenizer* tokenizer,
                                                   phasor_special_tokens* specials);
/* The ids that end an answer: `end` and those that end a turn of a conversation. */
PHASOR_API phasor_status phasor_tokenizer_stops(const phasor_tokenizer* tokenizer,
                                                phasor_ids** out);

/* ---- Porting: what `phasor VERB --json` prints, one JSON object each
 * ---------------------------------------------------------------------------------------------- */

/* A config, with the key that each number was read from. */
typedef struct phasor_config phasor_config;
/* From the text of a config.json or of a plain spec; from a file, a folder or a GGUF file. */
PHASOR_API phasor_status phasor_config_parse(const char* text, size_t length, phasor_config** out);
PHASOR_API phasor_status phasor_config_read(const char* path, phasor_config** out);
PHASOR_API void phasor_config_destroy(phasor_config* config); /* NULL: does nothing */
/* As phasor_rope_from_config_text. */
PHASOR_API phasor_status phasor_rope_from_config(const phasor_config* config, const char* layer,
                                                 phasor_pair_layout layout, int64_t context,
                                                 phasor_rope** out);

/* The resolved encoding of every layer. context 0: unknown. */
PHASOR_API phasor_status phasor_explain_json(const phasor_config* config, int64_t context,
                                             phasor_text** out);

/* All zeros except struct_size: hf, vllm and llama.cpp, at the config's own length. */
typedef struct {
  uint32_t struct_size;
  const char* between; /* names separated by commas, as "hf,vllm"; NULL: "hf,vllm,llama.cpp" */
  const char* layer;   /* as phasor_rope_from_config_text; NULL: every group that rotates */
  int64_t context;     /* 0: max_position_embeddings */
  int64_t max_length;  /* maximum length that a server was started with; 0: the config's */
  int64_t shifts;      /* how many times the cached keys were shifted */
} phasor_diff_options;
/* Where engines differ on a config. options NULL: the defaults. */
PHASOR_API phasor_status phasor_diff_json(const phasor_config* config,
                                          const phasor_diff_options* options, phasor_text** out);
/* The rules of every engine that phasor_diff_json compares. */
PHASOR_API phasor_status phasor_dialects_json(phasor_text** out);

/* Ways to extend the context to `to` tokens. trained 0: the config's; layer as
 * phasor_rope_from_config_text, NULL: the only one, or full_attention. */
PHASOR_API phasor_status phasor_plan_json(const phasor_config* config, int64_t to, int64_t trained,
                                          const char* layer, phasor_text** out);

/* Finds the rotation that made `after` from `before`, two views of the same shape, only read.
 * positions: of one axis; NULL: ascending by one from an unknown offset. config: also reports how the
 * rotation differs from this layer's; NULL: no comparison. context: for scalings that depend on it; 0:
 * from the last position. */
PHASOR_API phasor_status phasor_diagnose_json(const phasor_heads* before, const phasor_heads* after,
                                              const phasor_positions* positions,
                                              const phasor_config* config, const char* layer,
                                              int64_t context, phasor_text** out);

/* Measures the errors of another engine's cos/sin table. table: rows [row_count, pairs] with
 * token_stride between rows, batch_stride is not read. positions [row_count, axis_count]; NULL: 0, 1, ... on every axis. context 0:
 * the largest position + 1, if the numbers depend on it. threshold: radians and relative amplitude; the
 * default of the command is 1e-3. */
PHASOR_API phasor_status phasor_audit_json(const phasor_config* config, const char* layer,
                                           const phasor_cos_sin_rows* table, size_t row_count,
                                           const double* positions, size_t position_count,
                                           int64_t context, double threshold, phasor_text** out);

/* Finds out whether a checkpoint's q and k weights are in interleaved or half order. */
PHASOR_API phasor_status phasor_weight_order_json(const char* path, phasor_text** out);
/* Tensors, types and sizes of a checkpoint; only its headers are read. */
PHASOR_API phasor_status phasor_describe_json(const char* path, phasor_text** out);
/* Copies a checkpoint's folder and permutes its q and k weights to the layout `to`. from:
 * PHASOR_LAYOUT_UNSET: the config's. A call that fails while it writes leaves a folder marked as
 * unfinished; the same call then resumes. */
PHASOR_API phasor_status phasor_convert_checkpoint(const char* source, const char* destination,
                                                   phasor_pair_layout to, phasor_pair_layout from,
                                                   phasor_text** out);

#ifdef __cplusplus
}
#endif

#endif
