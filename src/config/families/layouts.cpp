// Families of which only the layout must be known: their config.json has every other number.
#include <array>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

struct Named {
  std::string_view model_type;
  std::string_view gguf_as = {};
};

// The order is that of the alphabet.
constexpr auto kHalfNames = std::to_array<Named>({
    {"aria_text"},
    {"chameleon", "chameleon"},
    {"csm"},
    {"csm_depth_decoder_model"},
    {"deepseek_ocr2_encoder"},
    {"deepseek_ocr2_text"},
    {"dia_decoder"},
    {"dia_encoder"},
    {"diffllama"},
    {"doge"},
    {"emu3_text_model"},
    {"esmc"},
    {"eurobert", "eurobert"},
    {"evolla"},
    {"flex_olmo"},
    {"gemma3n_text", "gemma3n"},
    {"glmasr_encoder"},
    {"gpt_neox_japanese"},
    {"gradium_phonon_tts"},
    {"gte"},
    {"higgs_audio_v2"},
    {"hrm_text"},
    {"hy_v3"},
    {"hy_v4"},
    {"hyperclovax"},
    {"idefics"},
    {"jais2", "jais2"},
    {"jina_embeddings_v3", "jina-bert-v3"},
    {"kyutai_speech_to_text"},
    {"laguna"},
    {"lasr_encoder"},
    {"lfm2_moe", "lfm2moe"},
    {"mellum"},
    {"mimi"},
    {"mimi_decoder"},
    {"mimi_encoder"},
    {"mimo_v2_flash"},
    {"minimax"},
    {"minimax_m2", "minimax-m2"},
    {"mllama_text_model"},
    {"modernbert-decoder"},
    {"molmo2_text"},
    {"moshi"},
    {"muse_glimmer_assistant"},
    {"nemotron3_5_transcribe_asr_audio"},
    {"nemotron3_5_transcribe_word_timestamp"},
    {"nemotron3_diarization_audio"},
    {"neucodec"},
    {"olmo_hybrid"},
    {"phi4_multimodal"},
    {"pocket_tts"},
    {"pocket_tts_audio_tokenizer"},
    {"pocket_tts_audio_tokenizer_decoder"},
    {"pocket_tts_audio_tokenizer_encoder"},
    {"qwen2_5_omni_dit"},
    {"qwen3_omni_moe_talker_code_predictor"},
    {"solar_open"},
    {"step3p5"},
    {"t5_gemma_module"},
    {"t5gemma2_decoder"},
    {"t5gemma2_encoder"},
    {"t5gemma2_text"},
    {"telechat3"},
    {"timesfm2_5"},
    {"ultrabert"},
    {"unlimited_ocr_text"},
    {"vaultgemma"},
    {"voxtral_realtime_encoder"},
    {"voxtral_realtime_text"},
    {"xcodec2"},
    {"zaya"},
});

constexpr auto kInterleavedNames = std::to_array<Named>({
    {"blt_global_transformer"},
    {"blt_local_decoder"},
    {"blt_local_encoder"},
    {"blt_patcher"},
    {"moonshine"},
    {"moonshine_streaming"},
    {"openai_privacy_filter"},
    {"pe_audio_encoder"},
    {"pe_audio_video_encoder"},
    {"pe_video_encoder"},
});

// Parts for images: each axis has its own half of the pairs.
constexpr auto kImageNames = std::to_array<Named>({
    {"cohere_compass_vision"},
    {"ernie4_5_vl_moe_vision"},
    {"exaone4_5_vision"},
    {"glm4v_moe_vision"},
    {"glm4v_vision"},
    {"glm5_next_vision"},
    {"glm_ocr_vision"},
    {"mlcd_vision_model"},
    {"muse_glimmer_vision"},
    {"muse_spark_vision"},
    {"paddleocr_vl_vision"},
    {"qwen2_5_omni_vision_encoder"},
    {"qwen2_5_vl_vision"},
    {"qwen2_vl_vision"},
    {"qwen3_5_moe_vision"},
    {"qwen3_5_vision"},
    {"qwen3_omni_moe_vision_encoder"},
    {"qwen3_vl_moe_vision"},
    {"qwen3_vl_vision"},
    {"qwen4_exp_vision"},
    {"step3p5_vision"},
    {"video_llama_3_vision"},
});

constexpr std::size_t kCountLayouts =
    kHalfNames.size() + kInterleavedNames.size() + kImageNames.size();

constexpr std::array<Family, kCountLayouts> all_layout_families() {
  std::array<Family, kCountLayouts> all{};
  std::size_t count = 0;
  const auto add = [&](const Named& named, const RotaryFacts& facts) {
    all[count].model_type = named.model_type;
    all[count].gguf_as = named.gguf_as;
    all[count++].rotary = facts;
  };
  for (const Named& named : kHalfNames)
    add(named, {.layout = kHalf, .softmax = SoftmaxRule::unknown});
  for (const Named& named : kInterleavedNames)
    add(named, {.layout = kInterleaved, .softmax = SoftmaxRule::unknown});
  for (const Named& named : kImageNames) {
    add(named, {.layout = kHalf, .base = 1e4, .axial = encodings::AxialAxes::Kind::concatenated});
  }
  return all;
}
constexpr std::array<Family, kCountLayouts> kLayoutFamilies = all_layout_families();

}  // namespace

std::span<const Family> layout_families() { return kLayoutFamilies; }

}  // namespace phasor::config
