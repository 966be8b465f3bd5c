#include "config/gguf/positions.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "phasor/encodings/encoding.hpp"

namespace phasor::config {
namespace {

constexpr std::int64_t kMaxGgufBuckets = 1 << 20;
constexpr std::int64_t kMaxGgufHeads = 100000;

[[nodiscard]] PositionEncoding gguf_learned(GgufKeys& keys, std::string_view architecture,
                                            const ModelConfig& config) {
  PositionEncoding made{"learned_absolute", "input", {}};
  if (config.max_position)
    made.parameters.push_back({"rows", *config.max_position, config.max_position_key});
  made.parameters.push_back({"first_row", std::int64_t{0}, message("architecture ", architecture)});
  if (const auto width = keys.count("embedding_length", std::int64_t{1} << 24))
    made.parameters.push_back({"dim", *width, keys.path_of("embedding_length")});
  return made;
}

[[nodiscard]] PositionEncoding gguf_alibi(GgufKeys& keys, std::string_view architecture,
                                          const ModelConfig& config) {
  constexpr std::string_view kKey = "attention.max_alibi_bias";
  PositionEncoding made{"alibi", "scores", {}};
  const std::optional<double> bias = keys.number(kKey);
  if (bias && !(*bias > 0.0 && std::isfinite(*bias)))
    keys.refuse(kKey, message("must be a positive number, got ", *bias));
  const double max_bias = bias.value_or(8.0);
  made.parameters.push_back(
      {"max_bias", max_bias, bias ? keys.path_of(kKey) : message("architecture ", architecture)});
  if (config.heads && *config.heads <= kMaxGgufHeads) {
    made.parameters.push_back({"heads", *config.heads, keys.path_of("attention.head_count")});
    made.parameters.push_back({"slopes", encodings::alibi_slopes(*config.heads, max_bias),
                               "2^(-max_bias i / heads), " + keys.path_of("attention.head_count")});
  }
  return made;
}

[[nodiscard]] PositionEncoding gguf_t5(GgufKeys& keys, std::string_view architecture,
                                       const ModelConfig& config) {
  constexpr std::string_view kKey = "attention.relative_buckets_count";
  PositionEncoding made{"t5", "scores", {}};
  if (const auto buckets = keys.count(kKey, kMaxGgufBuckets))
    made.parameters.push_back({"buckets", *buckets, keys.path_of(kKey)});
  const std::string by = message("architecture ", architecture);
  made.parameters.push_back({"max_distance", std::int64_t{128}, by});
  made.parameters.push_back(
      {"range", std::string("bidirectional in the encoder, past_only in the decoder"), by});
  if (config.heads)
    made.parameters.push_back({"heads", *config.heads, keys.path_of("attention.head_count")});
  return made;
}

}  // namespace

std::vector<PositionEncoding> read_gguf_positions(GgufKeys& keys, std::string_view architecture,
                                                  const ModelConfig& config) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      if (name == architecture) return true;
    }
    return false;
  };
  if (is_one_of({"bert", "gpt2", "starcoder"})) return {gguf_learned(keys, architecture, config)};
  if (is_one_of({"baichuan", "bloom", "jais", "jina-bert-v2", "mpt", "refact"}))
    return {gguf_alibi(keys, architecture, config)};
  if (is_one_of({"t5", "t5encoder"})) return {gguf_t5(keys, architecture, config)};
  return {};
}

}  // namespace phasor::config
