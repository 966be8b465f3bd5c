// Mistakes in the rows of positions that the pairs read: M-RoPE and images.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <variant>

#include "phasor/core/error.hpp"
#include "porting/diagnose/forward/search.hpp"

namespace phasor::porting::forward {
namespace {

// The axis of each pair, also for sections that do not fit the order: as the loops of engines do.
std::vector<std::uint8_t> axes_in(encodings::MropeAxes::Order order,
                                  const std::vector<std::int64_t>& sections, std::size_t pairs) {
  std::vector<std::uint8_t> axes(pairs, 0);
  using Order = encodings::MropeAxes::Order;
  std::size_t next = 0;
  for (std::size_t k = 0; k < sections.size(); ++k) {
    const auto length = static_cast<std::size_t>(sections[k]);
    const auto axis = static_cast<std::uint8_t>(k);
    if (order == Order::chunked) {
      for (std::size_t i = 0; i < length && next < pairs; ++i) axes[next++] = axis;
    } else if (order == Order::interleaved && k > 0) {
      for (std::size_t i = k; i < std::min(pairs, 3 * length); i += 3) axes[i] = axis;
    } else if (order == Order::alternating && (k == 1 || k == 2)) {
      for (std::size_t i = k - 1; i < std::min(pairs, 2 * length); i += 2) axes[i] = axis;
    }
  }
  return axes;
}

// The axis whose positions explain each pair best; a pair that several explain reads that of its
// neighbour.
std::vector<std::uint8_t> axes_of_pairs(const Problem& problem, int count) {
  const Model& asked = problem.asked;
  std::vector<std::vector<double>> worst(static_cast<std::size_t>(count),
                                         std::vector<double>(asked.pairs.size(), 0.0));
  std::vector<PairFactors> factors;
  std::vector<double> out, bound;
  for (int axis = 0; axis < count; ++axis) {
    Model model = asked;
    std::fill(model.axes.begin(), model.axes.end(), static_cast<std::uint8_t>(axis));
    for (const Sample::Row& row : problem.some.rows) {
      factors_of(model, row.b, row.t, 0, factors);
      for (const std::int64_t h : row.heads) {
        const std::int64_t v = problem.data.vector_at(row.b, row.t, h);
        predict(problem.data, model, factors, v, out, bound);
        const double* const y = problem.data.after(v);
        for (std::size_t i = 0; i < model.pairs.size(); ++i) {
          double& most = worst[static_cast<std::size_t>(axis)][i];
          for (const std::int64_t j : {model.pairs[i].write_a, model.pairs[i].write_b}) {
            const auto at = static_cast<std::size_t>(j);
            most = std::max(most, std::abs(y[j] - out[at]) / bound[at]);
          }
        }
      }
    }
  }
  std::vector<std::uint8_t> axes;
  for (std::size_t i = 0; i < asked.pairs.size(); ++i) {
    std::uint8_t best = axes.empty() ? std::uint8_t{0} : axes.back();
    if (worst[best][i] > 1.0) {
      for (int axis = 0; axis < count; ++axis) {
        if (worst[static_cast<std::size_t>(axis)][i] < worst[best][i]) {
          best = static_cast<std::uint8_t>(axis);
        }
      }
    }
    axes.push_back(best);
  }
  return axes;
}

}  // namespace

std::vector<Candidate> axis_mistakes(const Problem& problem) {
  std::vector<Candidate> all;
  const int count = encodings::axis_count(problem.spec.axes);
  if (count < 2) return all;
  const auto add = [&](const char* id, std::string text, Model model, int rank) {
    all.push_back({id, std::move(text), {}, std::move(model), rank});
  };
  const bool mrope = std::holds_alternative<encodings::MropeAxes>(problem.spec.axes);
  const std::array<std::string_view, 4> names =
      mrope ? std::array<std::string_view, 4>{"temporal", "height", "width", "fourth"}
            : std::array<std::string_view, 4>{"height", "width", "", ""};
  // Axes exchanged.
  std::vector<std::uint8_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  while (std::next_permutation(order.begin(), order.end())) {
    Model model = problem.asked;
    for (std::uint8_t& axis : model.axes) axis = order[axis];
    std::string text = "the axes of positions are exchanged:";
    for (int axis = 0; axis < count; ++axis) {
      const auto k = static_cast<std::size_t>(axis);
      if (order[k] == k) continue;
      text += message(text.back() == ':' ? " " : ", ", names[std::min<std::size_t>(order[k], 3)],
                      " was read for ", names[std::min<std::size_t>(k, 3)]);
    }
    add("axes_exchanged", std::move(text), std::move(model), 6);
  }
  for (int axis = 0; axis < count; ++axis) {
    Model model = problem.asked;
    std::fill(model.axes.begin(), model.axes.end(), static_cast<std::uint8_t>(axis));
    add("axes_alike",
        message("every pair read the ", names[static_cast<std::size_t>(std::min(axis, 3))],
                " positions: one row was used for all axes",
                axis == 0 ? " (text-only positions)" : ""),
        std::move(model), 7);
  }
  for (const double first : {0.0, largest_position(*problem.asked.positions)}) {
    auto text_only = std::make_shared<PositionTable>();
    text_only->tokens = problem.data.tokens;
    for (std::int64_t t = 0; t < problem.data.tokens; ++t) {
      text_only->values.push_back(static_cast<double>(t) + (first == 0.0 ? 0.0 : first));
    }
    Model model = problem.asked;
    model.positions = text_only;
    add("axes_alike", "text-only positions 0, 1, 2, ... were used for all axes", std::move(model),
        7);
    if (largest_position(*problem.asked.positions) == 0.0) break;
  }
  // Another order of the pairs.
  const auto with_axes = [&](const char* id, std::string text, encodings::RopeAxes axes, int rank) {
    encodings::RopeSpec other = problem.spec;
    other.axes = std::move(axes);
    if (other.axes == problem.spec.axes) return;
    try {
      add(id, std::move(text),
          model_of(other, problem.layout, problem.context, problem.asked.positions, problem.role),
          rank);
    } catch (const Error&) {
      return;
    }
  };
  if (mrope) {
    const auto& asked = std::get<encodings::MropeAxes>(problem.spec.axes);
    for (const auto kind :
         {encodings::MropeAxes::Order::chunked, encodings::MropeAxes::Order::interleaved,
          encodings::MropeAxes::Order::alternating}) {
      if (kind == asked.order) continue;
      Model model = problem.asked;
      model.axes = axes_in(kind, asked.sections, model.axes.size());
      add("sections_order",
          message("M-RoPE sections are ", encodings::name_of(asked.order), " in the config, ",
                  encodings::name_of(kind), " in the data"),
          std::move(model), 8);
    }
    std::vector<std::int64_t> sections = asked.sections;
    std::sort(sections.begin(), sections.end());
    do {
      encodings::MropeAxes changed = asked;
      changed.sections = sections;
      std::string text;
      for (const std::int64_t section : sections)
        text += message(text.empty() ? "" : ", ", section);
      std::string was;
      for (const std::int64_t section : asked.sections)
        was += message(was.empty() ? "" : ", ", section);
      with_axes("sections",
                message("M-RoPE sections: [", was, "] in the config, [", text, "] in the data"),
                changed, 9);
    } while (std::next_permutation(sections.begin(), sections.end()));
  } else {
    for (const auto kind :
         {encodings::AxialAxes::Kind::concatenated, encodings::AxialAxes::Kind::alternating,
          encodings::AxialAxes::Kind::per_half_head}) {
      const auto asked = std::get<encodings::AxialAxes>(problem.spec.axes).kind;
      with_axes("axes_order",
                message("the axes of the pairs are ", encodings::name_of(asked), " in the config, ",
                        encodings::name_of(kind), " in the data"),
                encodings::AxialAxes{kind}, 8);
    }
  }
  // Any other assignment of pairs to axes.
  Model found = problem.asked;
  found.axes = axes_of_pairs(problem, count);
  std::vector<std::int64_t> sections(static_cast<std::size_t>(count), 0);
  for (const std::uint8_t axis : found.axes) ++sections[axis];
  std::string text;
  for (const std::int64_t section : sections) text += message(text.empty() ? "" : ", ", section);
  const bool chunked = std::is_sorted(found.axes.begin(), found.axes.end());
  std::size_t changes = 0;
  for (std::size_t i = 1; i < found.axes.size(); ++i) {
    changes += found.axes[i] != found.axes[i - 1] ? 1 : 0;
  }
  const bool mixed = 3 * changes > found.axes.size();
  const bool asked_chunked = std::is_sorted(problem.asked.axes.begin(), problem.asked.axes.end());
  if (mrope && (asked_chunked ? mixed : chunked)) {
    add("sections_order",
        message("M-RoPE sections are ", asked_chunked ? "chunked" : "interleaved",
                " in the config, ", asked_chunked ? "interleaved" : "chunked",
                " in the data, with ", text, " pairs"),
        std::move(found), 20);
  } else {
    add("sections",
        message("the pairs read other rows of positions: ", text, " pairs per row in the data",
                chunked ? ", one section after the other" : ""),
        std::move(found), 20);
  }
  return all;
}

}  // namespace phasor::porting::forward
