// Runs the built command in a folder of the test's own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "phasor/io/npy.hpp"
#include "support/temporary_folder.hpp"

extern char** environ;

namespace phasor::tools::testing {

struct Outcome {
  int exit = -1;
  std::string out, err;

  [[nodiscard]] std::string first_error_line() const { return err.substr(0, err.find('\n')); }
};

// What a message shows: numbers, keys, flags, names of files. Tests assert these and never the
// sentence around them, so that its wording can improve.
struct Values {
  Values(const char* value) : list{value} {}
  Values(std::string value) : list{std::move(value)} {}
  Values(std::initializer_list<std::string> values) : list(values) {}

  std::vector<std::string> list;
};

class Phasor : public io::testing::TemporaryFolder {
 protected:
  // The built command, run by the emulator if it is built for another machine.
  [[nodiscard]] static std::vector<std::string> command() {
    std::vector<std::string> words;
    std::istringstream emulator(PHASOR_EMULATOR);
    for (std::string word; std::getline(emulator, word, '|');) words.push_back(word);
    words.emplace_back(PHASOR_BINARY);
    return words;
  }
  // Paths in `arguments` are used as they are; file() makes one in the test's folder.
  [[nodiscard]] Outcome run(const std::vector<std::string>& arguments,
                            const std::string& input = {}) const {
    return finish(start(arguments, input));
  }

  // The process; 0 if it could not be started. `input` is the file that is its stdin; empty: that of the
  // test.
  [[nodiscard]] pid_t start(const std::vector<std::string>& arguments,
                            const std::string& input = {}) const {
    std::vector<std::string> words = command();
    words.insert(words.end(), arguments.begin(), arguments.end());
    return spawn(std::move(words), input);
  }
  // Any program.
  [[nodiscard]] pid_t spawn(std::vector<std::string> words, const std::string& input = {}) const {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);

    const std::string out = file(".stdout"), err = file(".stderr");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (!input.empty())
      posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input.c_str(), O_RDONLY, 0);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), flags, 0600);
    pid_t child = 0;
    const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed == 0 ? child : 0;
  }
  // Waits for the process.
  [[nodiscard]] Outcome finish(pid_t child) const {
    Outcome outcome;
    if (child == 0) return outcome;
    outcome.exit = exit_of(child);
    outcome.out = io::testing::get(file(".stdout"));
    outcome.err = io::testing::get(file(".stderr"));
    return outcome;
  }
  // As a shell sees it: a signal is 128 and its number.
  [[nodiscard]] static int exit_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  [[nodiscard]] std::string file(std::string_view name) const { return at(name).string(); }
  [[nodiscard]] bool exists(std::string_view name) const {
    return std::filesystem::exists(at(name));
  }

  [[nodiscard]] std::string put_text(std::string_view name, std::string_view text) const {
    io::testing::put(at(name), text);
    return file(name);
  }

  template <class T>
  [[nodiscard]] std::string put_array(std::string_view name, io::NpyType type,
                                      std::vector<std::int64_t> shape,
                                      const std::vector<T>& values) const {
    io::NpyArray array = io::make_npy(type, std::move(shape));
    EXPECT_EQ(array.bytes.size(), values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
    EXPECT_TRUE(io::write_npy(at(name), array).ok());
    return file(name);
  }

  [[nodiscard]] io::NpyArray read(std::string_view name) const {
    return io::read_npy(at(name)).value_or_throw();
  }

  // Exit 2, one line on stderr that starts with the verb and shows each of `values`, and no output.
  void expect_refusal(const Outcome& outcome, std::string_view verb, const Values& values,
                      std::string_view output = "Y.npy") const {
    EXPECT_EQ(outcome.exit, 2) << outcome.err;
    const std::string line = outcome.first_error_line();
    EXPECT_TRUE(line.starts_with("phasor " + std::string(verb) + ": ")) << line;
    for (const std::string& value : values.list) {
      EXPECT_NE(line.find(value), std::string::npos) << "no \"" << value << "\" in: " << line;
    }
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
    EXPECT_FALSE(exists(output));
  }
};

inline constexpr std::string_view kPlainSpec =
    R"({"head_dim": 8, "base": 10000, "layout": "interleaved", "rotary_dim": 8})";

}  // namespace phasor::tools::testing
