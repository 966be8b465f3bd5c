#include "encodings/rope/scalings.hpp"
#include "phasor/core/error.hpp"

namespace phasor::encodings {

void check(const Llama3Scaling& scaling, const ScalingInput&) {
  require_positive("llama3 factor", scaling.factor);
  require_positive("llama3 low_freq_factor", scaling.low_freq_factor);
  require_positive("llama3 high_freq_factor", scaling.high_freq_factor);
  require_positive("llama3 original_length", scaling.original_length);
  if (scaling.high_freq_factor < scaling.low_freq_factor) {
    throw Error(ErrorCode::invalid_argument,
                message("rope: llama3 high_freq_factor must not be below low_freq_factor, got ",
                        scaling.high_freq_factor, " and ", scaling.low_freq_factor));
  }
}

ScaledFrequencies scale(const Llama3Scaling& scaling, const ScalingInput& input) {
  return in_both_arithmetics([&]<class T>(std::type_identity<T>) {
    using S = Setting<T>;
    const S original = static_cast<double>(scaling.original_length);
    const S low = scaling.low_freq_factor;
    const S high = scaling.high_freq_factor;
    const T longest = element<T>(original / low);
    const T shortest = element<T>(original / high);
    const T factor = element<T>(scaling.factor);
    const T one(1.0);
    std::vector<T> frequencies = plain_frequencies<T>(input.base, input.width, input.width / 2);
    for (T& frequency : frequencies) {
      // Quotients with a setting on top are a reciprocal and a product, as float32 engines evaluate
      // them.
      const T wavelength = (one / frequency) * element<T>(static_cast<S>(kTwoPi));
      if (less(longest, wavelength)) {
        frequency = frequency / factor;
      } else if (!less(wavelength, shortest) && less(low, high)) {
        const T rotations = (one / wavelength) * element<T>(original);
        const T kept_part = (rotations - element<T>(low)) / element<T>(high - low);
        frequency = (one - kept_part) * frequency / factor + kept_part * frequency;
      }
    }
    return frequencies;
  });
}

}  // namespace phasor::encodings
