// config.json, plain specs and encodings: what parses must resolve at any context, or give an error of
// one line.
#include "phasor/config/config.hpp"

#include "input.hpp"
#include "phasor/config/encoding.hpp"
#include "resolve.hpp"

using namespace phasor;

namespace {

void resolve_encoding(const config::LoadedEncoding& loaded) {
  encodings::AttentionShape shape;
  shape.heads = shape.key_heads = 2;
  shape.head_dim = shape.value_dim = 4;
  shape.query_tokens = shape.key_tokens = 3;
  fuzz::allow_refusal([&] { (void)config::resolve(loaded, shape); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > fuzz::kMaxInput) return 0;
  const std::string_view text = fuzz::text_of(data, size);
  if (const Result<config::ModelConfig> parsed = config::parse_config(text)) {
    fuzz::resolve_each(*parsed);
    for (const char* const layer : {"", "0", "full_attention"}) {
      if (const auto selected = config::select_layer(*parsed, layer); !selected)
        fuzz::require_one_line(selected.error());
    }
  } else {
    fuzz::require_one_line(parsed.error());
  }
  // A missing folder: tables must be in the text.
  if (const Result<config::LoadedEncoding> loaded = config::parse_encoding(text, "/nonexistent")) {
    resolve_encoding(*loaded);
  } else {
    fuzz::require_one_line(loaded.error());
  }
  return 0;
}
