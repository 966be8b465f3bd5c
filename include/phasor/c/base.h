/* Versions, errors, texts and ids, choices, threads and cancellation: what the other headers of the C API share. phasor/phasor.h states what holds for every call. */
#ifndef PHASOR_C_BASE_H
#define PHASOR_C_BASE_H

#include <stddef.h>
#include <stdint.h>

#include "phasor/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; phasor_version() returns the library's. While MAJOR is 0, a library works
 * with programs that were built with the same MINOR. */
#define PHASOR_VERSION_MAJOR 0
#define PHASOR_VERSION_MINOR 1
#define PHASOR_VERSION_PATCH 0
/* For comparisons in #if: 0.1.0 is 100, 1.2.3 is 10203. */
#define PHASOR_VERSION_NUMBER \
  (PHASOR_VERSION_MAJOR * 10000 + PHASOR_VERSION_MINOR * 100 + PHASOR_VERSION_PATCH)

typedef enum {
  PHASOR_OK = 0,
  PHASOR_INVALID_ARGUMENT,
  PHASOR_SHAPE_MISMATCH,
  PHASOR_OUT_OF_RANGE,
  PHASOR_UNSUPPORTED,
  PHASOR_IO,
  PHASOR_INTERNAL, /* also when memory runs out */
  PHASOR_CANCELLED /* phasor_cancellation_request() */
} phasor_status;

/* This thread's last error, as one line of text; "" before the first. Valid until the thread's next
 * error. */
PHASOR_API const char* phasor_last_error(void);
PHASOR_API const char* phasor_version(void);    /* "0.1.0" */
PHASOR_API int32_t phasor_version_number(void); /* PHASOR_VERSION_NUMBER of the library */

/* ---- Results of unknown length ---- */

/* Text made by the library: JSON, decoded tokens. A handle rather than a caller's buffer, because the
 * length is known only after the work is done. */
typedef struct phasor_text phasor_text;
PHASOR_API const char* phasor_text_data(
    const phasor_text* text);                                /* UTF-8, ends with a 0; "" for NULL */
PHASOR_API size_t phasor_text_size(const phasor_text* text); /* bytes before that 0; 0 for NULL */
PHASOR_API void phasor_text_destroy(phasor_text* text);      /* NULL: does nothing */

/* Token ids made by the library. */
typedef struct phasor_ids phasor_ids;
PHASOR_API const int64_t* phasor_ids_data(
    const phasor_ids* ids);                                /* NULL for NULL; not NULL for no id */
PHASOR_API size_t phasor_ids_count(const phasor_ids* ids); /* 0 for NULL */
PHASOR_API void phasor_ids_destroy(phasor_ids* ids);       /* NULL: does nothing */

/* ---- Choices ---- */

typedef int32_t phasor_pair_layout;
enum {
  PHASOR_LAYOUT_UNSET = -1,       /* not chosen: an error where a layout is needed */
  PHASOR_INTERLEAVED = 0,         /* pair i = features (2i, 2i + 1) */
  PHASOR_HALF = 1,                /* pair i = features (i, i + rotary_dim / 2) */
  PHASOR_INTERLEAVED_TO_HALF = 2, /* reads the first, writes the second (DeepSeek V3) */
};

typedef int32_t phasor_direction;
enum {
  PHASOR_FORWARD = 0,   /* a R_m x, a the amplitude */
  PHASOR_TRANSPOSE = 1, /* a R_m^T x: the backward pass */
  PHASOR_INVERSE = 2,   /* (1/a) R_m^T x: undoes forward */
};

typedef int32_t phasor_angle_mode;
enum {
  PHASOR_ANGLES_EXACT = 0,
  PHASOR_ANGLES_FLOAT32 = 1, /* float32 at every step, rounded as other engines round */
};

typedef int32_t phasor_dtype;
enum { PHASOR_F64 = 0, PHASOR_F32 = 1, PHASOR_F16 = 2, PHASOR_BF16 = 3 };
/* Sixteen-bit floats as bit patterns. From float: rounded to nearest, ties to even; NaN stays NaN. */
PHASOR_API float phasor_f16_to_float(uint16_t bits);
PHASOR_API float phasor_bf16_to_float(uint16_t bits);
PHASOR_API uint16_t phasor_float_to_f16(float value);
PHASOR_API uint16_t phasor_float_to_bf16(float value);

typedef int32_t phasor_role;
enum { PHASOR_QUERY = 0, PHASOR_KEY = 1 }; /* they differ under xPos only */

typedef int32_t phasor_instruction_set;
enum {
  PHASOR_ISA_BEST = 0, /* the highest level that this CPU has */
  PHASOR_ISA_GENERIC = 1,
  PHASOR_ISA_X86_64_V2 = 2,
  PHASOR_ISA_X86_64_V3 = 3,
  PHASOR_ISA_X86_64_V4 = 4,
};
/* The level that a choice selects on this machine; PHASOR_UNSUPPORTED if this CPU or this build does
 * not have it. */
PHASOR_API phasor_status phasor_resolve_instruction_set(phasor_instruction_set isa,
                                                        phasor_instruction_set* out);

/* ---- Threads ---- */

/* The CPUs that this process may use: those of its affinity mask, and no more than the quota of its
 * control group. While a parallel-for with `threads` is set, that number. */
PHASOR_API int32_t phasor_available_threads(void);

/* A parallel-for of the program, so that the program and Phasor share one set of threads. `run` calls
 * task(context, part, parts) exactly once for each part in [0, parts), on any threads and in any
 * order, and returns when all are done. Several threads may call it at once, and a task may call it
 * again. If a part is not run exactly once, the Phasor call fails with PHASOR_INTERNAL and its outputs
 * are undefined. */
typedef struct {
  uint32_t struct_size;
  int32_t threads; /* the value of phasor_available_threads(); 0: as without a parallel-for */
  void (*run)(void* user, int32_t parts, void (*task)(void* context, int32_t part, int32_t parts),
              void* context);
  void* user;
} phasor_parallel_for;

/* Runs the parts of all later calls with `parallel_for`, or on Phasor's own threads if it is NULL.
 * Calls that have started keep the previous one: `user` must stay valid until they return. */
PHASOR_API phasor_status phasor_set_parallel_for(const phasor_parallel_for* parallel_for);

/* ---- Cancellation ---- */

/* A request to stop. Calls of a thread that watches it, and the threads that work for them, look at it
 * every few milliseconds and return PHASOR_CANCELLED once it is requested, until it is reset. */
typedef struct phasor_cancellation phasor_cancellation;
PHASOR_API phasor_status phasor_cancellation_create(phasor_cancellation** out);
/* From any thread, or from a signal handler. NULL: does nothing. */
PHASOR_API void phasor_cancellation_request(phasor_cancellation* cancellation);
PHASOR_API void phasor_cancellation_reset(phasor_cancellation* cancellation);
/* No other thread may watch it any more; the calling one then watches nothing. NULL: does nothing. */
PHASOR_API void phasor_cancellation_destroy(phasor_cancellation* cancellation);
/* What later calls of this thread watch; NULL: nothing. */
PHASOR_API void phasor_set_cancellation(const phasor_cancellation* cancellation);

#ifdef __cplusplus
}
#endif

#endif
