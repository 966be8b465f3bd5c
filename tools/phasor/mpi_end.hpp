// How a command on several ranks ends: with one exit code, and at most one line of error.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>

namespace phasor::tools {

// What ended the verb of this rank. Holds its text itself: the error may be a lack of memory.
class Failure {
 public:
  // The first one counts; text that does not fit is cut.
  void set(std::string_view verb, std::string_view text) noexcept;
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] std::string_view verb() const noexcept { return {verb_.data(), verb_size_}; }
  [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), text_size_}; }
  // Whether it only repeats that another rank has stopped.
  [[nodiscard]] bool is_echo() const noexcept;

 private:
  std::array<char, 32> verb_ = {};
  std::array<char, 2048> text_ = {};
  std::size_t verb_size_ = 0, text_size_ = 0;
  bool failed_ = false;
};

// The end of all ranks.
class Ranks {
 public:
  // Collective.
  explicit Ranks(MPI_Comm comm);

  // Called by every rank when its verb has ended. Returns the largest exit code of all ranks if none has
  // failed. Otherwise the program ends on every rank with exit code 2 (MPI_Abort): an error that all ranks
  // share is printed by rank 0 as `phasor VERB: ...`, another one by the lowest rank that has one of its
  // own as `phasor: rank 2: ...`.
  //
  // A rank that has failed waits at most kGrace for the others, which may be computing; one that has not,
  // `patience`.
  [[nodiscard]] int finish(const Failure& failure, int code, std::chrono::milliseconds patience);
  static constexpr std::chrono::milliseconds kGrace{2'000};

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
};

}  // namespace phasor::tools
