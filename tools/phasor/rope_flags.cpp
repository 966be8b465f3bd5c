#include "rope_flags.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "config_source.hpp"
#include "output.hpp"
#include "phasor/config/config.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/json.hpp"
#include "whole_numbers.hpp"

namespace phasor::tools {
namespace {

constexpr std::string_view kFlagsName = "the flags";

// A number, true, false, or else a word.
io::Json value_of(std::string_view text) {
  if (text == "true" || text == "false") return io::Json(text == "true");
  std::int64_t whole = 0;
  if (read_whole(text, whole) == std::errc{}) return whole;
  double real = 0.0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), real);
  if (status == std::errc{} && end == text.data() + text.size() && std::isfinite(real)) return real;
  return text;
}

io::Json json_of_scaling(std::string_view flag, const std::string& text) {
  if (is_json_text(text)) {
    try {
      return io::parse_object(text);
    } catch (const Error& error) {
      throw Error(error.code(), message(flag, ": ", error.what()));
    }
  }
  std::string_view rest = text;
  const std::size_t colon = rest.find(':');
  const std::string_view type = rest.substr(0, colon);
  if (type.empty()) refuse(message(flag, " must be TYPE or TYPE:key=number,..., got '", text, "'"));
  if (type == "none" || type == "default") return nullptr;
  io::Json scaling = io::Json::object();
  scaling["type"] = type;
  rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == part.size())
      refuse(message(flag, ": after the type come key=number parts, got '", part, "'"));
    const std::string_view key = part.substr(0, equals);
    if (scaling.contains(key)) refuse(message(flag, ": ", key, " is given twice"));
    scaling[key] = value_of(part.substr(equals + 1));
  }
  return scaling;
}

void set(io::Json& spec, const RopeFlags& flags) {
  if (flags.head_dim) spec["head_dim"] = *flags.head_dim;
  if (flags.base) spec["base"] = *flags.base;
  if (flags.rotary_dim) spec["rotary_dim"] = *flags.rotary_dim;
  if (!flags.layout.empty()) spec["layout"] = flags.layout;
  if (!flags.scaling.empty()) {
    io::Json scaling = json_of_scaling("--scaling", flags.scaling);
    spec.erase("scaling");
    if (!scaling.is_null()) spec["scaling"] = std::move(scaling);
  }
}

encodings::RopeSpec parse(const io::Json& spec, std::string_view name) {
  return *config::parse_config(spec.dump(), name).value_or_throw().groups.front().rope;
}

}  // namespace

void add_rope_flags(Verb& verb, RopeFlags& flags, std::string_view excluded) {
  const std::string_view instead =
      excluded.empty() ? " (replaces the config's)" : " (instead of a config)";
  const auto add = [&](std::string_view name, Target target, std::string_view help) -> Flag& {
    Flag& flag = verb.flag(name, target, fmt::format("{}{}", help, instead));
    if (!excluded.empty()) flag.excludes(excluded);
    return flag;
  };
  add("--head-dim", &flags.head_dim, "features of a head").at_least(2);
  add("--base", &flags.base, "base of the frequencies, default 10000");
  add("--rotary-dim", &flags.rotary_dim, "features that rotate, default all").at_least(2);
  add("--layout", &flags.layout, "pair layout")
      .one_of({"interleaved", "half", "interleaved_to_half"});
  add("--scaling", &flags.scaling,
      "TYPE:key=number,... such as yarn:factor=4,original_max_position_embeddings=8k; or '{...}', "
      "or none")
      .value("SCALING")
      .free_text();
}

encodings::RopeScaling scaling_for_spec(std::string_view flag, const std::string& text,
                                        const encodings::RopeSpec& spec,
                                        std::optional<std::int64_t> trained) {
  auto json = io::Json::parse(config::plain_spec_json(spec));
  json.erase("scaling");
  if (trained) json["max_position_embeddings"] = *trained;
  io::Json scaling = json_of_scaling(flag, text);
  if (!scaling.is_null()) json["scaling"] = std::move(scaling);
  return parse(json, flag).scaling;
}

std::string spec_json(const RopeFlags& flags) {
  if (!flags.head_dim) refuse("--head-dim is required without a config");
  io::Json spec = io::Json::object();
  set(spec, flags);
  return spec.dump();
}

std::string config_or_flags(const std::string& config, const RopeFlags& flags,
                            std::string_view what) {
  if (!config.empty()) return config;
  if (!flags.given()) refuse(message(what, " is required, or --head-dim for a rotation by flags"));
  return spec_json(flags);
}

encodings::RopeSpec replaced_by(const RopeFlags& flags, const encodings::RopeSpec& spec,
                                std::optional<std::int64_t> trained, std::string_view name) {
  if (!flags.given()) return spec;
  auto json = io::Json::parse(config::plain_spec_json(spec));
  // The scaling of a config may have a longer trained length than the original one.
  if (trained) json["max_position_embeddings"] = *trained;
  set(json, flags);
  encodings::RopeSpec changed = parse(json, kFlagsName);
  const auto note = [&](std::string_view flag, const std::string& before,
                        const std::string& after) {
    if (before != after) print_err("{}: note: {} {} replaces {}\n", name, flag, after, before);
  };
  const auto layout_text = [](const encodings::RopeSpec& of) {
    return of.layout ? std::string(core::name_of(*of.layout)) : std::string();
  };
  if (flags.head_dim)
    note("--head-dim", fmt::to_string(spec.head_dim), fmt::to_string(changed.head_dim));
  if (flags.base) note("--base", fmt::to_string(spec.base), fmt::to_string(changed.base));
  if (flags.rotary_dim)
    note("--rotary-dim", fmt::to_string(spec.rotary_dim), fmt::to_string(changed.rotary_dim));
  if (spec.layout) note("--layout", layout_text(spec), layout_text(changed));
  if (!flags.scaling.empty() && !(spec.scaling == changed.scaling))
    print_err("{}: note: --scaling {} replaces {}\n", name, encodings::name_of(changed.scaling),
              encodings::name_of(spec.scaling));
  return changed;
}

}  // namespace phasor::tools
