/* Built with: cc main.c $(pkg-config --cflags --libs phasor) */
#include <phasor/phasor.h>
#include <stdio.h>

int main(void) {
  const char text[] =
      "{\"head_dim\": 64, \"base\": 10000, \"rotary_dim\": 64, \"layout\": \"half\"}";
  phasor_rope* rope = NULL;
  if (phasor_rope_from_config_text(text, sizeof text - 1, NULL, PHASOR_LAYOUT_UNSET, 0, &rope) !=
      PHASOR_OK) {
    fprintf(stderr, "%s\n", phasor_last_error());
    return 1;
  }
  double frequencies[32];
  const phasor_status status = phasor_rope_frequencies(rope, frequencies, 32);
  phasor_rope_destroy(rope);
  if (status != PHASOR_OK) {
    fprintf(stderr, "%s\n", phasor_last_error());
    return 1;
  }
  printf("consumer in C: phasor %s, first frequency %g\n", phasor_version(), frequencies[0]);
  return frequencies[0] == 1.0 ? 0 : 1;
}
