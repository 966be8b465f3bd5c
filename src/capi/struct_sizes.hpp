// The size in bytes of each struct of phasor.h in its first version.
//
// A program that was compiled then passes that size for ever, so these numbers never change: a new
// member goes to the end of its struct, and its line here is not edited. Beware: a struct whose
// first version ends with padding (phasor_rotate_options: 28 bytes of members in 32, phasor_cache_spec:
// 60 in 64) must not have a new member inside that padding, which old callers leave unset; add an
// explicit reserved member of that width first. The same holds for phasor_linear_options after
// `rotates`: 76 in 80.
#pragma once

#include <cstddef>
#include <cstdint>

#include "phasor/phasor.h"

namespace phasor::capi {

template <class T>
inline constexpr std::size_t kFirstSize = 0;

template <>
inline constexpr std::size_t kFirstSize<phasor_rope_spec> = offsetof(phasor_rope_spec,
                                                                     xpos_centre) +
                                                            sizeof(double);
template <>
inline constexpr std::size_t kFirstSize<phasor_rope_info> = offsetof(phasor_rope_info, amplitude) +
                                                            sizeof(double);
template <>
inline constexpr std::size_t kFirstSize<phasor_positions> = offsetof(phasor_positions, sequences) +
                                                            sizeof(std::int64_t);
template <>
inline constexpr std::size_t kFirstSize<phasor_rotate_options> = offsetof(phasor_rotate_options,
                                                                          isa) +
                                                                 sizeof(phasor_instruction_set);
// Before attention in float64.
template <>
inline constexpr std::size_t kFirstSize<phasor_attend_options> = offsetof(phasor_attend_options,
                                                                          key_segment_count) +
                                                                 sizeof(std::size_t);
// Before positions and padding.
template <>
inline constexpr std::size_t kFirstSize<phasor_linear_options> = offsetof(phasor_linear_options,
                                                                          isa) +
                                                                 sizeof(phasor_instruction_set);
template <>
inline constexpr std::size_t kFirstSize<phasor_cache_spec> = offsetof(phasor_cache_spec, mode) +
                                                             sizeof(phasor_cache_mode);
template <>
inline constexpr std::size_t kFirstSize<phasor_cache_info> = offsetof(phasor_cache_info, rotates) +
                                                             sizeof(std::int32_t);
template <>
inline constexpr std::size_t kFirstSize<phasor_model_options> = offsetof(phasor_model_options,
                                                                         isa) +
                                                                sizeof(phasor_instruction_set);
template <>
inline constexpr std::size_t kFirstSize<phasor_model_info> = offsetof(phasor_model_info,
                                                                      weight_bytes) +
                                                             sizeof(std::int64_t);
template <>
inline constexpr std::size_t kFirstSize<phasor_generate_options> = offsetof(phasor_generate_options,
                                                                            chunk) +
                                                                   sizeof(std::int64_t);
template <>
inline constexpr std::size_t kFirstSize<phasor_special_tokens> = offsetof(phasor_special_tokens,
                                                                          separate) +
                                                                 sizeof(std::int64_t);
template <>
inline constexpr std::size_t kFirstSize<phasor_diff_options> = offsetof(phasor_diff_options,
                                                                        shifts) +
                                                               sizeof(std::int64_t);
template <>
inline constexpr std::size_t kFirstSize<phasor_parallel_for> = offsetof(phasor_parallel_for, user) +
                                                               sizeof(void*);

// The literal numbers, so that a member put into the middle, or a line above that follows a new
// member, does not compile. Pointers and alignment differ elsewhere than on 64-bit machines.
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_rope_spec> == 280);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_rope_info> == 64);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_positions> == 64);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_rotate_options> == 28);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_attend_options> == 88);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_linear_options> == 20);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_cache_spec> == 60);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_cache_info> == 80);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_model_options> == 16);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_model_info> == 80);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_generate_options> == 112);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_special_tokens> == 64);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_diff_options> == 48);
static_assert(sizeof(void*) != 8 || kFirstSize<phasor_parallel_for> == 24);

}  // namespace phasor::capi
