#include <cstdio>
#include <utility>

#include "phasor/porting/config_reports.hpp"
#include "porting/json_values.hpp"

namespace phasor::porting {
namespace {

[[nodiscard]] Json pair_json(const PlanPair& pair, std::size_t index) {
  return {{"pair", index},
          {"wavelength", json_of(pair.wavelength)},
          {"turns_trained", pair.rotations_trained},
          {"frequency", pair.frequency},
          {"turns_at_n", pair.rotations_at_to},
          {"ood", pair.out_of_distribution},
          {"compression", pair.compression}};
}

[[nodiscard]] Json snippet_json(const PlanSnippet& snippet) {
  Json made;
  made["paste"] = snippet.json.empty() ? Json(nullptr) : Json::parse(snippet.json);
  made["remove"] = snippet.remove;
  made["problem"] = snippet.problem.empty() ? Json(nullptr) : Json(snippet.problem);
  return made;
}

[[nodiscard]] Json method_json(const PlanMethod& method) {
  Json made;
  made["method"] = method.name;
  made["applies"] = method.problem.empty();
  if (!method.problem.empty()) {
    made["problem"] = method.problem;
    return made;
  }
  made["scaling"] = encodings::name_of(method.rope.scaling);
  made["base"] = method.rope.base;
  made["amplitude"] = method.amplitude;
  made["ood_pairs"] = method.out_of_distribution;
  made["bands"] = Json::array();
  for (const BandEffect& band : method.bands) {
    made["bands"].push_back({{"ood_pairs", band.out_of_distribution},
                             {"least_compression", band.least_compression},
                             {"most_compression", band.most_compression},
                             {"furthest", band.furthest}});
  }
  made["trade_off"] = {method.trade_off[0], method.trade_off[1]};
  made["fine_tuning"] = method.fine_tuning;
  made["engines"] = method.engines;
  made["rope_parameters"] = snippet_json(method.rope_parameters);
  made["rope_scaling"] = snippet_json(method.rope_scaling);
  made["flags"] = Json::object();
  for (const auto& [engine, flags] :
       {std::pair("llama.cpp", &method.llama_cpp), std::pair("vllm", &method.vllm),
        std::pair("sglang", &method.sglang)}) {
    made["flags"][engine] = flags->flags.empty() ? Json(nullptr) : Json(flags->flags);
  }
  made["pairs"] = Json::array();
  for (std::size_t i = 0; i < method.pairs.size(); ++i)
    made["pairs"].push_back(pair_json(method.pairs[i], i));
  return made;
}

}  // namespace

std::string plan_json(const Plan& plan) {
  Json made;
  made["model_type"] = plan.model_type;
  made["layer_type"] = plan.layer_type;
  made["layers"] = plan.layers;
  made["window"] = json_of(plan.window);
  made["trained"] = plan.trained;
  made["trained_source"] = plan.trained_source;
  made["to"] = plan.to;
  made["factor"] = plan.factor;
  made["extended"] = plan.extended;
  made["recommended"] = plan.recommended;
  made["reason"] = plan.reason;
  made["head_dim"] = plan.head_dim;
  made["rotary_dim"] = plan.rotary_dim;
  made["base"] = plan.base;
  made["bands"] = Json::array();
  for (const PlanBand& band : plan.bands) {
    made["bands"].push_back({{"from_turns", band.from_rotations},
                             {"to_turns", json_of(band.to_rotations)},
                             {"pairs", band.pairs}});
  }
  made["methods"] = Json::array();
  for (const PlanMethod& method : plan.methods) made["methods"].push_back(method_json(method));
  return made.dump();
}

std::string plan_csv(const Plan& plan) {
  std::string text = "method,pair,wavelength,turns_trained,frequency,turns_at_n,ood,compression\n";
  for (const PlanMethod& method : plan.methods) {
    for (std::size_t i = 0; i < method.pairs.size(); ++i) {
      const PlanPair& pair = method.pairs[i];
      char row[256];
      std::snprintf(row, sizeof row, "%s,%zu,%.17g,%.17g,%.17g,%.17g,%d,%.17g\n",
                    method.name.c_str(), i, pair.wavelength, pair.rotations_trained, pair.frequency,
                    pair.rotations_at_to, pair.out_of_distribution ? 1 : 0, pair.compression);
      text += row;
    }
  }
  return text;
}

}  // namespace phasor::porting
