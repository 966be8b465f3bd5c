// Objects that change, in a world of threads: kernels run without the GIL, so that two calls can meet
// on one object.
#pragma once

#include "phasor/core/error.hpp"

namespace phasor::python {

// Any number of readers or one writer; a call that would break this is refused, not made to wait.
// Every member needs the GIL.
class Busy {
 public:
  // throws   Error(invalid_argument) while another call writes
  class Reading {
   public:
    Reading(Busy& busy, const char* what) : busy_(busy) {
      if (busy.writing_) refuse(what);
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
      if (busy.writing_ || busy.readers_ > 0) refuse(what);
      busy.writing_ = true;
    }
    ~Writing() { busy_.writing_ = false; }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    Busy& busy_;
  };

 private:
  [[noreturn]] static void refuse(const char* what) {
    throw Error(ErrorCode::invalid_argument,
                message(what,
                        ": must be free of other threads' calls while it changes, got one "
                        "that is under way"));
  }
  int readers_ = 0;
  bool writing_ = false;
};

}  // namespace phasor::python
