#include "phasor/porting/internal/runs.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "porting/number_text.hpp"
#include "porting/runs/names.hpp"

namespace phasor::porting {
namespace {

// Bases and amplitudes closer than this are one number: 16-bit tensors carry no more.
constexpr double kSameNumber = 2e-3;
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// Whether a relation is a cause of its own, and not what any earlier difference may lead to.
bool is_structural(RunRelation relation) {
  return relation != RunRelation::equal && relation != RunRelation::part &&
         relation != RunRelation::other;
}

// What a diagnosis found, in one line.
std::string rotation_text(const Diagnosis& found) {
  if (found.answer == Answer::none) return message("no rotation: ", found.reason);
  std::string text = message(found.layout.value_or("unknown layout"), ", rotary_dim ",
                             found.rotary_dim ? message(*found.rotary_dim) : "unknown", ", base ",
                             found.base ? digits(*found.base) : "unknown", ", scaling ",
                             found.scaling ? found.scaling->type : "unknown");
  if (found.offset) text += message(", first position ", *found.offset);
  if (found.amplitude && std::abs(*found.amplitude - 1.0) > 1e-3)
    text += message(", amplitude ", digits(*found.amplitude));
  if (found.inverse.value_or(false)) text += ", inverse";
  return text;
}

std::string text_of(const std::optional<double>& value) {
  return value ? digits(*value) : "unknown";
}
std::string text_of(const std::optional<std::int64_t>& value) {
  return value ? message(*value) : "unknown";
}
bool same(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && (!a || std::abs(*a - *b) <= kSameNumber * std::abs(*a));
}

// In what two diagnoses differ.
std::string differences_of(const Diagnosis& a, const Diagnosis& b) {
  std::string text;
  const auto add = [&](std::string_view field, const std::string& of_a, const std::string& of_b) {
    text += message(text.empty() ? "" : ", ", field, " ", of_a, " and ", of_b);
  };
  const auto add_words = [&](std::string_view field, const std::optional<std::string>& of_a,
                             const std::optional<std::string>& of_b) {
    if (of_a != of_b) add(field, of_a.value_or("unknown"), of_b.value_or("unknown"));
  };
  if (a.answer != b.answer) return "one of them rotates, the other does not";
  add_words("layout", a.layout, b.layout);
  if (a.rotary_dim != b.rotary_dim) add("rotary_dim", text_of(a.rotary_dim), text_of(b.rotary_dim));
  if (!same(a.base, b.base)) add("base", text_of(a.base), text_of(b.base));
  const auto scaling = [](const Diagnosis& found) {
    return found.scaling ? std::optional(found.scaling->type) : std::nullopt;
  };
  add_words("scaling", scaling(a), scaling(b));
  if (a.offset != b.offset) add("first position", text_of(a.offset), text_of(b.offset));
  if (!same(a.amplitude, b.amplitude)) add("amplitude", text_of(a.amplitude), text_of(b.amplitude));
  if (a.inverse != b.inverse)
    add("direction", a.inverse.value_or(false) ? "inverse" : "forward",
        b.inverse.value_or(false) ? "inverse" : "forward");
  add_words("table", a.table_dtype, b.table_dtype);
  return text;
}

class RunComparison {
 public:
  explicit RunComparison(const RunsInput& input) : input_(input) {}

  [[nodiscard]] RunsReport compare() {
    const MatchedNames matched = match_names(input_.a, input_.b, input_.order);
    for (const std::size_t i : matched.only_a) report_.only_a.push_back(input_.a[i].name);
    for (const std::size_t i : matched.only_b) report_.only_b.push_back(input_.b[i].name);
    if (matched.pairs.empty()) refuse_unmatched();
    pairs_ = matched.pairs;
    double largest = 0.0;  // of the tensors so far
    for (const auto& [i, j] : pairs_) {
      if (input_.progress) input_.progress(report_.parts.size(), pairs_.size());
      RunPart part{input_.a[i].name, input_.b[j].name,
                   compare_run_tensors(input_.a[i].read(), input_.b[j].read())};
      judge(part, largest);
      largest = std::max(largest, part.difference.difference);
      report_.parts.push_back(std::move(part));
    }
    if (report_.first) explain_rotation(*report_.first);
    if (input_.spec && report_.rotated_from.empty()) check_first_rotation();
    return std::move(report_);
  }

 private:
  [[noreturn]] void refuse_unmatched() const {
    const auto shown = [](const std::vector<std::string>& names) {
      return names.empty() ? std::string("(nothing)") : names.front();
    };
    refuse(message("no tensor of A has the name of one of B: ", report_.only_a.size(),
                   " in A, such as ", shown(report_.only_a), ", ", report_.only_b.size(),
                   " in B, such as ", shown(report_.only_b)));
  }

  // Growth within bounds is rounding, until the runs have parted.
  void judge(RunPart& part, double largest) {
    RunDifference& difference = part.difference;
    const std::size_t index = report_.parts.size();
    if (!report_.first) {
      const double grown = std::min(kRunGrowth * largest, kRunGrowthInAll * difference.tolerance);
      if (difference.difference <= std::max(difference.tolerance, grown)) {
        difference.relation = RunRelation::equal;
        difference.text.clear();
      } else {
        report_.first = index;
      }
      return;
    }
    ++report_.later;
    if (difference.relation == RunRelation::equal) return;
    ++report_.later_differing;
    const RunRelation first = report_.parts[*report_.first].difference.relation;
    const bool is_jump =
        (is_structural(difference.relation) && difference.relation != first) ||
        (std::isfinite(difference.difference) && difference.difference > kRunGrowthInAll * largest);
    if (is_jump && !report_.next_jump) report_.next_jump = index;
  }

  // The tensor that was rotated to the one at `index`, which must be equal in both runs.
  [[nodiscard]] std::size_t before(std::size_t index) const {
    const std::optional<RotationRole> role = role_of(report_.parts[index].name);
    if (!role || role->stage == RotationStage::before) return kNone;
    for (std::size_t i = 0; i < report_.parts.size(); ++i) {
      if (i == index) continue;
      const std::optional<RotationRole> other = role_of(report_.parts[i].name);
      if (!other || other->group != role->group) continue;
      const bool is_before =
          other->stage == RotationStage::before ||
          (other->stage == RotationStage::unknown && role->stage == RotationStage::after);
      if (is_before && report_.parts[i].difference.relation == RunRelation::equal) return i;
    }
    return kNone;
  }

  // A tolerance for whole tensors passes small faults of a rotation, such as frequencies in 16 bits. The
  // config's check of one q or k finds them: if one run fails it, the runs part there.
  void check_first_rotation() {
    const std::size_t end = report_.first.value_or(report_.parts.size());
    std::size_t at = 0;
    while (at < end &&
           (before(at) == kNone || role_of(report_.parts[at].name)->stage != RotationStage::after))
      ++at;
    if (at == end) return;
    explain_rotation(at);
    const auto fails = [](const std::optional<RunRotation>& rotation) {
      return rotation && rotation->check && !rotation->check->agrees;
    };
    if (fails(report_.rotation_a) == fails(report_.rotation_b)) {
      if (fails(report_.rotation_a)) report_.both_differ = report_.rotation_a->text;
      report_.rotated_from.clear();
      report_.rotations.clear();
      report_.rotation_a = report_.rotation_b = std::nullopt;
      return;
    }
    report_.parts[at].difference.text =
        "within the rounding of whole tensors, but not of each element";
    report_.parts[at].difference.relation = RunRelation::other;
    report_.first = at;
    report_.next_jump = std::nullopt;
    report_.later = report_.parts.size() - at - 1;
    report_.later_differing = static_cast<std::size_t>(std::count_if(
        report_.parts.begin() + static_cast<std::ptrdiff_t>(at) + 1, report_.parts.end(),
        [](const RunPart& part) { return part.difference.relation != RunRelation::equal; }));
  }

  void explain_rotation(std::size_t at) {
    const std::size_t from = before(at);
    if (from == kNone) return;
    report_.rotated_from = report_.parts[from].name;
    const std::optional<std::int64_t> layer = layer_of(report_.parts[at].name);
    const std::optional<encodings::RopeSpec> spec = input_.spec ? input_.spec(layer) : std::nullopt;
    report_.rotation_a = rotation(input_.a[pairs_[from].first], input_.a[pairs_[at].first], spec);
    report_.rotation_b = rotation(input_.b[pairs_[from].second], input_.b[pairs_[at].second], spec);
    if (report_.rotation_a && report_.rotation_b)
      report_.rotations = differences_of(report_.rotation_a->found, report_.rotation_b->found);
  }

  [[nodiscard]] std::optional<RunRotation> rotation(
      const RunTensor& from, const RunTensor& to,
      const std::optional<encodings::RopeSpec>& spec) const {
    const io::NpyArray x = from.read(), y = to.read();
    if (x.shape != y.shape) return std::nullopt;
    RunRotation made;
    try {
      const DiagnoseInput pair{&x, &y, nullptr, {}};
      if (spec) {
        ConfigDiagnosis both = diagnose(pair, *spec, input_.check);
        made.found = std::move(both.found);
        made.check = std::move(both.check);
      } else {
        made.found = diagnose(pair);
      }
    } catch (const Error&) {
      return std::nullopt;  // shapes that are no heads: the relation is all there is
    }
    made.text = made.check && !made.check->agrees ? made.check->text : rotation_text(made.found);
    if (made.check && made.check->agrees) made.text = "as the config says: " + made.text;
    return made;
  }

  const RunsInput& input_;
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;
  RunsReport report_;
};

}  // namespace

RunsReport compare_runs(const RunsInput& input) { return RunComparison(input).compare(); }

}  // namespace phasor::porting
