#include "pages/diagnose.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "pages/page.hpp"

namespace phasor::tools {
namespace {

// No more digits than the tensors' type can carry.
std::string number_text(double value, double rounding = 0.0) {
  if (value == 0.0 || !std::isfinite(value) || rounding <= 0.0)
    return fmt::format("{:.10g}", value);
  const int count = std::clamp(static_cast<int>(-std::log10(rounding)) + 1, 3, 10);
  const double step = std::pow(10.0, std::floor(std::log10(std::abs(value))) - count + 1);
  return fmt::format("{:.10g}", std::round(value / step) * step);
}

std::string scaling_text(const porting::FoundScaling& scaling, double rounding) {
  std::string text = scaling.type;
  for (const auto& [name, value] : scaling.numbers) {
    text += name == "truncate" ? fmt::format(", truncate {}", value != 0.0)
                               : fmt::format(", {} {}", name, number_text(value, rounding));
  }
  return text;
}

std::string list_text(const std::vector<double>& values) {
  constexpr std::size_t kShown = 4;
  if (values.size() <= 2 * kShown) return fmt::format("{:.6g}", fmt::join(values, ", "));
  return fmt::format("{:.6g}, ..., {:.6g}",
                     fmt::join(values.begin(), values.begin() + kShown, ", "),
                     fmt::join(values.end() - 2, values.end(), ", "));
}

void add_rotation(std::string& page, const porting::Diagnosis& found) {
  add(page, "rotary: {} layout, rotary_dim {} of {}{}, base {}, scaling {}\n",
      found.layout.value_or("unknown"),
      found.rotary_dim ? fmt::to_string(*found.rotary_dim) : "unknown", found.head_dim,
      found.rotary_offset == 0 ? "" : fmt::format(" from feature {}", found.rotary_offset),
      found.base ? number_text(*found.base, found.rounding_floor) : "unknown",
      found.scaling ? scaling_text(*found.scaling, found.rounding_floor) : "unknown");
  add(page, "direction    {}\n",
      !found.inverse   ? "unknown"
      : *found.inverse ? "inverse"
                       : "forward");
  if (found.amplitude) add(page, "amplitude    {:.7g}\n", *found.amplitude);
  add(page, "positions    {}{}\n", found.positions,
      found.offset ? fmt::format(", starting at {}", *found.offset) : "");
  add(page, "table        {}\n", found.table_dtype.value_or("unknown"));
  add(page, "tensors      {}{}\n", found.tensor_dtype,
      found.arithmetic ? fmt::format(", arithmetic in {}", *found.arithmetic) : "");
  if (found.effective_base && found.base != found.effective_base) {
    add(page, "frequencies  a power law of base {}\n",
        number_text(*found.effective_base, found.rounding_floor));
  }
  if (!found.frequencies.empty()) {
    add(page, "frequencies  {}\n", list_text(found.frequencies));
  }
  if (found.scaling && !found.scaling->factors.empty()) {
    add(page, "factors      {}\n", list_text(found.scaling->factors));
  }
}

void add_verdict(std::string& page, const porting::ConfigCheck& check) {
  if (check.agrees) {
    add(page, "as the config says\n");
    return;
  }
  add(page, "DIFFERS: {}\n", check.text);
  for (const porting::FoundCause& other : check.alternatives)
    add(page, "or:      {}\n", other.text);
  for (const porting::ConfigDifference& difference : check.differences) {
    if (difference.text != check.text) add(page, "         {}\n", difference.text);
  }
}

}  // namespace

std::string diagnose_page(const porting::Diagnosis& found, const porting::ConfigCheck* check) {
  std::string page;
  if (check != nullptr) {
    add_verdict(page, *check);
    add(page, "\n");
  }
  if (found.answer == porting::Answer::none) {
    // A named cause says more than "no rotary embedding".
    if (check == nullptr || !check->cause) add(page, "no rotary embedding: {}\n", found.reason);
  } else {
    add_rotation(page, found);
  }
  if (found.residual && found.answer == porting::Answer::rope) {
    add(page, "residual     {:.3g} of the tensor's size (rounding alone leaves about {:.2g})\n",
        *found.residual, found.rounding_floor);
  }
  if (found.runner_up && check == nullptr) {
    add(page, "{}{} leaves {:.3g}\n",
        found.answer == porting::Answer::rope ? "runner-up    " : "nearest      ",
        found.runner_up->what, found.runner_up->residual);
  }
  for (const porting::Undetermined& open : found.undetermined) {
    add(page, "cannot tell  {}: {}\n", open.field, open.reason);
  }
  for (const porting::Reading& reading : found.readings) {
    add(page, "or           {}\n", reading.text);
  }
  for (const std::string& note : found.notes) add(page, "note         {}\n", note);
  return page;
}

}  // namespace phasor::tools
