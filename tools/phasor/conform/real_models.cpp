// Golden kinds of the real model, whose file `./dev model` fetches: text, ids, logits, greedy tokens.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "conform/kinds.hpp"
#include "conform/models.hpp"
#include "model_files.hpp"
#include "phasor/core/error.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::tools {
namespace {

std::filesystem::path gguf_of(const Case& golden) {
  const auto name = member<std::string>(golden, "gguf");
  if (const auto file = find_model_file(name)) return *file;
  throw CaseUnsupported(message(name,
                                " is not in PHASOR_MODELS or the cache folder; "
                                "`./dev model` downloads it"));
}

// Text -> ids -> the last token's logits -> greedy tokens, of a real model.
void compare_gguf(const Case& golden, Comparison& comparison) {
  const std::filesystem::path file = gguf_of(golden);
  const std::unique_ptr<text::Tokenizer> tokenizer = text::read_tokenizer(file).value_or_throw();
  const std::vector<std::int64_t> ids = integers_of(golden.input("input_ids"));
  if (tokenizer->encode(member<std::string>(golden, "text")) != ids) {
    refuse("input_ids: the tokenizer gave different ids");
  }
  models::Decoder decoder = models::Decoder::load(file).value_or_throw();
  const Greedy result = greedy(decoder, {ids}, golden.outputs.at("generated").data.shape.back());
  const std::int64_t vocabulary = decoder.facts().vocabulary;
  comparison.result(
      "last_logits",
      floats({result.logits.begin(), result.logits.begin() + vocabulary}, {vocabulary}));
  comparison.result("generated", tokens_of(result));
}

void compare_tokenizer(const Case& golden, Comparison& comparison) {
  const std::unique_ptr<text::Tokenizer> tokenizer =
      text::read_tokenizer(gguf_of(golden)).value_or_throw();
  const auto cases = member<io::Json>(golden, "cases");
  for (const io::Json& one : cases) {
    const auto text = member<std::string>(one, "text", "case.json");
    const auto expected = member<std::vector<std::int64_t>>(one, "ids", "case.json");
    const std::vector<std::int64_t> got = tokenizer->encode(text);
    comparison.number("tokens of " + text, static_cast<double>(got.size()),
                      static_cast<double>(expected.size()), 0.0);
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      comparison.number("ids of " + text, static_cast<double>(got[i]),
                        static_cast<double>(expected[i]), 0.0);
    }
  }
}

}  // namespace

void add_real_model_kinds(Kinds& kinds) {
  kinds["model_gguf"] = compare_gguf;
  kinds["tokenizer_gguf"] = compare_tokenizer;
}

}  // namespace phasor::tools
