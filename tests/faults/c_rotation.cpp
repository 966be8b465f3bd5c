// Ropes, tables, rotation, attention and caches.
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "faults/c_calls.hpp"

namespace phasor::faults {
namespace {

// Static, so that a body requests memory only through the API.
constexpr std::int64_t kTokens = 3, kHeads = 2, kDim = 4;
template <class T>
struct Block {
  std::array<T, 2048> values{};
  phasor_heads view(std::int64_t tokens, std::int64_t dim = kDim) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(0.01 * (i % 89));
    return phasor_dense_heads(values.data(), sizeof(T) == 8 ? PHASOR_F64 : PHASOR_F32, 1, tokens,
                              kHeads, dim);
  }
};
template <class T>
Block<T>& block(int index) {
  static std::array<Block<T>, 9> blocks;
  return blocks[static_cast<std::size_t>(index)];
}

phasor_rope_spec spec_of(std::int64_t head_dim) {
  phasor_rope_spec spec;
  PHASOR_CALL(phasor_rope_spec_init(&spec, sizeof(spec)));
  spec.head_dim = head_dim;
  spec.layout = PHASOR_HALF;
  return spec;
}
void make(Rope& rope, std::int64_t head_dim, double base = 10000.0) {
  phasor_rope_spec spec = spec_of(head_dim);
  spec.base = base;
  PHASOR_MAKE(rope, phasor_rope_create(&spec, 0, out));
}

void basics(const std::string&) {
  PHASOR_NOTE(phasor_version());
  PHASOR_NOTE(phasor_version_number());
  PHASOR_NOTE(phasor_last_error());
  PHASOR_NOTE(phasor_f16_to_float(1));
  PHASOR_NOTE(phasor_bf16_to_float(1));
  PHASOR_NOTE(phasor_float_to_f16(1.0F));
  PHASOR_NOTE(phasor_float_to_bf16(1.0F));
  PHASOR_NOTE(phasor_available_threads());
  phasor_instruction_set isa = 0;
  PHASOR_CALL(phasor_resolve_instruction_set(PHASOR_ISA_BEST, &isa));
}

void ropes(const std::string& folder) {
  Rope rope;
  PHASOR_NOTE(phasor_rope_destroy(nullptr));
  make(rope, kDim);
  static constexpr std::string_view kConfig =
      R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
          "num_hidden_layers": 2, "max_position_embeddings": 4096, "rope_theta": 10000.0,
          "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                           "original_max_position_embeddings": 1024}})";
  Rope from_text, from_file;
  PHASOR_MAKE(from_text, phasor_rope_from_config_text(kConfig.data(), kConfig.size(), nullptr,
                                                      PHASOR_LAYOUT_UNSET, 0, out));
  PHASOR_MAKE(from_file, phasor_rope_from_config_file((folder + "/yarn.json").c_str(), nullptr,
                                                      PHASOR_LAYOUT_UNSET, 0, out));
  phasor_rope_info info{};
  info.struct_size = sizeof(info);
  PHASOR_CALL(phasor_rope_describe(rope.get(), &info));
  double frequencies[2], wide[2][2];
  float narrow[2][2];
  std::uint8_t axes[2];
  const double position = 3.0;
  PHASOR_CALL(phasor_rope_frequencies(rope.get(), frequencies, 2));
  PHASOR_CALL(phasor_rope_axes(rope.get(), axes, 2));
  PHASOR_CALL(
      phasor_cos_sin_f32(rope.get(), &position, 1, PHASOR_ANGLES_EXACT, narrow[0], narrow[1], 2));
  PHASOR_CALL(phasor_cos_sin_f64(rope.get(), &position, 1, wide[0], wide[1], 2));
}

void tables(const std::string&) {
  Rope rope;
  make(rope, 128);
  Table table, grown, given;
  PHASOR_NOTE(phasor_table_destroy(nullptr));
  // Large enough for two threads.
  PHASOR_MAKE(table, phasor_table_create(rope.get(), 0, 1024, PHASOR_ANGLES_EXACT, 2, out));
  PHASOR_MAKE(grown, phasor_table_grow(table.get(), 0, 1500, 2, out));
  static const float rows[4] = {1.0F, 1.0F, 0.0F, 0.0F};
  PHASOR_MAKE(given, phasor_table_from_rows(rows, rows + 2, 1, 2, 0, out));
  std::int64_t first = 0, count = 0;
  PHASOR_CALL(phasor_table_range(grown.get(), &first, &count));
  const float *cos = nullptr, *sin = nullptr;
  std::size_t pairs = 0;
  PHASOR_CALL(phasor_table_rows(grown.get(), 1499, &cos, &sin, &pairs));
}

void rotations(const std::string&) {
  Rope rope, other;
  make(rope, kDim);
  make(other, kDim, 500000.0);
  const phasor_heads q = block<float>(0).view(kTokens), k = block<float>(1).view(kTokens);
  const phasor_positions positions = phasor_positions_from(3), moved = phasor_positions_from(9);
  const phasor_rotation rotation{&q, &k, PHASOR_QUERY};
  PHASOR_CALL(phasor_rotate(rope.get(), &positions, &rotation, 1, nullptr));
  PHASOR_CALL(phasor_rotate_in_place(rope.get(), &positions, &q, &k, nullptr));
  static const float rows[2 * 2] = {1.0F, 0.5F, 0.0F, 0.5F};
  const phasor_cos_sin_rows own{rows, rows + 2, PHASOR_F32, 2, 0, 0, 1};
  PHASOR_CALL(phasor_rotate_by(&own, PHASOR_HALF, 0, &rotation, 1, nullptr));
  PHASOR_CALL(phasor_rerotate(rope.get(), &positions, other.get(), &moved, &k, 2));
  // Heads before tokens and large: by threads, with memory of their own.
  static std::array<float, 64 * 2048 * 8> large{};
  phasor_heads x = phasor_dense_heads(large.data(), PHASOR_F32, 1, 2048, 64, 8);
  x.token_stride = 8;
  x.head_stride = std::int64_t{2048} * 8;
  Rope eight;
  make(eight, 8);
  phasor_rotate_options options{};
  options.struct_size = sizeof(options);
  options.threads = 2;
  PHASOR_CALL(phasor_rotate_in_place(eight.get(), &positions, &x, nullptr, &options));
}

void decay(const std::string&) {
  Rope rope;
  make(rope, kDim);
  const double q[kDim] = {1.0, 2.0, 3.0, 4.0}, distances[2] = {1.0, 2.0};
  double out[2];
  PHASOR_CALL(phasor_mean_partial_sums(rope.get(), distances, 2, out));
  PHASOR_CALL(phasor_abel_bounds(rope.get(), q, q, kDim, distances, 2, out));
  PHASOR_CALL(phasor_rotated_scores(rope.get(), q, q, kDim, distances, 2, out));
  PHASOR_CALL(phasor_mean_rotated_scores(rope.get(), 0.0, 1.0, PHASOR_EQUAL, distances, 2, out));
}

template <class T>
void attend_with(const phasor_encoding* encoding, bool segments, bool causal) {
  phasor_heads views[8];
  for (int i = 0; i < 8; ++i) views[i] = block<T>(i).view(kTokens);
  static float lse[kTokens * kHeads], score[4][kTokens * kTokens * kHeads];
  static double wide_lse[kTokens * kHeads];
  static const std::int32_t ids[kTokens] = {0, 1, 1};
  static const float bias[kTokens] = {0.0F, 0.5F, 1.0F};
  const phasor_mask mask = phasor_dense_mask(bias, PHASOR_MASK_ADDITIVE, 1, 1, 1, kTokens);
  phasor_attend_options options{};
  options.struct_size = sizeof(options);
  options.threads = 2;
  options.causality = causal ? PHASOR_CAUSAL : PHASOR_NOT_CAUSAL;
  options.mask = &mask;
  if (segments) {
    options.query_segments = options.key_segments = ids;
    options.query_segment_count = options.key_segment_count = kTokens;
  }
  if constexpr (sizeof(T) == 8) {
    options.wide_log_sum_exp = wide_lse;
    options.wide_log_sum_exp_count = kTokens * kHeads;
  } else {
    options.log_sum_exp = lse;
    options.log_sum_exp_count = kTokens * kHeads;
  }
  phasor_attend_options with_scores = options;
  if (sizeof(T) == 4) {
    with_scores.scores = score[0];
    with_scores.capped_scores = score[1];
    with_scores.masked_scores = score[2];
    with_scores.probabilities = score[3];
    with_scores.score_count = static_cast<std::size_t>(kTokens * kTokens * kHeads);
  }
  PHASOR_CALL(phasor_attend(encoding, &views[0], &views[1], &views[2], &views[3], &with_scores));
  PHASOR_CALL(phasor_attend(encoding, &views[0], &views[1], &views[2], &views[3], &options));
  PHASOR_CALL(phasor_attend_backward(encoding, &views[0], &views[1], &views[2], &views[3],
                                     &views[4], &views[5], &views[6], &views[7], &options));
}

void attend_file(const std::string& folder, const char* name) {
  // The file is not read through the API.
  std::FILE* const file = std::fopen((folder + "/encodings/" + name + ".json").c_str(), "rb");
  if (file == nullptr) throw Stopped{};
  static char json[16384];
  json[std::fread(json, 1, sizeof(json) - 1, file)] = '\0';
  std::fclose(file);
  Encoding encoding;
  PHASOR_NOTE(phasor_encoding_destroy(nullptr));
  PHASOR_MAKE(encoding, phasor_encoding_parse(json, nullptr, out));
  const std::string_view which = name;
  const bool segments = which == "xlnet_segments", causal = which.starts_with("transformer_xl");
  attend_with<float>(encoding.get(), segments, causal);
  attend_with<double>(encoding.get(), segments, causal);
}
void attention_by_tables(const std::string& folder) {
  for (const char* name : {"alibi_slopes", "kerple", "t5", "shaw", "bert_relative"})
    attend_file(folder, name);
}
void attention_by_rows(const std::string& folder) {
  for (const char* name : {"transformer_xl", "conformer_relative", "xlnet_segments"})
    attend_file(folder, name);
}
void attention_by_two_tables(const std::string& folder) {
  for (const char* name : {"deberta_v1", "deberta_v2", "tupe_untied"}) attend_file(folder, name);
}
void attention_by_rotation(const std::string& folder) {
  for (const char* name : {"none", "rope_with_alibi", "rope_yarn", "xpos"})
    attend_file(folder, name);
}

void linear(const std::string&) {
  Rope rope;
  make(rope, kDim);
  phasor_heads views[7];
  for (int i = 0; i < 7; ++i) views[i] = block<float>(i).view(kTokens);
  phasor_linear_options options{};
  options.struct_size = sizeof(options);
  options.threads = 2;
  options.causality = PHASOR_CAUSAL;
  PHASOR_CALL(
      phasor_linear_attend(rope.get(), &views[0], &views[1], &views[2], &views[3], &options));
  PHASOR_CALL(phasor_linear_attend_backward(rope.get(), &views[0], &views[1], &views[2], &views[3],
                                            &views[4], &views[5], &views[6], &options));
  phasor_heads wide[7];
  for (int i = 0; i < 7; ++i) wide[i] = block<double>(i).view(kTokens);
  PHASOR_CALL(phasor_linear_attend(rope.get(), &wide[0], &wide[1], &wide[2], &wide[3], &options));
  PHASOR_CALL(phasor_linear_attend_backward(rope.get(), &wide[0], &wide[1], &wide[2], &wide[3],
                                            &wide[4], &wide[5], &wide[6], &options));
  LinearState state, fork;
  PHASOR_NOTE(phasor_linear_state_destroy(nullptr));
  PHASOR_MAKE(state, phasor_linear_state_create(1, kHeads, kDim, kDim, out));
  PHASOR_CALL(phasor_linear_continue(state.get(), rope.get(), &views[0], &views[1], &views[2],
                                     &views[3], &options));
  PHASOR_MAKE(fork, phasor_linear_state_fork(state.get(), out));
  if (PHASOR_NOTE(phasor_linear_state_tokens(fork.get())) != kTokens)
    wrong("phasor_linear_continue", "tokens are counted wrongly");
  PHASOR_CALL(phasor_linear_state_reset(state.get()));
}

void caches(const std::string&) {
  Rope rope, other;
  make(rope, kDim);
  make(other, kDim, 500000.0);
  for (const phasor_cache_mode mode : {PHASOR_CACHE_COMPACT, PHASOR_CACHE_DRIFT_FREE}) {
    phasor_cache_spec spec{};
    spec.struct_size = sizeof(spec);
    spec.dtype = PHASOR_F32;
    spec.batch = 1;
    spec.key_heads = kHeads;
    spec.head_dim = spec.value_dim = kDim;
    spec.capacity = 16;
    spec.rope = rope.get();
    spec.mode = mode;
    Cache cache, fork;
    PHASOR_NOTE(phasor_cache_destroy(nullptr));
    PHASOR_MAKE(cache, phasor_cache_create(&spec, out));
    const phasor_heads k = block<float>(0).view(kTokens), v = block<float>(1).view(kTokens),
                       o = block<float>(2).view(kTokens);
    PHASOR_CALL(phasor_cache_append(cache.get(), &k, &v, nullptr, 2));
    PHASOR_CALL(phasor_cache_append(cache.get(), &k, &v, nullptr, 2));
    PHASOR_CALL(phasor_cache_attend(cache.get(), nullptr, &k, &o, nullptr));
    PHASOR_CALL(phasor_cache_evict(cache.get(), 1, 2));
    PHASOR_CALL(phasor_cache_shift(cache.get(), 1, 5, -1, 2));
    PHASOR_CALL(phasor_cache_rerotate(cache.get(), other.get(), nullptr, 2));
    PHASOR_CALL(phasor_cache_truncate(cache.get(), 4));
    PHASOR_MAKE(fork, phasor_cache_fork(cache.get(), 8, out));
    phasor_cache_info info{};
    info.struct_size = sizeof(info);
    PHASOR_CALL(phasor_cache_describe(fork.get(), &info));
    if (info.tokens != 4) wrong("phasor_cache_append", "tokens are counted wrongly");
    double positions[4];
    PHASOR_CALL(phasor_cache_positions(fork.get(), positions, 4));
    phasor_heads keys, values;
    PHASOR_CALL(phasor_cache_views(fork.get(), &keys, &values));
  }
}

void run_in_order(void*, std::int32_t parts,
                  void (*task)(void* context, std::int32_t part, std::int32_t parts),
                  void* context) {
  for (std::int32_t part = 0; part < parts; ++part) task(context, part, parts);
}

void parallel_for(const std::string& folder) {
  phasor_parallel_for given{};
  given.struct_size = sizeof(given);
  given.threads = 2;
  given.run = run_in_order;
  PHASOR_CALL(phasor_set_parallel_for(&given));
  tables(folder);
  PHASOR_CALL(phasor_set_parallel_for(nullptr));
}

void cancellation(const std::string& folder) {
  Cancellation cancellation;
  PHASOR_NOTE(phasor_cancellation_destroy(nullptr));
  PHASOR_MAKE(cancellation, phasor_cancellation_create(out));
  PHASOR_NOTE(phasor_cancellation_request(cancellation.get()));
  PHASOR_NOTE(phasor_cancellation_reset(cancellation.get()));
  PHASOR_NOTE(phasor_set_cancellation(cancellation.get()));
  tables(folder);
  PHASOR_NOTE(phasor_set_cancellation(nullptr));
}

}  // namespace

const std::vector<Part>& rotation_parts() {
  static const std::vector<Part> parts = {{"basics", basics},
                                          {"ropes", ropes},
                                          {"tables", tables},
                                          {"rotations", rotations},
                                          {"decay", decay},
                                          {"attention_by_tables", attention_by_tables},
                                          {"attention_by_rows", attention_by_rows},
                                          {"attention_by_two_tables", attention_by_two_tables},
                                          {"attention_by_rotation", attention_by_rotation},
                                          {"linear", linear},
                                          {"caches", caches},
                                          {"parallel_for", parallel_for},
                                          {"cancellation", cancellation}};
  return parts;
}

}  // namespace phasor::faults
