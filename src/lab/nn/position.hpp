// The position encoding of a stack of layers: what it adds to the input, and the tables that attention
// reads, computed from the parameters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lab/nn/ops.hpp"
#include "lab/nn/parameters.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::lab {

enum class Mask : std::uint8_t { none, causal };

// first, first + step, ...
[[nodiscard]] inline std::vector<std::int64_t> counting(std::int64_t first, std::int64_t count,
                                                        std::int64_t step = 1) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    numbers[static_cast<std::size_t>(i)] = first + i * step;
  }
  return numbers;
}

// A table [rows, heads, dim] of a term of the scores, and its gradient.
template <class T>
struct TermTable {
  std::int64_t rows = 0, heads = 1, dim = 0;
  std::vector<T> values, gradients;
  std::vector<float> narrow, narrow_gradients;  // double: the same in float, which tables also have

  void resize(std::int64_t row_count, std::int64_t head_count, std::int64_t width);
  // After `values` has changed.
  void narrow_values();
  [[nodiscard]] encodings::Table table() const;
  [[nodiscard]] encodings::TableGradient gradient();
};

// The tables of one layer, or of all layers if they share them.
template <class T>
struct TableSet {
  std::vector<TermTable<T>> tables;
};

class PositionEncoding {
 public:
  // Adds its parameters to the list, under names that start with `prefix`.
  PositionEncoding(const ModelSpec& spec, Mask mask, const std::string& prefix,
                   ParameterList& parameters);

  // Replaces what has no parameters.
  //
  // throws   Error(unsupported)
  void replace(const EncodingSpec& encoding);

  // throws   Error(out_of_range): more tokens than a table has positions
  void require_tokens(std::int64_t tokens) const;

  // What is added to the embeddings, for each row of [rows, tokens, hidden]. Nothing for most.
  template <class T>
  void add_to_input(const Workers& workers, const Numbers<T>& numbers, std::int64_t rows,
                    std::int64_t tokens, T* x) const;
  template <class T>
  void add_to_input_backward(const Workers& workers, const Numbers<T>& numbers, std::int64_t rows,
                             std::int64_t tokens, const T* d_x) const;

  // Sets of tables: 0, 1 (shared by the layers) or one for each layer.
  [[nodiscard]] std::size_t table_sets() const noexcept { return recipes_.size(); }
  template <class T>
  void compute_tables(const Workers& workers, const Numbers<T>& numbers, std::size_t set,
                      std::int64_t tokens, TableSet<T>& tables) const;
  template <class T>
  void compute_tables_backward(const Workers& workers, const Numbers<T>& numbers, std::size_t set,
                               std::int64_t tokens, const TableSet<T>& tables) const;
  // The terms of a set; they point into `tables`.
  template <class T>
  [[nodiscard]] encodings::ScoreTerms terms(const TableSet<T>* tables, std::int64_t tokens) const;
  template <class T>
  [[nodiscard]] encodings::ScoreTermGradients gradients(std::size_t set, TableSet<T>& tables) const;
  // The factor on the scores, if it is not the encoding's own.
  [[nodiscard]] std::optional<double> scale() const;
  [[nodiscard]] bool reads_segments() const noexcept;
  // Of rope: for linear attention and cross-attention.
  [[nodiscard]] encodings::RopeSpec rope() const;

 private:
  // How a table is made.
  struct Recipe {
    enum class Kind : std::uint8_t {
      parameter,           // a copy
      projected,           // the parameter's first rows, times a matrix
      projected_sinusoid,  // sinusoids of the distances, times a matrix
      kerple,              // -r1 ln(1 + r2 distance), r = softplus of a parameter
    };
    Kind kind = Kind::parameter;
    encodings::TableGradient encodings::ScoreTermGradients::*term = nullptr;
    std::size_t from = kAbsent, weight = kAbsent;
    std::int64_t rows = 0;  // 0: as many as tokens or distances
    std::int64_t heads = 1, dim = 0;
  };

  void add_recipes(ParameterList& parameters, const std::string& prefix);
  [[nodiscard]] Recipe copied(ParameterList& parameters, const std::string& name,
                              encodings::TableGradient encodings::ScoreTermGradients::*term,
                              std::int64_t rows, std::int64_t heads, std::int64_t dim,
                              const Initial& initial) const;
  [[nodiscard]] std::int64_t rows_of(const Recipe& recipe, std::int64_t tokens) const;
  template <class T>
  [[nodiscard]] std::vector<T> sinusoid(std::int64_t tokens) const;
  template <class T>
  [[nodiscard]] encodings::Encoding encoding(const TableSet<T>* tables, std::int64_t tokens) const;

  ModelSpec spec_;
  Mask mask_;
  std::size_t absolute_ = kAbsent;  // learned and hierarchical: [context, hidden]
  std::vector<std::vector<Recipe>> recipes_;
};

}  // namespace phasor::lab
