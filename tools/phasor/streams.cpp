#include "streams.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "ranks.hpp"

namespace phasor::tools {
namespace {

constexpr std::size_t kStdinStep = std::size_t{1} << 16;
bool g_stdin_was_read = false;

std::string read_to_end() {
  std::string bytes;
  for (std::size_t used = 0;;) {
    // Doubled: the time to read a long input is proportional to its length.
    if (bytes.size() - used < kStdinStep) bytes.resize(std::max(2 * bytes.size(), kStdinStep));
    const ssize_t got = ::read(STDIN_FILENO, bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw io::system_error("stdin", "read", errno);
    if (got == 0) {
      bytes.resize(used);
      return bytes;
    }
    used += static_cast<std::size_t>(got);
  }
}

}  // namespace

std::string read_stdin() {
  if (std::exchange(g_stdin_was_read, true)) refuse("stdin (-) can be read once, got a second -");
  std::string bytes;
  if (is_first_rank()) bytes = read_to_end();  // mpirun gives its stdin to rank 0 alone
  if (ranks() != nullptr) ranks()->broadcast(bytes);
  return bytes;
}

void write_stdout(std::initializer_list<std::span<const std::byte>> pieces) {
  if (!is_first_rank()) return;
  if (::isatty(STDOUT_FILENO) != 0)
    refuse("stdout (-) is a terminal: redirect it to a file or pipe");
  for (const std::span<const std::byte> piece : pieces) {
    if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size())
      throw io::system_error("to stdout", "write", errno);
  }
  if (std::fflush(stdout) != 0) throw io::system_error("to stdout", "write", errno);
  set_text_stream(TextStream::err);
}

void require_one_stdout(std::initializer_list<std::string_view> paths) {
  if (std::count(paths.begin(), paths.end(), kStandardStream) > 1)
    refuse("only one output can be written to stdout (-), got several");
}

void release_streams() noexcept {
  g_stdin_was_read = false;
  set_text_stream(TextStream::out);
}

}  // namespace phasor::tools
