#include "phasor/models/decoder.hpp"

#include <utility>

#include "models/decoder/state.hpp"

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
    checkpoint.check_unchanged();
    state->compute = options;
    return Decoder(std::move(state));
  } catch (const Error& error) {
    return error;
  }
}

const DecoderFacts& Decoder::facts() const noexcept { return state_->settings.facts; }
const config::ModelConfig& Decoder::config() const noexcept { return state_->config; }
void Decoder::set_options(const ComputeOptions& options) { state_->compute = options; }

}  // namespace phasor::models
