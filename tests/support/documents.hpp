// Tables that a test calculates and that a document shows.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/file.hpp"

namespace phasor::tests {

// The text between `<!-- NAME -->` and `<!-- end of NAME -->` of the document is this one. With PHASOR_UPDATE_DOCS
// set, it is replaced.
inline void expect_in_document(const std::filesystem::path& document, const std::string& name,
                               const std::string& text) {
  const std::string all = io::read_text(document).value_or_throw();
  const std::string first = message("<!-- ", name, " -->\n");
  const std::size_t from = all.find(first);
  const std::size_t to = all.find(message("<!-- end of ", name, " -->"));
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos && from < to) << name;
  const std::size_t start = from + first.size();
  if (std::getenv("PHASOR_UPDATE_DOCS") != nullptr) {
    std::ofstream(document) << all.substr(0, start) << text << all.substr(to);
    return;
  }
  EXPECT_EQ(all.substr(start, to - start), text)
      << document.filename() << " is out of date; run this test with PHASOR_UPDATE_DOCS=1";
}

}  // namespace phasor::tests
