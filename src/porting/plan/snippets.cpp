#include "porting/plan/snippets.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "phasor/io/internal/json.hpp"
#include "porting/plan/scaling_keys.hpp"

namespace phasor::porting {
namespace {

using encodings::RopeSpec;
using io::Json;

// Integers without a fraction: 4, not 4.0.
[[nodiscard]] Json number(double value) {
  const bool whole = std::nearbyint(value) == value && std::abs(value) < 1e15;
  return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

// Lists wrapped at 90 columns; objects with one key per line.
[[nodiscard]] std::string laid_out(const Json& value, std::size_t indent) {
  const std::string margin(indent + 2, ' ');
  if (value.is_object() && !value.empty()) {
    std::string text = "{";
    for (const auto& [key, entry] : value.items()) {
      text += (text.size() == 1 ? "\n" : ",\n") + margin + Json(key).dump() + ": " +
              laid_out(entry, indent + 2);
    }
    return text + "\n" + std::string(indent, ' ') + "}";
  }
  if (!value.is_array() || value.dump().size() < 60) return value.dump();
  constexpr std::size_t kWidth = 90;
  std::string text = "[", line;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const std::string entry = value[i].dump() + (i + 1 < value.size() ? "," : "");
    if (line.empty() || margin.size() + line.size() + 1 + entry.size() > kWidth) {
      text += line + "\n" + margin;
      line = entry;
    } else {
      line += " " + entry;
    }
  }
  return text + line + "\n" + std::string(indent, ' ') + "]";
}

void write_axes(const RopeSpec& rope, Json& to) {
  const auto* mrope = std::get_if<encodings::MropeAxes>(&rope.axes);
  if (mrope == nullptr) return;
  to["mrope_section"] = mrope->sections;
  if (mrope->order == encodings::MropeAxes::Order::interleaved) to["mrope_interleaved"] = true;
}

[[nodiscard]] Json parameters_of(const RopeSpec& rope, const Json& part) {
  Json made;
  made["rope_type"] = encodings::name_of(rope.scaling);
  made["rope_theta"] = number(rope.base);
  const bool share_is_outside = part.contains("rotary_dim");
  if (rope.rotary_dim != rope.head_dim && !share_is_outside) {
    made["partial_rotary_factor"] =
        static_cast<double>(rope.rotary_dim) / static_cast<double>(rope.head_dim);
  }
  write_scaling_keys(rope.scaling, DefaultKeys::leave_out, made);
  write_axes(rope, made);
  return made;
}

// The inputs of a snippet.
struct Draft {
  const ReadableConfig& config;
  std::size_t group;
  std::int64_t trained, to;
  const PlanMethod& method;
  Json text;  // of the config

  [[nodiscard]] const RopeSpec& rope() const { return method.rope; }
  [[nodiscard]] const Json& part() { return text_part(text); }
  [[nodiscard]] bool has(std::string_view key) {
    return part().contains(key) && !part().at(std::string(key)).is_null();
  }
  // The keys of a list that the config has.
  [[nodiscard]] std::vector<std::string> present(std::initializer_list<std::string_view> keys) {
    std::vector<std::string> found;
    for (const std::string_view key : keys) {
      if (part().contains(key)) found.emplace_back(key);
    }
    return found;
  }
};

void write_lengths(Draft& draft, Json& snippet) {
  std::string key = "max_position_embeddings";
  for (const std::string_view name : {"n_positions", "max_sequence_length", "seq_length"}) {
    if (!draft.has(key) && draft.has(name)) key = name;
  }
  // Dynamic scaling compares the sequence with this key: it remains the trained length.
  const bool dynamic = std::holds_alternative<encodings::DynamicScaling>(draft.method.rope.scaling);
  snippet[key] = dynamic ? draft.trained : draft.to;
  if (draft.has("original_max_position_embeddings"))
    snippet["original_max_position_embeddings"] =
        encodings::original_length(draft.method.rope.scaling).value_or(draft.trained);
}

[[nodiscard]] bool groups_rotate_differently(const config::ModelConfig& model) {
  const RopeSpec* first = nullptr;
  for (const config::LayerGroup& group : model.groups) {
    if (!group.rope) continue;
    if (first != nullptr && *first != *group.rope) return true;
    first = &*group.rope;
  }
  return false;
}

[[nodiscard]] Json draft_parameters(Draft& draft, PlanSnippet& snippet) {
  Json made;
  write_lengths(draft, made);
  const config::ModelConfig& model = draft.config.meaning;
  if (draft.config.form == ConfigForm::nested) {
    made["rope_parameters"] = draft.part().at("rope_parameters");
    made["rope_parameters"][model.groups[draft.group].layer_type] =
        parameters_of(draft.rope(), draft.part());
  } else if (groups_rotate_differently(model)) {
    for (std::size_t i = 0; i < model.groups.size(); ++i) {
      const RopeSpec* rope = i == draft.group       ? &draft.rope()
                             : model.groups[i].rope ? &*model.groups[i].rope
                                                    : nullptr;
      made["rope_parameters"][model.groups[i].layer_type] =
          rope == nullptr ? Json(nullptr) : parameters_of(*rope, draft.part());
    }
  } else {
    made["rope_parameters"] = parameters_of(draft.rope(), draft.part());
  }
  snippet.remove =
      draft.present({"rope_scaling", "rope_theta", "rope_local_base_freq", "rotary_emb_base",
                     "rotary_pct", "rotary_emb_fraction", "partial_rotary_factor"});
  return made;
}

[[nodiscard]] Json draft_scaling(Draft& draft, PlanSnippet& snippet) {
  Json made;
  write_lengths(draft, made);
  made[draft.has("rotary_emb_base") ? "rotary_emb_base" : "rope_theta"] = number(draft.rope().base);
  if (draft.config.form == ConfigForm::nested) {
    for (const config::LayerGroup& group : draft.config.meaning.groups) {
      if (group.layer_type == "sliding_attention" && group.rope)
        made["rope_local_base_freq"] = number(group.rope->base);
    }
  }
  const bool share_is_outside =
      !draft.present({"rotary_dim", "rotary_pct", "rotary_emb_fraction", "partial_rotary_factor"})
           .empty();
  if (draft.rope().rotary_dim != draft.rope().head_dim && !share_is_outside) {
    made["partial_rotary_factor"] =
        static_cast<double>(draft.rope().rotary_dim) / static_cast<double>(draft.rope().head_dim);
  }
  Json scaling;
  scaling["type"] = encodings::name_of(draft.rope().scaling);
  write_scaling_keys(draft.rope().scaling, DefaultKeys::leave_out, scaling);
  write_axes(draft.rope(), scaling);
  const bool nothing = std::holds_alternative<encodings::DefaultScaling>(draft.rope().scaling) &&
                       scaling.size() == 1;
  made["rope_scaling"] = nothing ? Json(nullptr) : scaling;
  snippet.remove = draft.present({"rope_parameters"});
  return made;
}

[[nodiscard]] Json draft_plain(Draft& draft) {
  Json made;
  write_lengths(draft, made);
  made["base"] = number(draft.rope().base);
  Json scaling;
  scaling["type"] = encodings::name_of(draft.rope().scaling);
  if (const auto* proportional =
          std::get_if<encodings::ProportionalScaling>(&draft.rope().scaling)) {
    scaling["partial_rotary_factor"] = proportional->proportion;
    scaling["factor"] = proportional->factor;
  } else {
    write_scaling_keys(draft.rope().scaling, DefaultKeys::leave_out, scaling);
  }
  made["scaling"] = std::move(scaling);
  return made;
}

[[nodiscard]] bool same_rotation(const RopeSpec& a, const RopeSpec& b, std::int64_t context) {
  const core::Frequencies first = encodings::resolve_frequencies(a, context);
  const core::Frequencies second = encodings::resolve_frequencies(b, context);
  return first.same_values(second) && first.amplitude() == second.amplitude();
}

// Empty when the config with the snippet gives the frequencies of the plan.
[[nodiscard]] std::string problem_of(const Draft& draft, const Json& snippet,
                                     const std::vector<std::string>& remove) {
  Json pasted = draft.text;
  for (const std::string& key : remove) {
    pasted.erase(key);
    text_part(pasted).erase(key);
  }
  for (const auto& [key, value] : snippet.items()) text_part(pasted)[key] = value;
  const Result<config::ModelConfig> parsed = config::parse_config(pasted.dump(), "pasted");
  if (!parsed) return parsed.error().what();
  const std::vector<config::LayerGroup>& before = draft.config.meaning.groups;
  const std::vector<config::LayerGroup>& after = parsed->groups;
  if (after.size() != before.size())
    return "with this snippet the config has other groups of layers";
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto found = std::find_if(after.begin(), after.end(), [&](const auto& group) {
      return group.layer_type == before[i].layer_type;
    });
    if (found == after.end() || found->rope.has_value() != before[i].rope.has_value())
      return "with this snippet the config has other groups of layers";
    // A group that shares the dictionary changes with it.
    const bool moves = i == draft.group || (before[draft.group].rope && before[i].rope &&
                                            *before[i].rope == *before[draft.group].rope);
    if (before[i].rope &&
        !same_rotation(*found->rope, moves ? draft.rope() : *before[i].rope, draft.to)) {
      return "with this snippet the config has other frequencies";
    }
  }
  return {};
}

}  // namespace

void write_snippets(const ReadableConfig& config, std::size_t group, std::int64_t trained,
                    std::int64_t to, PlanMethod& method) {
  Draft draft{config, group, trained, to, method, Json::object()};
  if (!config.text.empty()) draft.text = io::parse_python_object(config.text);
  const auto finish = [&](PlanSnippet& snippet, const Json& made) {
    if (config.text.empty()) {
      snippet.problem =
          "not checked: the rotation comes from GGUF metadata, not from a config.json";
    } else {
      snippet.problem = problem_of(draft, made, snippet.remove);
      if (!snippet.problem.empty()) {
        snippet.remove.clear();
        return;
      }
    }
    snippet.json = laid_out(made, 0);
  };
  if (config.form == ConfigForm::plain && !config.text.empty()) {
    finish(method.rope_parameters, draft_plain(draft));
    method.rope_scaling.problem = "a plain spec has only one form";
    return;
  }
  finish(method.rope_parameters, draft_parameters(draft, method.rope_parameters));
  finish(method.rope_scaling, draft_scaling(draft, method.rope_scaling));
}

}  // namespace phasor::porting
