/* Phasor in C11: rotary position embedding of any type, exact, at memory speed, and attention with
 * every encoding of position.
 *
 * Every function that can fail returns a phasor_status and leaves its outputs untouched when it
 * does; phasor_last_error() then says what was expected and what came. No C++ exception crosses
 * this header. Handles are immutable: threads may share them, and destroy each once. Array lengths
 * are given as counts of elements.
 *
 * Structs that may grow begin with struct_size, which the caller sets to sizeof the struct (the
 * _init and phasor_positions_* functions do it). Choices are int32_t rather than enum types, so
 * that a number outside the list is refused instead of undefined.
 */
#ifndef PHASOR_PHASOR_H
#define PHASOR_PHASOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
const char* phasor_last_error(void);
const char* phasor_version(void); /* "0.1.0" */

/* ---- Choices
 * ---------------------------------------------------------------------------------------------- */

typedef int32_t phasor_pair_layout;
enum {
  PHASOR_LAYOUT_UNSET = -1,       /* nobody said: refused by whatever needs a layout */
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
phasor_status phasor_resolve_instruction_set(phasor_instruction_set isa,
                                             phasor_instruction_set* out);

/* ---- What to turn by: a rope
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
  PHASOR_SCALING_PROPORTIONAL, /* factor, proportion */
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
 */
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

/* Sets struct_size and the values named "init" above, the rest to 0. */
phasor_status phasor_rope_spec_init(phasor_rope_spec* spec, size_t struct_size);

typedef struct phasor_rope
    phasor_rope; /* frequencies, amplitude, axes, layout: a spec at one context length */

/* context: how many tokens the sequence has, for scalings that ask; 0: not given. */
phasor_status phasor_rope_create(const phasor_rope_spec* spec, int64_t context, phasor_rope** out);
/* From the text of a Hugging Face config.json, or of a plain spec {"head_dim": 128, "layout":
 * "half", ...}. layer: an index ("3") or a layer type ("full_attention"); NULL while all layers are
 * alike. layout: overrides the config's; PHASOR_LAYOUT_UNSET: as the config says. */
phasor_status phasor_rope_from_config_text(const char* text, size_t length, const char* layer,
                                           phasor_pair_layout layout, int64_t context,
                                           phasor_rope** out);
/* The same from a file, or from a folder that holds config.json. */
phasor_status phasor_rope_from_config_file(const char* path, const char* layer,
                                           phasor_pair_layout layout, int64_t context,
                                           phasor_rope** out);
void phasor_rope_destroy(phasor_rope* rope); /* NULL is fine */

typedef struct {
  uint32_t struct_size; /* set by the caller; the rest is filled in */
  phasor_pair_layout layout;
  int64_t head_dim;
  int64_t rotary_dim;
  int64_t rotary_offset;
  int64_t pairs;      /* rotary_dim / 2 frequencies */
  int64_t axis_count; /* rows of positions that are needed */
  int64_t blocks;     /* 2 where each half of the window is paired by itself, else 1 */
  double amplitude;
} phasor_rope_info;
phasor_status phasor_rope_describe(const phasor_rope* rope, phasor_rope_info* info);
/* count must be `pairs`. */
phasor_status phasor_rope_frequencies(const phasor_rope* rope, double* frequencies, size_t count);
phasor_status phasor_rope_axes(const phasor_rope* rope, uint8_t* axes, size_t count);

/* cos and sin of one token's angles, times the amplitude. positions [axis_count]; cos, sin [count],
 * count = pairs */
phasor_status phasor_cos_sin_f32(const phasor_rope* rope, const double* positions,
                                 size_t position_count, phasor_angle_mode angles, float* cos,
                                 float* sin, size_t count);
phasor_status phasor_cos_sin_f64(const phasor_rope* rope, const double* positions,
                                 size_t position_count, double* cos, double* sin, size_t count);

/* ---- Tables
 * -----------------------------------------------------------------------------------------------
 */

typedef struct phasor_table phasor_table; /* cos and sin of positions [first, first + count) */

/* threads  0: as many as help; n: at most n */
phasor_status phasor_table_create(const phasor_rope* rope, int64_t first, int64_t count,
                                  phasor_angle_mode angles, int32_t threads, phasor_table** out);
/* A new table of another range, sharing what both hold; the old one stays as it is. */
phasor_status phasor_table_grow(const phasor_table* table, int64_t first, int64_t count,
                                int32_t threads, phasor_table** out);
/* From rows that the caller already has: cos, sin [rows, pairs]; row r serves position first + r.
 */
phasor_status phasor_table_from_rows(const float* cos, const float* sin, size_t rows, size_t pairs,
                                     int64_t first, phasor_table** out);
phasor_status phasor_table_range(const phasor_table* table, int64_t* first, int64_t* count);
/* The rows of one position, [pairs] each, good while the table lives. */
phasor_status phasor_table_rows(const phasor_table* table, int64_t position, const float** cos,
                                const float** sin, size_t* pairs);
void phasor_table_destroy(phasor_table* table); /* NULL is fine */

/* ---- Turning
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
  PHASOR_POSITIONS_OFFSET = 0, /* token t stands at offset + t */
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

/* One tensor to turn; in place when `in` is NULL or equal to `out`. This struct never grows. */
typedef struct {
  const phasor_heads* in; /* only read */
  const phasor_heads* out;
  phasor_role role;
} phasor_turn;

/* Turns queries, keys, or both in one call, RoFormer (34). options NULL: the defaults.
 * Views that overlap without being the same view are refused. Nothing is written on failure. */
phasor_status phasor_rotate(const phasor_rope* rope, const phasor_positions* positions,
                            const phasor_turn* turns, size_t turn_count,
                            const phasor_rotate_options* options);
/* q and k in place; k NULL: q alone. */
phasor_status phasor_rotate_in_place(const phasor_rope* rope, const phasor_positions* positions,
                                     const phasor_heads* q, const phasor_heads* k,
                                     const phasor_rotate_options* options);

/* Keys that were turned by `from` at from_positions, turned again to stand as if by `to` at
 * to_positions. */
phasor_status phasor_rerotate(const phasor_rope* from, const phasor_positions* from_positions,
                              const phasor_rope* to, const phasor_positions* to_positions,
                              const phasor_heads* keys, int32_t threads);

/* ---- Long-term decay, RoFormer (35)-(37): one value per distance
 * ------------------------------------------ */

phasor_status phasor_mean_partial_sums(const phasor_rope* rope, const double* distances,
                                       size_t count, double* out);
/* q, k [feature_count], feature_count = rotary_dim, pair i = features (2i, 2i + 1) */
phasor_status phasor_abel_bounds(const phasor_rope* rope, const double* q, const double* k,
                                 size_t feature_count, const double* distances, size_t count,
                                 double* out);
phasor_status phasor_rotated_scores(const phasor_rope* rope, const double* q, const double* k,
                                    size_t feature_count, const double* distances, size_t count,
                                    double* out);

typedef int32_t phasor_query_key;
enum { PHASOR_INDEPENDENT = 0, PHASOR_EQUAL = 1 };
/* Mean score of queries and keys whose features have this mean and variance. */
phasor_status phasor_mean_rotated_scores(const phasor_rope* rope, double mean, double variance,
                                         phasor_query_key relation, const double* distances,
                                         size_t count, double* out);

/* ---- Attention
 * ---------------------------------------------------------------------------------------------- */

typedef struct phasor_encoding phasor_encoding; /* with the trained numbers of its tables */

/* From JSON as `phasor attend --encoding` reads it: {"encoding": "t5", ...}, or a rope's config. json
 * ends with a 0; tables named as .npy files are looked for in `folder` (NULL: the current one) and read
 * now. What depends on the number of tokens (XLNet's first_distance, how many rows are sinusoidal) must
 * be said. */
phasor_status phasor_encoding_parse(const char* json, const char* folder, phasor_encoding** out);
void phasor_encoding_destroy(phasor_encoding* encoding); /* NULL is fine */

typedef int32_t phasor_causality;
enum {
  PHASOR_NOT_CAUSAL = 0, /* every query sees every key */
  PHASOR_CAUSAL = 1,     /* query i of Nq sees keys 0 .. Nk - Nq + i */
};

/* All zeros but struct_size: not causal, the encoding's own scale, threads where they help. */
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
} phasor_attend_options;

/* RoFormer (2) with the encoding's terms, in tiles: memory grows with the number of tokens, not with its
 * square. encoding NULL: none; options NULL: the defaults.
 * q [batch, Nq, heads, d], k [batch, Nk, key_heads, d], v [batch, Nk, key_heads, dv],
 * out [batch, Nq, heads, dv]; heads a multiple of key_heads; f32, f16 or bf16, each its own, or all
 * f64: arithmetic is then float64, in plain loops.
 * A query that sees no key gets zeros. out must not overlap an input. */
phasor_status phasor_attend(const phasor_encoding* encoding, const phasor_heads* q,
                            const phasor_heads* k, const phasor_heads* v, const phasor_heads* out,
                            const phasor_attend_options* options);
/* The gradients of sum(out * d_out) with respect to q, k and v, overwritten; types as phasor_attend.
 * `out` and log_sum_exp (f64: wide_log_sum_exp) are what phasor_attend wrote for the same arguments. The
 * gradients of the encoding's own tables are in
 * the C++ API alone: here an encoding is read, not trained. */
phasor_status phasor_attend_backward(const phasor_encoding* encoding, const phasor_heads* q,
                                     const phasor_heads* k, const phasor_heads* v,
                                     const phasor_heads* out, const phasor_heads* d_out,
                                     const phasor_heads* d_q, const phasor_heads* d_k,
                                     const phasor_heads* d_v, const phasor_attend_options* options);

typedef int32_t phasor_feature_map;
enum {
  PHASOR_ELU_PLUS_ONE = 0, /* elu(x) + 1, for queries and keys */
  PHASOR_SOFTMAX_EXP = 1,  /* queries: softmax over the features; keys: exp */
};

/* All zeros but struct_size: not causal, elu + 1, threads where they help. */
typedef struct {
  uint32_t struct_size;
  phasor_causality causality;
  phasor_feature_map features;
  int32_t threads;
  phasor_instruction_set isa;
} phasor_linear_options;

/* RoFormer (19): the numerator turned by `rope` (NULL: (18), no turn), the denominator not. Shapes as
 * phasor_attend. */
phasor_status phasor_linear_attend(const phasor_rope* rope, const phasor_heads* q,
                                   const phasor_heads* k, const phasor_heads* v,
                                   const phasor_heads* out, const phasor_linear_options* options);

/* ---- Threads
 * ---------------------------------------------------------------------------------------------- */

/* The CPUs that this process may use: those of its affinity mask, and no more than the quota of its
 * control group. While a parallel-for with `threads` is set, that number. */
int32_t phasor_available_threads(void);

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
phasor_status phasor_set_parallel_for(const phasor_parallel_for* parallel_for);

/* ---- Models
 * ---------------------------------------------------------------------------------------------- */

/* A decoder from a folder of config.json and safetensors, or from a GGUF file. */
typedef struct phasor_model phasor_model;
/* Keys and values of one sequence of a model; destroy it before the model. */
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

phasor_status phasor_model_load(const char* path, const phasor_model_options* options,
                                phasor_model** out);
void phasor_model_destroy(phasor_model* model);             /* NULL is fine */
int64_t phasor_model_vocabulary(const phasor_model* model); /* 0 for NULL */
/* Room for `capacity` tokens. */
phasor_status phasor_sequence_create(const phasor_model* model, int64_t capacity,
                                     phasor_sequence** out);
void phasor_sequence_destroy(phasor_sequence* sequence); /* NULL is fine */
/* Keeps the first `tokens`. */
phasor_status phasor_sequence_truncate(phasor_sequence* sequence, int64_t tokens);
/* Runs `count` ids behind those that the sequence has. The last token's logits, [vocabulary], are written
 * where logits is not NULL. One call at a time for a model. */
phasor_status phasor_model_forward(phasor_model* model, phasor_sequence* sequence,
                                   const int64_t* ids, size_t count, float* logits,
                                   size_t logits_count);

#ifdef __cplusplus
}
#endif

#endif
