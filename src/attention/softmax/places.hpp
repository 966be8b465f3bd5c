// Where the tokens of a call are: by their position ids, or counted. Masks always count tokens;
// distances are differences of positions.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/softmax/call.hpp"

namespace phasor::attention {

// Whether any term but the rotation reads positions.
[[nodiscard]] bool reads_positions(const encodings::ScoreTerms& terms) noexcept;

// Batch rows or packed sequences, with positions that count tokens.
void find_sequences(const AttentionSizes& sizes, const AttentionOptions& options,
                    std::vector<Sequence>& sequences);

// The position ids of a call whose terms read positions: origins and shifts of its sequences, places
// if not all of them count up, and the columns of the bias.
//
// throws   Error(shape_mismatch | unsupported | out_of_range) for positions that do not fit, are not
//          whole numbers, have several axes or are too far apart; std::bad_alloc
void find_places(const char* where, Call& call);

// Which keys a range of distances leaves out: those that causality and window hide, or padding too.
enum class Hidden : std::uint8_t { by_token, by_padding_too };
// The distances between the queries of a call and the keys that they may see.
[[nodiscard]] DistanceRange seen_distances(const Call& call, Hidden hidden);
// throws   Error(out_of_range) if a table that refuses distances has no row for one of them
void check_distances(const char* where, const Call& call);
// The same before a run, if padding decides which of them are seen: it may have changed.
void check_padding(const char* where, const Call& call);

}  // namespace phasor::attention
