#include "porting/plan/flags.hpp"

#include <string>
#include <string_view>

#include "phasor/io/internal/json.hpp"
#include "porting/number_text.hpp"

namespace phasor::porting {
namespace {

using io::Json;

// The snippet as one JSON object, inside the part that it belongs to.
[[nodiscard]] std::string override_text(const PlanSnippet& snippet, std::string_view part) {
  Json keys = Json::parse(snippet.json);
  while (!part.empty()) {
    const std::size_t dot = part.rfind('.');
    const std::string name(part.substr(dot == std::string_view::npos ? 0 : dot + 1));
    Json outer;
    outer[name] = std::move(keys);
    keys = std::move(outer);
    part = dot == std::string_view::npos ? std::string_view() : part.substr(0, dot);
  }
  return keys.dump();
}

// llama.cpp scales from the metadata of the file, and three flags replace them.
[[nodiscard]] EngineFlags llama_cpp_flags(const PlanMethod& method, std::int64_t to,
                                          double trained_base) {
  EngineFlags flags;
  const std::string context = message("-c ", to);
  const encodings::RopeScaling& scaling = method.rope.scaling;
  const std::string base = method.rope.base == trained_base
                               ? std::string()
                               : " --rope-freq-base " + message(method.rope.base);
  if (method.name == "none" || method.name == "present" || method.name == "ntk") {
    flags.flags = context + base;
  } else if (const auto* linear = std::get_if<encodings::LinearScaling>(&scaling)) {
    flags.flags = message(context, " --rope-scaling linear --rope-scale ", digits(linear->factor));
  } else if (const auto* yarn = std::get_if<encodings::YarnScaling>(&scaling)) {
    flags.flags = message(context, " --rope-scaling yarn --rope-scale ", digits(yarn->factor),
                          " --yarn-orig-ctx ", yarn->original_length);
  } else if (std::holds_alternative<encodings::DynamicScaling>(scaling)) {
    flags.problem = "llama.cpp has no dynamic scaling";
  } else {
    flags.problem = "no flag: paste the snippet into config.json and convert it to GGUF again";
  }
  return flags;
}

}  // namespace

void write_flags(const ReadableConfig& config, std::int64_t to, PlanMethod& method) {
  double base = method.rope.base;
  for (const config::LayerGroup& group : config.meaning.groups) {
    if (group.rope) base = group.rope->base;
  }
  const bool unchanged = method.name == "none" || method.name == "present";
  method.llama_cpp = llama_cpp_flags(method, to, base);
  const bool from_json = config.form != ConfigForm::plain;
  for (const auto& [flags, length, overrides] :
       {std::tuple(&method.vllm, "--max-model-len ", " --hf-overrides '"),
        std::tuple(&method.sglang, "--context-length ", " --json-model-override-args '")}) {
    if (!from_json) {
      flags->problem = "it reads a config.json";
    } else if (unchanged) {
      flags->flags = message(length, to);
    } else if (method.rope_parameters.json.empty()) {
      flags->problem = method.rope_parameters.problem;
    } else {
      flags->flags = message(length, to, overrides,
                             override_text(method.rope_parameters, config.meaning.part), "'");
    }
  }
}

}  // namespace phasor::porting
