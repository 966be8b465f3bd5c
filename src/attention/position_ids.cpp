#include "phasor/attention/position_ids.hpp"

#include <limits>
#include <numeric>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/enum_names.hpp"

namespace phasor::attention {
namespace {

using Ids = std::vector<std::int64_t>;

void check_boundaries(std::span<const std::int64_t> boundaries) {
  if (boundaries.empty())
    phasor::refuse("position_ids: boundaries are missing; they must begin with 0");
  if (boundaries[0] != 0) {
    phasor::refuse(message("position_ids: boundaries must begin with 0, got ", boundaries[0]));
  }
  for (std::size_t i = 1; i < boundaries.size(); ++i) {
    if (boundaries[i] < boundaries[i - 1]) {
      phasor::refuse(message("position_ids: boundaries must not decrease, got ", boundaries[i - 1],
                             " then ", boundaries[i]));
    }
  }
}

// id_of(sequence, index inside it) for every token.
template <class IdOf>
Ids ids_by_sequence(std::span<const std::int64_t> boundaries, const IdOf& id_of) {
  check_boundaries(boundaries);
  Ids ids;
  ids.reserve(static_cast<std::size_t>(boundaries.back()));
  for (std::size_t s = 0; s + 1 < boundaries.size(); ++s) {
    for (std::int64_t t = boundaries[s]; t < boundaries[s + 1]; ++t) {
      ids.push_back(id_of(static_cast<std::int64_t>(s), t - boundaries[s]));
    }
  }
  return ids;
}

// The length of the chunks of a split: one chunk per rank, two for zigzag.
std::int64_t chunk_length(Split split, std::int64_t tokens, std::int64_t ranks) {
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 31;
  if (ranks < 1 || ranks > kMostRanks) {
    phasor::refuse(message("position_ids: ranks must be between 1 and 2^31, got ", ranks));
  }
  const std::int64_t chunks = split == Split::zigzag ? 2 * ranks : ranks;
  if (tokens < 0 || tokens % chunks != 0) {
    phasor::refuse(message("position_ids: a ", name_of(split), " split over ", ranks,
                           " ranks needs a multiple of ", chunks, " tokens, got ", tokens));
  }
  return tokens / chunks;
}

void append_run(Ids& ids, std::int64_t first, std::int64_t count) {
  const auto old = static_cast<std::ptrdiff_t>(ids.size());
  ids.resize(ids.size() + static_cast<std::size_t>(count));
  std::iota(ids.begin() + old, ids.end(), first);
}

}  // namespace

std::string_view name_of(Split split) noexcept {
  static constexpr core::EnumNames<Split::striped> kNames("contiguous", "zigzag", "striped");
  return kNames[split];
}

std::vector<std::int64_t> boundaries_of(std::span<const std::int64_t> lengths) {
  Ids boundaries = {0};
  boundaries.reserve(lengths.size() + 1);
  for (const std::int64_t length : lengths) {
    if (length < 0) {
      phasor::refuse(message("position_ids: lengths must not be negative, got ", length));
    }
    if (length > std::numeric_limits<std::int64_t>::max() - boundaries.back()) {
      phasor::refuse(ErrorCode::out_of_range,
                     message("position_ids: lengths must add up to less than 2^63, got ",
                             boundaries.back(), " + ", length));
    }
    boundaries.push_back(boundaries.back() + length);
  }
  return boundaries;
}

std::vector<std::int64_t> packed_ids(std::span<const std::int64_t> boundaries) {
  return ids_by_sequence(boundaries, [](std::int64_t, std::int64_t place) { return place; });
}

std::vector<std::int64_t> sequence_of_tokens(std::span<const std::int64_t> boundaries) {
  return ids_by_sequence(boundaries, [](std::int64_t sequence, std::int64_t) { return sequence; });
}

std::vector<std::int64_t> padded_ids(std::span<const std::uint8_t> mask, std::int64_t batch,
                                     PaddingPolicy policy, std::int64_t past) {
  if (batch < 1 || past < 0) {
    phasor::refuse(message("position_ids: batch must be at least 1 and past at least 0, got ",
                           batch, " and ", past));
  }
  if (mask.size() % static_cast<std::size_t>(batch) != 0) {
    phasor::refuse(ErrorCode::shape_mismatch,
                   message("position_ids: the mask must be [batch ", batch, ", tokens], got ",
                           mask.size(), " entries"));
  }
  const std::size_t tokens = mask.size() / static_cast<std::size_t>(batch);
  const std::int64_t padding = policy == PaddingPolicy::mark_padding ? -1 : 0;
  Ids ids(mask.size());
  for (std::size_t begin = 0; begin < mask.size(); begin += tokens) {
    std::int64_t next = past;
    for (std::size_t t = begin; t < begin + tokens; ++t) {
      const bool counts = policy == PaddingPolicy::count_slots || mask[t] != 0;
      ids[t] = counts ? next++ : padding;
    }
  }
  return ids;
}

std::vector<std::int64_t> split_ids(Split split, std::int64_t tokens, std::int64_t rank,
                                    std::int64_t ranks) {
  const std::int64_t length = chunk_length(split, tokens, ranks);
  if (rank < 0 || rank >= ranks) {
    phasor::refuse(message("position_ids: rank must be in [0, ", ranks, "), got ", rank));
  }
  Ids ids;
  ids.reserve(static_cast<std::size_t>(tokens / ranks));
  switch (split) {
    case Split::contiguous:
      append_run(ids, rank * length, length);
      break;
    case Split::zigzag:
      append_run(ids, rank * length, length);
      append_run(ids, (2 * ranks - 1 - rank) * length, length);
      break;
    case Split::striped:
      for (std::int64_t i = 0; i < length; ++i) ids.push_back(i * ranks + rank);
      break;
  }
  return ids;
}

std::vector<std::int64_t> gather_order(Split split, std::int64_t tokens, std::int64_t ranks) {
  chunk_length(split, tokens, ranks);
  Ids order(static_cast<std::size_t>(tokens));
  if (tokens == 0) return order;
  std::int64_t place = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (const std::int64_t token : split_ids(split, tokens, rank, ranks)) {
      order[static_cast<std::size_t>(token)] = place++;
    }
  }
  return order;
}

}  // namespace phasor::attention
