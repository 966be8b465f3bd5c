#include "phasor/models/decoder.hpp"

#include <utility>

#include "models/decoder_state.hpp"

namespace phasor::models {

Decoder::Decoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

Result<Decoder> Decoder::load(const std::filesystem::path& path, const ComputeOptions& options) {
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint) return checkpoint.error();
  return load(std::move(checkpoint).value(), options);
}

Result<Decoder> Decoder::load(Checkpoint checkpoint, const ComputeOptions& options) {
  try {
    std::unique_ptr<State> state = load_decoder(checkpoint);
    state->compute = options;
    return Decoder(std::move(state));
  } catch (const Error& error) {
    return error;
  }
}

const DecoderFacts& Decoder::facts() const noexcept { return state_->settings.facts; }
const config::ModelConfig& Decoder::config() const noexcept { return state_->config; }
void Decoder::set_options(const ComputeOptions& options) { state_->compute = options; }

MaskedBatch unpad(std::span<const std::int64_t> ids, std::span<const std::uint8_t> mask,
                  std::int64_t batch) {
  if (batch < 1 || ids.empty() || ids.size() % static_cast<std::size_t>(batch) != 0 ||
      (!mask.empty() && mask.size() != ids.size())) {
    throw Error(ErrorCode::shape_mismatch, message("unpad: ids and mask must both be ", batch,
                                                   " rows of the same length, got ", ids.size(),
                                                   " ids and ", mask.size(), " mask values"));
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
      throw Error(ErrorCode::invalid_argument,
                  message("unpad: every row must have a token, got row ", b, " of padding alone"));
    }
    out.rows.push_back(std::move(row));
    out.slots.push_back(std::move(slots));
  }
  return out;
}

}  // namespace phasor::models
