// The pickle of a .pt file, in an archive with two storages: mutations reach the pickle without having to
// keep an archive whole.
#include <span>
#include <string>

#include "arrays.hpp"
#include "io/zip_bytes.hpp"

using namespace phasor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > fuzz::kMaxInput) return 0;
  const std::string file = io::testing::zip_bytes(
      {{.name = "a/data.pkl", .data = std::string(fuzz::text_of(data, size))},
       {.name = "a/data/0", .data = std::string(96, '\1')},
       {.name = "a/data/1", .data = std::string(48, '\2')}});
  fuzz::read_arrays(std::as_bytes(std::span(file)));
  return 0;
}
