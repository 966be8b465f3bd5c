#include <algorithm>
#include <cmath>
#include <numbers>

#include "phasor/porting/diagnose.hpp"
#include "porting/json_values.hpp"
#include "porting/rounding.hpp"

namespace phasor::porting {
namespace {

class TablePlaces {
 public:
  TablePlaces(const Audit& findings, const ForeignTable& table)
      : findings_(findings), table_(table) {}

  // null without a row; a list if there are several axes.
  [[nodiscard]] Json position(std::optional<std::int64_t> row) const {
    if (!row) return nullptr;
    const auto axes = static_cast<std::size_t>(findings_.frequencies.axis_count());
    const auto values = table_.positions.subspan(static_cast<std::size_t>(*row) * axes, axes);
    return axes == 1 ? Json(values[0]) : Json(std::vector<double>(values.begin(), values.end()));
  }
  [[nodiscard]] Json place(const WorstEntry& worst) const {
    if (findings_.entries == 0) return nullptr;
    return {{"position", position(worst.row)}, {"pair", worst.pair}};
  }
  [[nodiscard]] Json pair(const WorstEntry& worst) const {
    Json made = place(worst);
    made["angle_error"] = json_of(worst.error);
    made["wavelength"] = json_of(wavelength_of(findings_, worst.pair));
    return made;
  }

 private:
  const Audit& findings_;
  const ForeignTable& table_;
};

[[nodiscard]] Json cause_json(const std::optional<Cause>& cause) {
  if (!cause) return nullptr;
  return {{"name", cause->name}, {"text", cause->text}, {"residual", json_of(cause->residual)}};
}

}  // namespace

std::string_view unit_name(core::DType stored) noexcept {
  return type_name(stored == core::DType::f64 ? core::DType::f32 : stored);
}

double wavelength_of(const Audit& findings, std::int64_t pair) {
  const auto frequencies = findings.frequencies.values();
  return 2.0 * std::numbers::pi / std::abs(frequencies[static_cast<std::size_t>(pair)]);
}

std::vector<WorstEntry> worst_pairs(const Audit& findings) {
  constexpr std::size_t kWorstPairs = 5;
  std::vector<WorstEntry> worst = findings.by_pair;
  const std::size_t kept = std::min(kWorstPairs, worst.size());
  std::partial_sort(worst.begin(), worst.begin() + static_cast<std::ptrdiff_t>(kept), worst.end(),
                    [](const WorstEntry& a, const WorstEntry& b) { return a.error > b.error; });
  worst.resize(kept);
  std::erase_if(worst, [](const WorstEntry& entry) { return entry.error == 0.0; });
  return worst;
}

std::string audit_json(const Audit& findings, const ForeignTable& table,
                       const AuditOptions& options) {
  const TablePlaces places(findings, table);
  Json answer;
  answer["form"] = table.form;
  answer["differing_copies"] = table.differing_copies;
  answer["entries"] = findings.entries;
  answer["context"] = json_of(options.context);
  answer["threshold"] = json_of(options.threshold);
  answer["within_threshold"] = !findings.first_row_past.has_value();
  answer["amplitude"] = json_of(findings.frequencies.amplitude());
  answer["max_angle_error"] = json_of(findings.angle.error);
  answer["mean_angle_error"] = json_of(findings.mean_angle);
  answer["worst_angle"] = places.place(findings.angle);
  answer["max_amplitude_error"] = json_of(findings.amplitude.error);
  answer["worst_amplitude"] = places.place(findings.amplitude);
  answer["ulp_of"] = unit_name(table.stored);
  answer["max_ulp"] = json_of(findings.ulp.error);
  answer["mean_ulp"] = json_of(findings.mean_ulp);
  answer["worst_ulp"] = places.place(findings.ulp);
  answer["first_position_past_threshold"] = places.position(findings.first_row_past);
  answer["worst_pairs"] = Json::array();
  for (const WorstEntry& worst : worst_pairs(findings))
    answer["worst_pairs"].push_back(places.pair(worst));
  answer["as_good_as_its_type"] = findings.as_good_as_its_type;
  answer["rms_error"] = json_of(findings.error);
  answer["cause"] = cause_json(findings.cause);
  answer["runner_up"] = cause_json(findings.runner_up);
  return answer.dump();
}

}  // namespace phasor::porting
