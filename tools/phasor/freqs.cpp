// phasor freqs: the float64 frequencies and the amplitude of a config.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/internal/listed_frequencies.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "spec.hpp"

namespace phasor::tools {
namespace {

struct FreqsOptions {
  SpecOptions spec;
  std::string output;
  bool json = false;
};

// The shortest and the longest wavelength among the pairs that rotate.
struct Wavelengths {
  std::optional<double> shortest, longest;
  std::int64_t still = 0;  // pairs of frequency 0
};

Wavelengths wavelengths_of(std::span<const double> frequencies) {
  Wavelengths result;
  for (const double frequency : frequencies) {
    if (frequency == 0.0) {
      ++result.still;
      continue;
    }
    const double wavelength = 2.0 * std::numbers::pi / std::abs(frequency);
    if (!result.shortest || wavelength < *result.shortest) result.shortest = wavelength;
    if (!result.longest || wavelength > *result.longest) result.longest = wavelength;
  }
  return result;
}

void write_doubles(const std::string& path, std::span<const double> values) {
  io::NpyArray array = io::make_npy(io::NpyType::f64, {static_cast<std::int64_t>(values.size())});
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  write_array(path, array);
}

io::Json optional_json(const std::optional<double>& value) {
  return value ? io::Json(*value) : io::Json(nullptr);
}

int run_freqs(const FreqsOptions& options) {
  const encodings::RopeSpec spec = read_spec(options.spec);
  const core::Frequencies resolved = encodings::listed_frequencies(spec, options.spec.context);
  const std::span<const double> values = resolved.values();
  const Wavelengths wavelengths = wavelengths_of(values);
  if (!options.output.empty()) write_doubles(options.output, values);

  if (options.json) {
    io::Json answer;
    answer["count"] = values.size();
    answer["amplitude"] = resolved.amplitude();
    answer["head_dim"] = spec.head_dim;
    answer["rotary_dim"] = spec.rotary_dim;
    answer["base"] = optional_json(encodings::base_of(spec));
    answer["scaling"] = encodings::name_of(spec.scaling);
    answer["layout"] = spec.layout ? io::Json(core::name_of(*spec.layout)) : io::Json(nullptr);
    answer["context"] = options.spec.context ? io::Json(*options.spec.context) : io::Json(nullptr);
    answer["shortest_wavelength"] = optional_json(wavelengths.shortest);
    answer["longest_wavelength"] = optional_json(wavelengths.longest);
    answer["frequencies"] = std::vector<double>(values.begin(), values.end());
    print_out("{}\n", answer.dump());
    return exit_code::done;
  }
  const std::optional<double> base = encodings::base_of(spec);
  print_out("frequencies  {}, scaling {}, {}\n", values.size(), encodings::name_of(spec.scaling),
            base ? fmt::format("base {}", *base) : "from the spec's list");
  print_out("amplitude    {}\n", resolved.amplitude());
  if (wavelengths.shortest) {
    print_out(
        "wavelength   {:.6g} to {:.6g} positions{}\n", *wavelengths.shortest, *wavelengths.longest,
        wavelengths.still > 0 ? fmt::format(", {} pairs do not rotate", wavelengths.still) : "");
  }
  if (encodings::depends_on_context(spec) && !options.spec.context) {
    print_out("context      within the original length; set it with --context\n");
  }
  if (!options.output.empty()) return exit_code::done;
  print_out("\n{:>5}  {:>24}  {:>14}\n", "pair", "frequency, rad", "wavelength");
  for (std::size_t pair = 0; pair < values.size(); ++pair) {
    print_out("{:>5}  {:>24}  {:>14}\n", pair, values[pair],
              values[pair] == 0.0
                  ? "infinite"
                  : fmt::format("{:.6g}", 2.0 * std::numbers::pi / std::abs(values[pair])));
  }
  return exit_code::done;
}

}  // namespace

void add_freqs(CommandLine& line) {
  auto options = std::make_shared<FreqsOptions>();
  Verb& verb = line.verb("freqs", "a config's frequencies in float64, and its amplitude");
  add_spec_options(verb, options->spec);
  verb.flag("-o,--output", &options->output,
            "write the frequencies here; without it they are listed");
  verb.flag("--json", &options->json,
            "print frequencies, amplitude and wavelengths as one JSON object");
  verb.footer =
      R"(Computes the frequencies of a config in radians per position, in float64, and the amplitude,
which is the factor on cos and sin.

Shape    F.npy is float64 [pairs]; images (axial): the head_dim/4 values that both axes
         read, or height's and then width's (Pixtral)

Example  phasor freqs --config model/config.json --context 8k -o F.npy
         phasor freqs --head-dim 128 --base 500000)";
  verb.action = [options] { return run_freqs(*options); };
}

}  // namespace phasor::tools
