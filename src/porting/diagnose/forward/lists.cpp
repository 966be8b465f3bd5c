// Mistakes in width, precision and frequencies, each as a model.
#include <algorithm>
#include <array>
#include <cmath>

#include "phasor/core/error.hpp"
#include "porting/diagnose/forward/search.hpp"

namespace phasor::porting::forward {
namespace {

using core::DType;

std::string_view short_name(DType type) { return type_name(type); }

// The features that the data changed: [first, last]; none when nothing changed.
std::optional<std::pair<std::int64_t, std::int64_t>> changed_window(const Problem& problem) {
  const std::vector<std::uint8_t> changed = diagnosis::changed_features(*problem.data.vectors);
  const auto first = std::find(changed.begin(), changed.end(), 1);
  if (first == changed.end()) return std::nullopt;
  const auto last = std::find(changed.rbegin(), changed.rend(), 1);
  return std::pair(first - changed.begin(), changed.rend() - last - 1);
}

}  // namespace

std::vector<Candidate> width_mistakes(const Problem& problem) {
  std::vector<Candidate> all;
  const auto changed = changed_window(problem);
  const auto* const one = std::get_if<encodings::OneAxis>(&problem.spec.axes);
  if (!changed || one == nullptr || problem.asked.growth) return all;
  const std::int64_t head = problem.spec.head_dim, asked = problem.spec.rotary_dim;
  const auto pairing_of = [](core::PairLayout layout) {
    return layout == core::PairLayout::interleaved ? diagnosis::Pairing::interleaved
           : layout == core::PairLayout::half      ? diagnosis::Pairing::half
                                                   : diagnosis::Pairing::interleaved_to_half;
  };
  const auto add = [&](std::int64_t first, std::int64_t width, const core::Frequencies& made,
                       const char* law, core::PairLayout layout, int rank) {
    if (made.pairs() != width / 2) return;
    Model model = problem.asked;
    model.pairs = places_of(diagnosis::Window{pairing_of(layout), first, width});
    model.frequencies.assign(made.values().begin(), made.values().end());
    model.axes.clear();
    model.amplitude = made.amplitude();
    const bool same_place = first == problem.spec.rotary_offset;
    std::string text;
    std::vector<ConfigDifference> fields;
    if (width == asked) {
      if (same_place) return;
      text = message("the wrong end of the head was rotated: features ", first, " to ",
                     first + width - 1, ", not ", problem.spec.rotary_offset, " to ",
                     problem.spec.rotary_offset + asked - 1);
      fields.push_back(
          {"rotary_offset", message(problem.spec.rotary_offset), message(first), text});
    } else {
      text = message("rotary_dim: ", asked, " in the config, ", width, " in the data", law);
      if (!same_place) text += message(", from feature ", first);
      fields.push_back({"rotary_dim", message(asked), message(width), text});
    }
    if (layout != problem.layout) {
      const std::string other = message("layout: ", core::name_of(problem.layout),
                                        " in the config, ", core::name_of(layout), " in the data");
      fields.push_back({"layout", std::string(core::name_of(problem.layout)),
                        std::string(core::name_of(layout)), other});
      text += "; " + other;
    }
    all.push_back({width == asked ? "rotary_offset" : "rotary_dim", std::move(text),
                   std::move(fields), std::move(model), rank});
  };
  if (asked < head) {
    Model zero = problem.asked;
    zero.rest_is_zero = true;
    all.push_back({"rest_missing",
                   message("the ", head - asked, " features that do not rotate are 0: not copied"),
                   {},
                   zero,
                   8});
    // Pairs half a head apart instead of half of the rotated width.
    Model wide = problem.asked;
    for (std::int64_t i = 0; i < asked / 2 && asked / 2 + head / 2 <= head; ++i) {
      wide.pairs[static_cast<std::size_t>(i)] = {i, i + head / 2, i, i + head / 2};
    }
    all.push_back({"pair_distance",
                   message("the features of a pair are head_dim / 2 = ", head / 2,
                           " apart, not rotary_dim / 2 = ", asked / 2),
                   {},
                   std::move(wide),
                   9});
  }
  std::vector<std::int64_t> widths;
  for (std::int64_t width = 2; width <= head; width += 2) widths.push_back(width);
  for (const std::int64_t width : widths) {
    for (const std::int64_t first : {problem.spec.rotary_offset, head - width, std::int64_t{0},
                                     problem.spec.rotary_offset + asked}) {
      if (first < 0 || first > changed->first || first + width <= changed->second ||
          first + width > head) {
        continue;
      }
      if (width == asked && first == problem.spec.rotary_offset) continue;
      for (const core::PairLayout layout :
           {problem.layout, problem.layout == core::PairLayout::half ? core::PairLayout::interleaved
                                                                     : core::PairLayout::half}) {
        const int rank = layout == problem.layout ? 8 : 28;
        encodings::RopeSpec other = problem.spec;
        other.rotary_dim = width;
        other.rotary_offset = first;
        other.layout = layout;
        try {
          add(first, width, encodings::resolve_frequencies(other, problem.context), "", layout,
              rank);
        } catch (const Error&) {
          // The scaling's lists may have another length.
        }
        if (width == asked) continue;
        // The list of the config's width, cut or continued.
        std::vector<double> values;
        for (std::int64_t i = 0; i < width / 2; ++i) {
          const auto known = static_cast<std::int64_t>(problem.asked.frequencies.size());
          values.push_back(i < known ? problem.asked.frequencies[static_cast<std::size_t>(i)]
                                     : std::pow(problem.spec.base, -2.0 * static_cast<double>(i) /
                                                                       static_cast<double>(asked)));
        }
        add(first, width, core::Frequencies(values, problem.asked.amplitude),
            ", with the frequencies of the config's width", layout, rank + 1);
        if (width < head) {
          encodings::RopeSpec whole = problem.spec;
          whole.rotary_dim = head;
          whole.rotary_offset = 0;
          try {
            const core::Frequencies made = encodings::resolve_frequencies(whole, problem.context);
            add(first, width,
                core::Frequencies({made.values().begin(), made.values().begin() + width / 2},
                                  made.amplitude()),
                ", with the frequencies of head_dim", layout, rank + 1);
          } catch (const Error&) {
            continue;
          }
        }
      }
    }
  }
  return all;
}

std::vector<Candidate> precision_mistakes(const Problem& problem) {
  std::vector<Candidate> all;
  for (const DType type : {DType::bf16, DType::f16}) {
    const std::string_view name = short_name(type);
    const bool moves =
        std::any_of(problem.asked.positions->values.begin(), problem.asked.positions->values.end(),
                    [&](double p) {
                      return rounded(p + problem.asked.shift, type) != p + problem.asked.shift;
                    });
    const auto add = [&](const char* what, const char* text, Types types, int rank) {
      if (types.position == type && !moves) return;
      // A table in the tensors' own type is no mistake.
      const bool own = diagnosis::unit_of(type) <= problem.data.vectors->unit;
      if (own && types.table == type && types.position != type && types.frequency != type &&
          types.angle != type) {
        return;
      }
      Model model = problem.asked;
      model.types = types;
      all.push_back(
          {message(name, "_", what), message(text, " ", name), {}, std::move(model), rank});
    };
    const DType f32 = DType::f32, f64 = DType::f64;
    add("table", "the cos/sin table was rounded to", {f64, f64, f64, type}, 3);
    add("table", "the cos/sin table was rounded to", {f64, f32, f32, type}, 3);
    add("positions", "the positions were rounded to", {type, f64, f64, f64}, 4);
    add("positions", "the positions were rounded to", {type, f32, f32, f64}, 4);
    add("frequencies", "the frequencies were rounded to", {f64, type, f64, f64}, 4);
    add("frequencies", "the frequencies were rounded to", {f64, type, f32, f64}, 4);
    add("frequencies", "the frequencies (and the cos/sin table) were rounded to",
        {f64, type, f32, type}, 6);
    add("angles", "the angles were rounded to", {f64, f32, type, f64}, 4);
    add("angles", "the angles were rounded to", {f64, f64, type, f64}, 4);
    add("angles", "the angles (and the cos/sin table) were rounded to", {f64, f32, type, type}, 6);
    add("positions", "the positions (and the cos/sin table) were rounded to",
        {type, f32, f32, type}, 6);
    add("throughout", "positions, frequencies and angles were all rounded to",
        {type, type, type, f64}, 5);
    add("throughout", "positions, frequencies, angles and table were all rounded to",
        {type, type, type, type}, 6);
    add("frequencies", "the frequencies and the angles were rounded to", {f64, type, type, f64}, 7);
    add("frequencies", "the frequencies, the angles and the table were rounded to",
        {f64, type, type, type}, 7);
    add("positions", "the positions and the angles were rounded to", {type, f32, type, f64}, 7);
    add("positions", "the positions, the angles and the table were rounded to",
        {type, f32, type, type}, 7);
    add("positions", "the positions and the frequencies were rounded to", {type, type, f32, f64},
        7);
  }
  return all;
}

std::vector<Candidate> frequency_candidates(const Problem& problem) {
  std::vector<Candidate> all;
  const core::Frequencies exact(problem.asked.frequencies, problem.asked.amplitude,
                                problem.asked.axes);
  std::vector<Mistake> mistakes;
  try {
    mistakes = frequency_mistakes(problem.spec, problem.context,
                                  encodings::resolve_frequencies(problem.spec, problem.context));
  } catch (const Error&) {
    return all;
  }
  const std::size_t fixed = mistakes.size();
  for (const Knob& knob : knobs_of(problem.spec, problem.context)) {
    for (const double value : knob.likely) {
      if (value == knob.asked || value < knob.lowest || value > knob.highest) continue;
      const auto made = knob.with(value);
      if (!made || made->pairs() != exact.pairs()) continue;
      mistakes.push_back(mistake_of(knob, value, *made));
    }
  }
  for (std::size_t k = 0; k < mistakes.size(); ++k) {
    const Mistake& mistake = mistakes[k];
    const int rank = k < fixed ? 5 : 9;
    const auto add = [&](Model model, std::string text, std::vector<ConfigDifference> more,
                         int at) {
      std::vector<ConfigDifference> fields = std::move(more);
      if (!mistake.field.empty()) {
        fields.push_back({mistake.field, mistake.asked, mistake.found, mistake.text});
      }
      all.push_back({mistake.id, std::move(text), std::move(fields), std::move(model), at});
    };
    Model model = problem.asked;
    model.frequencies = mistake.frequencies;
    model.amplitude = mistake.amplitude;
    add(model, mistake.text, {}, rank);
    const bool amplitude_too = std::abs(mistake.amplitude / problem.asked.amplitude - 1.0) > 1e-9;
    const bool only_amplitude = mistake.id.rfind("amplitude", 0) == 0;
    if (amplitude_too && !only_amplitude) {
      model.amplitude = problem.asked.amplitude;
      add(model, mistake.text + " (the amplitude is the config's)", {}, rank + 1);
      model.amplitude = 1.0;
      add(model, mistake.text + "; the amplitude is missing too", {}, rank + 2);
      model.amplitude = mistake.amplitude;
    }
    // Together with the other layout, and rotated backwards.
    for (const core::PairLayout layout : {core::PairLayout::half, core::PairLayout::interleaved}) {
      if (layout == problem.layout) continue;
      try {
        Model other = model;
        other.pairs =
            model_of(problem.spec, layout, problem.context, model.positions, problem.role).pairs;
        const std::string text = message("layout: ", core::name_of(problem.layout),
                                         " in the config, ", core::name_of(layout), " in the data");
        add(std::move(other), text + "; and " + mistake.text,
            {{"layout", std::string(core::name_of(problem.layout)),
              std::string(core::name_of(layout)), text}},
            rank + 30);
      } catch (const Error&) {
        continue;
      }
    }
    Model back = model;
    back.form = Form::inverse;
    add(std::move(back), mistake.text + "; and rotated backwards", {}, rank + 35);
  }
  return all;
}

}  // namespace phasor::porting::forward
