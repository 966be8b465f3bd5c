#include "phasor/core/internal/per_thread.hpp"

#include <pthread.h>

namespace phasor::core::detail {
namespace {

void delete_all(void* last) {
  for (auto* value = static_cast<ThreadValue*>(last); value != nullptr;) {
    ThreadValue* const before = value->before;
    delete value;
    value = before;
  }
}

class Key {
 public:
  Key() noexcept : made_(pthread_key_create(&number_, delete_all) == 0) {}
  // delete_all() may be unloaded next.
  ~Key() {
    if (made_) pthread_key_delete(number_);
  }
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

  void add(ThreadValue* value) const noexcept {
    if (!made_) return;
    value->before = static_cast<ThreadValue*>(pthread_getspecific(number_));
    pthread_setspecific(number_, value);
  }

 private:
  pthread_key_t number_{};
  bool made_;
};

}  // namespace

void delete_at_thread_end(ThreadValue* value) noexcept {
  static const Key key;
  key.add(value);
}

}  // namespace phasor::core::detail
