// Golden kinds of encodings alone, without attention: rows added to the input, buckets and slopes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "conform/terms.hpp"
#include "phasor/attention/position_ids.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::tools {
namespace {

using encodings::BucketRange;
using encodings::Sinusoidal;

Sinusoidal::Variant variant_of(const std::string& name) {
  if (name == "interleaved") return Sinusoidal::Variant::interleaved;
  if (name == "concat") return Sinusoidal::Variant::concat;
  if (name == "fairseq") return Sinusoidal::Variant::fairseq;
  refuse(ErrorCode::unsupported,
         message(kCaseFile, ": 'variant' must be interleaved, concat or fairseq, got ", name));
}

Sinusoidal sinusoidal_of(const Case& golden) {
  Sinusoidal encoding;
  encoding.dim = member<std::int64_t>(golden, "dim");
  encoding.base = optional_member<double>(golden, "base").value_or(encoding.base);
  encoding.variant = variant_of(member<std::string>(golden, "variant"));
  encoding.padding_row = optional_member<std::int64_t>(golden, "padding_idx");
  return encoding;
}

std::vector<std::int64_t> counted(std::int64_t count) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

std::vector<double> rows_at(const Sinusoidal& encoding,
                            const std::vector<std::int64_t>& positions) {
  std::vector<float> rows(positions.size() * static_cast<std::size_t>(encoding.dim));
  encodings::sinusoidal_rows(encoding, positions, rows.data());
  return {rows.begin(), rows.end()};
}

void sinusoidal(const Case& golden, Comparison& comparison) {
  const Sinusoidal encoding = sinusoidal_of(golden);
  const std::vector<std::int64_t> positions =
      golden.inputs.contains("positions")
          ? io::to_integers(golden.input("positions").data).value_or_throw()
          : counted(member<std::int64_t>(golden, "n_positions"));
  comparison.result("table", {rows_at(encoding, positions),
                              {static_cast<std::int64_t>(positions.size()), encoding.dim},
                              {"position", "dim"},
                              {}});
}

void sinusoidal_from_ids(const Case& golden, Comparison& comparison) {
  const Sinusoidal encoding = sinusoidal_of(golden);
  const CaseArray& ids = golden.input("input_ids");
  const std::int64_t batch = ids.data.shape.at(0), tokens = ids.data.shape.at(1);
  const std::vector<std::int64_t> positions =
      encodings::fairseq_positions(io::to_integers(ids.data).value_or_throw(), batch,
                                   member<std::int64_t>(golden, "padding_idx"),
                                   optional_member<std::int64_t>(golden, "past").value_or(0));
  comparison.result(
      "embeddings",
      {rows_at(encoding, positions), {batch, tokens, encoding.dim}, {"batch", "seq", "dim"}, {}});
}

void sinusoidal_shift(const Case& golden, Comparison& comparison) {
  Sinusoidal encoding;
  encoding.dim = member<std::int64_t>(golden, "dim");
  encoding.base = optional_member<double>(golden, "base").value_or(encoding.base);
  const auto shifts = member<std::vector<std::int64_t>>(golden, "shifts");
  for (const std::string variant : {"interleaved", "concat", "fairseq"}) {
    const std::string name = "shift_" + variant;
    if (!golden.outputs.contains(name) && !golden.truth.contains(name + "_f64")) continue;
    encoding.variant = variant_of(variant);
    Computed matrices;
    matrices.shape = {static_cast<std::int64_t>(shifts.size()), encoding.dim, encoding.dim};
    matrices.dims = {"shift", "row", "col"};
    for (const std::int64_t shift : shifts) {
      const std::vector<double> matrix = encodings::sinusoidal_shift(encoding, shift);
      matrices.values.insert(matrices.values.end(), matrix.begin(), matrix.end());
    }
    comparison.result(name, matrices);
  }
}

// Buckets of every relative position. The cases list where the float32 logarithm of their source
// rounds across a boundary, which gives a neighbouring bucket; those elements are left out.
template <class Bucket>
void compare_buckets(const Case& golden, Comparison& comparison, const std::string& name,
                     const std::vector<std::int64_t>& rounded, const Bucket& bucket) {
  const CaseArray& input = golden.input("relative_position");
  const std::vector<std::int64_t> positions = io::to_integers(input.data).value_or_throw();
  const std::vector<std::int64_t> expected =
      io::to_integers(golden.outputs.at(name).data).value_or_throw();
  Computed buckets;
  buckets.shape = input.data.shape;
  buckets.dims = input.dims;
  for (std::size_t at = 0; at < positions.size(); ++at) {
    const std::int64_t found = bucket(positions[at]);
    const bool listed = std::find(rounded.begin(), rounded.end(), positions[at]) != rounded.end();
    const bool neighbour = at < expected.size() && std::abs(found - expected[at]) == 1;
    buckets.values.push_back(static_cast<double>(found));
    buckets.left_out.push_back(listed && neighbour ? 1 : 0);
  }
  comparison.result(name, buckets);
}

void t5_bucket(const Case& golden, Comparison& comparison) {
  const auto buckets = member<std::int64_t>(golden, "num_buckets");
  const auto max_distance = member<std::int64_t>(golden, "max_distance");
  const auto lists = optional_member<io::Json>(golden, "float32_disagrees_with_exact_at")
                         .value_or(io::Json::object());
  for (const auto& [name, range] :
       {std::pair<std::string, BucketRange>{"bucket_bidirectional", BucketRange::bidirectional},
        {"bucket_causal", BucketRange::past_only}}) {
    if (!golden.outputs.contains(name)) continue;
    const auto rounded = optional_member<std::vector<std::int64_t>>(lists, name.c_str(), kCaseFile)
                             .value_or(std::vector<std::int64_t>{});
    compare_buckets(golden, comparison, name, rounded, [&, range = range](std::int64_t position) {
      return encodings::t5_bucket(position, buckets, max_distance, range);
    });
  }
}

void deberta_v2_bucket(const Case& golden, Comparison& comparison) {
  const auto buckets = member<std::int64_t>(golden, "position_buckets");
  const auto max_position = member<std::int64_t>(golden, "max_position");
  const auto rounded =
      optional_member<std::vector<std::int64_t>>(golden, "float32_disagrees_with_exact_at")
          .value_or(std::vector<std::int64_t>{});
  compare_buckets(golden, comparison, "bucket", rounded, [&](std::int64_t distance) {
    return encodings::deberta_log_bucket(distance, buckets, max_position);
  });
}

std::vector<double> slopes_of(const Case& golden, encodings::SlopeOrder order) {
  const encodings::Alibi usual;
  return encodings::alibi_slopes(
      member<std::int64_t>(golden, "num_heads"),
      optional_member<double>(golden, "alibi_bias_max").value_or(usual.max_bias), order);
}

// BLOOM adds slope times the number of tokens before the key, which within a row differs from
// -slope (m - n) by a constant.
void alibi_bloom(const Case& golden, Comparison& comparison) {
  const std::vector<double> slopes = slopes_of(golden, encodings::SlopeOrder::bloom);
  const CaseArray& array = golden.input("attention_mask");
  const std::int64_t batch = array.data.shape.at(0), keys = array.data.shape.at(1);
  std::vector<std::uint8_t> mask;
  for (const double value : io::to_doubles(array.data).value_or_throw())
    mask.push_back(value != 0.0 ? 1 : 0);
  const std::vector<std::int64_t> before =
      attention::padded_ids(mask, batch, attention::PaddingPolicy::count_tokens);
  Computed bias;
  bias.shape = {batch, static_cast<std::int64_t>(slopes.size()), keys};
  bias.dims = {"batch", "head", "key"};
  for (std::int64_t row = 0; row < batch; ++row) {
    for (const double slope : slopes) {
      for (std::int64_t key = 0; key < keys; ++key) {
        const auto at = static_cast<std::size_t>(row * keys + key);
        bias.values.push_back(mask[at] == 0 ? 0.0 : slope * static_cast<double>(before[at]));
      }
    }
  }
  comparison.result("alibi", bias);
}

// MPT adds slope (n - last key): -slope (m - n) for the last query.
void alibi_mpt(const Case& golden, Comparison& comparison) {
  const std::vector<double> slopes = slopes_of(golden, encodings::SlopeOrder::mpt);
  const auto keys = member<std::int64_t>(golden, "n");
  Computed bias;
  bias.shape = {static_cast<std::int64_t>(slopes.size()), keys};
  bias.dims = {"head", "key"};
  for (const double slope : slopes) {
    for (std::int64_t key = 0; key < keys; ++key)
      bias.values.push_back(slope * static_cast<double>(key - (keys - 1)));
  }
  comparison.result("alibi", bias);
}

// Every position in error_positions must be an error.
template <class Rows>
void expect_refusals(const Case& golden, const Rows& rows) {
  const auto positions = optional_member<std::vector<std::int64_t>>(golden, "error_positions")
                             .value_or(std::vector<std::int64_t>{});
  for (const std::int64_t position : positions) {
    bool refused = false;
    try {
      (void)rows({position});
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::out_of_range;
    }
    if (!refused) {
      refuse(ErrorCode::internal,
             message("error_positions: position ", position, " must be an error, but gave a row"));
    }
  }
}

void learned_absolute(const Case& golden, Comparison& comparison) {
  encodings::LearnedAbsolute encoding;
  encoding.rows = table_of(golden.input("table"), "table", {"row", "dim"});
  encoding.offset = optional_member<std::int64_t>(golden, "offset").value_or(0);
  const auto rows = [&](const std::vector<std::int64_t>& positions) {
    std::vector<float> values(positions.size() * static_cast<std::size_t>(encoding.rows.dim));
    encodings::learned_rows(encoding, positions, values.data());
    return std::vector<double>(values.begin(), values.end());
  };
  const CaseArray& ids = golden.input("position_ids");
  std::vector<std::int64_t> shape = ids.data.shape;
  std::vector<std::string> dims = ids.dims;
  shape.push_back(encoding.rows.dim);
  dims.push_back("dim");
  comparison.result("embeddings",
                    {rows(io::to_integers(ids.data).value_or_throw()), shape, dims, {}});
  expect_refusals(golden, rows);
}

void hierarchical_absolute(const Case& golden, Comparison& comparison) {
  encodings::HierarchicalAbsolute encoding;
  encoding.rows = table_of(golden.input("table"), "table", {"position", "dim"});
  encoding.alpha = optional_member<double>(golden, "alpha").value_or(encoding.alpha);
  const auto rows = [&](const std::vector<std::int64_t>& positions) {
    std::vector<float> values(positions.size() * static_cast<std::size_t>(encoding.rows.dim));
    encodings::hierarchical_rows(encoding, positions, values.data());
    return std::vector<double>(values.begin(), values.end());
  };
  const std::int64_t count = encoding.rows.rows * encoding.rows.rows;
  comparison.result("extended",
                    {rows(counted(count)), {count, encoding.rows.dim}, {"position", "dim"}, {}});
  expect_refusals(golden, rows);
}

}  // namespace

void add_encoding_kinds(Kinds& kinds) {
  kinds["sinusoidal"] = sinusoidal;
  kinds["sinusoidal_from_ids"] = sinusoidal_from_ids;
  kinds["sinusoidal_shift"] = sinusoidal_shift;
  kinds["t5_bucket"] = t5_bucket;
  kinds["deberta_v2_bucket"] = deberta_v2_bucket;
  kinds["alibi_bloom"] = alibi_bloom;
  kinds["alibi_mpt"] = alibi_mpt;
  kinds["learned_absolute"] = learned_absolute;
  kinds["hierarchical_absolute"] = hierarchical_absolute;
}

}  // namespace phasor::tools
