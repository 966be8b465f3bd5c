#include "encodings/rope/scalings.hpp"

namespace phasor::encodings {
namespace {

constexpr std::array kLlama3Fields = {
    scaling_field<&Llama3Scaling::factor>("factor", FieldRange::positive, WhenMissing::error,
                                          "Divides the frequencies of long wavelength."),
    scaling_field<&Llama3Scaling::low_freq_factor>(
        "low_freq_factor", FieldRange::positive, WhenMissing::error,
        "Wavelengths above original_length / low_freq_factor are divided in full."),
    scaling_field<&Llama3Scaling::high_freq_factor>(
        "high_freq_factor", FieldRange::positive, WhenMissing::error,
        "Wavelengths below original_length / high_freq_factor stay as they are."),
    original_length_field<&Llama3Scaling::original_length>(WhenMissing::error),
};

void check(const Llama3Scaling& scaling, const ScalingInput&) {
  if (scaling.high_freq_factor < scaling.low_freq_factor) {
    refuse(message("rope: llama3 high_freq_factor must not be below low_freq_factor, got ",
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

}  // namespace

const ScalingRule& rule_of(std::type_identity<Llama3Scaling>) {
  static constexpr ScalingRule kRule = make_rule<Llama3Scaling, scale, check>(
      "llama3", "f_i, f_i / factor or a blend, by wavelength 2 pi / f_i", kLlama3Fields);
  return kRule;
}

}  // namespace phasor::encodings
