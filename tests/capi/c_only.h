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

#ifdef __cplusplus
}
#endif

#endif
