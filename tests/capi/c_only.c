/* Compiled by the C compiler; knows Phasor by phasor.h alone. */
#include "capi/c_only.h"

#include <signal.h>

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

const char* phasor_c_cache_walk(void) {
  phasor_rope_spec spec;
  phasor_rope* rope = NULL;
  phasor_cache* cache = NULL;
  phasor_cache_info info = {.struct_size = sizeof info};
  CHECK(phasor_rope_spec_init(&spec, sizeof spec) == PHASOR_OK);
  spec.head_dim = 4;
  spec.layout = PHASOR_HALF;
  CHECK(phasor_rope_create(&spec, 0, &rope) == PHASOR_OK);
  const phasor_cache_spec cache_spec = {.struct_size = sizeof cache_spec,
                                        .dtype = PHASOR_F32,
                                        .batch = 1,
                                        .key_heads = 1,
                                        .head_dim = 4,
                                        .value_dim = 2,
                                        .capacity = 8,
                                        .rope = rope};
  CHECK(phasor_cache_create(&cache_spec, &cache) == PHASOR_OK);

  /* Two tokens with equal keys of length 0: each value weighs one half. */
  float k[8] = {0.0F}, v[4] = {1.0F, 2.0F, 3.0F, 6.0F}, q[4] = {1.0F, 2.0F, 3.0F, 4.0F}, out[2];
  const phasor_heads k_view = phasor_dense_heads(k, PHASOR_F32, 1, 2, 1, 4);
  const phasor_heads v_view = phasor_dense_heads(v, PHASOR_F32, 1, 2, 1, 2);
  const phasor_heads q_view = phasor_dense_heads(q, PHASOR_F32, 1, 1, 1, 4);
  const phasor_heads out_view = phasor_dense_heads(out, PHASOR_F32, 1, 1, 1, 2);
  CHECK(phasor_cache_append(cache, &k_view, &v_view, NULL, 1) == PHASOR_OK);
  CHECK(phasor_cache_attend(cache, NULL, &q_view, &out_view, NULL) == PHASOR_OK);
  CHECK(distance(out[0], 2.0F) < 1e-6F && distance(out[1], 4.0F) < 1e-6F);
  CHECK(phasor_cache_evict(cache, 0, 1) == PHASOR_OK);
  CHECK(phasor_cache_shift(cache, 0, 1, -1, 1) == PHASOR_OK);
  CHECK(phasor_cache_describe(cache, &info) == PHASOR_OK);
  CHECK(info.tokens == 1 && info.next_position == 1 && info.capacity == 8);

  /* A mask that hides the first key. */
  const unsigned char seen[2] = {0, 1};
  const phasor_mask mask = phasor_dense_mask(seen, PHASOR_MASK_BOOLEAN, 1, 1, 1, 2);
  const phasor_attend_options options = {.struct_size = sizeof options, .mask = &mask};
  CHECK(phasor_attend(NULL, &q_view, &k_view, &v_view, &out_view, &options) == PHASOR_OK);
  CHECK(distance(out[0], 3.0F) < 1e-6F && distance(out[1], 6.0F) < 1e-6F);

  /* A quarter of a rotation by rows of one's own: (1, 3) becomes (-3, 1). */
  const float cos[2] = {0.0F, 0.0F}, sin[2] = {1.0F, 1.0F};
  const phasor_cos_sin_rows rows = {
      .cos = cos, .sin = sin, .dtype = PHASOR_F32, .pairs = 2, .pair_stride = 1};
  const phasor_rotation rotation = {.in = NULL, .out = &q_view, .role = PHASOR_QUERY};
  CHECK(phasor_rotate_by(&rows, PHASOR_HALF, 0, &rotation, 1, NULL) == PHASOR_OK);
  CHECK(q[0] == -3.0F && q[1] == -4.0F && q[2] == 1.0F && q[3] == 2.0F);

  /* Linear attention in two calls: the second token weighs both values alike. */
  phasor_linear_state* state = NULL;
  const phasor_linear_options linear = {.struct_size = sizeof linear, .causality = PHASOR_CAUSAL};
  CHECK(phasor_linear_state_create(1, 1, 4, 2, &state) == PHASOR_OK);
  for (int token = 0; token < 2; ++token) {
    const phasor_heads k_one = phasor_dense_heads(k + 4 * token, PHASOR_F32, 1, 1, 1, 4);
    const phasor_heads v_one = phasor_dense_heads(v + 2 * token, PHASOR_F32, 1, 1, 1, 2);
    CHECK(phasor_linear_continue(state, NULL, &q_view, &k_one, &v_one, &out_view, &linear) ==
          PHASOR_OK);
  }
  CHECK(phasor_linear_state_tokens(state) == 2);
  CHECK(distance(out[0], 2.0F) < 1e-5F && distance(out[1], 4.0F) < 1e-5F);
  CHECK(phasor_bf16_to_float(phasor_float_to_bf16(1.5F)) == 1.5F);
  CHECK(phasor_f16_to_float(phasor_float_to_f16(-0.25F)) == -0.25F);
  phasor_linear_state_destroy(state);
  phasor_cache_destroy(cache);
  phasor_rope_destroy(rope);
  return NULL;
}

static phasor_cancellation* stop = NULL;

static void handle_signal(int number) {
  (void)number;
  phasor_cancellation_request(stop);
}

const char* phasor_c_cancellation_walk(void) {
  phasor_rope_spec spec;
  phasor_rope* rope = NULL;
  float x[4] = {1.0F, 2.0F, 3.0F, 4.0F};
  const phasor_heads view = phasor_dense_heads(x, PHASOR_F32, 1, 1, 1, 4);
  const phasor_positions positions = phasor_positions_from(1);
  CHECK(phasor_rope_spec_init(&spec, sizeof spec) == PHASOR_OK);
  spec.head_dim = 4;
  spec.layout = PHASOR_HALF;
  CHECK(phasor_rope_create(&spec, 0, &rope) == PHASOR_OK);
  CHECK(phasor_cancellation_create(NULL) == PHASOR_INVALID_ARGUMENT);
  CHECK(phasor_cancellation_create(&stop) == PHASOR_OK);
  phasor_set_cancellation(stop);
  CHECK(phasor_rotate_in_place(rope, &positions, &view, NULL, NULL) == PHASOR_OK);
  CHECK(signal(SIGINT, handle_signal) != SIG_ERR);
  CHECK(raise(SIGINT) == 0);
  CHECK(signal(SIGINT, SIG_DFL) != SIG_ERR);
  const float before = x[0];
  CHECK(phasor_rotate_in_place(rope, &positions, &view, NULL, NULL) == PHASOR_CANCELLED);
  CHECK(x[0] == before && phasor_last_error()[0] != '\0');
  phasor_cancellation_reset(stop);
  CHECK(phasor_rotate_in_place(rope, &positions, &view, NULL, NULL) == PHASOR_OK);
  phasor_cancellation_request(stop);
  phasor_set_cancellation(NULL);
  CHECK(phasor_rotate_in_place(rope, &positions, &view, NULL, NULL) == PHASOR_OK);
  phasor_set_cancellation(stop);
  phasor_cancellation_destroy(stop);
  stop = NULL;
  CHECK(phasor_rotate_in_place(rope, &positions, &view, NULL, NULL) == PHASOR_OK);
  phasor_cancellation_request(NULL);
  phasor_cancellation_reset(NULL);
  phasor_cancellation_destroy(NULL);
  phasor_rope_destroy(rope);
  return NULL;
}

const char* phasor_c_text_walk(void) {
  const char text[] = "{\"head_dim\": 8, \"layout\": \"half\", \"max_position_embeddings\": 64}";
  phasor_config* config = NULL;
  phasor_text* page = NULL;
  CHECK(phasor_config_parse(text, sizeof text - 1, &config) == PHASOR_OK);
  CHECK(phasor_explain_json(config, 0, &page) == PHASOR_OK);
  CHECK(phasor_text_size(page) > 2 && phasor_text_data(page)[0] == '{');
  phasor_text_destroy(page);
  phasor_config_destroy(config);
  phasor_config_destroy(NULL);
  CHECK(phasor_text_data(NULL)[0] == '\0' && phasor_text_size(NULL) == 0);
  CHECK(phasor_ids_data(NULL) == NULL && phasor_ids_count(NULL) == 0);
  phasor_text_destroy(NULL);
  phasor_ids_destroy(NULL);
  return NULL;
}

#define FUNCTION(name) (void (*)(void))(name)
static void (*const kFunctions[])(void) = {
    FUNCTION(phasor_last_error),
    FUNCTION(phasor_version),
    FUNCTION(phasor_version_number),
    FUNCTION(phasor_text_data),
    FUNCTION(phasor_text_size),
    FUNCTION(phasor_text_destroy),
    FUNCTION(phasor_ids_data),
    FUNCTION(phasor_ids_count),
    FUNCTION(phasor_ids_destroy),
    FUNCTION(phasor_f16_to_float),
    FUNCTION(phasor_bf16_to_float),
    FUNCTION(phasor_float_to_f16),
    FUNCTION(phasor_float_to_bf16),
    FUNCTION(phasor_resolve_instruction_set),
    FUNCTION(phasor_rope_spec_init),
    FUNCTION(phasor_rope_create),
    FUNCTION(phasor_rope_from_config_text),
    FUNCTION(phasor_rope_from_config_file),
    FUNCTION(phasor_rope_destroy),
    FUNCTION(phasor_rope_describe),
    FUNCTION(phasor_rope_frequencies),
    FUNCTION(phasor_rope_axes),
    FUNCTION(phasor_cos_sin_f32),
    FUNCTION(phasor_cos_sin_f64),
    FUNCTION(phasor_table_create),
    FUNCTION(phasor_table_grow),
    FUNCTION(phasor_table_from_rows),
    FUNCTION(phasor_table_range),
    FUNCTION(phasor_table_rows),
    FUNCTION(phasor_table_destroy),
    FUNCTION(phasor_rotate),
    FUNCTION(phasor_rotate_in_place),
    FUNCTION(phasor_rotate_by),
    FUNCTION(phasor_rerotate),
    FUNCTION(phasor_mean_partial_sums),
    FUNCTION(phasor_abel_bounds),
    FUNCTION(phasor_rotated_scores),
    FUNCTION(phasor_mean_rotated_scores),
    FUNCTION(phasor_encoding_parse),
    FUNCTION(phasor_encoding_destroy),
    FUNCTION(phasor_attend),
    FUNCTION(phasor_attend_backward),
    FUNCTION(phasor_linear_attend),
    FUNCTION(phasor_linear_attend_backward),
    FUNCTION(phasor_linear_state_create),
    FUNCTION(phasor_linear_state_fork),
    FUNCTION(phasor_linear_state_reset),
    FUNCTION(phasor_linear_state_tokens),
    FUNCTION(phasor_linear_state_destroy),
    FUNCTION(phasor_linear_continue),
    FUNCTION(phasor_cache_create),
    FUNCTION(phasor_cache_fork),
    FUNCTION(phasor_cache_destroy),
    FUNCTION(phasor_cache_describe),
    FUNCTION(phasor_cache_positions),
    FUNCTION(phasor_cache_views),
    FUNCTION(phasor_cache_append),
    FUNCTION(phasor_cache_truncate),
    FUNCTION(phasor_cache_evict),
    FUNCTION(phasor_cache_shift),
    FUNCTION(phasor_cache_rerotate),
    FUNCTION(phasor_cache_attend),
    FUNCTION(phasor_model_load),
    FUNCTION(phasor_model_destroy),
    FUNCTION(phasor_model_vocabulary),
    FUNCTION(phasor_model_describe),
    FUNCTION(phasor_sequence_create),
    FUNCTION(phasor_sequence_fork),
    FUNCTION(phasor_sequence_destroy),
    FUNCTION(phasor_sequence_tokens),
    FUNCTION(phasor_sequence_truncate),
    FUNCTION(phasor_sequence_shift),
    FUNCTION(phasor_model_forward),
    FUNCTION(phasor_generate_options_init),
    FUNCTION(phasor_generate),
    FUNCTION(phasor_tokenizer_load),
    FUNCTION(phasor_tokenizer_parse),
    FUNCTION(phasor_tokenizer_destroy),
    FUNCTION(phasor_tokenizer_vocabulary),
    FUNCTION(phasor_tokenizer_encode),
    FUNCTION(phasor_tokenizer_encode_prompt),
    FUNCTION(phasor_tokenizer_decode),
    FUNCTION(phasor_tokenizer_piece),
    FUNCTION(phasor_tokenizer_find),
    FUNCTION(phasor_tokenizer_specials),
    FUNCTION(phasor_tokenizer_stops),
    FUNCTION(phasor_config_parse),
    FUNCTION(phasor_config_read),
    FUNCTION(phasor_config_destroy),
    FUNCTION(phasor_rope_from_config),
    FUNCTION(phasor_explain_json),
    FUNCTION(phasor_diff_json),
    FUNCTION(phasor_dialects_json),
    FUNCTION(phasor_plan_json),
    FUNCTION(phasor_diagnose_json),
    FUNCTION(phasor_audit_json),
    FUNCTION(phasor_weight_order_json),
    FUNCTION(phasor_describe_json),
    FUNCTION(phasor_convert_checkpoint),
    FUNCTION(phasor_available_threads),
    FUNCTION(phasor_set_parallel_for),
    FUNCTION(phasor_cancellation_create),
    FUNCTION(phasor_cancellation_request),
    FUNCTION(phasor_cancellation_reset),
    FUNCTION(phasor_cancellation_destroy),
    FUNCTION(phasor_set_cancellation),
};

int phasor_c_function_count(void) {
  int count = 0;
  for (size_t i = 0; i < sizeof kFunctions / sizeof *kFunctions; ++i) {
    count += kFunctions[i] != NULL;
  }
  return count;
}

#if PHASOR_VERSION_NUMBER < 100
#error "PHASOR_VERSION_NUMBER must be at least 0.1.0"
#endif
