// Golden cases copied into the test's own folder, where they may be damaged.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {

class Conform : public Phasor {
 protected:
  // A copy of a golden case that may be damaged.
  void borrow(const std::string& group, const std::string& name) {
    const std::filesystem::path target = at("cases") / group / name;
    std::filesystem::create_directories(target);
    std::filesystem::copy(std::filesystem::path(PHASOR_GOLDEN_DIR) / group / name, target,
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    case_ = target;
  }

  [[nodiscard]] Outcome conform(std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"conform", file("cases")};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  void expect_failure(const Values& values) const {
    const Outcome outcome = conform();
    EXPECT_EQ(outcome.exit, 1) << outcome.err;
    EXPECT_NE(outcome.out.find("FAIL"), std::string::npos) << outcome.out;
    for (const std::string& value : values.list) {
      EXPECT_NE(outcome.out.find(value), std::string::npos)
          << "no \"" << value << "\" in: " << outcome.out;
    }
    EXPECT_NE(outcome.out.find("0 passed, 1 failed, 0 unsupported\n"), std::string::npos)
        << outcome.out;
  }

  void edit(const std::string& file, void (*change)(io::NpyArray&)) const {
    io::NpyArray array = io::read_npy(case_ / file).value_or_throw();
    change(array);
    ASSERT_TRUE(io::write_npy(case_ / file, array).ok());
  }

  void edit_description(void (*change)(io::Json&)) const {
    io::Json description = io::Json::parse(io::testing::get(case_ / "case.json"));
    change(description);
    io::testing::put(case_ / "case.json", description.dump());
  }

  std::filesystem::path case_;
};

}  // namespace phasor::tools::testing
