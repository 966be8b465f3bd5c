// Models, tokenizers and reports.
#include <array>

#include "faults/c_calls.hpp"

namespace phasor::faults {
namespace {

std::int32_t go_on(void*, std::int64_t) { return 1; }

void models(const std::string& folder) {
  phasor_model_options options{};
  options.struct_size = sizeof(options);
  options.threads = 2;
  Model model;
  PHASOR_NOTE(phasor_model_destroy(nullptr));
  PHASOR_MAKE(model, phasor_model_load((folder + "/model").c_str(), &options, out));
  phasor_model_info info{};
  info.struct_size = sizeof(info);
  PHASOR_CALL(phasor_model_describe(model.get(), &info));
  if (PHASOR_NOTE(phasor_model_vocabulary(model.get())) != 97)
    wrong("phasor_model_load", "the vocabulary is wrong");
  Sequence sequence, fork;
  PHASOR_NOTE(phasor_sequence_destroy(nullptr));
  PHASOR_MAKE(sequence, phasor_sequence_create(model.get(), 64, out));
  static std::array<std::int64_t, 40> ids;
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 31 % 97);
  static std::array<float, 97> logits;
  // Forty tokens are multiplied by the GEMM library, one is streamed.
  PHASOR_CALL(phasor_model_forward(model.get(), sequence.get(), ids.data(), 40, nullptr, 0));
  PHASOR_CALL(phasor_model_forward(model.get(), sequence.get(), ids.data(), 1, logits.data(), 97));
  if (PHASOR_NOTE(phasor_sequence_tokens(sequence.get())) != 41)
    wrong("phasor_model_forward", "tokens are counted wrongly");
  PHASOR_CALL(phasor_sequence_shift(sequence.get(), 4, 8));
  PHASOR_CALL(phasor_sequence_truncate(sequence.get(), 20));
  PHASOR_MAKE(fork, phasor_sequence_fork(sequence.get(), 32, out));
  phasor_generate_options generate;
  PHASOR_CALL(phasor_generate_options_init(&generate, sizeof(generate)));
  generate.tokens = 3;
  generate.temperature = 0.7;
  generate.top_k = 5;
  generate.repetition_penalty = 1.1;
  Ids answer;
  PHASOR_NOTE(phasor_ids_destroy(nullptr));
  PHASOR_MAKE(answer, phasor_generate(model.get(), ids.data(), 20, &generate, go_on, nullptr, out));
  PHASOR_NOTE(phasor_ids_data(answer.get()));
  PHASOR_NOTE(phasor_ids_count(answer.get()));
}

void quantised_model(const std::string& folder) {
  Model model;
  PHASOR_MAKE(model, phasor_model_load((folder + "/tiny.gguf").c_str(), nullptr, out));
  Sequence sequence;
  PHASOR_MAKE(sequence, phasor_sequence_create(model.get(), 64, out));
  static const std::array<std::int64_t, 30> ids{};
  PHASOR_CALL(
      phasor_model_forward(model.get(), sequence.get(), ids.data(), ids.size(), nullptr, 0));
}

void use(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids, prompt, stops;
  PHASOR_MAKE(ids, phasor_tokenizer_encode(tokenizer.get(), text.data(), text.size(),
                                           PHASOR_SPECIAL_PARSE, out));
  PHASOR_MAKE(prompt,
              phasor_tokenizer_encode_prompt(tokenizer.get(), text.data(), text.size(), out));
  Text decoded, piece;
  PHASOR_NOTE(phasor_text_destroy(nullptr));
  PHASOR_MAKE(decoded, phasor_tokenizer_decode(tokenizer.get(), phasor_ids_data(ids.get()),
                                               phasor_ids_count(ids.get()), out));
  PHASOR_NOTE(phasor_text_data(decoded.get()));
  PHASOR_NOTE(phasor_text_size(decoded.get()));
  PHASOR_MAKE(piece, phasor_tokenizer_piece(tokenizer.get(), 1, out));
  std::int64_t id = 0;
  PHASOR_CALL(phasor_tokenizer_find(tokenizer.get(), "a token that is not there", 25, &id));
  phasor_special_tokens specials{};
  specials.struct_size = sizeof(specials);
  PHASOR_CALL(phasor_tokenizer_specials(tokenizer.get(), &specials));
  PHASOR_MAKE(stops, phasor_tokenizer_stops(tokenizer.get(), out));
  if (PHASOR_NOTE(phasor_tokenizer_vocabulary(tokenizer.get())) <= 0)
    wrong("phasor_tokenizer_load", "the vocabulary is empty");
}

void tokenizers(const std::string& folder) {
  Tokenizer words, bytes, parsed;
  PHASOR_NOTE(phasor_tokenizer_destroy(nullptr));
  PHASOR_MAKE(words, phasor_tokenizer_load((folder + "/words").c_str(), out));
  use(words, "the quick foxes");
  PHASOR_MAKE(bytes, phasor_tokenizer_load((folder + "/bytes").c_str(), out));
  use(bytes, "abba");
  static constexpr std::string_view kJson =
      R"({"version": "1.0", "normalizer": null, "added_tokens": [],
          "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
          "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";
  PHASOR_MAKE(parsed, phasor_tokenizer_parse(kJson.data(), kJson.size(), out));
}

void sentencepiece(const std::string& folder) {
  for (const char* name : {"/unigram", "/bpe"}) {
    Tokenizer tokenizer;
    PHASOR_MAKE(tokenizer, phasor_tokenizer_load((folder + name).c_str(), out));
    use(tokenizer, "hello world");
  }
}

void make(Config& config) {
  static constexpr std::string_view kConfig =
      R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
          "num_hidden_layers": 2, "max_position_embeddings": 4096, "rope_theta": 10000.0,
          "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                           "original_max_position_embeddings": 1024}})";
  PHASOR_MAKE(config, phasor_config_parse(kConfig.data(), kConfig.size(), out));
}

void reports(const std::string& folder) {
  Config config, read;
  PHASOR_NOTE(phasor_config_destroy(nullptr));
  make(config);
  PHASOR_MAKE(read, phasor_config_read((folder + "/tiny.gguf").c_str(), out));
  Rope rope;
  PHASOR_MAKE(rope, phasor_rope_from_config(config.get(), nullptr, PHASOR_HALF, 0, out));
  Text text;
  PHASOR_MAKE(text, phasor_explain_json(config.get(), 0, out));
  PHASOR_MAKE(text, phasor_plan_json(config.get(), 8192, 0, nullptr, out));
  PHASOR_MAKE(text, phasor_describe_json((folder + "/model").c_str(), out));
}

void differences(const std::string&) {
  Config config;
  make(config);
  Text text;
  PHASOR_MAKE(text, phasor_diff_json(config.get(), nullptr, out));
  PHASOR_MAKE(text, phasor_dialects_json(out));
}

void errors(const std::string& folder) {
  static constexpr std::string_view kPlain = R"({"head_dim": 16, "layout": "half"})";
  Config config;
  PHASOR_MAKE(config, phasor_config_parse(kPlain.data(), kPlain.size(), out));
  Text text;
  static std::array<float, 12 * 2 * 16> before, after;
  for (std::size_t i = 0; i < before.size(); ++i)
    before[i] = after[i] = static_cast<float>((i * 37 + i * i * 11) % 101) / 50.0F - 1.0F;
  const phasor_heads a = phasor_dense_heads(before.data(), PHASOR_F32, 1, 12, 2, 16);
  const phasor_heads b = phasor_dense_heads(after.data(), PHASOR_F32, 1, 12, 2, 16);
  const phasor_positions positions = phasor_positions_from(0);
  Rope rope;
  PHASOR_MAKE(rope, phasor_rope_from_config(config.get(), nullptr, PHASOR_HALF, 0, out));
  PHASOR_CALL(phasor_rotate_in_place(rope.get(), &positions, &b, nullptr, nullptr));
  PHASOR_MAKE(text, phasor_diagnose_json(&a, &b, nullptr, config.get(), nullptr, 0, out));
  const phasor_cos_sin_rows table{before.data(), after.data(), PHASOR_F32, 8, 0, 8, 1};
  PHASOR_MAKE(text, phasor_audit_json(config.get(), nullptr, &table, 4, nullptr, 0, 0, 1e-3, out));
  PHASOR_MAKE(text, phasor_weight_order_json((folder + "/model").c_str(), out));
}

void conversion(const std::string& folder) {
  Text text;
  PHASOR_MAKE(
      text, phasor_convert_checkpoint((folder + "/model").c_str(), (folder + "/converted").c_str(),
                                      PHASOR_INTERLEAVED, PHASOR_LAYOUT_UNSET, out));
}

}  // namespace

const std::vector<Part>& model_parts() {
  static const std::vector<Part> parts = {
      {"models", models},         {"quantised_model", quantised_model},
      {"tokenizers", tokenizers}, {"sentencepiece", sentencepiece},
      {"reports", reports},       {"differences", differences},
      {"errors", errors},         {"conversion", conversion}};
  return parts;
}

}  // namespace phasor::faults
