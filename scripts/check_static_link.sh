#!/bin/sh
# Links a C program with libphasor.a through `pkg-config --static`, and a C++ program through find_package, from an install of
# BUILD_DIR, and runs both. Each takes the whole archive, so that a missing dependency is an
# error even if the program does not call it.
#
# usage: scripts/check_static_link.sh BUILD_DIR
set -eu

die() {
  printf 'check_static_link: %s\n' "$*" >&2
  exit 1
}

[ $# -eq 1 ] || die "usage: scripts/check_static_link.sh BUILD_DIR"
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
prefix=$scratch/prefix

cmake --install "$build" --prefix "$prefix" >"$scratch/log" 2>&1 || {
  cat "$scratch/log" >&2
  die "cmake --install $build failed"
}
archive=$(find "$prefix" -name libphasor.a -print)
[ -n "$archive" ] || die "libphasor.a is missing from the install of $build"
pc=$(find "$prefix" -name phasor.pc -print)
[ -n "$pc" ] || die "phasor.pc is missing from the install of $build"

mkdir "$scratch/source"
cp "$root/examples/consumer/main.cpp" "$scratch/source"
cat >"$scratch/source/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(phasor_static_consumer LANGUAGES CXX)
find_package(phasor REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,phasor::static>)
END
{
  cmake -S "$scratch/source" -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$prefix" &&
    cmake --build "$scratch/cmake"
} >"$scratch/log" 2>&1 || {
  cat "$scratch/log" >&2
  die "a C++ program did not link with the archive through find_package"
}

# pkg-config: with the shared library out of the way, -lphasor can only be the archive.
find "$prefix" -name 'libphasor.so*' -delete
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
libraries=$(pkg-config --static --libs phasor)
whole=$(printf '%s\n' "$libraries" | sed 's/-lphasor/-Wl,--whole-archive -lphasor -Wl,--no-whole-archive/')
# pkg-config's output is meant to be split into words.
# shellcheck disable=SC2046,SC2086
"${CC:-cc}" -std=c11 -Wall -Wextra -Werror "$root/examples/consumer/main.c" -o "$scratch/consumer" \
  $(pkg-config --cflags phasor) $whole 2>"$scratch/log" || {
  cat "$scratch/log" >&2
  die "a C program did not link with: $libraries"
}

for program in "$scratch/consumer" "$scratch/cmake/consumer"; do
  if ldd "$program" | grep -q libphasor; then
    die "$(basename "$program") must not need libphasor.so, got $(ldd "$program" | grep libphasor)"
  fi
  "$program"
done
printf 'check_static_link: linked with %s\n' "$libraries"
