// phasor explore: the explorer page, which is inside the command.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>

#include "commands.hpp"
#include "embed.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/internal/file.hpp"
#include "streams.hpp"

PHASOR_EMBED(explorer, PHASOR_EXPLORER_PAGE)

extern char** environ;

namespace phasor::tools {
namespace {

constexpr const char* kOpener = "xdg-open";

struct ExploreOptions {
  std::string output;
};

void write_page(const std::filesystem::path& path) {
  const std::span<const std::byte> page = PHASOR_EMBEDDED(explorer);
  if (path == kStandardStream) {
    write_stdout({page});
    return;
  }
  (void)io::replace_file(path, std::span(&page, 1)).value_or_throw();
}

// A folder of its own: a name in a shared folder could be a link that someone else made.
std::filesystem::path new_folder() {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::temp_directory_path(error);
  if (error) {
    refuse(ErrorCode::io, message("no folder for temporary files: ", error.message(),
                                  "; write the page with -o FILE"));
  }
  std::string name = (place / "phasor-explorer-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    refuse(ErrorCode::io, message("cannot make a folder in ", place.string(), ": ",
                                  std::strerror(errno), "; write the page with -o FILE"));
  }
  return name;
}

// Starts the opener and waits for its answer; the browser goes on without it. What both print is not shown.
void open_in_browser(const std::string& path) {
  std::string opener = kOpener, file = path;
  const std::array<char*, 3> words = {opener.data(), file.data(), nullptr};
  posix_spawn_file_actions_t silent;
  if (::posix_spawn_file_actions_init(&silent) != 0) throw std::bad_alloc();
  int problem = 0;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    if (problem == 0) {
      problem = ::posix_spawn_file_actions_addopen(&silent, stream, "/dev/null", O_WRONLY, 0);
    }
  }
  pid_t child = 0;
  if (problem == 0)
    problem = ::posix_spawnp(&child, kOpener, &silent, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&silent);
  if (problem == ENOMEM) throw std::bad_alloc();
  if (problem != 0) {
    refuse(ErrorCode::unsupported,
           message("cannot start ", kOpener, ": ", std::strerror(problem),
                   "; write the page with -o FILE and open it in a browser"));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) == -1 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    refuse(ErrorCode::unsupported,
           message(kOpener, " found no browser (exit code ",
                   WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                   "); write the page with -o FILE and open it in a browser"));
  }
}

int run_explore(const ExploreOptions& options) {
  if (!options.output.empty()) {
    write_page(options.output);
    return exit_code::done;
  }
  const std::filesystem::path folder = new_folder();
  const std::filesystem::path page = folder / "explorer.html";
  try {
    write_page(page);
    open_in_browser(page.string());
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(page, ignored);
    std::filesystem::remove(folder, ignored);
    throw;
  }
  print_out("opened {}\n", page.string());
  return exit_code::done;
}

}  // namespace

void add_explore(CommandLine& line) {
  auto options = std::make_shared<ExploreOptions>();
  Verb& verb = line.verb("explore", "open the explorer: RoPE and other encodings in a browser");
  verb.flag("-o,--output", &options->output,
            "write the page here instead of opening it; - is stdout");
  verb.footer =
      R"(Opens a page that shows rotations, tables, decay, scalings, layouts, angle errors, diagnoses and
attention maps. It is one file without a server or network; its numbers are computed by the
same code as this command, as WebAssembly. Without -o the page is written to a temporary
folder and opened with xdg-open; the file stays there.

Example  phasor explore
         phasor explore -o explorer.html)";
  verb.action = [options] { return run_explore(*options); };
}

}  // namespace phasor::tools
