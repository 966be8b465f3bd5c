/* Phasor in C11: exact rotary position embedding (RoPE) of every type, at memory speed; attention with
 * every position encoding, KV caches, decoder models, tokenizers, and reports about a config.
 *
 * Failure   Every function that can fail returns a phasor_status and leaves its outputs untouched when
 *           it does: arrays, *out and handles are unchanged. phasor_last_error() then returns one
 *           line that shows the value that was wrong. One exception: after PHASOR_INTERNAL (out of
 *           memory during a computation) and PHASOR_CANCELLED arrays of numbers may be partly written;
 *           *out and handles are unchanged even then. No C++ exception leaves a function of this
 *           header.
 * Threads   A function that takes a handle as a pointer to const only reads it: any number of threads
 *           may call such functions on one handle at the same time. A function that takes a pointer to
 *           non-const changes the handle, as _destroy does: no other call may use that handle
 *           meanwhile. phasor_rope, phasor_table, phasor_encoding, phasor_config, phasor_tokenizer,
 *           phasor_text and phasor_ids never change and can be shared freely. phasor_model runs one
 *           forward or generate at a time.
 * Memory    What a _create, _parse, _load or _fork function returns belongs to the caller, who calls
 *           the _destroy function of its type once. A handle keeps no pointer to the arrays and
 *           handles it was made from, with one exception: a phasor_sequence needs its phasor_model.
 * Arrays    Lengths are counts of elements.
 * Structs   A struct that may grow in later versions begins with struct_size, which the caller sets to
 *           sizeof the struct (the _init and phasor_positions_* functions do it). Every size since the
 *           struct's first version is accepted, up to 1024 bytes: members that an older caller does not have get their
 *           default, members that only a newer caller has must be 0. The library never writes beyond
 *           the caller's struct_size. Structs without struct_size never grow.
 * Choices   int32_t rather than enum types, so that a number outside the list is an error instead of
 *           undefined behaviour.
 */
#ifndef PHASOR_PHASOR_H
#define PHASOR_PHASOR_H

#include "phasor/c/attention.h"
#include "phasor/c/base.h"
#include "phasor/c/models.h"
#include "phasor/c/porting.h"
#include "phasor/c/rope.h"

#endif
