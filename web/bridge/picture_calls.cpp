// Calls whose answers are pictures: decay over distance, score maps, attention maps.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "bridge.hpp"
#include "phasor/attention/decay.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::web {
namespace {

constexpr std::int64_t kMostTokens = 512;

// RoFormer (35)-(37): the score of q and k at each distance, its Abel bound, and the mean of |S_j| that the
// paper plots. Pair i of q and k is (2i, 2i+1), whatever the layout; without them both are ones.
void decay(const Request& request, Answer& answer) {
  const encodings::RopeSpec spec = request.spec();
  const std::int64_t longest = request.integer("longest", 1, std::int64_t{1} << 30);
  const std::int64_t points = request.integer_or("points", 257, 2, 4096);
  const core::Frequencies frequencies = encodings::resolve_frequencies(
      spec, encodings::context_for(spec, request.context(), static_cast<double>(longest)));
  // Whole distances, each once.
  const std::int64_t steps = std::min(points - 1, longest);
  std::vector<double> distances;
  for (std::int64_t i = 0; i <= steps; ++i) {
    distances.push_back(std::round(static_cast<double>(longest) * static_cast<double>(i) /
                                   static_cast<double>(steps)));
  }
  const auto width = static_cast<std::size_t>(2 * frequencies.pairs());
  std::vector<double> q(width, 1.0), k(width, 1.0);
  if (request.reader().has("q") || request.reader().has("k")) {
    q = request.numbers("q", width);
    k = request.numbers("k", width);
  }
  answer["value"] = answer.keep(attention::rotated_scores(frequencies, q, k, distances));
  answer["bound"] = answer.keep(attention::abel_bounds(frequencies, q, k, distances));
  answer["mean"] = answer.keep(attention::mean_partial_sums(frequencies, distances));
  answer["distance"] = answer.keep(std::move(distances));
}

// Numbers around zero that are the same with every C++ library: sums of four uniform ones, scaled to
// variance 1.
class Noise {
 public:
  explicit Noise(std::int64_t seed) : random_(static_cast<std::uint64_t>(seed)) {}
  [[nodiscard]] double next() {
    double sum = -2.0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(random_() >> 11) * 0x1p-53;
    return sum * std::sqrt(3.0);
  }
  [[nodiscard]] std::vector<double> numbers(std::int64_t count) {
    std::vector<double> result(static_cast<std::size_t>(count));
    for (double& number : result) number = next();
    return result;
  }

 private:
  std::mt19937_64 random_;
};

// q = k: ones, or random numbers of a seed.
std::vector<double> content_of(const Request& request, std::int64_t width) {
  const std::int64_t seed = request.integer_or("seed", 0, 0, std::int64_t{1} << 52);
  if (seed == 0) return std::vector<double>(static_cast<std::size_t>(width), 1.0);
  return Noise(seed).numbers(width);
}

// The scores of the same query and key at every two positions, RoFormer (16): they depend on m - n only.
std::vector<double> rotary_map(const core::Frequencies& frequencies,
                               std::span<const double> content, std::int64_t tokens,
                               std::int64_t step) {
  std::vector<double> distances(static_cast<std::size_t>(2 * tokens - 1));
  for (std::int64_t i = 0; i < std::ssize(distances); ++i)
    distances[static_cast<std::size_t>(i)] = static_cast<double>((i - tokens + 1) * step);
  const std::vector<double> scores =
      attention::rotated_scores(frequencies, content, content, distances);
  std::vector<double> values;
  for (std::int64_t m = 0; m < tokens; ++m) {
    for (std::int64_t n = 0; n < tokens; ++n)
      values.push_back(scores[static_cast<std::size_t>(m - n + tokens - 1)]);
  }
  return values;
}

// RoFormer (3)(4): (x + p_m) . (x + p_n), which also depends on where the two are.
std::vector<double> sinusoidal_map(const encodings::Sinusoidal& encoding,
                                   std::span<const double> content, std::int64_t tokens,
                                   std::int64_t step) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(tokens));
  for (std::int64_t i = 0; i < tokens; ++i) positions[static_cast<std::size_t>(i)] = i * step;
  std::vector<double> rows(positions.size() * content.size());
  encodings::sinusoidal_rows(encoding, positions, rows.data());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += content[i % content.size()];
  const auto row = [&](std::size_t at) {
    return std::span(rows).subspan(at * content.size(), content.size());
  };
  std::vector<double> values;
  for (std::size_t m = 0; m < positions.size(); ++m) {
    for (std::size_t n = 0; n < positions.size(); ++n)
      values.push_back(std::inner_product(row(m).begin(), row(m).end(), row(n).begin(), 0.0));
  }
  return values;
}

void map(const Request& request, Answer& answer) {
  const std::string kind = request.reader().text("kind").value_or("rope");
  const encodings::RopeSpec spec = request.spec();
  const std::int64_t tokens = request.integer("tokens", 1, kMostTokens);
  const std::int64_t step = request.integer_or("step", 1, 1, std::int64_t{1} << 30);
  const core::Frequencies frequencies = encodings::resolve_frequencies(
      spec,
      encodings::context_for(spec, request.context(), static_cast<double>((tokens - 1) * step)));
  const std::int64_t width = 2 * frequencies.pairs();
  const std::vector<double> content = content_of(request, width);
  if (kind == "rope") {
    answer["values"] = answer.keep(rotary_map(frequencies, content, tokens, step));
  } else if (kind == "sinusoidal") {
    const encodings::Sinusoidal encoding{.dim = width,
                                         .base = encodings::base_of(spec).value_or(10000.0)};
    answer["values"] = answer.keep(sinusoidal_map(encoding, content, tokens, step));
  } else {
    request.reader().refuse("kind", message("must be rope or sinusoidal, got \"", kind, "\""));
  }
  answer["tokens"] = tokens;
  answer["step"] = step;
}

// Rows of RoFormer (4) as nested lists, for encodings whose tables are trained: what a model starts from
// or is compared with, and the same in every picture.
io::Json waves(std::int64_t first, std::int64_t rows, std::int64_t dim) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(rows));
  std::iota(positions.begin(), positions.end(), first);
  std::vector<double> values(static_cast<std::size_t>(rows * dim));
  encodings::sinusoidal_rows({.dim = dim}, positions, values.data());
  io::Json table = io::Json::array();
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = values.begin() + row * dim;
    table.push_back(io::Json(std::vector<double>(begin, begin + dim)));
  }
  return table;
}

struct MapSizes {
  std::int64_t tokens = 0, head_dim = 0;
  bool causal = false;
};

io::Json t5_json(const MapSizes& sizes) {
  // Made up: the bias falls by 0.4 from one bucket to the next.
  constexpr int kBuckets = 32;
  io::Json bias = io::Json::array();
  const int in_one_direction = sizes.causal ? kBuckets : kBuckets / 2;
  for (int bucket = 0; bucket < kBuckets; ++bucket)
    bias.push_back(io::Json::array({-0.4 * (bucket % in_one_direction)}));
  return {{"encoding", "t5"},
          {"relative_attention_bias", std::move(bias)},
          {"num_buckets", kBuckets},
          {"max_distance", 128},
          {"bidirectional", !sizes.causal}};
}

// What `phasor attend --encoding` reads, with one head.
io::Json encoding_json(const Request& request, std::string_view name, const MapSizes& sizes) {
  const std::int64_t dim = sizes.head_dim, tokens = sizes.tokens;
  const io::Json sinusoidal = {{"sinusoidal", io::Json({{"variant", "interleaved"}})}};
  const io::Json zeros =
      io::Json::array({io::Json(std::vector<double>(static_cast<std::size_t>(dim)))});
  if (name == "none") return {{"encoding", "none"}};
  if (name == "rope") {
    return {{"encoding", "rope"}, {"head_dim", dim}, {"base", 10000}, {"layout", "interleaved"}};
  }
  if (name == "xpos") {
    // A smaller scale_base than the usual 512: its effect is to be seen over few tokens.
    return {
        {"encoding", "xpos"}, {"head_dim", dim}, {"layout", "interleaved"}, {"scale_base", tokens}};
  }
  if (name == "alibi") return {{"encoding", "alibi"}, {"slopes", io::Json::array({0.25})}};
  if (name == "t5") return t5_json(sizes);
  if (name == "shaw") {
    return {{"encoding", "shaw"},
            {"clip", std::max<std::int64_t>(1, tokens / 4)},
            {"rel_k", sinusoidal}};
  }
  if (name == "transformer_xl") {
    return {{"encoding", "transformer_xl"},
            {"u_bias", zeros},
            {"v_bias", zeros},
            {"r_head", sinusoidal}};
  }
  if (name == "deberta") {
    // Row r is the distance m - n = r - tokens.
    const io::Json table = io::Json::array({waves(-tokens, 2 * tokens, dim)});
    return {{"encoding", "deberta_v2"},
            {"max_relative_positions", tokens},
            {"pos_att_type", io::Json::array({"c2p", "p2c"})},
            {"pos_k", table},
            {"pos_q", table}};
  }
  if (name == "tupe") {
    const io::Json table = io::Json::array({waves(0, tokens, dim)});
    return {{"encoding", "tupe"}, {"pos_q", table}, {"pos_k", table}};
  }
  request.reader().refuse(
      "encodings", message("must be none, rope, xpos, alibi, t5, shaw, transformer_xl, deberta or "
                           "tupe, got \"",
                           name, "\""));
}

// Queries or keys: one vector that all tokens share, so that a picture shows the positions, and a part of
// each token's own.
std::vector<float> tokens_around(std::span<const double> shared, std::int64_t tokens,
                                 Noise& noise) {
  std::vector<float> values;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (const double common : shared)
      values.push_back(static_cast<float>(common + 0.5 * noise.next()));
  }
  return values;
}

// "compare": two names of "encodings". The answer has the second map minus the first, and where they differ
// most.
class MapPair {
 public:
  explicit MapPair(const Request& request) : names_(request.reader().texts("compare")) {
    if (!names_) return;
    const std::vector<std::string> known = request.texts("encodings");
    for (const std::string& name : *names_) {
      if (std::find(known.begin(), known.end(), name) == known.end())
        request.reader().refuse("compare", message("must be two of encodings, got \"", name, "\""));
    }
    if (names_->size() != 2) {
      request.reader().refuse("compare",
                              message("must be two of encodings, got ", names_->size(), " names"));
    }
  }
  void take(std::string_view name, const std::vector<float>& map) {
    for (std::size_t side = 0; names_ && side < 2; ++side) {
      if ((*names_)[side] == name) maps_[side] = map;
    }
  }
  void write(std::int64_t tokens, Answer& answer) const {
    if (!names_) return;
    std::vector<double> difference;
    for (std::size_t i = 0; i < maps_[0].size(); ++i)
      difference.push_back(double{maps_[1][i]} - double{maps_[0][i]});
    const auto largest =
        std::max_element(difference.begin(), difference.end(),
                         [](double a, double b) { return std::abs(a) < std::abs(b); });
    const std::int64_t cell = largest - difference.begin();
    answer["largest"] = {
        {"value", std::abs(*largest)}, {"query", cell / tokens}, {"key", cell % tokens}};
    answer["difference"] = answer.keep(std::move(difference));
  }

 private:
  std::optional<std::vector<std::string>> names_;
  std::array<std::vector<float>, 2> maps_;
};

void attention_maps(const Request& request, Answer& answer) {
  MapSizes sizes;
  sizes.tokens = request.integer_or("tokens", 32, 1, 128);
  sizes.head_dim = request.integer_or("head_dim", 32, 2, 256);
  sizes.causal = request.reader().flag("causal").value_or(false);
  if (sizes.head_dim % 2 != 0)
    request.reader().refuse("head_dim", message("must be even, got ", sizes.head_dim));
  const std::int64_t tokens = sizes.tokens, dim = sizes.head_dim;
  Noise noise(request.integer_or("seed", 1, 0, std::int64_t{1} << 52));
  const std::vector<double> shared = noise.numbers(dim);
  const std::vector<float> q = tokens_around(shared, tokens, noise);
  const std::vector<float> k = tokens_around(shared, tokens, noise);
  const std::vector<float> v(static_cast<std::size_t>(tokens), 0.0F);
  attention::AttentionOptions options;
  if (sizes.causal) options.causality = attention::Causality::bottom_right;
  const core::ConstHeadsView queries = core::heads_view(q.data(), 1, tokens, 1, dim),
                             keys = core::heads_view(k.data(), 1, tokens, 1, dim),
                             values = core::heads_view(v.data(), 1, tokens, 1, 1);
  const encodings::AttentionShape shape =
      attention::attention_shape(queries, keys, values, options);
  io::Json maps = io::Json::array();
  MapPair compared(request);
  for (const std::string& name : request.texts("encodings")) {
    const io::Json json = encoding_json(request, name, sizes);
    const config::LoadedEncoding loaded =
        config::parse_encoding(json.dump(), "", name, {.shape = shape}).value_or_throw();
    std::vector<float> out(v.size()), probabilities(static_cast<std::size_t>(tokens * tokens));
    attention::AttentionExtras extras;
    extras.probabilities = probabilities.data();
    attention::attend(config::resolve(loaded, shape), queries, keys, values,
                      core::heads_view(out.data(), 1, tokens, 1, 1), options, extras);
    compared.take(name, probabilities);
    maps.push_back({{"encoding", name},
                    {"json", json.dump()},
                    {"probabilities", answer.keep(std::move(probabilities))}});
  }
  compared.write(tokens, answer);
  answer["maps"] = std::move(maps);
  answer["tokens"] = tokens;
  answer["q"] = answer.keep(q);
  answer["k"] = answer.keep(k);
}

}  // namespace

std::span<const NamedCall> picture_calls() {
  static constexpr auto kCalls = std::to_array<NamedCall>({
      {"decay", decay},
      {"map", map},
      {"attention_maps", attention_maps},
  });
  return kCalls;
}

}  // namespace phasor::web
