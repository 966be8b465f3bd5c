// Guards mutable objects: kernels run without the GIL, so two threads can call one object at once.
#pragma once

#include "phasor/core/error.hpp"

namespace phasor::python {

// Any number of readers or one writer; a conflicting call throws instead of waiting. Every member
// needs the GIL.
class Busy {
 public:
  // throws   Error(invalid_argument) while another call writes
  class Reading {
   public:
    Reading(Busy& busy, const char* what) : busy_(busy) {
      if (busy.writing_) refuse_call(what);
      ++busy.readers_;
    }
    ~Reading() { --busy_.readers_; }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    Busy& busy_;
  };
  // throws   Error(invalid_argument) while another call reads or writes
  class Writing {
   public:
    Writing(Busy& busy, const char* what) : busy_(busy) {
      if (busy.writing_ || busy.readers_ > 0) refuse_call(what);
      busy.writing_ = true;
    }
    ~Writing() { busy_.writing_ = false; }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    Busy& busy_;
  };

 private:
  [[noreturn]] static void refuse_call(const char* what) {
    refuse(message(what, " is in use by another thread: calls that change it must not overlap"));
  }
  int readers_ = 0;
  bool writing_ = false;
};

}  // namespace phasor::python
