// KERPLE, logarithmic kernel: the bias falls with the logarithm of the distance, with two trained
// numbers for each head.
//
//   s(m, n) = q_m . k_n / sqrt(d) - r1_h ln(1 + r2_h |m - n|)
#include <limits>
#include <memory>

#include "encodings/relative/terms.hpp"

namespace phasor::encodings {
namespace {

struct KerpleParameters {
  double r1 = 0.0, r2 = 0.0;
};

[[nodiscard]] double kerple_number(const Table& table, std::int64_t head) {
  const std::int64_t at = table.offset(head, 0);
  return table.wide != nullptr ? table.wide[at] : static_cast<double>(table.data[at]);
}

[[nodiscard]] KerpleParameters parameters_of(const Kerple& encoding, std::int64_t head) {
  return {kerple_number(encoding.r1, head), kerple_number(encoding.r2, head)};
}

void check_parameter(std::string_view name, const Table& table) {
  for (std::int64_t head = 0; head < table.heads; ++head) {
    const double value = kerple_number(table, head);
    if (std::isfinite(value) && value > 0.0) continue;
    refuse(
        message("kerple: ", name, " must be positive and finite, got ", value, " of head ", head));
  }
}

void check_parameters(const Kerple& encoding, const AttentionShape& shape) {
  require_table("kerple", "r1", encoding.r1, shape, 1, 1);
  require_table("kerple", "r2", encoding.r2, shape, 1, 1);
  check_parameter("r1", encoding.r1);
  check_parameter("r2", encoding.r2);
}

// Heads that share both numbers share the rows.
[[nodiscard]] std::int64_t heads_of_rows(const Kerple& encoding) {
  return std::max(encoding.r1.heads, encoding.r2.heads);
}

struct KerpleRows {
  std::vector<float> rounded;
  std::vector<double> exact;
};

void check_kerple_gradient(std::string_view name, const TableGradient& gradient, std::int64_t heads,
                           std::int64_t rows) {
  if (gradient.heads == heads && gradient.rows == rows && gradient.dim == 1) return;
  refuse(ErrorCode::shape_mismatch,
         message("kerple_backward: ", name, " must be [", heads, ", ", rows, ", 1], got [",
                 gradient.heads, ", ", gradient.rows, ", ", gradient.dim, "]"));
}

[[nodiscard]] bool wanted(const TableGradient& gradient) {
  return gradient.given() || gradient.wide != nullptr;
}

void add_to(const TableGradient& gradient, std::int64_t head, double value) {
  const std::int64_t at = gradient.offset(head, 0);
  if (gradient.wide != nullptr) {
    gradient.wide[at] += value;
  } else {
    gradient.data[at] = static_cast<float>(static_cast<double>(gradient.data[at]) + value);
  }
}

}  // namespace

ScoreTerms terms_of(const Kerple& encoding, const AttentionShape& shape) {
  check_parameters(encoding, shape);
  const Distances distances = distances_of(shape);
  const std::int64_t count = std::max(-distances.first, distances.last) + 1;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (count > kMost) {
    refuse(ErrorCode::out_of_range,
           message("kerple: at most ", kMost, " distances are supported, got ", count));
  }
  const std::int64_t heads = heads_of_rows(encoding);
  const auto rows = std::make_shared<KerpleRows>();
  rows->exact.reserve(static_cast<std::size_t>(heads * count));
  for (std::int64_t head = 0; head < heads; ++head) {
    const KerpleParameters of = parameters_of(encoding, head);
    for (std::int64_t p = 0; p < count; ++p) {
      rows->exact.push_back(-of.r1 * std::log1p(of.r2 * static_cast<double>(p)));
    }
    if (-rows->exact.back() > std::numeric_limits<float>::max()) {
      refuse(ErrorCode::out_of_range,
             message("kerple: the bias must be in the range of float32, got ", rows->exact.back(),
                     " at distance ", count - 1, " of head ", head));
    }
  }
  rows->rounded.assign(rows->exact.begin(), rows->exact.end());

  Table table = heads_then_rows<const float>(rows->rounded.data(), heads, count, 1);
  table.wide = rows->exact.data();
  ScoreTerms terms;
  terms.bias = {table,
                map_over(distances, RelativeMap::Outside::refuse,
                         [](std::int64_t distance) { return std::abs(distance); }),
                rows};
  terms.scale = plain_scale(shape);
  return terms;
}

void kerple_backward(const Kerple& encoding, const TableGradient& d_rows, const TableGradient& d_r1,
                     const TableGradient& d_r2) {
  AttentionShape shape;
  shape.heads = heads_of_rows(encoding);
  check_parameters(encoding, shape);
  check_kerple_gradient("d_rows", d_rows, shape.heads, d_rows.rows);
  if (!wanted(d_rows)) refuse(ErrorCode::shape_mismatch, "kerple_backward: d_rows is missing");
  if (wanted(d_r1)) check_kerple_gradient("d_r1", d_r1, encoding.r1.heads, 1);
  if (wanted(d_r2)) check_kerple_gradient("d_r2", d_r2, encoding.r2.heads, 1);
  // Summed over heads that share a number before the one rounding.
  std::vector<double> of_r1(static_cast<std::size_t>(encoding.r1.heads));
  std::vector<double> of_r2(static_cast<std::size_t>(encoding.r2.heads));
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    const KerpleParameters of = parameters_of(encoding, head);
    double sum_1 = 0.0, sum_2 = 0.0;
    for (std::int64_t p = 0; p < d_rows.rows; ++p) {
      const std::int64_t at = d_rows.offset(head, p);
      const double d_row =
          d_rows.wide != nullptr ? d_rows.wide[at] : static_cast<double>(d_rows.data[at]);
      const auto distance = static_cast<double>(p);
      sum_1 -= d_row * std::log1p(of.r2 * distance);
      sum_2 -= d_row * of.r1 * distance / (1.0 + of.r2 * distance);
    }
    of_r1[static_cast<std::size_t>(encoding.r1.heads == 1 ? 0 : head)] += sum_1;
    of_r2[static_cast<std::size_t>(encoding.r2.heads == 1 ? 0 : head)] += sum_2;
  }
  for (std::int64_t head = 0; head < encoding.r1.heads; ++head) {
    if (wanted(d_r1)) add_to(d_r1, head, of_r1[static_cast<std::size_t>(head)]);
  }
  for (std::int64_t head = 0; head < encoding.r2.heads; ++head) {
    if (wanted(d_r2)) add_to(d_r2, head, of_r2[static_cast<std::size_t>(head)]);
  }
}

}  // namespace phasor::encodings
