/* What the C half of the test offers to the C++ half. */
#ifndef PHASOR_TESTS_CAPI_C_ONLY_H
#define PHASOR_TESTS_CAPI_C_ONLY_H

#ifdef __cplusplus
extern "C" {
#endif

/* Walks through the API as a C program would. NULL when all went well, else what did not. */
const char* phasor_c_walk(void);
/* The same through attention, forward and backward. */
const char* phasor_c_attention_walk(void);
/* Through a cache, rows of the caller's own, and linear attention's state. */
const char* phasor_c_cache_walk(void);
/* Through the tools that answer with text. */
const char* phasor_c_text_walk(void);
/* How many functions phasor.h has, each of them linked from C. */
int phasor_c_function_count(void);

#ifdef __cplusplus
}
#endif

#endif
