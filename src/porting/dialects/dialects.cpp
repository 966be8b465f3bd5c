// Every dialect, in the order of `phasor diff --list`.
#include "phasor/porting/config_reports.hpp"

#include "porting/dialects/reading.hpp"

namespace phasor::porting {

const std::vector<DialectEntry>& dialect_entries() {
  static const std::vector<DialectEntry> entries = [] {
    std::vector<DialectEntry> all;
    for (const auto engine : {hugging_face_dialects, vllm_dialects, sglang_dialects,
                              llama_cpp_dialects, mlx_dialects, candle_dialects}) {
      for (DialectEntry& entry : engine()) all.push_back(std::move(entry));
    }
    return all;
  }();
  return entries;
}

}  // namespace phasor::porting
