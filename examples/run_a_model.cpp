// Loads a model and generates token by token. Without a tokenizer in the folder it prints ids.
//
//   example_run_a_model MODEL [PROMPT]      MODEL: a folder with config.json and safetensors, or a GGUF file
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "phasor/models.hpp"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: example_run_a_model MODEL [PROMPT]\n");
    return 2;
  }
  auto decoder = phasor::Decoder::load(argv[1]);
  if (!decoder) {
    std::fprintf(stderr, "%s\n", decoder.error().what());
    return 2;
  }
  phasor::Decoder model = std::move(decoder).value();
  const auto tokenizer = phasor::read_tokenizer(argv[1]);

  try {
    phasor::GenerateOptions options;
    options.tokens = 32;
    std::vector<std::int64_t> prompt = {1, 2, 3};
    if (tokenizer) {
      const std::string text = argc > 2 ? argv[2] : "The quick brown fox";
      prompt = (*tokenizer)->encode(text);
      options.stops = (*tokenizer)->specials().stops;
      std::printf("%s", text.c_str());
    }
    phasor::Generator generator(model);
    generator.generate(prompt, options, [&](std::int64_t id) {
      if (tokenizer) {
        std::printf("%s", (*tokenizer)->piece(id).c_str());
      } else {
        std::printf("%lld ", static_cast<long long>(id));
      }
      return std::fflush(stdout) == 0;  // false would end the answer here
    });
    std::printf("\n");
  } catch (const phasor::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
