// Memory that is refused. refused_memory.cpp defines malloc and its relatives, mmap and
// pthread_create in the program itself, where every library finds them: each request for memory or
// for a thread is counted and, when asked, refused.
#pragma once

#include <cstdint>

namespace phasor::faults {

enum class Refuse : std::uint8_t { nothing, once, from_then_on };

// Requests are counted from 0, those of all threads together.
struct Refusal {
  Refuse how = Refuse::nothing;
  std::int64_t request = 0;
};

struct Requests {
  std::int64_t made = 0, refused = 0;
};

// In shared memory: the parent of a process that has crashed can still read it.
void share_counts();

// Counts from 0 again.
//
// Requests inside three libraries are never refused, since these do not survive it: libgomp ends the
// process, SentencePiece reads freed memory, and so does oneDNN while it generates code at its first
// call. Phasor asks for more memory than they need before it calls them (core::require_memory), and
// that request is refused like every other.
void refuse(Refusal refusal);
[[nodiscard]] Requests requests() noexcept;

}  // namespace phasor::faults
