#include "phasor/config/internal/families.hpp"

#include <algorithm>
#include <vector>

#include "config/families/lineages.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::config {
namespace {

[[nodiscard]] std::vector<Family> all_families() {
  std::vector<Family> all;
  for (const std::span<const Family> rows :
       {llama_families(), qwen_families(), gemma_families(), glm_and_deepseek_families(),
        gpt_families(), encoder_families(), layout_families(), unrotated_families(),
        gguf_families()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

template <class Name>
[[nodiscard]] std::string suggest(std::string_view word, Name name_of_row) {
  std::vector<std::string_view> known;
  for (const Family& family : families()) {
    if (const std::string_view name = name_of_row(family); !name.empty()) known.push_back(name);
  }
  return core::did_you_mean(word, known);
}

}  // namespace

std::span<const Family> families() {
  static const std::vector<Family> kAll = all_families();
  return kAll;
}

const Family* find_family(std::string_view model_type) {
  if (model_type.empty()) return nullptr;
  const std::span<const Family> all = families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Family& family) {
    return family.model_type == model_type;
  });
  return found == all.end() ? nullptr : &*found;
}

const Family* find_architecture(std::string_view name) {
  const std::span<const Family> all = families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Family& family) {
    return family.gguf && family.gguf->name == name;
  });
  return found == all.end() ? nullptr : &*found;
}

std::string suggest_model_type(std::string_view model_type) {
  return suggest(model_type, [](const Family& family) { return family.model_type; });
}

std::string suggest_architecture(std::string_view name) {
  return suggest(name, [](const Family& family) { return family.architecture(); });
}

}  // namespace phasor::config
