/* Decoder models, generation and tokenizers. phasor/phasor.h states what holds for every call. */
#ifndef PHASOR_C_MODELS_H
#define PHASOR_C_MODELS_H

#include "phasor/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Models ---- */

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

/* ---- Tokenizers ---- */

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

#ifdef __cplusplus
}
#endif

#endif
