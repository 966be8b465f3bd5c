// A file of arrays, one class per format.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/files/byte_source.hpp"
#include "phasor/io/internal/array_file.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::io {

class ArrayReader {
 public:
  ArrayReader(ArrayFormat format, std::string name) : format(format), name(std::move(name)) {}
  ArrayReader(const ArrayReader&) = delete;
  ArrayReader& operator=(const ArrayReader&) = delete;
  virtual ~ArrayReader() = default;

  // precondition  the entry has no problem
  [[nodiscard]] virtual Result<NpyArray> read(std::size_t index) const = 0;

  const ArrayFormat format;
  const std::string name;
  std::vector<ArrayEntry> entries;
};

// Where the bytes of a file are.
struct ArraySource {
  std::shared_ptr<const ByteSource> bytes;
  std::string name;
};

using OpenedReader = Result<std::unique_ptr<ArrayReader>>;

[[nodiscard]] OpenedReader open_npy_reader(const ArraySource& source);
// A zip archive: .npz, or .pt if it holds data.pkl.
[[nodiscard]] OpenedReader open_zip_reader(const ArraySource& source);

class ZipArchive;
struct ZipMember;
// `pickle` is the member data.pkl.
[[nodiscard]] OpenedReader open_torch_reader(const std::shared_ptr<const ZipArchive>& archive,
                                             const ZipMember& pickle, const std::string& name);

}  // namespace phasor::io
