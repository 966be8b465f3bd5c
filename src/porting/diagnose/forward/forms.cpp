// Mistakes in layout, signs, tables, widths, axes and precision, each as a model.
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

using core::DType;
using diagnosis::Pairing;
using diagnosis::Window;

struct FormName {
  Form form;
  const char* id;
  const char* text;
};
constexpr std::array kForms = {
    FormName{
        Form::inverse, "turned_backwards",
        "rotated backwards: the sign of the sine is inverted, or the minus of rotate_half is on "
        "the wrong half (the same numbers)"},
    FormName{Form::swapped, "cos_and_sin_swapped", "cos and sin are swapped"},
    FormName{Form::no_minus, "rotate_half_without_minus",
             "rotate_half has no minus: a cos + b sin, b cos + a sin"},
    FormName{Form::minus_on_both, "rotate_half_two_minus",
             "the sine of the second half has the wrong sign (rotate_half with two minus signs): "
             "a cos - b sin, b cos - a sin"},
    FormName{Form::minus_on_first, "half_negated",
             "the first half has the opposite sign: b sin - a cos, b cos + a sin"},
    FormName{Form::mirrored, "half_negated",
             "the second half has the opposite sign: a cos - b sin, -b cos - a sin"},
    FormName{Form::swapped_inverse, "cos_and_sin_swapped",
             "cos and sin are swapped, and the sign of one of them is inverted"},
    FormName{Form::in_place, "overwritten",
             "the first half was overwritten before the second half read it (in-place update)"},
    FormName{Form::cos_only, "sine_missing", "the terms with the sine are missing"},
    FormName{Form::sin_only, "cosine_missing", "the terms with the cosine are missing"},
    FormName{Form::partner_order, "halves_exchanged", "the two halves of the result are exchanged"},
    FormName{Form::own_half, "rotate_half_without_swap",
             "rotate_half does not exchange the halves: a cos - a sin, b cos + b sin"},
    FormName{Form::own_half_other, "rotate_half_without_swap",
             "rotate_half does not exchange the halves: a cos + a sin, b cos - b sin"},
    FormName{Form::first_only, "half_not_rotated",
             "only the first half of the result was computed; the second half is unchanged"},
    FormName{Form::second_only, "half_not_rotated",
             "only the second half of the result was computed; the first half is unchanged"},
};

ConfigDifference difference(std::string field, std::string asked, std::string found,
                            std::string text) {
  return {std::move(field), std::move(asked), std::move(found), std::move(text)};
}

// to_half: new[i] = x[2i], new[i + n] = x[2i + 1]; to_interleaved is its inverse.
enum class Order : std::uint8_t { kept, to_half, to_interleaved };
std::int64_t source_of(Order order, std::int64_t j, std::int64_t width) {
  const std::int64_t n = width / 2;
  if (order == Order::to_half) return j < n ? 2 * j : 2 * (j - n) + 1;
  if (order == Order::to_interleaved) return j % 2 == 0 ? j / 2 : n + j / 2;
  return j;
}
std::int64_t target_of(Order order, std::int64_t j, std::int64_t width) {
  // new[target] = x[j]
  if (order == Order::to_half) return source_of(Order::to_interleaved, j, width);
  if (order == Order::to_interleaved) return source_of(Order::to_half, j, width);
  return j;
}
std::string_view order_text(Order order) {
  return order == Order::to_half ? "from interleaved to half order"
                                 : "from half to interleaved order";
}

class FormList {
 public:
  explicit FormList(const Problem& problem) : p_(problem) {}

  std::vector<Candidate> run() {
    layouts();
    for (const Candidate& layout : std::vector<Candidate>(all_)) {
      if (layout.id == "layout") forms(layout.model, layout.text + "; and ", layout.fields, 40);
    }
    forms(p_.asked, "", {}, 10);
    tables();
    repeats();
    growths();
    places();
    return std::move(all_);
  }

 private:
  void add(std::string id, std::string text, Model model, int rank,
           std::vector<ConfigDifference> fields = {}) {
    all_.push_back({std::move(id), std::move(text), std::move(fields), std::move(model), rank});
  }
  [[nodiscard]] std::int64_t width() const {
    return 2 * static_cast<std::int64_t>(p_.asked.pairs.size());
  }

  void layouts() {
    const std::string asked(core::name_of(p_.layout));
    for (const core::PairLayout layout : {core::PairLayout::interleaved, core::PairLayout::half,
                                          core::PairLayout::interleaved_to_half}) {
      if (layout == p_.layout) continue;
      const std::string found(core::name_of(layout));
      Model model = p_.asked;
      try {
        model.pairs = model_of(p_.spec, layout, p_.context, p_.asked.positions, p_.role).pairs;
      } catch (const Error&) {
        continue;
      }
      const std::string text =
          message("layout: ", asked, " in the config, ", found, " in the data");
      add("layout", text, std::move(model), 5, {difference("layout", asked, found, text)});
    }
    if (width() < 4) return;
    // Features permuted before or after the rotation.
    const std::int64_t first = p_.spec.rotary_offset;
    for (const Pairing pairing : {Pairing::half, Pairing::interleaved}) {
      for (const Order before : {Order::kept, Order::to_half, Order::to_interleaved}) {
        for (const Order after : {Order::kept, Order::to_half, Order::to_interleaved}) {
          if (before == Order::kept && after == Order::kept) continue;
          Model model = p_.asked;
          model.pairs = places_of(Window{pairing, first, width()});
          for (PairPlace& at : model.pairs) {
            at.read_a = first + source_of(before, at.read_a - first, width());
            at.read_b = first + source_of(before, at.read_b - first, width());
            at.write_a = first + target_of(after, at.write_a - first, width());
            at.write_b = first + target_of(after, at.write_b - first, width());
          }
          const bool known = std::any_of(all_.begin(), all_.end(), [&](const Candidate& c) {
            return c.model.pairs == model.pairs;
          });
          if (known || model.pairs == p_.asked.pairs) continue;
          std::string text = "the features were permuted ";
          if (before != Order::kept) text += message(order_text(before), " before the rotation");
          if (after != Order::kept) {
            text += message(before != Order::kept ? " and " : "", order_text(after),
                            " after the rotation");
          }
          text += message(", which pairs them in ", diagnosis::name_of(pairing),
                          " layout: the permutation is wrong or in the wrong direction");
          add("permuted", text, std::move(model),
              20 + (before != Order::kept && after != Order::kept));
        }
      }
    }
  }

  void forms(const Model& like, const std::string& prefix,
             const std::vector<ConfigDifference>& fields, int rank) {
    for (const FormName& name : kForms) {
      Model model = like;
      model.form = name.form;
      add(name.id, prefix + name.text, std::move(model), rank, fields);
    }
  }

  // The table in the order of one layout, the features paired in the other.
  void tables() {
    const auto entries = static_cast<std::int64_t>(p_.asked.frequencies.size());
    if (entries < 2 || width() != 2 * entries) return;
    const std::int64_t first = p_.spec.rotary_offset;
    const auto mixed = [&](Pairing pairing, auto entry_of, const char* id, const char* text) {
      for (const Form form : {Form::rotation, Form::inverse}) {
        Model model = p_.asked;
        model.pairs = places_of(Window{pairing, first, width()});
        model.form = form;
        for (const PairPlace& at : model.pairs) {
          model.entry_a.push_back(entry_of(at.write_a - first));
          model.entry_b.push_back(entry_of(at.write_b - first));
        }
        add(id, form == Form::rotation ? text : message(text, "; and rotated backwards"),
            std::move(model), form == Form::rotation ? 10 : 30);
      }
    };
    const auto concatenated = [=](std::int64_t j) { return j % entries; };
    const auto repeated = [=](std::int64_t j) { return j / 2; };
    mixed(Pairing::interleaved, concatenated, "table_concatenated",
          "the cos/sin table is concatenated ([c0 c1 .. c0 c1 ..]) but neighbouring features are "
          "rotated as pairs");
    mixed(Pairing::half, repeated, "table_interleaved",
          "the cos/sin table is interleaved ([c0 c0 c1 c1 ..], repeat_interleave) but rotate_half "
          "pairs the halves");
  }

  void repeats() {
    Model twice = p_.asked;
    twice.roundings = 2.5;
    twice.amplitude *= twice.amplitude;
    for (double& frequency : twice.frequencies) frequency *= 2.0;
    if (twice.growth) {
      for (double& rate : twice.growth->rates) rate *= 2.0;
    }
    add("applied_twice", "the rotation was applied twice", twice, 10);
    Model none = p_.asked;
    std::fill(none.frequencies.begin(), none.frequencies.end(), 0.0);
    none.growth.reset();
    none.form = Form::rotation;
    const bool moves = std::any_of(none.pairs.begin(), none.pairs.end(), [](const PairPlace& at) {
      return at.read_a != at.write_a || at.read_b != at.write_b;
    });
    none.amplitude = 1.0;
    if (!moves) add("not_rotated", "the tensor was not rotated: after equals before", none, 1);
    none.amplitude = p_.asked.amplitude;
    if (p_.asked.amplitude != 1.0) {
      add("not_rotated", "the tensor was multiplied by the amplitude but not rotated", none, 2);
    }
    if (!moves) {
      for (const Order order : {Order::to_half, Order::to_interleaved}) {
        Model only = none;
        only.amplitude = 1.0;
        const std::int64_t first = p_.spec.rotary_offset;
        for (PairPlace& at : only.pairs) {
          at.write_a = first + target_of(order, at.read_a - first, width());
          at.write_b = first + target_of(order, at.read_b - first, width());
        }
        add("not_rotated",
            message("the tensor was not rotated: the features were only permuted, ",
                    order_text(order)),
            only, 3);
      }
    }
  }

  void growths() {
    if (!p_.asked.growth) {
      for (const double sign : {1.0, -1.0}) {
        encodings::RopeSpec with = p_.spec;
        with.xpos = encodings::Xpos{};
        try {
          Model model = model_of(with, p_.layout, p_.context, p_.asked.positions,
                                 sign > 0.0 ? core::Role::query : core::Role::key);
          model.form = p_.asked.form;
          add("xpos_unexpected", "xPos was applied, which the config does not have",
              std::move(model), 25);
        } catch (const Error&) {
          continue;
        }
      }
      return;
    }
    Model without = p_.asked;
    without.growth.reset();
    add("xpos_missing", "the scale of xPos is missing", without, 8);
    Model reversed = p_.asked;
    for (double& rate : reversed.growth->rates) rate = -rate;
    add("xpos_side",
        "the scale of xPos is on the wrong side: queries were scaled as keys, or keys as queries",
        reversed, 9);
    Model both = p_.asked;
    std::reverse(both.growth->rates.begin(), both.growth->rates.end());
    add("xpos_order", "the scales of xPos are in reverse order of the pairs", both, 15);
    const encodings::Xpos asked = *p_.spec.xpos;
    const auto changed = [&](const char* field, double value, double was, encodings::Xpos xpos,
                             int rank) {
      if (value == was) return;
      for (const core::Role role : {core::Role::query, core::Role::key}) {
        encodings::RopeSpec other = p_.spec;
        other.xpos = xpos;
        if (p_.options.role && *p_.options.role != role) continue;
        try {
          add("xpos_parameter",
              message("xPos ", field, ": ", digits(was), " in the config, ", digits(value),
                      " in the data"),
              model_of(other, p_.layout, p_.context, p_.asked.positions, role), rank,
              {difference(field, digits(was), digits(value), "")});
        } catch (const Error&) {
          continue;
        }
      }
    };
    for (const double base : {512.0, 256.0, 1024.0, 128.0, 2048.0, 64.0, 4096.0, 32.0, 100.0}) {
      encodings::Xpos xpos = asked;
      xpos.scale_base = base;
      changed("scale_base", base, asked.scale_base, xpos, 12);
    }
    for (const double gamma : {0.4, 0.0, 0.2, 0.3, 0.5, 0.6, 1.0}) {
      encodings::Xpos xpos = asked;
      xpos.gamma = gamma;
      changed("gamma", gamma, asked.gamma, xpos, 12);
    }
    for (const auto policy : {encodings::Xpos::Centre::fixed, encodings::Xpos::Centre::middle_floor,
                              encodings::Xpos::Centre::middle_ceil}) {
      encodings::Xpos xpos = asked;
      xpos.policy = policy;
      xpos.centre = 0.0;
      if (xpos == asked) continue;
      for (const core::Role role : {core::Role::query, core::Role::key}) {
        encodings::RopeSpec other = p_.spec;
        other.xpos = xpos;
        const double largest = largest_position(*p_.asked.positions);
        const auto context =
            p_.context ? p_.context : std::optional(static_cast<std::int64_t>(largest) + 1);
        try {
          add("xpos_centre", "xPos has another centre than the config's",
              model_of(other, p_.layout, context, p_.asked.positions, role), 13);
        } catch (const Error&) {
          continue;
        }
      }
    }
  }

  // Positions that follow another axis than the tokens: weak if that axis may hold the tokens.
  void places() {
    const Data& d = p_.data;
    const int doubt = d.axes_certain ? 0 : kWeakRank;
    const auto by = [&](const char* id, const char* text, int rank, auto position) {
      auto table = std::make_shared<PositionTable>();
      table->batch = d.batch;
      table->tokens = d.tokens;
      table->heads = d.heads;
      for (std::int64_t b = 0; b < d.batch; ++b) {
        for (std::int64_t t = 0; t < d.tokens; ++t) {
          for (std::int64_t h = 0; h < d.heads; ++h) {
            table->values.push_back(static_cast<double>(position(b, t, h)));
          }
        }
      }
      Model model = p_.asked;
      model.positions = table;
      add(id, text, std::move(model), rank);
    };
    using Index = std::int64_t;
    if (d.heads > 1) {
      const double first = p_.asked.positions->values.empty() ? 0.0 : p_.asked.positions->values[0];
      const auto start = static_cast<Index>(first);
      const char* const alike =
          "the angle follows the head, not the token: heads and tokens are mixed up, and every "
          "token is rotated alike";
      by("angle_by_head", alike, 7 + doubt, [](Index, Index, Index h) { return h; });
      if (start != 0) {
        by("angle_by_head", alike, 7 + doubt, [=](Index, Index, Index h) { return start + h; });
      }
      const char* const mixed =
          "heads and tokens are mixed up: positions were counted over a tensor of another shape";
      by("axes_mixed", mixed, 15 + doubt,
         [&](Index, Index t, Index h) { return (t * d.heads + h) % d.tokens; });
      by("axes_mixed", mixed, 15 + doubt,
         [&](Index, Index t, Index h) { return (t * d.heads + h) / d.tokens; });
      by("axes_mixed", mixed, 15 + doubt, [&](Index, Index t, Index h) { return t * d.heads + h; });
      by("axes_mixed", mixed, 15 + doubt,
         [&](Index, Index t, Index h) { return h * d.tokens + t; });
      by("axes_mixed", mixed, 15 + doubt,
         [&](Index, Index t, Index h) { return (h * d.tokens + t) / d.heads; });
      by("axes_mixed", mixed, 15 + doubt,
         [&](Index, Index t, Index h) { return (h * d.tokens + t) % d.heads; });
      by("axes_mixed", "each head starts at another position", 16 + doubt,
         [](Index, Index t, Index h) { return t + h; });
    }
    // The same numbers as two rotations if the positions start at 0.
    const Positions asked = p_.asked.positions;
    if (asked->axes == 1) {
      by("positions_step", "the positions advance in steps of 2", 11, [&](Index b, Index t, Index) {
        const double first = asked->at(0, b, 0, 0);
        return static_cast<Index>(first + 2.0 * (asked->at(0, b, t, 0) - first));
      });
    }
    if (d.batch > 1) {
      by("angle_by_batch", "the angle follows the batch row, not the token: axes are mixed up",
         8 + doubt, [](Index b, Index, Index) { return b; });
    }
  }

  const Problem& p_;
  std::vector<Candidate> all_;
};

}  // namespace

std::vector<Candidate> form_mistakes(const Problem& problem) { return FormList(problem).run(); }

}  // namespace phasor::porting::forward
