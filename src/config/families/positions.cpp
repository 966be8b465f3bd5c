// Positions of the models that rotate nothing.
#include <algorithm>
#include <array>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

using enum PositionKind;
using enum PositionSide;
using Variant = encodings::Sinusoidal::Variant;
using encodings::BucketRange;

struct PositionRow {
  std::string_view names;  // separated by a space, in the order of the alphabet
  PositionFacts facts;
};

constexpr PositionFacts fairseq_sines(PositionSide side, std::string_view key,
                                      std::int64_t length) {
  return {.kind = sinusoidal,
          .side = side,
          .length_key = key,
          .length = length,
          .more_rows = 2,
          .after_padding = true,
          .variant = Variant::fairseq};
}
constexpr PositionFacts patch_table(std::int64_t more_rows) {
  return {.kind = patches, .length_key = "image_size", .more_rows = more_rows};
}

// A name in several rows has several encodings.
constexpr auto kPositionRows = std::to_array<PositionRow>({
    // Text: a trained row per position.
    {"albert align_text_model bert-generation big_bird blip_2_qformer blip_text_model bros "
     "chinese_clip_text_model convbert dpr ernie flava_text_model fnet "
     "instructblip_qformer instructblipvideo_qformer layoutlm layoutlmv2 layoutxlm lxmert "
     "mobilebert rembert roc_bert splinter squeezebert tvp visual_bert",
     {.length = 512}},
    {"bert electra megatron-bert", {.kind = bert, .length = 512}},
    {"distilbert", {.length = 512}},
    {"git tapas", {.length = 1024}},
    {"canine", {.length = 16384}},
    {"vilt", {.length = 40}},
    {"aimv2_text_model clip_text_model clipseg_text_model groupvit_text_model "
     "metaclip_2_text_model sam3_lite_text_text_model xclip_text_model",
     {.length = 77}},
    {"siglip2_text_model siglip_text_model", {.length = 64}},
    {"owlv2_text_model owlvit_text_model", {.length = 16}},
    {"flaubert xlm", {.length = 512, .variant = Variant::interleaved}},
    // Rows are counted from the padding token on: its row and those before it are not used.
    {"camembert data2vec-text ibert lilt longformer luke markuplm mpnet roberta "
     "roberta-prelayernorm xlm-roberta xmod",
     {.kind = bert, .length = 512, .after_padding = true}},
    {"altclip_text_model bridgetower_text_model clap_text_model layoutlmv3 xlm-roberta-xl",
     {.length = 514, .after_padding = true}},
    {"prophetnet", {.side = both, .length = 512, .after_padding = true, .padding_id = 0}},
    // Two rows before position 0.
    {"biogpt", {.length = 1024, .first_row = 2, .more_rows = 2}},
    {"mra", {.length = 512, .first_row = 2, .more_rows = 2}},
    {"nystromformer", {.length = 510, .first_row = 2, .more_rows = 2}},
    {"opt", {.length = 2048, .first_row = 2, .more_rows = 2}},
    {"yoso", {.length = 4096, .first_row = 2, .more_rows = 2}},
    {"bart mbart mvp plbart", {.side = both, .length = 1024, .first_row = 2, .more_rows = 2}},
    {"trocr", {.side = decoder, .length = 512, .first_row = 2, .more_rows = 2}},
    {"bigbird_pegasus", {.side = both, .length = 4096}},
    {"blenderbot", {.side = both, .length = 128}},
    {"blenderbot-small", {.side = both, .length = 512}},
    {"led", {.side = encoder, .length_key = "max_encoder_position_embeddings", .length = 16384}},
    {"led", {.side = decoder, .length_key = "max_decoder_position_embeddings", .length = 1024}},
    {"gpt2 gpt-sw3 gpt_bigcode decision_transformer imagegpt",
     {.length_key = "n_positions", .length = 1024}},
    {"openai-gpt", {.length_key = "n_positions", .length = 512}},
    {"gpt_neo", {.length = 2048}},
    {"whisper",
     {.kind = sinusoidal,
      .side = encoder,
      .length_key = "max_source_positions",
      .length = 1500,
      .variant = Variant::fairseq}},
    {"whisper", {.side = decoder, .length_key = "max_target_positions", .length = 448}},
    {"audioflamingo3_encoder moss_transcribe_diarize_audio qwen2_5_omni_audio_encoder "
     "qwen2_audio_encoder qwen3_omni_moe_audio_encoder voxtral_encoder",
     {.kind = sinusoidal,
      .length_key = "max_source_positions",
      .length = 1500,
      .variant = Variant::fairseq}},
    // Text: sines and cosines.
    {"ctrl",
     {.kind = sinusoidal, .length_key = "n_positions", .length = 256, .variant = Variant::concat}},
    {"marian pegasus",
     {.kind = sinusoidal, .side = both, .length = 1024, .variant = Variant::concat}},
    {"pegasus_x",
     {.kind = sinusoidal, .side = both, .length_key = {}, .variant = Variant::fairseq}},
    {"fsmt m2m_100 nllb-moe", fairseq_sines(both, "max_position_embeddings", 1024)},
    {"xglm", fairseq_sines(all, "max_position_embeddings", 2048)},
    {"kosmos_2_text_model", fairseq_sines(all, "max_position_embeddings", 2048)},
    {"kosmos_2_5_text_model", fairseq_sines(all, "max_position_embeddings", 4096)},
    {"speech_to_text", fairseq_sines(encoder, "max_source_positions", 6000)},
    {"speech_to_text", fairseq_sines(decoder, "max_target_positions", 1024)},
    {"musicgen_decoder musicgen_melody_decoder",
     {.kind = sinusoidal, .length_key = {}, .variant = Variant::fairseq, .cosines_first = true}},
    {"reformer", {.kind = axial, .length = 4096}},
    // Images: a trained row per patch; class tokens have rows of their own.
    {"aimv2_vision_model idefics2_vision idefics3_vision ijepa janus_vision_model "
     "minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision ovis2_vision "
     "phi4_multimodal_vision siglip_vision_model smolvlm_vision",
     patch_table(0)},
    {"altclip_vision_model blip_2_vision_model blip_vision_model chinese_clip_vision_model "
     "clip_vision_model clipseg_vision_model dinov2 dinov2_with_registers dpt flava_image_model "
     "git_vision_model idefics_vision instructblip_vision_model instructblipvideo_vision_model "
     "internvl_vision kosmos_2_vision_model metaclip_2_vision_model mgp-str owlv2_vision_model "
     "owlvit_vision_model qianfan_ocr_vision timesformer tipsv2_vision_model vit vit_mae vit_msn "
     "vilt xclip_vision_model",
     patch_table(1)},
    {"deit", patch_table(2)},
    {"siglip2_vision_model", {.length_key = "num_patches", .length = 256}},
    // Boxes of words on a page.
    {"layoutlm layoutlmv2 layoutlmv3 layoutxlm lilt",
     {.kind = boxes, .length_key = "max_2d_position_embeddings", .length = 1024}},
    // Sound.
    {"data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wavlm",
     {.kind = convolution, .length_key = "num_conv_pos_embeddings", .length = 128}},
    // Biases by distance.
    {"mt5 switch_transformers t5", {.kind = t5, .side = both}},
    {"longt5", {.kind = t5, .side = both}},
    {"pop2piano udop", {.kind = t5, .side = both}},
    {"pix2struct_text_model", {.kind = t5, .range = BucketRange::past_only}},
    {"umt5", {.kind = t5, .side = both, .table_per_layer = true}},
    {"mpnet", {.kind = t5, .distance_key = {}}},
    {"prophetnet",
     {.kind = t5,
      .side = decoder,
      .buckets_key = "num_buckets",
      .distance_key = "relative_max_distance",
      .range = BucketRange::past_only,
      .table_per_layer = true}},
    {"wavlm",
     {.kind = t5,
      .buckets_key = "num_buckets",
      .buckets = 320,
      .distance_key = "max_bucket_distance",
      .distance = 800}},
    {"layoutlmv2 layoutlmv3 layoutxlm", {.kind = boxes_bias}},
    {"bloom", {.kind = alibi}},
    {"mpt",
     {.kind = mpt,
      .length_key = "max_seq_len",
      .length = 2048,
      .slopes = encodings::SlopeOrder::mpt}},
    {"deberta", {.kind = deberta, .length = 512, .version = encodings::Deberta::Version::v1}},
    {"deberta-v2 sew-d", {.kind = deberta, .length = 512}},
    {"xlnet", {.kind = xlnet}},
    {"funnel transfo-xl", {.kind = transformer_xl}},
    {"wav2vec2-bert wav2vec2-conformer",
     {.kind = conformer, .length_key = "max_source_positions", .length = 5000}},
    {"speecht5",
     {.kind = shaw, .side = encoder, .length_key = "encoder_max_relative_position", .length = 160}},
    {"vits", {.kind = shaw, .length_key = "window_size", .length = 4}},
    {"donut-swin maskformer-swin swin",
     {.kind = window_bias, .length_key = "window_size", .length = 7}},
    {"swin2sr", {.kind = window_bias, .length_key = "window_size", .length = 8}},
    {"swinv2", {.kind = window_bias, .length_key = "window_size", .length = 7}},
    {"beit data2vec-vision", {.kind = grid_bias, .length_key = "image_size"}},
});

[[nodiscard]] bool lists(std::string_view names, std::string_view wanted) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == wanted) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

std::vector<PositionFacts> position_facts(std::string_view model_type) {
  std::vector<PositionFacts> found;
  for (const PositionRow& row : kPositionRows) {
    if (lists(row.names, model_type)) found.push_back(row.facts);
  }
  return found;
}

}  // namespace phasor::config
