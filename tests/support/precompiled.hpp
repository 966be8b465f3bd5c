// What nearly every test includes, compiled once for all of them. A test still names what it uses:
// the build without precompiled headers (-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON) must work too.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
