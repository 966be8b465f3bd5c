#include "parallel/attention/agreement.hpp"

#include <cstring>
#include <optional>
#include <span>

#include "phasor/core/error.hpp"

namespace phasor::parallel {
namespace {

// FNV-1a over words: finds ranks that were given other numbers, not an adversary.
class Digest {
 public:
  void add_bytes(const void* data, std::size_t size) noexcept {
    const auto* const bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + i, size - i < sizeof(word) ? size - i : sizeof(word));
      add_word(word);
    }
    add_word(size);
  }
  template <class T>
  void add_list(std::span<const T> values) noexcept {
    add_bytes(values.data(), values.size_bytes());
  }
  void add_table(const encodings::Table& table) noexcept {
    const std::int64_t shape[] = {table.given() ? 1 : 0, table.heads, table.rows, table.dim};
    add_list(std::span<const std::int64_t>(shape));
    if (!table.given()) return;
    const auto dim = static_cast<std::size_t>(table.dim);
    for (std::int64_t h = 0; h < table.heads; ++h) {
      for (std::int64_t r = 0; r < table.rows; ++r) {
        add_bytes(table.row(h, r), dim * sizeof(float));
        if (table.wide != nullptr) add_bytes(table.wide + table.offset(h, r), dim * sizeof(double));
      }
    }
  }
  void add_rows(const std::optional<encodings::RelativeRows>& rows) noexcept {
    add_word(rows ? 1 : 0);
    if (!rows) return;
    add_table(rows->table);
    add_word(static_cast<std::uint64_t>(rows->map.first));
    add_word(static_cast<std::uint64_t>(rows->map.outside));
    add_list(std::span<const std::int32_t>(rows->map.rows));
  }
  void add_positions(const std::optional<core::Positions>& given, std::int64_t batch,
                     std::int64_t tokens) noexcept {
    add_word(given ? 1 : 0);
    if (!given) return;
    const std::int64_t rows = given->batch == 0 ? 1 : batch;
    add_word(static_cast<std::uint64_t>(given->axes));
    for (int axis = 0; axis < given->axes; ++axis) {
      for (std::int64_t b = 0; b < rows; ++b) {
        for (std::int64_t t = 0; t < tokens; ++t) {
          const double at = given->at(axis, b, t);
          add_bytes(&at, sizeof(at));
        }
      }
    }
  }
  [[nodiscard]] std::string text() const { return message(value_); }

 private:
  void add_word(std::uint64_t word) noexcept {
    value_ = (value_ ^ word) * 0x100000001b3ULL;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::string sizes_text(const attention::AttentionSizes& sizes) {
  return message("batch ", sizes.batch, ", queries ", sizes.queries, ", keys ", sizes.keys,
                 ", heads ", sizes.heads, ", key_heads ", sizes.key_heads, ", head_dim ",
                 sizes.head_dim, ", value_dim ", sizes.value_dim, ", ",
                 core::name_of(sizes.arithmetic));
}

std::string options_text(const attention::AttentionOptions& options,
                         const attention::AttentionSizes& whole, const ParallelOptions& parallel,
                         attention::AttentionPasses passes) {
  Digest digest;
  digest.add_list(options.key_padding);
  digest.add_list(options.query_segments);
  digest.add_list(options.key_segments);
  digest.add_list(options.query_boundaries);
  digest.add_list(options.key_boundaries);
  digest.add_positions(options.query_positions, whole.batch, whole.queries);
  digest.add_positions(options.key_positions, whole.batch, whole.keys);
  return message(
      attention::name_of(parallel.order), " order, ",
      parallel.wire == WireType::bf16 ? "bf16" : "f32", " wire, ",
      options.causality == attention::Causality::none ? "not causal" : "causal", ", window ",
      options.window ? message(*options.window) : std::string("none"), ", scale ",
      options.scale ? message(*options.scale) : std::string("of the encoding"), ", soft_cap ",
      options.soft_cap, ", angles ", core::name_of(options.angles),
      options.keys == attention::KeyState::rotated ? ", rotated keys" : "",
      passes == attention::AttentionPasses::forward ? ", forward" : ", forward and backward",
      ", lists ", digest.text());
}

std::string terms_text(const encodings::ScoreTerms& terms) {
  Digest digest;
  if (terms.rotation) {
    const core::Rotary& rotary = *terms.rotation;
    digest.add_list(rotary.frequencies.values());
    digest.add_list(rotary.frequencies.axes());
    const double numbers[] = {
        rotary.frequencies.amplitude(),       static_cast<double>(rotary.layout),
        static_cast<double>(rotary.head_dim), static_cast<double>(rotary.offset),
        static_cast<double>(rotary.blocks),   rotary.growth ? rotary.growth->centre : 0.0};
    digest.add_list(std::span<const double>(numbers));
    if (rotary.growth) digest.add_list(std::span<const double>(rotary.growth->rates));
  }
  for (const auto* rows : {&terms.query_rows, &terms.key_rows, &terms.bias, &terms.value_rows})
    digest.add_rows(*rows);
  for (const auto* table :
       {&terms.content_bias, &terms.position_bias, &terms.extra_query, &terms.extra_key,
        &terms.first_row, &terms.first_column, &terms.segment_rows, &terms.segment_bias})
    digest.add_table(*table);
  digest.add_list(std::span<const double>(terms.slopes));
  std::string text = message("scale ", terms.scale);
  const auto name = [&](bool given, const char* what) {
    if (given) text += message(", ", what);
  };
  name(terms.rotation.has_value(), "rotation");
  name(terms.query_rows.has_value(), "query_rows");
  name(terms.key_rows.has_value(), "key_rows");
  name(terms.bias.has_value(), "bias");
  name(terms.value_rows.has_value(), "value_rows");
  name(!terms.slopes.empty(), "slopes");
  name(terms.extra_query.given(), "extra features");
  name(terms.segment_rows.given(), "segments");
  return text + message(", numbers ", digest.text());
}

}  // namespace phasor::parallel
