// The numbers of the tables that attention reads, from the parameters and back.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lab/nn/position.hpp"

namespace phasor::lab {
namespace {

[[nodiscard]] double softplus(double x) { return x > 30.0 ? x : std::log1p(std::exp(x)); }
[[nodiscard]] double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

template <class T>
void TermTable<T>::resize(std::int64_t row_count, std::int64_t head_count, std::int64_t width) {
  rows = row_count;
  heads = head_count;
  dim = width;
  const auto size = static_cast<std::size_t>(rows * heads * dim);
  values.resize(size);
  gradients.assign(size, T{0});
  if constexpr (!std::is_same_v<T, float>) {
    narrow.resize(size);
    narrow_gradients.assign(size, 0.0F);
  }
}

template <class T>
void TermTable<T>::narrow_values() {
  if constexpr (!std::is_same_v<T, float>) {
    std::transform(values.begin(), values.end(), narrow.begin(),
                   [](T value) { return static_cast<float>(value); });
  }
}

template <class T>
encodings::Table TermTable<T>::table() const {
  if constexpr (std::is_same_v<T, float>) {
    return encodings::rows_then_heads(values.data(), rows, heads, dim);
  } else {
    encodings::Table both = encodings::rows_then_heads(narrow.data(), rows, heads, dim);
    both.wide = values.data();
    return both;
  }
}

template <class T>
encodings::TableGradient TermTable<T>::gradient() {
  if constexpr (std::is_same_v<T, float>) {
    return encodings::rows_then_heads(gradients.data(), rows, heads, dim);
  } else {
    encodings::TableGradient both =
        encodings::rows_then_heads(narrow_gradients.data(), rows, heads, dim);
    both.wide = gradients.data();
    return both;
  }
}

std::int64_t PositionEncoding::rows_of(const Recipe& recipe, std::int64_t tokens) const {
  if (recipe.rows > 0) return recipe.rows;
  const bool both_ways = recipe.kind == Recipe::Kind::projected_sinusoid && mask_ == Mask::none;
  return both_ways ? 2 * tokens - 1 : tokens;
}

// Row p is the distance tokens - 1 - p, as TransformerXl::first_distance says.
template <class T>
std::vector<T> PositionEncoding::sinusoid(std::int64_t tokens) const {
  const std::int64_t rows = mask_ == Mask::none ? 2 * tokens - 1 : tokens;
  std::vector<T> values(static_cast<std::size_t>(rows * spec_.hidden));
  encodings::sinusoidal_rows({.dim = spec_.hidden,
                              .base = spec_.encoding.base,
                              .variant = encodings::Sinusoidal::Variant::concat},
                             counting(tokens - 1, rows, -1), values.data());
  return values;
}

template <class T>
void PositionEncoding::compute_tables(const Workers& workers, const Numbers<T>& numbers,
                                      std::size_t set, std::int64_t tokens,
                                      TableSet<T>& tables) const {
  const std::vector<Recipe>& recipes = recipes_[set];
  tables.tables.resize(recipes.size());
  for (std::size_t index = 0; index < recipes.size(); ++index) {
    const Recipe& recipe = recipes[index];
    TermTable<T>& table = tables.tables[index];
    const std::int64_t rows = rows_of(recipe, tokens), hidden = spec_.hidden;
    table.resize(rows, recipe.heads, recipe.dim);
    const T* const from = numbers.at(recipe.from);
    switch (recipe.kind) {
      case Recipe::Kind::parameter:
        std::copy(from, from + table.values.size(), table.values.begin());
        break;
      case Recipe::Kind::projected:
      case Recipe::Kind::projected_sinusoid: {
        std::vector<T> waves;
        if (from == nullptr) waves = sinusoid<T>(tokens);
        multiply(workers, rows, hidden, hidden,
                 stored(from == nullptr ? waves.data() : from, hidden),
                 transposed(numbers.at(recipe.weight), hidden), table.values.data(), hidden);
        break;
      }
      case Recipe::Kind::kerple:
        for (std::int64_t head = 0; head < recipe.heads; ++head) {
          const double r1 = softplus(static_cast<double>(from[head]));
          const double r2 = softplus(static_cast<double>(from[recipe.heads + head]));
          for (std::int64_t row = 0; row < rows; ++row) {
            table.values[static_cast<std::size_t>(row * recipe.heads + head)] =
                static_cast<T>(-r1 * std::log1p(r2 * static_cast<double>(row)));
          }
        }
        break;
    }
    table.narrow_values();
  }
}

template <class T>
void PositionEncoding::compute_tables_backward(const Workers& workers, const Numbers<T>& numbers,
                                               std::size_t set, std::int64_t tokens,
                                               const TableSet<T>& tables) const {
  const std::vector<Recipe>& recipes = recipes_[set];
  for (std::size_t index = 0; index < recipes.size(); ++index) {
    const Recipe& recipe = recipes[index];
    const TermTable<T>& table = tables.tables[index];
    const std::vector<T>& d = table.gradients;
    const std::int64_t rows = table.rows, hidden = spec_.hidden;
    switch (recipe.kind) {
      case Recipe::Kind::parameter: {
        T* const to = numbers.gradient(recipe.from);
        for (std::size_t i = 0; i < d.size(); ++i) to[i] += d[i];
        break;
      }
      case Recipe::Kind::projected:
      case Recipe::Kind::projected_sinusoid: {
        const T* from = numbers.at(recipe.from);
        std::vector<T> waves;
        if (from == nullptr) {
          waves = sinusoid<T>(tokens);
          from = waves.data();
        } else {
          multiply(workers, rows, hidden, hidden, stored(d.data(), hidden),
                   stored(numbers.at(recipe.weight), hidden), numbers.gradient(recipe.from), hidden,
                   Add::yes);
        }
        multiply(workers, hidden, hidden, rows, transposed(d.data(), hidden), stored(from, hidden),
                 numbers.gradient(recipe.weight), hidden, Add::yes);
        break;
      }
      case Recipe::Kind::kerple: {
        const T* const from = numbers.at(recipe.from);
        T* const to = numbers.gradient(recipe.from);
        for (std::int64_t head = 0; head < recipe.heads; ++head) {
          const auto raw1 = static_cast<double>(from[head]);
          const auto raw2 = static_cast<double>(from[recipe.heads + head]);
          const double r1 = softplus(raw1), r2 = softplus(raw2);
          double d_r1 = 0.0, d_r2 = 0.0;
          for (std::int64_t row = 0; row < rows; ++row) {
            const auto distance = static_cast<double>(row);
            const auto d_row =
                static_cast<double>(d[static_cast<std::size_t>(row * recipe.heads + head)]);
            d_r1 -= d_row * std::log1p(r2 * distance);
            d_r2 -= d_row * r1 * distance / (1.0 + r2 * distance);
          }
          to[head] += static_cast<T>(d_r1 * sigmoid(raw1));
          to[recipe.heads + head] += static_cast<T>(d_r2 * sigmoid(raw2));
        }
        break;
      }
    }
  }
}

#define PHASOR_LAB_TABLES(T)                                                                     \
  template struct TermTable<T>;                                                                  \
  template void PositionEncoding::compute_tables(const Workers&, const Numbers<T>&, std::size_t, \
                                                 std::int64_t, TableSet<T>&) const;              \
  template void PositionEncoding::compute_tables_backward(                                       \
      const Workers&, const Numbers<T>&, std::size_t, std::int64_t, const TableSet<T>&) const;

PHASOR_LAB_TABLES(float)
PHASOR_LAB_TABLES(double)

}  // namespace phasor::lab
