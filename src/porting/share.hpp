// How much of a long call is done.
#pragma once

#include <functional>

namespace phasor::porting {

// A piece of a call: its own 0 .. 1 is a part of the call's.
class Share {
 public:
  // `tell` must outlive it; an empty function is not called.
  explicit Share(const std::function<void(double)>& tell, double from = 0.0, double to = 1.0)
      : tell_(&tell), from_(from), to_(to) {}

  void at(double done) const {
    if (*tell_) (*tell_)(from_ + done * (to_ - from_));
  }
  [[nodiscard]] Share part(double from, double to) const {
    return Share(*tell_, from_ + from * (to_ - from_), from_ + to * (to_ - from_));
  }

 private:
  const std::function<void(double)>* tell_;
  double from_, to_;
};

}  // namespace phasor::porting
