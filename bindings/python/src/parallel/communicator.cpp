// Communicator, over one of mpi4py, and what every rank raises.
#include <nanobind/stl/string.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/communicator.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

using namespace nb::literals;  // NOLINT(google-build-using-namespace)

// mpi4py's handles mean something only to the library that made them.
void require_same_library(const nb::module_& mpi) {
  std::string ours(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(ours.data(), &length);
  ours.resize(static_cast<std::size_t>(length));
  const auto theirs = nb::cast<std::string>(mpi.attr("Get_library_version")());
  const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  if (ours != theirs) {
    refuse(ErrorCode::unsupported,
           message("parallel: mpi4py must use the MPI library that Phasor was built with, ",
                   first_line(ours), ", got ", first_line(theirs)));
  }
  // Two copies of one version have two worlds.
  const auto world = nb::cast<std::uintptr_t>(mpi.attr("_addressof")(mpi.attr("COMM_WORLD")));
  if (*reinterpret_cast<const MPI_Comm*>(world) != MPI_COMM_WORLD) {
    refuse(ErrorCode::unsupported,
           message("parallel: mpi4py has loaded another copy of ", first_line(ours),
                   " than Phasor: install both for one MPI library"));
  }
}

[[nodiscard]] MPI_Comm handle_of(nb::handle comm) {
  const nb::module_ mpi = nb::module_::import_("mpi4py.MPI");
  if (!nb::cast<bool>(
          nb::module_::import_("builtins").attr("isinstance")(comm, mpi.attr("Intracomm")))) {
    refuse(
        message("parallel: comm must be a communicator of mpi4py (MPI.Intracomm) or a "
                "phasor.parallel.Communicator, got ",
                kind_of(comm)));
  }
  require_same_library(mpi);
  const auto address = nb::cast<std::uintptr_t>(mpi.attr("_addressof")(comm));
  return *reinterpret_cast<const MPI_Comm*>(address);
}

[[nodiscard]] parallel::CommunicatorOptions options_of(double patience) {
  // A day; more would overflow nothing, but is no deadline.
  if (!(patience >= 0.001 && patience <= 86'400.0)) {
    refuse(ErrorCode::out_of_range,
           message("Communicator: patience must be from 0.001 to 86400 seconds, got ", patience));
  }
  parallel::CommunicatorOptions options;
  options.patience = std::chrono::milliseconds(std::llround(patience * 1000.0));
  return options;
}

// The kind of an error and its line, between ranks.
[[nodiscard]] std::string packed(ErrorCode code, std::string_view line) {
  return std::string(1, static_cast<char>('0' + static_cast<int>(code))).append(line);
}

[[nodiscard]] std::string line_of(const nb::python_error& error) {
  const auto text = nb::cast<std::string>(nb::str(error.value()));
  return message(nb::cast<std::string>(error.type().attr("__name__")), ": ",
                 std::string_view(text).substr(0, text.find('\n')));
}

}  // namespace

nb::object communicator_of(nb::handle comm) {
  if (nb::isinstance<PyCommunicator>(comm)) return nb::borrow(comm);
  return nb::type<PyCommunicator>()(comm);
}

parallel::Communicator& ranks_of(nb::handle communicator) {
  return nb::cast<PyCommunicator&>(communicator).value;
}

void check_together(parallel::Communicator& ranks, const std::function<void()>& check) {
  std::string refusal;
  std::exception_ptr own;
  try {
    check();
  } catch (const nb::python_error& error) {
    own = std::current_exception();
    refusal = packed(ErrorCode::invalid_argument, line_of(error));
  } catch (const Error& error) {
    refusal = packed(error.code(), error.what());
  } catch (const std::exception& error) {
    own = std::current_exception();
    refusal = packed(ErrorCode::internal, error.what());
  }
  std::vector<std::string> all;
  without_gil([&] {
    std::int64_t refusals = refusal.empty() ? 0 : 1;
    ranks.sum(std::span(&refusals, 1));
    if (refusals > 0) all = ranks.gather(refusal);
  });
  if (own) std::rethrow_exception(own);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    refuse(static_cast<ErrorCode>(all[rank].front() - '0'),
           message("rank ", rank, ": ", std::string_view(all[rank]).substr(1)));
  }
}

void add_communicator(nb::module_& module) {
  nb::class_<PyCommunicator>(module, "Communicator",
                             "The ranks of a communicator of mpi4py, for many calls: made once, by "
                             "every rank. A rank waits "
                             "`patience` seconds for the others, then it raises phasor.Error.",
                             nb::is_final())
      .def(
          "__init__",
          [](PyCommunicator* self, nb::handle comm, double patience) {
            const parallel::CommunicatorOptions options = options_of(patience);
            const MPI_Comm handle = handle_of(comm);
            without_gil([&] { new (self) PyCommunicator(handle, options); });
          },
          "comm"_a.none(), nb::kw_only(), "patience"_a = 60.0)
      .def_prop_ro("rank", [](const PyCommunicator& self) { return self.value.rank(); })
      .def_prop_ro("size", [](const PyCommunicator& self) { return self.value.size(); })
      .def_prop_ro("patience",
                   [](const PyCommunicator& self) {
                     return static_cast<double>(self.value.options().patience.count()) / 1000.0;
                   })
      .def_prop_ro("bytes_sent", [](const PyCommunicator& self) { return self.value.bytes_sent(); })
      .def("__repr__", [](const PyCommunicator& self) {
        return nb::str(
            message("Communicator(rank ", self.value.rank(), " of ", self.value.size(), ")")
                .c_str());
      });
}

}  // namespace phasor::python
