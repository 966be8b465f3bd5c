#include "phasor/porting/diagnose.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "phasor/config/config.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/io/tensors.hpp"
#include "porting/convert/checkpoint_names.hpp"
#include "porting/convert/permute.hpp"
#include "porting/evenly_spaced.hpp"
#include "porting/json_values.hpp"

namespace phasor::porting {
namespace {

using core::PairLayout;

constexpr double kProducts = 3e9;
constexpr std::size_t kFewestSamples = 4;

// The two features of pair i of a head.
struct Pair {
  std::int64_t a = 0, b = 0;
};
[[nodiscard]] Pair pair_of(const encodings::RopeSpec& rope, PairLayout layout, std::int64_t i) {
  const std::int64_t first = rope.rotary_offset;
  if (layout == PairLayout::half) return {first + i, first + i + rope.rotary_dim / 2};
  return {first + 2 * i, first + 2 * i + 1};
}

// The new index of row `row` when weights in the other layout are permuted to `to` in heads of
// `chunk` rows.
[[nodiscard]] std::int64_t moved_row(std::int64_t row, std::int64_t chunk, PairLayout to) {
  const std::int64_t start = row / chunk * chunk, at = row % chunk, half = chunk / 2;
  if (to == PairLayout::interleaved) return start + (at < half ? 2 * at : 2 * (at - half) + 1);
  return start + (at % 2 == 0 ? at / 2 : at / 2 + half);
}

// Rows [0, key_heads * head_dim) of k that hold pair i of a key head.
[[nodiscard]] Pair key_rows(const OrderCandidate& candidate, const encodings::RopeSpec& rope,
                            std::int64_t key_heads, std::int64_t head, std::int64_t i) {
  const std::int64_t first = head * rope.head_dim;
  if (!candidate.permuted_as_heads) {
    const Pair pair = pair_of(rope, candidate.keys, i);
    return {first + pair.a, first + pair.b};
  }
  const Pair before = pair_of(rope, other_layout(candidate.keys), i);
  const std::int64_t chunk = key_heads * rope.head_dim / *candidate.permuted_as_heads;
  return {moved_row(first + before.a, chunk, candidate.keys),
          moved_row(first + before.b, chunk, candidate.keys)};
}

[[nodiscard]] std::vector<OrderCandidate> make_candidates(const encodings::RopeSpec& rope,
                                                          std::int64_t heads,
                                                          std::int64_t key_heads) {
  std::vector<OrderCandidate> all;
  for (const PairLayout queries : {PairLayout::half, PairLayout::interleaved}) {
    for (const PairLayout keys : {PairLayout::half, PairLayout::interleaved}) {
      OrderCandidate candidate;
      candidate.queries = queries;
      candidate.keys = keys;
      candidate.text = queries == keys
                           ? std::string(core::name_of(queries))
                           : message("q ", core::name_of(queries), ", k ", core::name_of(keys));
      all.push_back(std::move(candidate));
    }
  }
  // Converters that used the number of q's heads for k (llama.cpp #2376, transformers #31788), or q's
  // heads / k's heads (llama.cpp #3364); they did not support partial rotation.
  if (rope.rotary_dim != rope.head_dim || heads == key_heads) return all;
  std::vector<std::int64_t> wrong = {heads, heads / key_heads};
  if (wrong[0] == wrong[1]) wrong.pop_back();
  for (const std::int64_t count : wrong) {
    const std::int64_t rows = key_heads * rope.head_dim;
    // A permutation in heads of two rows changes nothing: that is the mixed order above.
    if (count == key_heads || rows % count != 0 || rows / count % 2 != 0 || rows / count == 2) {
      continue;
    }
    for (const PairLayout to : {PairLayout::half, PairLayout::interleaved}) {
      OrderCandidate candidate;
      candidate.queries = candidate.keys = to;
      candidate.permuted_as_heads = count;
      candidate.text =
          message("q ", core::name_of(to), ", k permuted from ", core::name_of(other_layout(to)),
                  " to ", core::name_of(to), " as if it had ", count,
                  count == 1 ? " head" : " heads", " instead of ", key_heads);
      all.push_back(std::move(candidate));
    }
  }
  return all;
}

[[nodiscard]] double dot(const float* a, const float* b, std::size_t count) {
  // Independent sums, so that the compiler can vectorise.
  constexpr std::size_t kLanes = 16;
  float lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  double sum = 0.0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

struct Statistics {
  double antisymmetry = 0.0, determinant = 0.0;
};

// One layer's weights as floats: all keys, one query head at a time.
class LayerWeights {
 public:
  explicit LayerWeights(const AttentionLayer& layer)
      : layer_(layer), width_(static_cast<std::size_t>(layer.queries.weight->shape[1])) {
    for (const std::int64_t row : layer.keys.first_row) append(layer.keys, row, keys_);
  }

  // Means over the query heads that share the key head.
  [[nodiscard]] std::vector<Statistics> sample(const std::vector<OrderCandidate>& candidates,
                                               std::int64_t key) const {
    const auto key_heads = static_cast<std::int64_t>(layer_.keys.first_row.size());
    const auto group = static_cast<std::int64_t>(layer_.queries.first_row.size()) / key_heads;
    std::vector<Statistics> means(candidates.size());
    std::vector<float> queries;
    for (std::int64_t query = key * group; query < (key + 1) * group; ++query) {
      queries.clear();
      append(layer_.queries, layer_.queries.first_row[static_cast<std::size_t>(query)], queries);
      for (std::size_t c = 0; c < candidates.size(); ++c) {
        const Statistics of_head = head(candidates[c], queries, key_heads, key);
        means[c].antisymmetry += of_head.antisymmetry / static_cast<double>(group);
        means[c].determinant += of_head.determinant / static_cast<double>(group);
      }
    }
    return means;
  }

 private:
  void append(const HeadRows& heads, std::int64_t first_row, std::vector<float>& to) const {
    const std::size_t before = to.size();
    to.resize(before + static_cast<std::size_t>(layer_.rope.head_dim) * width_);
    io::to_floats(*heads.weight, first_row * static_cast<std::int64_t>(width_),
                  std::span(to).subspan(before));
  }

  [[nodiscard]] Statistics head(const OrderCandidate& candidate, const std::vector<float>& queries,
                                std::int64_t key_heads, std::int64_t key) const {
    const std::int64_t pairs = layer_.rope.rotary_dim / 2;
    const auto row = [&](const std::vector<float>& rows, std::int64_t index) {
      return rows.data() + static_cast<std::size_t>(index) * width_;
    };
    Statistics sum;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const Pair q = pair_of(layer_.rope, candidate.queries, i);
      const Pair k = key_rows(candidate, layer_.rope, key_heads, key, i);
      const double aa = dot(row(queries, q.a), row(keys_, k.a), width_);
      const double ab = dot(row(queries, q.a), row(keys_, k.b), width_);
      const double ba = dot(row(queries, q.b), row(keys_, k.a), width_);
      const double bb = dot(row(queries, q.b), row(keys_, k.b), width_);
      const double squares = aa * aa + ab * ab + ba * ba + bb * bb;
      if (!(squares > 0.0 && std::isfinite(squares))) continue;
      sum.antisymmetry -= 2.0 * ab * ba / squares;
      sum.determinant += 2.0 * (aa * bb - ab * ba) / squares;
    }
    return {sum.antisymmetry / static_cast<double>(pairs),
            sum.determinant / static_cast<double>(pairs)};
  }

  const AttentionLayer& layer_;
  std::size_t width_;
  std::vector<float> keys_;
};

[[nodiscard]] double mean_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Mean over its standard error.
[[nodiscard]] double student_t(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  const double error = std::sqrt(squares / (count - 1.0) / count);
  return error > 0.0 ? mean / error : 0.0;
}

// The probability that Student's t with `freedom` degrees of freedom exceeds t, by Wallace's
// approximation.
[[nodiscard]] double chance_beyond(double t, double freedom) {
  if (!(t > 0.0)) return 1.0;
  const double z = (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0) *
                   std::sqrt(freedom * std::log1p(t * t / freedom));
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

// One value per sample and candidate.
struct Samples {
  std::vector<std::vector<double>> antisymmetry, determinant;  // [candidate][sample]

  void add(const std::vector<Statistics>& sample) {
    antisymmetry.resize(sample.size());
    determinant.resize(sample.size());
    for (std::size_t c = 0; c < sample.size(); ++c) {
      antisymmetry[c].push_back(sample[c].antisymmetry);
      determinant[c].push_back(sample[c].determinant);
    }
  }
  [[nodiscard]] std::size_t count() const {
    return antisymmetry.empty() ? 0 : antisymmetry[0].size();
  }
};

// The probability that weights without any order put one candidate this far ahead of every other and
// of 0; sets OrderCandidate::below_best.
[[nodiscard]] double chance_of(const Samples& samples, std::size_t best,
                               std::vector<OrderCandidate>& candidates) {
  const std::vector<double>& of_best = samples.antisymmetry[best];
  double closest = student_t(of_best);
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    if (c == best) continue;
    std::vector<double> ahead = of_best;
    for (std::size_t s = 0; s < ahead.size(); ++s) ahead[s] -= samples.antisymmetry[c][s];
    candidates[c].below_best = student_t(ahead);
    closest = std::min(closest, candidates[c].below_best);
  }
  // Any candidate could be the best by chance.
  return static_cast<double>(candidates.size()) *
         chance_beyond(closest, static_cast<double>(samples.count()) - 1.0);
}

void judge(const Samples& samples, WeightOrder& order) {
  std::vector<OrderCandidate>& all = order.candidates;
  std::size_t best = 0;
  for (std::size_t c = 0; c < all.size(); ++c) {
    all[c].antisymmetry = mean_of(samples.antisymmetry[c]);
    all[c].determinant = mean_of(samples.determinant[c]);
    if (all[c].antisymmetry > all[best].antisymmetry) best = c;
  }
  const double effect = all[best].antisymmetry;
  const bool enough = samples.count() >= kFewestSamples;
  if (enough) order.confidence = std::clamp(1.0 - chance_of(samples, best, all), 0.0, 1.0);
  order.tells = order.confidence >= kOrderConfidence && effect >= kOrderEffect;
  std::stable_sort(all.begin(), all.end(), [](const OrderCandidate& a, const OrderCandidate& b) {
    return a.antisymmetry > b.antisymmetry;
  });
  if (order.tells) {
    order.reason =
        "only in this order are the cross products of pairs antisymmetric, as training makes them";
  } else if (!enough) {
    order.reason =
        message("at least ", kFewestSamples, " key heads are required, got ", samples.count());
  } else if (effect < kOrderEffect) {
    order.reason = "no order shows the antisymmetry of trained weights: they may be untrained";
  } else {
    order.reason =
        message("the best two orders are too similar for ", samples.count(), " key heads");
  }
}

// Evenly spaced layers, as many as kProducts allows.
[[nodiscard]] std::vector<std::size_t> chosen_layers(const std::vector<AttentionLayer>& layers,
                                                     std::size_t candidates) {
  std::vector<std::size_t> with_keys;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    // Layers of other widths (Gemma 4) would need other candidates.
    if (layers[i].keys.weight != nullptr && layers[i].rope.head_dim == layers[0].rope.head_dim &&
        layers[i].rope.rotary_dim == layers[0].rope.rotary_dim) {
      with_keys.push_back(i);
    }
  }
  if (with_keys.empty()) return {};
  const AttentionLayer& first = layers[with_keys[0]];
  const double products = static_cast<double>(candidates) * 2.0 *
                          static_cast<double>(first.rope.rotary_dim) *
                          static_cast<double>(first.queries.first_row.size()) *
                          static_cast<double>(first.queries.weight->shape[1]);
  const auto most = static_cast<std::size_t>(std::max(2.0, kProducts / products));
  std::vector<std::size_t> chosen = evenly_spaced(with_keys.size(), most);
  for (std::size_t& index : chosen) index = with_keys[index];
  return chosen;
}

[[nodiscard]] WeightOrder infer(const AttentionTensors& tensors) {
  const std::vector<AttentionLayer>& layers = tensors.layers;
  WeightOrder order;
  order.heads = static_cast<std::int64_t>(layers[0].queries.first_row.size());
  order.key_heads = static_cast<std::int64_t>(layers[0].keys.first_row.size());
  if (order.key_heads == 0) {
    refuse(ErrorCode::unsupported, "layer 0 has no k projection");
  }
  order.config_layout = tensors.layout_of_names ? tensors.layout_of_names : layers[0].rope.layout;
  order.candidates = make_candidates(layers[0].rope, order.heads, order.key_heads);
  Samples samples;
  for (const std::size_t index : chosen_layers(layers, order.candidates.size())) {
    const LayerWeights weights(layers[index]);
    order.layers.push_back(layers[index].index);
    for (std::int64_t key = 0; key < order.key_heads; ++key) {
      samples.add(weights.sample(order.candidates, key));
    }
  }
  order.samples = static_cast<std::int64_t>(samples.count());
  if (layers[0].rope.rotary_dim < 4) {
    order.reason = "with one pair per head every order is the same";
    return order;
  }
  judge(samples, order);
  return order;
}

[[nodiscard]] AttentionTensors gguf_attention(const io::GgufFile& file,
                                              const config::ModelConfig& config) {
  if (!config.heads) {
    refuse(ErrorCode::invalid_argument,
           message(file.name(), ": missing key \"attention.head_count\""));
  }
  const std::int64_t heads = *config.heads, key_heads = config.key_heads.value_or(heads);
  AttentionTensors tensors;
  const auto check = [&](const io::Tensor& tensor, std::int64_t rows) {
    if (tensor.shape.size() != 2 || tensor.shape[0] != rows) {
      refuse(ErrorCode::shape_mismatch,
             message(file.name(), ": ", tensor.name, " must have ", rows,
                     " rows by the metadata, got shape ", core::shape_text(tensor.shape)));
    }
  };
  for (const config::LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    const std::int64_t head_dim = group.rope->head_dim;
    for (const std::int64_t index : group.layers) {
      AttentionLayer layer;
      layer.index = index;
      layer.rope = *group.rope;
      const io::Tensor* q = file.find(message("blk.", index, ".attn_q.weight"));
      const io::Tensor* k = file.find(message("blk.", index, ".attn_k.weight"));
      const io::Tensor* qkv = file.find(message("blk.", index, ".attn_qkv.weight"));
      if (q != nullptr && k != nullptr) {
        check(*q, heads * head_dim);
        check(*k, key_heads * head_dim);
        layer.queries = consecutive_heads(q, nullptr, heads, head_dim);
        layer.keys = consecutive_heads(k, nullptr, key_heads, head_dim);
      } else if (qkv != nullptr) {
        check(*qkv, (heads + 2 * key_heads) * head_dim);
        FusedHeads split = split_fused({qkv, nullptr, {}}, heads, key_heads, head_dim);
        layer.queries = std::move(split.queries);
        layer.keys = std::move(split.keys);
      } else {
        continue;
      }
      tensors.layers.push_back(std::move(layer));
    }
  }
  if (tensors.layers.empty()) {
    refuse(
        ErrorCode::unsupported,
        message(file.name(), ": tensors blk.N.attn_q.weight and blk.N.attn_k.weight are missing"));
  }
  return tensors;
}

[[nodiscard]] WeightOrder infer_gguf(const std::filesystem::path& path) {
  const io::GgufFile file = io::GgufFile::open(path).value_or_throw();
  const config::ModelConfig config = config::config_of_gguf(file).value_or_throw();
  return infer(gguf_attention(file, config));
}

[[nodiscard]] WeightOrder infer_folder(const std::filesystem::path& path) {
  const config::ModelConfig config = config::read_config(path).value_or_throw();
  const io::SafetensorsCheckpoint checkpoint =
      io::SafetensorsCheckpoint::open(path).value_or_throw();
  const AttentionTensors found =
      find_attention(config, tensors_of(checkpoint), UnknownModel::read_as_llama).value_or_throw();
  return infer(found);
}

}  // namespace

Result<WeightOrder> infer_weight_order(const std::filesystem::path& path) {
  try {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored) ? infer_folder(path) : infer_gguf(path);
  } catch (const Error& error) {
    const std::string where = io::shown(path);
    if (std::string_view(error.what()).find(where) != std::string_view::npos) return error;
    return Error(error.code(), message(where, ": ", error.what()));
  }
}

std::string weight_order_json(const WeightOrder& order) {
  const auto candidate_json = [](const OrderCandidate& candidate) {
    Json json;
    json["order"] = candidate.text;
    json["consistent"] = candidate.consistent();
    json["queries"] = core::name_of(candidate.queries);
    json["keys"] = core::name_of(candidate.keys);
    json["permuted_as_heads"] = json_of(candidate.permuted_as_heads);
    json["antisymmetry"] = candidate.antisymmetry;
    json["determinant"] = candidate.determinant;
    json["behind"] = candidate.below_best;
    return json;
  };
  Json json;
  json["order"] = order.tells ? order.candidates.front().text : "cannot tell";
  json["consistent"] = order.tells ? Json(order.candidates.front().consistent()) : Json(nullptr);
  json["confidence"] = order.confidence;
  json["reason"] = order.reason;
  json["config_layout"] =
      order.config_layout ? Json(core::name_of(*order.config_layout)) : Json(nullptr);
  json["heads"] = order.heads;
  json["key_heads"] = order.key_heads;
  json["samples"] = order.samples;
  json["layers"] = order.layers;
  json["candidates"] = Json::array();
  for (const OrderCandidate& candidate : order.candidates) {
    json["candidates"].push_back(candidate_json(candidate));
  }
  return json.dump({.bad_utf8 = io::JsonStyle::BadUtf8::replace});
}

}  // namespace phasor::porting
