/* Reports about configs and checkpoints: what `phasor VERB --json` prints. phasor/phasor.h states what holds for every call. */
#ifndef PHASOR_C_PORTING_H
#define PHASOR_C_PORTING_H

#include "phasor/c/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Porting: what `phasor VERB --json` prints, one JSON object each ---- */

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
 * positions: of one axis, or of the config's axes; NULL: ascending by one from an unknown offset. config:
 * also whether the rotation is this layer's ("verdict") and which mistake it is if not ("cause"); NULL: no
 * comparison. context: for scalings that depend on it; 0:
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
