#include "encodings/rope/rope_axes.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "phasor/core/internal/message_text.hpp"

namespace phasor::encodings {
namespace {

constexpr std::uint8_t kTemporal = 0, kHeight = 1, kWidth = 2, kFourth = 3;

void check_mrope(const MropeAxes& axes, const RopeSpec& spec) {
  const std::int64_t pairs = spec.rotary_dim / 2;
  const bool alternating = axes.order == MropeAxes::Order::alternating;
  if (axes.sections.size() != 3 && (alternating || axes.sections.size() != 4)) {
    refuse(message("rope: mrope needs 3 ", alternating ? "" : "or 4 ",
                   "sections, one for each row of positions",
                   alternating ? " when alternating" : "", ", got ", axes.sections.size()));
  }
  std::int64_t sum = 0;
  for (const std::int64_t section : axes.sections) {
    if (section < 0 || section > pairs) {
      refuse(message("rope: an mrope section must be from 0 to rotary_dim / 2 = ", pairs, ", got ",
                     section));
    }
    sum += section;
  }
  if (sum != pairs) {
    refuse(message("rope: mrope sections must add up to rotary_dim / 2 = ", pairs, ", got ", sum));
  }
  if (spec.xpos) refuse("rope: xpos cannot be combined with mrope: it needs one row of positions");
  if (std::holds_alternative<ProportionalScaling>(spec.scaling)) {
    refuse(
        "rope: mrope cannot be combined with proportional scaling, which rotates some pairs only");
  }
  const std::vector<std::uint8_t> rows = mrope_rows(axes, pairs);
  for (std::size_t row = 0; row < axes.sections.size(); ++row) {
    const std::int64_t reached =
        std::count(rows.begin(), rows.end(), static_cast<std::uint8_t>(row));
    if (reached != axes.sections[row]) {
      refuse(message("rope: mrope sections ", core::shape_text(axes.sections),
                     " do not fit the order ", name_of(axes.order), ": row ", row, " gets ",
                     reached, " pairs"));
    }
  }
}

void check_axial(const RopeSpec& spec) {
  if (spec.rotary_dim % 4 != 0) {
    refuse(message("rope: rotary_dim must be a multiple of 4 for two axes, got ", spec.rotary_dim));
  }
  if (std::holds_alternative<ProportionalScaling>(spec.scaling)) {
    refuse(
        "rope: axial cannot be combined with proportional scaling, which rotates some pairs only");
  }
  if (spec.xpos) refuse("rope: xpos cannot be combined with axial: it needs one row of positions");
}

}  // namespace

void check_axes(const RopeSpec& spec) {
  if (const auto* mrope = std::get_if<MropeAxes>(&spec.axes)) check_mrope(*mrope, spec);
  if (std::holds_alternative<AxialAxes>(spec.axes)) check_axial(spec);
}

int axis_count(const RopeAxes& axes) noexcept {
  if (const auto* mrope = std::get_if<MropeAxes>(&axes))
    return static_cast<int>(mrope->sections.size());
  return std::holds_alternative<AxialAxes>(axes) ? 2 : 1;
}

std::vector<std::uint8_t> mrope_rows(const MropeAxes& axes, std::int64_t pairs) {
  const std::int64_t temporal = axes.sections[kTemporal];
  const std::int64_t height = axes.sections[kHeight];
  const std::int64_t width = axes.sections[kWidth];
  const bool four = axes.sections.size() == 4;
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(pairs), kTemporal);
  for (std::int64_t i = 0; i < pairs; ++i) {
    std::uint8_t& row = rows[static_cast<std::size_t>(i)];
    switch (axes.order) {
      case MropeAxes::Order::chunked:
        row = i < temporal                    ? kTemporal
              : i < temporal + height         ? kHeight
              : i < temporal + height + width ? kWidth
                                              : kFourth;
        break;
      case MropeAxes::Order::interleaved:
        if (four && (i % 3 != 0 || i >= 3 * temporal)) row = kFourth;
        if (i % 3 == 1 && i < 3 * height) row = kHeight;
        if (i % 3 == 2 && i < 3 * width) row = kWidth;
        break;
      case MropeAxes::Order::alternating:
        if (i < height + width) row = i % 2 == 0 ? kHeight : kWidth;
        break;
    }
  }
  return rows;
}

std::int64_t formula_width(const RopeSpec& spec) noexcept {
  const auto* axial = std::get_if<AxialAxes>(&spec.axes);
  return axial != nullptr && axial->kind != AxialAxes::Kind::alternating ? spec.rotary_dim / 2
                                                                         : spec.rotary_dim;
}

}  // namespace phasor::encodings
