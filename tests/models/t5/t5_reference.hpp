// T5 in plain float64: full score matrices, no cache, buckets by their definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/ids.hpp"
#include "models/roformer/roformer_support.hpp"
#include "phasor/io/internal/json.hpp"

namespace phasor::models::testing {

using DoubleRows = std::vector<std::vector<double>>;

class T5Reference {
 public:
  explicit T5Reference(const Files& files)
      : files_(files), config_(io::parse_object(files.config)) {}

  [[nodiscard]] DoubleRows encode(const Ids& input) const {
    return stack("encoder", input, nullptr);
  }
  [[nodiscard]] DoubleRows logits(const Ids& input, const Ids& ids) const {
    const DoubleRows encoded = encode(input);
    DoubleRows x = stack("decoder", ids, &encoded);
    const bool own = files_.weights.contains("lm_head.weight");
    const double scale = own ? 1.0 : std::pow(static_cast<double>(number("d_model")), -0.5);
    for (std::vector<double>& row : x) {
      row = product(own ? "lm_head.weight" : "shared.weight", row);
      for (double& value : row) value *= scale;
    }
    return x;
  }

 private:
  [[nodiscard]] std::int64_t number(const char* key) const {
    return config_.find(key)->get<std::int64_t>();
  }
  [[nodiscard]] const Weight& weight(const std::string& name) const {
    return files_.weights.at(name);
  }

  [[nodiscard]] std::vector<double> product(const std::string& name,
                                            const std::vector<double>& x) const {
    const Weight& w = weight(name);
    std::vector<double> out(static_cast<std::size_t>(w.shape[0]));
    for (std::size_t r = 0; r < out.size(); ++r) {
      for (std::size_t c = 0; c < x.size(); ++c) {
        out[r] += static_cast<double>(w.values[r * x.size() + c]) * x[c];
      }
    }
    return out;
  }

  [[nodiscard]] std::vector<double> normed(const std::string& name,
                                           const std::vector<double>& x) const {
    double squares = 0.0;
    for (const double value : x) squares += value * value;
    const double root = std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
    std::vector<double> out(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      out[i] = x[i] / root * static_cast<double>(weight(name).values[i]);
    }
    return out;
  }

  // The number of edges at or below the distance: edge s of N is exact (max / exact)^(s / N).
  [[nodiscard]] std::size_t bucket(std::int64_t relative, bool both_ways) const {
    std::int64_t buckets = number("relative_attention_num_buckets"), base = 0;
    const auto furthest = static_cast<double>(number("relative_attention_max_distance"));
    if (both_ways) {
      buckets /= 2;
      if (relative > 0) base = buckets;
    } else {
      relative = std::min<std::int64_t>(relative, 0);
    }
    const std::int64_t distance = std::abs(relative), exact = buckets / 2;
    if (distance < exact) return static_cast<std::size_t>(base + distance);
    std::int64_t found = exact;
    const auto first = static_cast<double>(exact), steps = static_cast<double>(buckets - exact);
    for (std::int64_t s = 1; exact + s < buckets; ++s) {
      const double edge = first * std::pow(furthest / first, static_cast<double>(s) / steps);
      if (static_cast<double>(distance) >= edge - 1e-9) found = exact + s;
    }
    return static_cast<std::size_t>(base + found);
  }

  // Scores of all pairs, then their softmax. `table` is empty for cross-attention.
  void attend(const std::string& at, const std::string& norm, const std::string& table,
              const DoubleRows* other, DoubleRows& x) const {
    const auto heads = static_cast<std::size_t>(number("num_heads"));
    const auto dim = static_cast<std::size_t>(number("d_kv"));
    const bool causal = at.starts_with("decoder") && other == nullptr;
    DoubleRows q, k, v;
    for (const std::vector<double>& row : x)
      q.push_back(product(at + "q.weight", normed(norm, row)));
    for (const std::vector<double>& row : other != nullptr ? *other : x) {
      const std::vector<double> from = other != nullptr ? row : normed(norm, row);
      k.push_back(product(at + "k.weight", from));
      v.push_back(product(at + "v.weight", from));
    }
    const Weight* const bias = table.empty() ? nullptr : &weight(table);
    // By n - m + queries.
    std::vector<std::size_t> buckets;
    for (std::size_t i = 0; i < q.size() + k.size() && bias != nullptr; ++i) {
      buckets.push_back(
          bucket(static_cast<std::int64_t>(i) - static_cast<std::int64_t>(q.size()), !causal));
    }
    for (std::size_t m = 0; m < q.size(); ++m) {
      std::vector<double> mixed(heads * dim);
      for (std::size_t h = 0; h < heads; ++h) {
        std::vector<double> shares(causal ? m + 1 : k.size());
        for (std::size_t n = 0; n < shares.size(); ++n) {
          for (std::size_t c = h * dim; c < (h + 1) * dim; ++c) shares[n] += q[m][c] * k[n][c];
          if (bias == nullptr) continue;
          const std::size_t row = buckets[n + q.size() - m];
          shares[n] += static_cast<double>(bias->values[row * heads + h]);
        }
        const double top = *std::max_element(shares.begin(), shares.end());
        double sum = 0.0;
        for (double& share : shares) sum += share = std::exp(share - top);
        for (std::size_t n = 0; n < shares.size(); ++n) {
          for (std::size_t c = h * dim; c < (h + 1) * dim; ++c)
            mixed[c] += shares[n] / sum * v[n][c];
        }
      }
      add(x[m], product(at + "o.weight", mixed));
    }
  }

  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  void feed_forward(const std::string& at, const std::string& norm, DoubleRows& x) const {
    const bool gated = files_.weights.contains(at + "wi_0.weight");
    for (std::vector<double>& row : x) {
      const std::vector<double> in = normed(norm, row);
      std::vector<double> inner = product(at + (gated ? "wi_0.weight" : "wi.weight"), in);
      for (double& value : inner) {
        const double cubic = std::sqrt(2.0 / M_PI) * (value + 0.044715 * value * value * value);
        value = gated ? 0.5 * value * (1.0 + std::tanh(cubic)) : std::max(0.0, value);
      }
      if (gated) {
        const std::vector<double> up = product(at + "wi_1.weight", in);
        for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= up[i];
      }
      add(row, product(at + "wo.weight", inner));
    }
  }

  [[nodiscard]] DoubleRows stack(const std::string& side, const Ids& ids,
                                 const DoubleRows* encoded) const {
    const Weight& embedding = weight("shared.weight");
    const std::int64_t hidden = number("d_model");
    DoubleRows x;
    for (const std::int64_t id : ids) {
      const auto row = embedding.values.begin() + id * hidden;
      x.emplace_back(row, row + hidden);
    }
    const std::int64_t layers = number(encoded != nullptr ? "num_decoder_layers" : "num_layers");
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string at = message(side, ".block.", i, ".layer.");
      const std::string bias = "0.SelfAttention.relative_attention_bias.weight";
      const std::string own = at + bias, first = side + ".block.0.layer." + bias;
      attend(at + "0.SelfAttention.", at + "0.layer_norm.weight",
             files_.weights.contains(own) ? own : first, nullptr, x);
      if (encoded != nullptr)
        attend(at + "1.EncDecAttention.", at + "1.layer_norm.weight", "", encoded, x);
      const std::string last = at + (encoded != nullptr ? "2." : "1.");
      feed_forward(last + "DenseReluDense.", last + "layer_norm.weight", x);
    }
    for (std::vector<double>& row : x) row = normed(side + ".final_layer_norm.weight", row);
    return x;
  }

  const Files& files_;
  io::Json config_;
};

inline std::vector<double> flat(const DoubleRows& rows) {
  std::vector<double> all;
  for (const std::vector<double>& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace phasor::models::testing
