// What a call was refused with. Tests assert the code and the values that the message shows (a number, a key, a file's
// name), never the sentence, so that its wording can improve.
#pragma once

#include <gtest/gtest.h>

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

#include "phasor/core/error.hpp"

namespace phasor::tests {

inline void expect_error(ErrorCode code, std::initializer_list<std::string_view> values,
                         const Error& error) {
  EXPECT_EQ(error.code(), code) << error.what();
  for (const std::string_view value : values) {
    EXPECT_NE(std::string_view(error.what()).find(value), std::string_view::npos)
        << "no \"" << value << "\" in: " << error.what();
  }
}

template <class T>
void expect_error(ErrorCode code, std::initializer_list<std::string_view> values,
                  const Result<T>& result) {
  ASSERT_FALSE(result.ok()) << "nothing was refused";
  expect_error(code, values, result.error());
}

template <std::invocable Call>
void expect_error(ErrorCode code, std::initializer_list<std::string_view> values,
                  const Call& call) {
  try {
    (void)call();
  } catch (const Error& error) {
    expect_error(code, values, error);
    return;
  }
  ADD_FAILURE() << "nothing was refused";
}

}  // namespace phasor::tests
