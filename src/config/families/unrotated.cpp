// Models without rotary position embedding, and models whose rotation no RopeSpec describes: configs that
// are answered or refused by name.
#include <algorithm>
#include <array>
#include <vector>

#include "config/families/lineages.hpp"

namespace phasor::config {
namespace {

// Names are separated by a space, in the order of the alphabet.

// Tables of positions, trained or sinusoidal, of tokens, patches or grids.
constexpr std::string_view kAbsoluteNames =
    "aimv2_text_model aimv2_vision_model albert align_text_model altclip_text_model "
    "altclip_vision_model audio-spectrogram-transformer audioflamingo3_encoder autoformer "
    "bart bert bert-generation big_bird bigbird_pegasus biogpt blenderbot blenderbot-small "
    "blip_2_qformer blip_2_vision_model blip_text_model blip_vision_model "
    "bridgetower_text_model bridgetower_vision_model bros camembert canary_decoder canine "
    "chinese_clip_text_model chinese_clip_vision_model clap_text_model clip_text_model "
    "clip_vision_model clipseg_text_model clipseg_vision_model clvp_decoder coarse_acoustics "
    "cohere_asr conditional_detr convbert cosmos3_edge_vision ctrl d_fine dab-detr "
    "data2vec-text decision_transformer deformable_detr deimv2 deit detr dinov2 "
    "dinov2_with_registers distilbert dpr dpt edgetam edgetam_mask_decoder "
    "edgetam_prompt_encoder edgetam_video_mask_decoder edgetam_video_prompt_encoder "
    "edgetam_vision_model electra eomt ernie fine_acoustics flaubert flava_image_model "
    "flava_multimodal_model flava_text_model florence_vision fnet fsmt fun_asr_nano_encoder "
    "gemma4_unified_vision git git_vision_model glm_image_vision gpt-sw3 gpt_bigcode "
    "gpt_neo grounding-dino groupvit_text_model groupvit_vision_model hiera "
    "hunyuan_vl_vision ibert idefics2_vision idefics3_vision idefics_vision ijepa imagegpt "
    "informer instructblip_qformer instructblip_vision_model instructblipvideo_qformer "
    "instructblipvideo_vision_model internvl_vision janus_vision_model kosmos_2_5_text_model "
    "kosmos_2_5_vision_model kosmos_2_text_model kosmos_2_vision_model layoutlm led lilt "
    "longformer luke lw_detr lw_detr_vit lxmert m2m_100 marian markuplm mask2former "
    "maskformer mbart megatron-bert metaclip_2_text_model metaclip_2_vision_model mgp-str "
    "minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision mllama_vision_model "
    "mm-grounding-dino mobilebert molmo2_vision moss_transcribe_diarize_audio mra "
    "musicgen_decoder musicgen_melody_decoder mvp nllb-moe nystromformer omdet-turbo "
    "oneformer openai-gpt opt ovis2_vision owlv2_text_model owlv2_vision_model "
    "owlvit_text_model owlvit_vision_model patchtsmixer patchtst pegasus pegasus_x perceiver "
    "phi4_multimodal_vision pix2struct_vision_model pixio plbart pp_doclayout_v3 "
    "pp_doclayout_v4 pp_formulanet_text prophetnet pvt qianfan_ocr_vision "
    "qwen2_5_omni_audio_encoder qwen2_audio_encoder qwen3_asr_encoder "
    "qwen3_omni_moe_audio_encoder radio reformer rembert rf_detr rf_detr_dinov2 roberta "
    "roberta-prelayernorm roc_bert rt_detr rt_detr_v2 sam sam2 sam2_hiera_det_model "
    "sam2_mask_decoder sam2_prompt_encoder sam2_video_mask_decoder sam2_video_prompt_encoder "
    "sam2_vision_model sam3_detr_decoder sam3_detr_encoder sam3_geometry_encoder "
    "sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder "
    "sam3_lite_text_mask_decoder sam3_lite_text_text_model sam3_mask_decoder "
    "sam3_tracker_mask_decoder sam3_tracker_prompt_encoder sam3_tracker_video_mask_decoder "
    "sam3_tracker_video_prompt_encoder sam_hq sam_hq_mask_decoder sam_hq_prompt_encoder "
    "sam_mask_decoder sam_prompt_encoder semantic siglip2_text_model siglip2_vision_model "
    "siglip_text_model siglip_vision_model smolvlm_vision speech_to_text splinter "
    "squeezebert superglue table-transformer tapas time_series_transformer timesfm "
    "timesformer tipsv2_text_model tipsv2_vision_model trocr tvp "
    "unlimited_ocr_vision_encoder videomae videomt videoprism_text_model "
    "videoprism_vision_model vilt visual_bert vit vit_mae vit_msn vitpose_backbone vivit "
    "voxtral_encoder whisper xclip_text_model xclip_vision_model xglm xlm xlm-roberta "
    "xlm-roberta-xl xmod yolos yoso";

// A bias or a term by the distance of query and key: T5, DeBERTa, XLNet, conformers, windows of images.
constexpr std::string_view kRelativeNames =
    "beit clap_audio_model cpmant data2vec-vision deberta deberta-v2 "
    "deepseek_ocr2_sam_vision_model dinat donut-swin fastspeech2_conformer funnel "
    "gemma3n_audio gemma4_audio got_ocr2_vision granite_speech5_encoder "
    "granite_speech_encoder granite_speech_plus_encoder inkling_text layoutlmv2 layoutlmv3 "
    "layoutxlm levit longt5 maskformer-swin mpnet nemotron_asr_streaming_encoder "
    "parakeet_encoder phi4_multimodal_audio pix2struct_text_model pop2piano "
    "pp_chart2table_vision pp_formulanet_vision sam_hq_vision_model sam_vision_model "
    "seamless_m4t seamless_m4t_v2 seggpt sew-d slanext_vision speecht5 swin swin2sr swinv2 "
    "switch_transformers transfo-xl udop unlimited_ocr_sam_vision_model vitdet vits "
    "wav2vec2-bert wav2vec2-conformer wavlm xlnet";

constexpr std::string_view kAlibiNames = "mpt";

constexpr std::string_view kConvolutionNames =
    "cvt data2vec-audio glpn hubert mobilevit mobilevitv2 pvt_v2 segformer sew swiftformer "
    "unispeech unispeech-sat wav2vec2";

constexpr std::string_view kNoPositionNames =
    "falcon_mamba glm5_next_text idefics2_perceiver idefics_perciever jamba kimi_linear "
    "mamba mamba2 molmo2_adapter moonshine_streaming_encoder moshi_depth nemotron_h "
    "pp_ocrv5_mobile_rec pp_ocrv5_server_rec pp_ocrv6_small_rec rwkv xlstm zamba";

// Networks of convolutions or linear layers.
constexpr std::string_view kNoAttentionNames =
    "align_vision_model bit chameleon_vqgan convnext convnextv2 dac dinov3_convnext "
    "efficientnet emu3_vqgan encodec fastspeech2_conformer_hifigan flava_image_codebook "
    "focalnet gemma4_unified_audio glm_image_vqmodel hgnet_v2 inkling_audio inkling_vision "
    "janus_vqgan mobilenet_v1 mobilenet_v2 muse_spark_audio poolformer pp_lcnet pp_lcnet_v3 "
    "pp_lcnet_v4 pp_ocrv5_mobile_det pp_ocrv5_server_det pp_ocrv6_medium_det "
    "pp_ocrv6_small_det pp_ocrv6_tiny_rec qwen2_5_omni_bigvgan regnet resnet rt_detr_resnet "
    "sapiens2_head slanet speecht5_hifigan superpoint textnet univnet uvdoc uvdoc_backbone "
    "vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder "
    "vibevoice_acoustic_tokenizer_encoder vibevoice_diffusion";

struct NamedRotation {
  std::string_view model_type;
  std::string_view way;
};
constexpr auto kOtherRotations = std::to_array<NamedRotation>({
    {"clvp_encoder",
     "queries, keys and values rotate by one table, whose base is not in the config"},
    {"deepseek_v4",
     "the last features of compressed keys rotate, by two tables that no layer type names"},
    {"dinov3_vit", "positions are image coordinates between -1 and 1"},
    {"edgetam_video", "the attention to memory rotates by the grid of an image"},
    {"efficientloftr", "the grid of an image shares the width of the model, not of a head"},
    {"eomt_dinov3", "positions are image coordinates between -1 and 1"},
    {"esmfold2", "positions are coordinates of atoms"},
    {"gemma3n_vision", "the config does not describe the layers of the timm model"},
    {"kimi_k25_vision", "pairs read width and height in turn"},
    {"lightglue", "the frequencies are trained"},
    {"llama4_vision_model", "pairs read width, then height, both counted from 1"},
    {"minimax_m3_vl_vision", "three axes share one list of frequencies"},
    {"mistral_large4_text", "trained factors scale the frequencies"},
    {"neomme", "pairs read the row and the column of an image in turn"},
    {"pp_doclayout_v2", "the scores of the reading order rotate, not those of attention"},
    {"sam2_video", "the attention to memory rotates by the grid of an image"},
    {"sam3_tracker_video", "the attention to memory rotates by the grid of an image"},
    {"sapiens2", "positions are image coordinates between -1 and 1"},
    {"timm_backbone", "the config does not describe the layers of the timm model"},
    {"timm_wrapper", "the config does not describe the layers of the timm model"},
    {"vjepa2", "three axes rotate a third of the head each"},
});

void add_names(std::string_view names, std::string_view positions, std::vector<Family>& to) {
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(' '), names.size());
    to.push_back({.model_type = names.substr(0, end), .other_positions = positions});
    names.remove_prefix(std::min(end + 1, names.size()));
  }
}

[[nodiscard]] std::vector<Family> all_unrotated_families() {
  std::vector<Family> all;
  add_names(kAbsoluteNames, kAbsolutePositions, all);
  add_names(kRelativeNames, kRelativePositions, all);
  add_names(kAlibiNames, kAlibiPositions, all);
  add_names(kConvolutionNames, "positions by convolution", all);
  add_names(kNoPositionNames, "no positions", all);
  add_names(kNoAttentionNames, "no attention", all);
  for (const NamedRotation& named : kOtherRotations)
    all.push_back({.model_type = named.model_type, .unsupported = named.way});
  return all;
}

}  // namespace

std::span<const Family> unrotated_families() {
  static const std::vector<Family> kAll = all_unrotated_families();
  return kAll;
}

}  // namespace phasor::config
