#include "lab/nn/position.hpp"

#include <cmath>
#include <utility>

namespace phasor::lab {
namespace {

using encodings::ScoreTermGradients;

// Rows of positions that are added to embeddings of deviation 0.02 are scaled alike: the Transformer
// multiplies its embeddings by sqrt(hidden) instead, which a norm cannot tell apart.
constexpr double kSinusoidScale = kEmbedding.deviation;

}  // namespace

PositionEncoding::PositionEncoding(const ModelSpec& spec, Mask mask, const std::string& prefix,
                                   ParameterList& parameters)
    : spec_(spec), mask_(mask) {
  const EncodingName name = spec.encoding.name;
  if (name == EncodingName::learned || name == EncodingName::hierarchical) {
    absolute_ =
        parameters.add(prefix + "positions.weight", {spec.context, spec.hidden}, kEmbedding);
  }
  add_recipes(parameters, prefix);
}

PositionEncoding::Recipe PositionEncoding::copied(
    ParameterList& parameters, const std::string& name,
    encodings::TableGradient ScoreTermGradients::*term, std::int64_t rows, std::int64_t heads,
    std::int64_t dim, const Initial& initial) const {
  std::vector<std::int64_t> shape = {rows, heads, dim};
  return {.kind = Recipe::Kind::parameter,
          .term = term,
          .from = parameters.add(name, std::move(shape), initial),
          .rows = rows,
          .heads = heads,
          .dim = dim};
}

void PositionEncoding::add_recipes(ParameterList& parameters, const std::string& prefix) {
  const std::int64_t hidden = spec_.hidden, heads = spec_.heads, dim = spec_.head_dim();
  const EncodingSpec& encoding = spec_.encoding;
  const Initial matrix = matrix_initial(hidden);
  const auto projection = [&](const std::string& name) {
    return parameters.add(name + ".weight", {hidden, hidden}, matrix);
  };
  const auto layer_prefix = [&](std::int64_t layer) {
    return message(prefix, "layer.", layer, ".");
  };
  switch (encoding.name) {
    case EncodingName::shaw: {
      const std::int64_t rows = encoding.clip * (mask_ == Mask::causal ? 1 : 2) + 1;
      for (std::int64_t layer = 0; layer < spec_.layers; ++layer) {
        const std::string at = layer_prefix(layer);
        recipes_.push_back({copied(parameters, at + "relative_keys",
                                   &ScoreTermGradients::query_rows, rows, 1, dim, kEmbedding),
                            copied(parameters, at + "relative_values",
                                   &ScoreTermGradients::value_rows, rows, 1, dim, kEmbedding)});
      }
      return;
    }
    case EncodingName::transformer_xl:
    case EncodingName::xlnet: {
      const bool shared = encoding.name == EncodingName::transformer_xl;
      std::vector<Recipe> biases;
      for (std::int64_t layer = 0; layer < spec_.layers; ++layer) {
        const std::string at = layer_prefix(layer);
        if (layer == 0 || !shared) {
          const std::string owner = shared ? prefix : at;
          biases = {copied(parameters, owner + "u", &ScoreTermGradients::content_bias, 1, heads,
                           dim, kZeros),
                    copied(parameters, owner + "v", &ScoreTermGradients::position_bias, 1, heads,
                           dim, kZeros)};
          if (reads_segments()) {
            biases.push_back(copied(parameters, owner + "segments",
                                    &ScoreTermGradients::segment_rows, 2, heads, dim, kEmbedding));
            biases.push_back(copied(parameters, owner + "segment_bias",
                                    &ScoreTermGradients::segment_bias, 1, heads, dim, kZeros));
          }
        }
        std::vector<Recipe> recipes = {{.kind = Recipe::Kind::projected_sinusoid,
                                        .term = &ScoreTermGradients::query_rows,
                                        .weight = projection(at + "relative"),
                                        .heads = heads,
                                        .dim = dim}};
        recipes.insert(recipes.end(), biases.begin(), biases.end());
        recipes_.push_back(std::move(recipes));
      }
      return;
    }
    case EncodingName::deberta: {
      const std::int64_t rows = 2 * encoding.max_distance;
      const std::size_t table =
          parameters.add(prefix + "relative.weight", {rows, hidden}, kEmbedding);
      for (std::int64_t layer = 0; layer < spec_.layers; ++layer) {
        const auto projected = [&](const char* name,
                                   encodings::TableGradient ScoreTermGradients::*term) {
          return Recipe{.kind = Recipe::Kind::projected,
                        .term = term,
                        .from = table,
                        .weight = projection(layer_prefix(layer) + name),
                        .rows = rows,
                        .heads = heads,
                        .dim = dim};
        };
        recipes_.push_back({projected("position_keys", &ScoreTermGradients::query_rows),
                            projected("position_queries", &ScoreTermGradients::key_rows)});
      }
      return;
    }
    case EncodingName::t5:
      recipes_ = {{copied(parameters, prefix + "relative_bias", &ScoreTermGradients::bias,
                          encoding.buckets, heads, 1, kZeros)}};
      return;
    case EncodingName::tupe: {
      const std::size_t table =
          parameters.add(prefix + "positions.weight", {spec_.context, hidden}, kEmbedding);
      std::vector<Recipe> recipes;
      for (const auto& [name, term] :
           {std::pair{"position_queries", &ScoreTermGradients::extra_query},
            std::pair{"position_keys", &ScoreTermGradients::extra_key}}) {
        recipes.push_back({.kind = Recipe::Kind::projected,
                           .term = term,
                           .from = table,
                           .weight = projection(prefix + name),
                           .heads = heads,
                           .dim = dim});
      }
      recipes.push_back(copied(parameters, prefix + "relative_bias", &ScoreTermGradients::bias,
                               encoding.buckets, heads, 1, kZeros));
      if (mask_ == Mask::none) {
        for (const auto& [name, term] :
             {std::pair{"first_row", &ScoreTermGradients::first_row},
              std::pair{"first_column", &ScoreTermGradients::first_column}}) {
          recipes.push_back(copied(parameters, prefix + name, term, 1, heads, 1, kZeros));
        }
      }
      recipes_.push_back(std::move(recipes));
      return;
    }
    case EncodingName::kerple:
      // softplus(0) = 0.69 for both numbers of each head.
      recipes_ = {{Recipe{.kind = Recipe::Kind::kerple,
                          .term = &ScoreTermGradients::bias,
                          .from = parameters.add(prefix + "kerple", {2, heads}, kZeros),
                          .heads = heads,
                          .dim = 1}}};
      return;
    case EncodingName::none:
    case EncodingName::sinusoidal:
    case EncodingName::learned:
    case EncodingName::hierarchical:
    case EncodingName::rope:
    case EncodingName::xpos:
    case EncodingName::alibi:
      return;
  }
}

void PositionEncoding::replace(const EncodingSpec& encoding) {
  const auto free = [](EncodingName name) {
    return name == EncodingName::rope || name == EncodingName::xpos ||
           name == EncodingName::alibi || name == EncodingName::none ||
           name == EncodingName::sinusoidal;
  };
  if (!free(encoding.name) || !free(spec_.encoding.name)) {
    refuse(ErrorCode::unsupported,
           message("an encoding with trained numbers cannot be replaced: ",
                   name_of(spec_.encoding.name), " by ", name_of(encoding.name)));
  }
  ModelSpec changed = spec_;
  changed.encoding = encoding;
  validate(changed);
  spec_ = changed;
}

void PositionEncoding::require_tokens(std::int64_t tokens) const {
  const EncodingName name = spec_.encoding.name;
  const bool table = name == EncodingName::learned || name == EncodingName::tupe;
  const std::int64_t most =
      name == EncodingName::hierarchical ? spec_.context * spec_.context : spec_.context;
  if ((table || name == EncodingName::hierarchical) && tokens > most) {
    refuse(ErrorCode::out_of_range, message("the ", name_of(name), " encoding has ", most,
                                            " positions, got a row of ", tokens, " tokens"));
  }
}

template <class T>
void PositionEncoding::add_to_input(const Workers& workers, const Numbers<T>& numbers,
                                    std::int64_t rows, std::int64_t tokens, T* x) const {
  const std::int64_t hidden = spec_.hidden;
  std::vector<T> computed;
  const T* table = numbers.at(absolute_);
  if (spec_.encoding.name == EncodingName::sinusoidal) {
    computed.resize(static_cast<std::size_t>(tokens * hidden));
    encodings::sinusoidal_rows({.dim = hidden, .base = spec_.encoding.base}, counting(0, tokens),
                               computed.data());
    for (T& value : computed) value *= static_cast<T>(kSinusoidScale);
    table = computed.data();
  } else if (absolute_ == kAbsent) {
    return;
  } else if (tokens > spec_.context) {  // hierarchical, longer than trained
    const std::vector<float> narrow(table, table + spec_.context * hidden);
    std::vector<float> longer(static_cast<std::size_t>(tokens * hidden));
    encodings::hierarchical_rows(
        {.rows = encodings::shared_rows(narrow.data(), spec_.context, hidden),
         .alpha = spec_.encoding.alpha},
        counting(0, tokens), longer.data());
    computed.assign(longer.begin(), longer.end());
    table = computed.data();
  }
  workers.for_runs(rows, 1, [&](std::int64_t row, std::int64_t) {
    T* const to = x + row * tokens * hidden;
    for (std::int64_t i = 0; i < tokens * hidden; ++i) to[i] += table[i];
  });
}

template <class T>
void PositionEncoding::add_to_input_backward(const Workers& workers, const Numbers<T>& numbers,
                                             std::int64_t rows, std::int64_t tokens,
                                             const T* d_x) const {
  // Training rows are not longer than the table: the first rows of a hierarchical one are its own.
  if (absolute_ == kAbsent) return;
  add_columns(workers, rows, tokens * spec_.hidden, d_x, tokens * spec_.hidden,
              numbers.gradient(absolute_));
}

encodings::RopeSpec PositionEncoding::rope() const {
  encodings::RopeSpec rope{.head_dim = spec_.head_dim(),
                           .rotary_dim = spec_.head_dim(),
                           .base = spec_.encoding.base,
                           // As the models of these styles have it in other programs.
                           .layout = spec_.style == Style::roformer ? core::PairLayout::interleaved
                                                                    : core::PairLayout::half,
                           .scaling = spec_.encoding.scaling};
  if (spec_.encoding.name == EncodingName::xpos) rope.xpos = encodings::Xpos{};
  return rope;
}

template <class T>
encodings::Encoding PositionEncoding::encoding(const TableSet<T>* tables,
                                               std::int64_t tokens) const {
  const EncodingSpec& spec = spec_.encoding;
  const auto table = [&](std::size_t index) {
    return tables != nullptr && index < tables->tables.size() ? tables->tables[index].table()
                                                              : encodings::Table{};
  };
  const auto range = mask_ == Mask::causal ? encodings::BucketRange::past_only
                                           : encodings::BucketRange::bidirectional;
  switch (spec.name) {
    case EncodingName::rope:
    case EncodingName::xpos:
      return rope();
    case EncodingName::shaw:
      return encodings::Shaw{.keys = table(0),
                             .values = table(1),
                             .left = spec.clip,
                             .right = mask_ == Mask::causal ? 0 : spec.clip};
    case EncodingName::transformer_xl:
    case EncodingName::xlnet: {
      encodings::TransformerXl relative{
          .rows = table(0), .u = table(1), .v = table(2), .first_distance = tokens - 1};
      if (spec.name == EncodingName::transformer_xl) return relative;
      return encodings::Xlnet{
          .relative = relative, .segment_rows = table(3), .segment_bias = table(4)};
    }
    case EncodingName::t5:
      return encodings::T5{.bias = table(0), .max_distance = spec.max_distance, .range = range};
    case EncodingName::tupe:
      return encodings::Tupe{
          .query_positions = table(0),
          .key_positions = table(1),
          .bias =
              encodings::T5{.bias = table(2), .max_distance = spec.max_distance, .range = range},
          .first_row = table(3),
          .first_column = table(4)};
    case EncodingName::deberta:
      return encodings::Deberta{.version = encodings::Deberta::Version::v1,
                                .keys = table(0),
                                .queries = table(1),
                                .max_relative_positions = spec.max_distance};
    case EncodingName::alibi:
      return encodings::Alibi{};
    case EncodingName::none:
    case EncodingName::sinusoidal:
    case EncodingName::learned:
    case EncodingName::hierarchical:
    case EncodingName::kerple:  // its bias is a table of this file's
      return encodings::NoEncoding{};
  }
  return encodings::NoEncoding{};
}

template <class T>
encodings::ScoreTerms PositionEncoding::terms(const TableSet<T>* tables,
                                              std::int64_t tokens) const {
  encodings::ScoreTerms terms =
      encodings::resolve(encoding(tables, tokens), {.heads = spec_.heads,
                                                    .key_heads = spec_.heads,
                                                    .head_dim = spec_.head_dim(),
                                                    .value_dim = spec_.head_dim(),
                                                    .query_tokens = tokens,
                                                    .key_tokens = tokens});
  if (spec_.encoding.name == EncodingName::kerple) {
    encodings::RelativeRows bias;
    bias.table = tables->tables[0].table();
    const std::int64_t first = mask_ == Mask::causal ? 0 : 1 - tokens;
    bias.map.first = first;
    bias.map.outside = encodings::RelativeMap::Outside::refuse;
    for (std::int64_t distance = first; distance < tokens; ++distance) {
      bias.map.rows.push_back(static_cast<std::int32_t>(std::abs(distance)));
    }
    terms.bias = std::move(bias);
  }
  return terms;
}

template <class T>
ScoreTermGradients PositionEncoding::gradients(std::size_t set, TableSet<T>& tables) const {
  ScoreTermGradients gradients;
  for (std::size_t index = 0; index < tables.tables.size(); ++index) {
    gradients.*recipes_[set][index].term = tables.tables[index].gradient();
  }
  return gradients;
}

std::optional<double> PositionEncoding::scale() const {
  // T5 leaves q.k as it is and starts from smaller weights instead; here all encodings start from the
  // same ones.
  if (spec_.encoding.name != EncodingName::t5) return std::nullopt;
  return 1.0 / std::sqrt(static_cast<double>(spec_.head_dim()));
}

bool PositionEncoding::reads_segments() const noexcept {
  return spec_.encoding.name == EncodingName::xlnet && spec_.token_types > 1;
}

#define PHASOR_LAB_POSITION(T)                                                                    \
  template void PositionEncoding::add_to_input(const Workers&, const Numbers<T>&, std::int64_t,   \
                                               std::int64_t, T*) const;                           \
  template void PositionEncoding::add_to_input_backward(                                          \
      const Workers&, const Numbers<T>&, std::int64_t, std::int64_t, const T*) const;             \
  template encodings::ScoreTerms PositionEncoding::terms(const TableSet<T>*, std::int64_t) const; \
  template ScoreTermGradients PositionEncoding::gradients(std::size_t, TableSet<T>&) const;

PHASOR_LAB_POSITION(float)
PHASOR_LAB_POSITION(double)

}  // namespace phasor::lab
