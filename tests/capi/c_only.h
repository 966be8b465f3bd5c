/* What the C half of the test offers to the C++ half. */
#ifndef PHASOR_TESTS_CAPI_C_ONLY_H
#define PHASOR_TESTS_CAPI_C_ONLY_H

#ifdef __cplusplus
extern "C" {
#endif

/* Calls the API as a C program would. Returns NULL, or what failed. */
const char* phasor_c_walk(void);
/* The same for attention, forward and backward. */
const char* phasor_c_attention_walk(void);
/* A cache, given rows of cos and sin, and the state of linear attention. */
const char* phasor_c_cache_walk(void);
/* The tools that return text. */
const char* phasor_c_text_walk(void);
/* A request to stop, from a signal handler. */
const char* phasor_c_cancellation_walk(void);
/* How many functions phasor.h has, each of them linked from C. */
int phasor_c_function_count(void);

#ifdef __cplusplus
}
#endif

#endif
