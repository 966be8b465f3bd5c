// Results of unknown length.
#include "capi/handles.hpp"
#include "phasor/phasor.h"

const char* phasor_text_data(const phasor_text* text) {
  return text == nullptr ? "" : text->text.c_str();
}
size_t phasor_text_size(const phasor_text* text) { return text == nullptr ? 0 : text->text.size(); }
void phasor_text_destroy(phasor_text* text) { delete text; }

const int64_t* phasor_ids_data(const phasor_ids* ids) {
  // An empty vector may have no memory; callers may still pass the pointer on.
  static constexpr int64_t kNoId = 0;
  if (ids == nullptr) return nullptr;
  return ids->ids.empty() ? &kNoId : ids->ids.data();
}
size_t phasor_ids_count(const phasor_ids* ids) { return ids == nullptr ? 0 : ids->ids.size(); }
void phasor_ids_destroy(phasor_ids* ids) { delete ids; }
