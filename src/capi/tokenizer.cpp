// Tokenizers in C.
#include <memory>
#include <optional>
#include <string_view>

#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "phasor/phasor.h"
#include "phasor/text/tokenizer.hpp"

struct phasor_tokenizer {
  std::unique_ptr<phasor::text::Tokenizer> tokenizer;
};

namespace phasor::capi {
namespace {

// Text may be NULL if its length is 0.
std::string_view to_text(const char* text, std::size_t length, std::string_view where,
                         std::string_view what) {
  need_array(text, length, where, what);
  return length == 0 ? std::string_view() : std::string_view(text, length);
}

}  // namespace
}  // namespace phasor::capi

using namespace phasor;        // NOLINT(google-build-using-namespace): the C edge of this room
using namespace phasor::capi;  // NOLINT(google-build-using-namespace)

phasor_status phasor_tokenizer_load(const char* path, phasor_tokenizer** out) {
  return guarded([&] {
    need(path, "phasor_tokenizer_load", "path");
    need(out, "phasor_tokenizer_load", "out");
    hand_over(text::read_tokenizer(path).value_or_throw(), out);
  });
}

phasor_status phasor_tokenizer_parse(const char* json, size_t length, phasor_tokenizer** out) {
  return guarded([&] {
    need(json, "phasor_tokenizer_parse", "json");
    need(out, "phasor_tokenizer_parse", "out");
    hand_over(text::parse_tokenizer_json({json, length}, "tokenizer.json").value_or_throw(), out);
  });
}

void phasor_tokenizer_destroy(phasor_tokenizer* tokenizer) { delete tokenizer; }

int64_t phasor_tokenizer_vocabulary(const phasor_tokenizer* tokenizer) {
  return tokenizer == nullptr ? 0 : tokenizer->tokenizer->size();
}

phasor_status phasor_tokenizer_encode(const phasor_tokenizer* tokenizer, const char* text,
                                      size_t length, phasor_special_text special,
                                      phasor_ids** out) {
  constexpr std::string_view kWhere = "phasor_tokenizer_encode";
  return guarded([&] {
    static_assert(static_cast<int>(text::SpecialText::parse) == PHASOR_SPECIAL_PARSE);
    static_assert(static_cast<int>(text::SpecialText::as_text) == PHASOR_SPECIAL_AS_TEXT);
    need(tokenizer, kWhere, "tokenizer");
    need(out, kWhere, "out");
    hand_over(tokenizer->tokenizer->encode(
                  to_text(text, length, kWhere, "text"),
                  choice(special, text::SpecialText::as_text, kWhere, "special")),
              out);
  });
}

phasor_status phasor_tokenizer_encode_prompt(const phasor_tokenizer* tokenizer, const char* text,
                                             size_t length, phasor_ids** out) {
  constexpr std::string_view kWhere = "phasor_tokenizer_encode_prompt";
  return guarded([&] {
    need(tokenizer, kWhere, "tokenizer");
    need(out, kWhere, "out");
    hand_over(text::prompt_ids(*tokenizer->tokenizer, to_text(text, length, kWhere, "text")), out);
  });
}

phasor_status phasor_tokenizer_decode(const phasor_tokenizer* tokenizer, const int64_t* ids,
                                      size_t count, phasor_text** out) {
  constexpr std::string_view kWhere = "phasor_tokenizer_decode";
  return guarded([&] {
    need(tokenizer, kWhere, "tokenizer");
    need(out, kWhere, "out");
    need_array(ids, count, kWhere, "ids");
    hand_over(tokenizer->tokenizer->decode({ids, count}), out);
  });
}

phasor_status phasor_tokenizer_piece(const phasor_tokenizer* tokenizer, int64_t id,
                                     phasor_text** out) {
  constexpr std::string_view kWhere = "phasor_tokenizer_piece";
  return guarded([&] {
    need(tokenizer, kWhere, "tokenizer");
    need(out, kWhere, "out");
    hand_over(tokenizer->tokenizer->piece(id), out);
  });
}

phasor_status phasor_tokenizer_find(const phasor_tokenizer* tokenizer, const char* token,
                                    size_t length, int64_t* id) {
  constexpr std::string_view kWhere = "phasor_tokenizer_find";
  return guarded([&] {
    need(tokenizer, kWhere, "tokenizer");
    need(id, kWhere, "id");
    *id = tokenizer->tokenizer->find(to_text(token, length, kWhere, "token")).value_or(-1);
  });
}

phasor_status phasor_tokenizer_specials(const phasor_tokenizer* tokenizer,
                                        phasor_special_tokens* specials) {
  constexpr std::string_view kWhere = "phasor_tokenizer_specials";
  return guarded([&] {
    need(tokenizer, kWhere, "tokenizer");
    const std::size_t size = size_to_fill(specials, kWhere, "specials");
    const text::SpecialTokens& known = tokenizer->tokenizer->specials();
    phasor_special_tokens filled{};
    filled.add_begin = known.add_begin ? 1 : 0;
    filled.begin = known.begin.value_or(-1);
    filled.end = known.end.value_or(-1);
    filled.pad = known.pad.value_or(-1);
    filled.unknown = known.unknown.value_or(-1);
    filled.mask = known.mask.value_or(-1);
    filled.classify = known.classify.value_or(-1);
    filled.separate = known.separate.value_or(-1);
    give_struct(filled, size, specials);
  });
}

phasor_status phasor_tokenizer_stops(const phasor_tokenizer* tokenizer, phasor_ids** out) {
  return guarded([&] {
    need(tokenizer, "phasor_tokenizer_stops", "tokenizer");
    need(out, "phasor_tokenizer_stops", "out");
    hand_over(tokenizer->tokenizer->specials().stops, out);
  });
}
