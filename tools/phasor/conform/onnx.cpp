// Golden kind onnx_RotaryEmbedding: the operator of opset 23, which is given its cos and sin.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::tools {
namespace {

struct Attributes {
  std::int64_t interleaved = 0;
  std::int64_t num_heads = 0;
  std::int64_t rotary_embedding_dim = 0;  // 0: the whole head
};

Attributes attributes_of(const Case& golden) {
  Attributes attributes;
  const auto given = golden.json.find("attributes");
  if (given == golden.json.end() || given->is_null()) return attributes;
  for (const io::JsonMember* const entry : given->sorted_items()) {
    const std::string& name = entry->key;
    std::int64_t* const member_of = name == "interleaved" ? &attributes.interleaved
                                    : name == "num_heads" ? &attributes.num_heads
                                    : name == "rotary_embedding_dim"
                                        ? &attributes.rotary_embedding_dim
                                        : nullptr;
    if (member_of == nullptr) {
      refuse(ErrorCode::unsupported,
             message("attributes: must be interleaved, num_heads or rotary_embedding_dim, got ",
                     name));
    }
    *member_of = member<std::int64_t>(*given, name.c_str(), "attributes");
  }
  return attributes;
}

// Input is [batch, heads, seq, dim], or [batch, seq, heads * dim] with num_heads.
core::HeadsView heads_of_input(io::NpyArray& input, const Attributes& attributes) {
  const std::vector<std::int64_t>& shape = input.shape;
  core::HeadsView view;
  if (shape.size() == 4) {
    view = core::heads_first_view(input.as<float>(), shape[0], shape[1], shape[2], shape[3]);
  } else if (shape.size() == 3) {
    if (attributes.num_heads < 1 || shape[2] % attributes.num_heads != 0) {
      refuse(ErrorCode::shape_mismatch,
             message("attributes: num_heads must divide the ", shape[2],
                     " features of a 3-D input, got ", attributes.num_heads));
    }
    view = core::heads_view(input.as<float>(), shape[0], shape[1], attributes.num_heads,
                            shape[2] / attributes.num_heads);
  } else {
    refuse(ErrorCode::shape_mismatch,
           message("input: must have 3 or 4 axes, got the shape ", core::shape_text(shape)));
  }
  view.data = input.bytes.data();
  view.dtype = io::dtype_of(input, "input").value_or_throw();
  return view;
}

// The first `pairs` columns of every row, as float32.
std::vector<float> rows_of(const CaseArray& cache, std::int64_t pairs, const std::string& name) {
  const std::int64_t width = cache.data.shape.empty() ? 0 : cache.data.shape.back();
  if (width < pairs) {
    refuse(ErrorCode::shape_mismatch,
           message(name, ": must have ", pairs, " pairs per row, got ", width));
  }
  const std::vector<double> values = io::to_doubles(cache.data).value_or_throw();
  std::vector<float> rows;
  for (std::size_t row = 0; row + static_cast<std::size_t>(width) <= values.size();
       row += static_cast<std::size_t>(width)) {
    for (std::size_t pair = 0; pair < static_cast<std::size_t>(pairs); ++pair) {
      rows.push_back(static_cast<float>(values[row + pair]));
    }
  }
  return rows;
}

std::vector<std::int64_t> positions_of(const Case& golden, const core::HeadsView& view) {
  using Shape = std::vector<std::int64_t>;
  const CaseArray& cache = golden.input("cos_cache");
  if (golden.inputs.contains("position_ids")) {
    const CaseArray& ids = golden.input("position_ids");
    if (ids.data.shape != Shape{view.batch, view.tokens}) {
      refuse(ErrorCode::shape_mismatch,
             message("position_ids: must have the shape ",
                     core::shape_text(std::array{view.batch, view.tokens}), ", got ",
                     core::shape_text(ids.data.shape)));
    }
    return io::to_integers(ids.data).value_or_throw();
  }
  // Without ids the cache has one row for every token of every batch row.
  if (cache.data.shape.size() != 3 || cache.data.shape[0] != view.batch ||
      cache.data.shape[1] != view.tokens) {
    refuse(ErrorCode::shape_mismatch,
           message("cos_cache: must have a row for each of ", view.batch, " x ", view.tokens,
                   " tokens without position_ids, got ", core::shape_text(cache.data.shape)));
  }
  std::vector<std::int64_t> rows(static_cast<std::size_t>(view.batch * view.tokens));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

void rotary_embedding(const Case& golden, Comparison& comparison) {
  const Attributes attributes = attributes_of(golden);
  CaseArray input = golden.input("input");
  const core::HeadsView view = heads_of_input(input.data, attributes);
  const std::int64_t rotary_dim =
      attributes.rotary_embedding_dim == 0 ? view.head_dim : attributes.rotary_embedding_dim;
  // The rows are given, so the frequencies only say how many pairs there are.
  const core::Rotary rotary{.frequencies = core::make_frequencies({.rotary_dim = rotary_dim}),
                            .layout = attributes.interleaved != 0 ? core::PairLayout::interleaved
                                                                  : core::PairLayout::half,
                            .head_dim = view.head_dim,
                            .growth = std::nullopt};
  const std::int64_t pairs = rotary.frequencies.pairs();
  const core::CosSinTable table =
      core::CosSinTable::from_rows(rows_of(golden.input("cos_cache"), pairs, "cos_cache"),
                                   rows_of(golden.input("sin_cache"), pairs, "sin_cache"), pairs);
  const std::vector<std::int64_t> positions = positions_of(golden, view);
  core::RotateOptions options;
  options.table = &table;
  core::rotate(rotary, core::positions_per_row(positions.data(), 1, view.batch, view.tokens), view,
               options);
  comparison.result("output", computed_from(input));
}

}  // namespace

void add_onnx_kinds(Kinds& kinds) { kinds["onnx_RotaryEmbedding"] = rotary_embedding; }

}  // namespace phasor::tools
