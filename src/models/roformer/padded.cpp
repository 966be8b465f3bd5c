// Padded batches: rows of different lengths in one array.
#include <algorithm>
#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/models/decoder.hpp"

namespace phasor::models {
namespace {

// Puts the rows of tokens without padding, [arrays, tokens of all rows, width], to their columns in
// [arrays, batch, columns, width].
[[nodiscard]] std::vector<float> spread(const std::vector<float>& values, const MaskedBatch& batch,
                                        std::size_t columns, std::size_t width) {
  std::size_t tokens = 0;
  for (const auto& row : batch.rows) tokens += row.size();
  const std::size_t slots = batch.rows.size() * columns;
  std::vector<float> out(values.size() / tokens * slots);
  const float* from = values.data();
  for (std::size_t first = 0; first * width < out.size(); first += slots) {
    for (std::size_t row = 0; row < batch.slots.size(); ++row) {
      for (const std::int64_t column : batch.slots[row]) {
        const std::size_t slot = first + row * columns + static_cast<std::size_t>(column);
        std::copy_n(from, width, out.data() + slot * width);
        from += width;
      }
    }
  }
  return out;
}

}  // namespace

MaskedBatch unpad(std::span<const std::int64_t> ids, std::span<const std::uint8_t> mask,
                  std::int64_t batch) {
  if (batch < 1 || ids.empty() || ids.size() % static_cast<std::size_t>(batch) != 0 ||
      (!mask.empty() && mask.size() != ids.size())) {
    refuse(ErrorCode::shape_mismatch,
           message("unpad: ids and mask must both be ", batch, " rows of the same length, got ",
                   ids.size(), " ids and ", mask.size(), " mask values"));
  }
  const std::size_t columns = ids.size() / static_cast<std::size_t>(batch);
  MaskedBatch out;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<std::int64_t> row;
    std::vector<std::int64_t> slots;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t at = static_cast<std::size_t>(b) * columns + c;
      if (!mask.empty() && mask[at] == 0) continue;
      row.push_back(ids[at]);
      slots.push_back(static_cast<std::int64_t>(c));
    }
    if (row.empty()) {
      refuse(message("unpad: row ", b, " has only padding"));
    }
    out.rows.push_back(std::move(row));
    out.slots.push_back(std::move(slots));
  }
  return out;
}

ForwardResult forward_padded(Decoder& decoder, std::span<const std::int64_t> ids,
                             std::span<const std::uint8_t> mask, std::int64_t batch,
                             const ForwardOptions& options, ContextShare* share) {
  const MaskedBatch rows = unpad(ids, mask, batch);
  std::vector<Sequence> sequences;
  for (const auto& row : rows.rows)
    sequences.push_back(
        decoder.sequence({.capacity = static_cast<std::int64_t>(row.size()), .share = share}));
  std::vector<Step> steps;
  for (std::size_t i = 0; i < rows.rows.size(); ++i) steps.push_back({&sequences[i], rows.rows[i]});
  // In one call, so that frequencies that depend on the context use that of the whole input.
  ForwardResult result = decoder.forward(steps, options);
  std::size_t tokens = 0;
  for (const auto& row : rows.rows) tokens += row.size();
  if (tokens == ids.size()) return result;
  if (options.rows == RowsOn::own_rank) refuse("forward_padded: rows of one rank have no columns");

  const DecoderFacts& facts = decoder.facts();
  const std::size_t columns = ids.size() / static_cast<std::size_t>(batch);
  if (options.logits == LogitsOf::every_token)
    result.logits =
        spread(result.logits, rows, columns, static_cast<std::size_t>(facts.vocabulary));
  if (options.hidden == HiddenStates::collect)
    result.hidden_states =
        spread(result.hidden_states, rows, columns, static_cast<std::size_t>(facts.hidden));
  return result;
}

void clear_padding(std::span<const std::uint8_t> mask, std::int64_t width,
                   std::span<float> values) noexcept {
  const auto row = static_cast<std::size_t>(width);
  for (std::size_t slot = 0; slot * row < values.size(); ++slot) {
    if (mask[slot % mask.size()] == 0) std::fill_n(values.data() + slot * row, row, 0.0F);
  }
}

}  // namespace phasor::models
