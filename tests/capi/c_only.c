/* Compiled by the C compiler; knows Phasor by phasor.h alone. */
#include "capi/c_only.h"

#include "phasor/phasor.h"

#define CHECK(condition) \
  if (!(condition)) return #condition

static float distance(float a, float b) { return a > b ? a - b : b - a; }

const char* phasor_c_walk(void) {
  phasor_rope_spec spec;
  phasor_rope* rope = NULL;
  phasor_table* table = NULL;
  phasor_rope_info info = {.struct_size = sizeof info};
  CHECK(phasor_rope_spec_init(&spec, sizeof spec) == PHASOR_OK);
  spec.head_dim = 4;
  spec.layout = PHASOR_HALF;
  CHECK(phasor_rope_create(&spec, 0, &rope) == PHASOR_OK);
  CHECK(phasor_rope_describe(rope, &info) == PHASOR_OK);
  CHECK(info.pairs == 2 && info.rotary_dim == 4 && info.layout == PHASOR_HALF &&
        info.amplitude == 1.0);
  CHECK(phasor_table_create(rope, -2, 8, PHASOR_ANGLES_EXACT, 1, &table) == PHASOR_OK);

  /* cos 1, sin 1 and cos 0.01, sin 0.01: position 1, frequencies 1 and 0.01. */
  float q[4] = {1.0F, 1.0F, 0.0F, 0.0F};
  const float expected[4] = {0.54030231F, 0.99995000F, 0.84147098F, 0.00999983F};
  const phasor_heads view = phasor_dense_heads(q, PHASOR_F32, 1, 1, 1, 4);
  const phasor_positions positions = phasor_positions_from(1);
  phasor_rotate_options options = {.struct_size = sizeof options, .table = table};
  CHECK(phasor_rotate_in_place(rope, &positions, &view, NULL, &options) == PHASOR_OK);
  for (int i = 0; i < 4; ++i) CHECK(distance(q[i], expected[i]) < 1e-7F);
  options.direction = PHASOR_INVERSE;
  CHECK(phasor_rotate_in_place(rope, &positions, &view, NULL, &options) == PHASOR_OK);
  CHECK(distance(q[0], 1.0F) < 1e-6F && distance(q[2], 0.0F) < 1e-6F);

  spec.rotary_dim = 3;
  phasor_rope* none = NULL;
  CHECK(phasor_rope_create(&spec, 0, &none) == PHASOR_INVALID_ARGUMENT);
  CHECK(none == NULL && phasor_last_error()[0] != '\0');
  phasor_table_destroy(table);
  phasor_rope_destroy(rope);
  phasor_table_destroy(NULL);
  phasor_rope_destroy(NULL);
  return NULL;
}

/* Two tokens, causal: the second query scores 0 and ln 3, so it weighs the values by 1/4 and 3/4. */
const char* phasor_c_attention_walk(void) {
  float q[4] = {5.0F, 7.0F, 1.0F, 0.0F}, k[4] = {0.0F, 0.0F, 1.09861229F, 0.0F};
  float v[4] = {1.0F, 0.0F, 0.0F, 1.0F}, out[4], log_sum_exp[2];
  float d_out[4] = {1.0F, 0.0F, 0.0F, 2.0F}, d_q[4], d_k[4], d_v[4];
  const phasor_heads q_view = phasor_dense_heads(q, PHASOR_F32, 1, 2, 1, 2);
  const phasor_heads k_view = phasor_dense_heads(k, PHASOR_F32, 1, 2, 1, 2);
  const phasor_heads v_view = phasor_dense_heads(v, PHASOR_F32, 1, 2, 1, 2);
  const phasor_heads out_view = phasor_dense_heads(out, PHASOR_F32, 1, 2, 1, 2);
  const phasor_heads d_out_view = phasor_dense_heads(d_out, PHASOR_F32, 1, 2, 1, 2);
  const phasor_heads d_q_view = phasor_dense_heads(d_q, PHASOR_F32, 1, 2, 1, 2);
  const phasor_heads d_k_view = phasor_dense_heads(d_k, PHASOR_F32, 1, 2, 1, 2);
  const phasor_heads d_v_view = phasor_dense_heads(d_v, PHASOR_F32, 1, 2, 1, 2);
  phasor_encoding* encoding = NULL;
  phasor_attend_options options = {.struct_size = sizeof options,
                                   .causality = PHASOR_CAUSAL,
                                   .threads = 1,
                                   .log_sum_exp = log_sum_exp,
                                   .log_sum_exp_count = 2};
  CHECK(phasor_encoding_parse("{\"encoding\": \"none\", \"scale\": 1}", NULL, &encoding) ==
        PHASOR_OK);
  CHECK(phasor_attend(encoding, &q_view, &k_view, &v_view, &out_view, &options) == PHASOR_OK);
  CHECK(distance(out[0], 1.0F) < 1e-6F && distance(out[1], 0.0F) < 1e-6F);
  CHECK(distance(out[2], 0.25F) < 1e-6F && distance(out[3], 0.75F) < 1e-6F);
  CHECK(distance(log_sum_exp[1], 1.38629436F) < 1e-6F);

  /* d_v = P^T d_out; dS of the second key = 3/4 (2 - 3/2), and d_q is that times ln 3. */
  CHECK(phasor_attend_backward(encoding, &q_view, &k_view, &v_view, &out_view, &d_out_view,
                               &d_q_view, &d_k_view, &d_v_view, &options) == PHASOR_OK);
  CHECK(distance(d_v[0], 1.0F) < 1e-6F && distance(d_v[1], 0.5F) < 1e-6F);
  CHECK(distance(d_v[2], 0.0F) < 1e-6F && distance(d_v[3], 1.5F) < 1e-6F);
  CHECK(distance(d_q[2], 0.375F * 1.09861229F) < 1e-6F && distance(d_k[2], 0.375F) < 1e-6F);
  phasor_encoding_destroy(encoding);
  phasor_encoding_destroy(NULL);

  /* Without a rope and with equal keys every value weighs the same. */
  k[2] = 0.0F;
  CHECK(phasor_linear_attend(NULL, &q_view, &k_view, &v_view, &out_view, NULL) == PHASOR_OK);
  for (int i = 0; i < 4; ++i) CHECK(distance(out[i], 0.5F) < 1e-6F);
  return NULL;
}
