// Signals that end the command, and limits of the system.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <string>
#include <vector>

#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;

class Signals : public Phasor {
 protected:
  // A file of 64 MB, which takes a while to write.
  [[nodiscard]] std::vector<std::string> table(std::string_view positions = "0:2000000") const {
    return {"table",
            "--config",
            put_text("spec.json", kPlainSpec),
            "--positions",
            std::string(positions),
            "-o",
            file("out/T.npy")};
  }
  void SetUp() override { fs::create_directory(at("out")); }

  [[nodiscard]] std::size_t temporaries() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(at("out")))
      count += entry.path().filename().string().starts_with(".phasor-") ? 1 : 0;
    return count;
  }
  // Sends the signal when the temporary file is there, unless the command has ended before.
  [[nodiscard]] Outcome run_until(int signal) const {
    const pid_t child = start(table());
    siginfo_t ended{};
    while (temporaries() == 0) {
      if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
          ended.si_pid != 0) {
        break;
      }
    }
    ::kill(child, signal);
    return finish(child);
  }
};

TEST_F(Signals, TemporaryFilesAreRemoved) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    int ended = 0;
    for (int i = 0; i < 10 && ended < 2; ++i) {
      const Outcome outcome = run_until(signal);
      EXPECT_TRUE(outcome.exit == 128 + signal || outcome.exit == 0) << outcome.exit;
      ended += outcome.exit == 128 + signal ? 1 : 0;
      EXPECT_EQ(temporaries(), 0U) << signal;
    }
    EXPECT_GT(ended, 0) << signal;
  }
}

// No program can act on SIGKILL: the next write to the folder removes what is left.
TEST_F(Signals, TheNextWriteRemovesWhatAKilledOneLeft) {
  for (int i = 0; i < 10 && temporaries() == 0; ++i) (void)run_until(SIGKILL);
  ASSERT_EQ(temporaries(), 1U);
  EXPECT_EQ(run(table("0:4")).exit, 0);
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(Signals, IgnoredSignalsStayIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);  // as nohup does
  const Outcome outcome = run_until(SIGHUP);
  std::signal(SIGHUP, before);
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
}

TEST_F(Signals, AFileBeyondTheLimitIsAnError) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_DFL);  // the command inherits both
  const Outcome outcome = run(table("0:200000"));
  std::signal(SIGXFSZ, handler);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  expect_refusal(outcome, "table", {"T.npy", "too large"}, "out/T.npy");
  EXPECT_EQ(temporaries(), 0U);
}

// `phasor explain ... | head`, also if the shell ignores SIGPIPE.
TEST_F(Signals, AClosedPipeEndsItSilently) {
  for (const auto ignored : {SIG_DFL, SIG_IGN}) {
    const auto before = std::signal(SIGPIPE, ignored);
    int ends[2] = {};
    ASSERT_EQ(::pipe(ends), 0);
    ::close(ends[0]);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      const std::string binary = command().back(), help = "--help";
      ::execl(binary.c_str(), binary.c_str(), help.c_str(), nullptr);
      std::_Exit(1);
    }
    ::close(ends[1]);
    std::signal(SIGPIPE, before);
    EXPECT_EQ(exit_of(child), 128 + SIGPIPE);
  }
}

}  // namespace
}  // namespace phasor::tools::testing
