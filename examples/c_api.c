/* Phasor from C: a plain spec, a table shared by every layer, queries and keys in one call; then a cache that
 * rotates keys as they come, for decoding. */
#include <stdio.h>
#include <stdlib.h>

#include "phasor/phasor.h"

enum { TOKENS = 4, QUERY_HEADS = 2, KEY_HEADS = 1, HEAD_DIM = 8 };

static int failed(phasor_status status) {
  if (status != PHASOR_OK) fprintf(stderr, "status %d: %s\n", (int)status, phasor_last_error());
  return status != PHASOR_OK;
}

/* Keys and values go into a cache as they are; a query of the last token attends to all of them. */
static int decode(const phasor_rope* rope, float* k, float* v, float* q, float* out) {
  const phasor_cache_spec spec = {.struct_size = sizeof spec,
                                  .dtype = PHASOR_F32,
                                  .batch = 1,
                                  .key_heads = KEY_HEADS,
                                  .head_dim = HEAD_DIM,
                                  .value_dim = HEAD_DIM,
                                  .capacity = 4096,
                                  .rope = rope};
  const phasor_heads k_view = phasor_dense_heads(k, PHASOR_F32, 1, TOKENS, KEY_HEADS, HEAD_DIM);
  const phasor_heads v_view = phasor_dense_heads(v, PHASOR_F32, 1, TOKENS, KEY_HEADS, HEAD_DIM);
  const phasor_heads q_view = phasor_dense_heads(q, PHASOR_F32, 1, 1, QUERY_HEADS, HEAD_DIM);
  const phasor_heads out_view = phasor_dense_heads(out, PHASOR_F32, 1, 1, QUERY_HEADS, HEAD_DIM);
  const phasor_attend_options options = {.struct_size = sizeof options, .causality = PHASOR_CAUSAL};
  phasor_cache* cache = NULL;
  const int bad = failed(phasor_cache_create(&spec, &cache)) ||
                  failed(phasor_cache_append(cache, &k_view, &v_view, NULL, 0)) ||
                  failed(phasor_cache_attend(cache, NULL, &q_view, &out_view, &options));
  phasor_cache_destroy(cache);
  return bad;
}

int main(void) {
  float q[TOKENS * QUERY_HEADS * HEAD_DIM];
  float k[TOKENS * KEY_HEADS * HEAD_DIM];
  for (size_t i = 0; i < sizeof q / sizeof *q; ++i) q[i] = 1.0F;
  for (size_t i = 0; i < sizeof k / sizeof *k; ++i) k[i] = 1.0F;
  float v[TOKENS * KEY_HEADS * HEAD_DIM], out[QUERY_HEADS * HEAD_DIM];
  for (size_t i = 0; i < sizeof v / sizeof *v; ++i) v[i] = 1.0F;

  phasor_rope_spec spec;
  phasor_rope_spec_init(&spec, sizeof spec);
  spec.head_dim = HEAD_DIM;
  spec.layout = PHASOR_INTERLEAVED;

  phasor_rope* rope = NULL;
  phasor_table* table = NULL;
  int bad = failed(phasor_rope_create(&spec, 0, &rope)) ||
            failed(phasor_table_create(rope, 0, 4096, PHASOR_ANGLES_EXACT, 0, &table)) ||
            decode(rope, k, v, q, out);
  if (!bad) {
    const phasor_heads q_view = phasor_dense_heads(q, PHASOR_F32, 1, TOKENS, QUERY_HEADS, HEAD_DIM);
    const phasor_heads k_view = phasor_dense_heads(k, PHASOR_F32, 1, TOKENS, KEY_HEADS, HEAD_DIM);
    const phasor_positions positions = phasor_positions_from(0);
    const phasor_rotate_options options = {.struct_size = sizeof options, .table = table};
    bad = failed(phasor_rotate_in_place(rope, &positions, &q_view, &k_view, &options));
  }
  for (int token = 0; !bad && token < TOKENS; ++token) {
    printf("token %d: (%9.6f, %9.6f)\n", token, (double)k[token * HEAD_DIM],
           (double)k[token * HEAD_DIM + 1]);
  }
  /* Weights add up to one, so equal values come out as they went in. */
  if (!bad) printf("attended: %9.6f\n", (double)out[0]);
  phasor_table_destroy(table);
  phasor_rope_destroy(rope);
  return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
