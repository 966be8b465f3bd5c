// What the calls of phasor.parallel share: the communicator, and refusals that every rank raises.
#pragma once

#include <functional>
#include <string_view>

#include "arrays.hpp"
#include "phasor/parallel/communicator.hpp"
#include "phasor/parallel/shards.hpp"

namespace phasor::python {

struct PyCommunicator {
  parallel::Communicator value;

  PyCommunicator(MPI_Comm comm, const parallel::CommunicatorOptions& options)
      : value(comm, options) {}
};

// Collective. A phasor.parallel.Communicator as it is, or a new one over a communicator of mpi4py.
//
// throws   Error(invalid_argument) for another object; Error(unsupported) if mpi4py has loaded another
//          MPI library
[[nodiscard]] nb::object communicator_of(nb::handle comm);
[[nodiscard]] parallel::Communicator& ranks_of(nb::handle communicator);

// Collective. Runs the checks that each rank makes of its own arguments. If one of them refuses, every
// rank raises its line: "rank 1: attention: q must ...".
void check_together(parallel::Communicator& ranks, const std::function<void()>& check);

// Collective: the tokens of all ranks, where this one has `mine`.
//
// throws   Error(shape_mismatch), the same on every rank, unless each rank has the number of tokens that
//          the order gives it
[[nodiscard]] std::int64_t whole_tokens(parallel::Communicator& ranks, parallel::TokenOrder order,
                                        std::int64_t mine, std::string_view what);

[[nodiscard]] parallel::TokenOrder token_order_of(std::string_view name);
[[nodiscard]] parallel::WireType wire_of(std::string_view name);

void add_communicator(nb::module_& module);    // communicator.cpp
void add_shards(nb::module_& module);          // shards.cpp
void add_attention_plan(nb::module_& module);  // attention.cpp
void add_linear_plan(nb::module_& module);     // linear.cpp

}  // namespace phasor::python
