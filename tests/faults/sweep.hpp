// Runs a body in child processes, each with another request for memory refused.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "faults/refused_memory.hpp"

namespace phasor::faults {

struct Run {
  int code = 0;  // of exit(); 128 + the number of the signal that ended the process
  Requests requests;
  std::string out, err;
};

// Runs body() in a child of its own, then exit(what it returned), with the refusal in force until the
// end. A child that runs for longer than two minutes is ended by SIGALRM.
[[nodiscard]] Run run_in_child(const std::function<int()>& body, Refusal refusal);

// How many requests are refused, one run each: every one, or a sample: `dense` the first 12, then
// steps of 8 %; `sparse`, for runs that take a second, the first 6, then steps of 17 %.
enum class Density : std::uint8_t { every, dense, sparse };

// Runs the body with each request refused once, then with each refused from then on. check(run)
// returns what is wrong, "" for nothing; it sees the last run of both too, in which nothing was
// refused. Returns the number of runs that were wrong, after printing them and a summary.
//
// The environment variable PHASOR_FAULTS changes what is refused: "every" request (a dense sample
// instead of a sparse one); or one alone, in this process, for a debugger: "once:17", "from:17".
[[nodiscard]] int sweep(const std::string& name, Density density, const std::function<int()>& body,
                        const std::function<std::string(const Run& run)>& check);

}  // namespace phasor::faults
