// Calls about configs and tensors of other engines: explain, diagnose, and configs to begin with.
#include <array>

#include "bridge.hpp"
#include "families.hpp"
#include "pages/diagnose.hpp"
#include "pages/explain.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/porting/config_reports.hpp"
#include "phasor/porting/diagnose.hpp"

namespace phasor::web {
namespace {

// A config.json as text, or as an object.
std::string config_text(const Request& request) {
  const io::Json& given = request.reader().value("config");
  request.reader().mark_understood("config");
  return given.is_string() ? given.text() : given.dump();
}

void families(const Request& /*request*/, Answer& answer) {
  io::Json list = io::Json::array();
  for (const Family& family : kFamilies)
    list.push_back({{"name", family.name}, {"config", io::parse_object(family.config)}});
  answer["families"] = std::move(list);
}

void explain(const Request& request, Answer& answer) {
  if (!request.reader().has("config"))
    request.reader().refuse_missing("config", "the text of a config.json");
  const porting::ReadableConfig config =
      porting::parse_readable_config(config_text(request), "config.json").value_or_throw();
  const porting::Explanation explanation =
      porting::explain(config, request.context()).value_or_throw();
  answer["text"] = tools::explain_page(explanation, tools::PairList::bands);
  answer["answer"] = io::Json::parse(porting::explain_json(explanation));
}

std::optional<io::NpyArray> array_of(const Request& request, std::string_view key) {
  const std::optional<std::span<const std::byte>> bytes = request.file(key);
  if (!bytes) return std::nullopt;
  return io::parse_npy(*bytes, key).value_or_throw();
}

void diagnose(const Request& request, Answer& answer) {
  const std::optional<io::NpyArray> before = array_of(request, "before"),
                                    after = array_of(request, "after"),
                                    positions = array_of(request, "positions");
  for (const auto& [key, array] : {std::pair("before", &before), std::pair("after", &after)}) {
    if (!*array) request.reader().refuse_missing(key, "the bytes of a .npy file");
  }
  const porting::DiagnoseInput input{&*before, &*after, positions ? &*positions : nullptr, {}, {}};
  porting::ConfigDiagnosis both;
  const bool has_config = request.reader().has("config");
  if (has_config) {
    const config::ModelConfig model =
        config::parse_config(config_text(request), "config.json").value_or_throw();
    const porting::CheckOptions how{request.context(), model.heads, model.key_heads, std::nullopt};
    both = porting::diagnose(input, request.spec_of(model), how);
  } else {
    both.found = porting::diagnose(input);
  }
  const porting::ConfigCheck* const check = has_config ? &both.check : nullptr;
  answer["text"] = tools::diagnose_page(both.found, check);
  answer["answer"] = io::Json::parse(porting::diagnose_json(both.found, check));
}

}  // namespace

std::span<const NamedCall> porting_calls() {
  static constexpr auto kCalls = std::to_array<NamedCall>({
      {"families", families},
      {"explain", explain},
      {"diagnose", diagnose},
  });
  return kCalls;
}

}  // namespace phasor::web
