// phasor explore: the page that is inside the command, written or opened.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "phasor/io/internal/file.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;

class Explore : public Phasor {
 protected:
  [[nodiscard]] static std::string text_of(const std::string& path) {
    return io::read_text(path).value_or_throw();
  }
  [[nodiscard]] static std::string page() { return text_of(PHASOR_EXPLORER_PAGE); }

  // Runs `phasor explore` with only these programs in the PATH, and temporary files in the test's folder.
  [[nodiscard]] Outcome run_with(const std::string& programs) const {
    const std::string path = std::getenv("PATH") == nullptr ? "" : std::getenv("PATH");
    ::setenv("PATH", programs.c_str(), 1);
    ::setenv("TMPDIR", file("temporary").c_str(), 1);
    Outcome outcome = run({"explore"});
    ::setenv("PATH", path.c_str(), 1);
    ::unsetenv("TMPDIR");
    return outcome;
  }
};

TEST_F(Explore, WritesThePage) {
  const Outcome outcome = run({"explore", "-o", file("page.html")});
  EXPECT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(text_of(file("page.html")) == page());

  const Outcome piped = run({"explore", "-o", "-"});
  EXPECT_EQ(piped.exit, 0) << piped.err;
  EXPECT_TRUE(piped.out == page());
}

TEST_F(Explore, OpensThePage) {
  fs::create_directories(file("programs"));
  fs::create_directories(file("temporary"));
  const std::string opener =
      put_text("programs/xdg-open", "#!/bin/sh\nprintf '%s' \"$1\" > " + file("opened") + "\n");
  ASSERT_EQ(::chmod(opener.c_str(), 0700), 0);
  const Outcome outcome = run_with(file("programs"));
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  const std::string opened = text_of(file("opened"));
  EXPECT_EQ(fs::path(opened).extension(), ".html");
  EXPECT_NE(outcome.out.find(opened), std::string::npos);
  EXPECT_TRUE(text_of(opened) == page());
}

TEST_F(Explore, RefusesWithoutAnOpener) {
  fs::create_directories(file("programs"));
  fs::create_directories(file("temporary"));
  const Outcome missing = run_with(file("programs"));
  EXPECT_EQ(missing.exit, 2);
  for (const char* value : {"xdg-open", "-o"})
    EXPECT_NE(missing.first_error_line().find(value), std::string::npos) << missing.err;

  const std::string opener = put_text("programs/xdg-open", "#!/bin/sh\nexit 3\n");
  ASSERT_EQ(::chmod(opener.c_str(), 0700), 0);
  const Outcome failing = run_with(file("programs"));
  EXPECT_EQ(failing.exit, 2);
  for (const char* value : {"xdg-open", "-o", "3"})
    EXPECT_NE(failing.first_error_line().find(value), std::string::npos) << failing.err;
  EXPECT_TRUE(fs::is_empty(file("temporary")));  // neither leaves a page behind
}

TEST_F(Explore, RefusesAFileThatCannotBeWritten) {
  const Outcome outcome = run({"explore", "-o", file("no/such/folder/page.html")});
  EXPECT_EQ(outcome.exit, 2);
  EXPECT_NE(outcome.first_error_line().find("page.html"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace phasor::tools::testing
