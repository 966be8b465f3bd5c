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
