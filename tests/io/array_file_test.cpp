// Files of arrays that NumPy and torch wrote (data/make_arrays.py), and archives and pickles with every
// part made wrong.
#include "phasor/io/internal/array_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"
#include "zip_bytes.hpp"

namespace phasor::io {
namespace {

using testing::get;
using testing::zip_bytes;
using testing::ZipEnd;
using testing::ZipPart;

std::string data_file(const std::string& name) {
  return std::string(PHASOR_IO_DATA_DIR) + "/arrays/" + name;
}

Result<ArrayFile> parsed(const std::string& bytes) {
  return ArrayFile::parse(std::as_bytes(std::span(bytes)), "file");
}

NpyArray array_of(const std::string& file, const std::string& name) {
  return ArrayFile::open(data_file(file)).value_or_throw().read(name).value_or_throw();
}

std::vector<double> doubles_of(const NpyArray& array) { return to_doubles(array).value_or_throw(); }

std::vector<double> counted(int first, int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(first + i);
  return values;
}

std::vector<std::string> names_of(const ArrayFile& file) {
  std::vector<std::string> names;
  for (const ArrayEntry& entry : file.entries()) names.push_back(entry.name);
  return names;
}

using Shape = std::vector<std::int64_t>;

// A .npy of one float, to be put into archives.
std::string small_npy() {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  header.resize(117, ' ');
  header += '\n';
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8);
  bytes += {static_cast<char>(header.size()), '\0'};
  return bytes + header + std::string("\x00\x00\x80\x3f", 4);
}

TEST(ArrayFile, ReadsWhatNumpySaves) {
  for (const std::string name : {"arrays.npz", "arrays_deflated.npz"}) {
    const ArrayFile file = ArrayFile::open(data_file(name)).value_or_throw();
    EXPECT_EQ(file.format(), ArrayFormat::npz);
    EXPECT_EQ(names_of(file), (std::vector<std::string>{"q", "k", "layers.0.v", "ids", "freqs_cis",
                                                        "scalar", "empty", "mask"}));
    for (const std::string key : {"q", "k", "layers.0.v"}) {
      const NpyArray array = array_of(name, key);
      EXPECT_EQ(array.shape, (Shape{2, 3, 4}));
      EXPECT_EQ(doubles_of(array), counted(0, 24)) << key;  // v is in Fortran order in the file
    }
    EXPECT_EQ(array_of(name, "k").type, NpyType::f16);
    EXPECT_EQ(doubles_of(array_of(name, "ids")), counted(-2, 5));
    EXPECT_EQ(array_of(name, "scalar").shape, Shape{});
    EXPECT_EQ(doubles_of(array_of(name, "scalar")), std::vector<double>{2.5});
    EXPECT_EQ(array_of(name, "empty").shape, (Shape{0, 3}));
    EXPECT_EQ(array_of(name, "mask").type, NpyType::boolean);
    const NpyArray complex = array_of(name, "freqs_cis");
    EXPECT_EQ(complex.type, NpyType::c64);
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(complex.as<std::complex<float>>()[i],
                std::complex<float>(static_cast<float>(i), static_cast<float>(i + 12)));
    }
  }
}

TEST(ArrayFile, ADeflatedMemberIsLargerThanTheFile) {
  const ArrayFile file = ArrayFile::open(data_file("one.npz")).value_or_throw();
  const NpyArray array = file.read(std::nullopt).value_or_throw();  // the only one needs no name
  EXPECT_EQ(array.shape, (Shape{80, 3, 4}));
  const std::vector<double> values = doubles_of(array);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<double>(i % 24));
}

TEST(ArrayFile, AnArrayThatCannotBeReadDoesNotHideTheOthers) {
  const ArrayFile file = ArrayFile::open(data_file("objects.npz")).value_or_throw();
  EXPECT_EQ(doubles_of(file.read("q").value_or_throw()), counted(0, 24));
  ASSERT_EQ(file.entries().size(), 2U);
  EXPECT_TRUE(file.entries()[1].problem.has_value());
  tests::expect_error(ErrorCode::unsupported, {"names"}, file.read("names"));
}

TEST(ArrayFile, ReadsWhatTorchSaves) {
  for (const std::string name : {"nested.pt", "protocol4.pt"}) {
    const ArrayFile file = ArrayFile::open(data_file(name)).value_or_throw();
    EXPECT_EQ(file.format(), ArrayFormat::torch);
    EXPECT_EQ(names_of(file),
              (std::vector<std::string>{"layers.0.q", "layers.0.k", "layers.1.q", "layers.1.k",
                                        "parameter", "ids", "freqs_cis", "bits", "float8", "mask",
                                        "scalar", "empty"}));
    for (const std::string key : {"layers.0.q", "layers.0.k", "layers.1.k", "parameter", "bits"}) {
      const NpyArray array = array_of(name, key);
      EXPECT_EQ(array.shape, (Shape{2, 3, 4}));
      EXPECT_EQ(doubles_of(array), counted(0, 24)) << key;
    }
    EXPECT_EQ(doubles_of(array_of(name, "layers.1.q")), counted(1, 24));
    EXPECT_EQ(array_of(name, "layers.0.k").type, NpyType::f16);
    EXPECT_EQ(array_of(name, "layers.1.k").type, NpyType::bf16);
    EXPECT_EQ(array_of(name, "parameter").type, NpyType::f64);
    EXPECT_EQ(array_of(name, "bits").type, NpyType::u16);
    EXPECT_EQ(array_of(name, "freqs_cis").type, NpyType::c64);
    EXPECT_EQ(doubles_of(array_of(name, "ids")), counted(-2, 5));
    EXPECT_EQ(doubles_of(array_of(name, "scalar")), std::vector<double>{2.5});
    EXPECT_EQ(array_of(name, "scalar").shape, Shape{});
    EXPECT_EQ(array_of(name, "empty").shape, (Shape{0, 3}));
    tests::expect_error(ErrorCode::unsupported, {"float8_e4m3fn", name}, file.read("float8"));
  }
}

TEST(ArrayFile, ATensorThatWasSavedAloneHasNoName) {
  for (const std::string name : {"tensor.pt", "no_check_sums.pt"}) {
    const ArrayFile file = ArrayFile::open(data_file(name)).value_or_throw();
    EXPECT_EQ(names_of(file), std::vector<std::string>{""});
    EXPECT_EQ(doubles_of(file.read(std::nullopt).value_or_throw()), counted(0, 24));
  }
  EXPECT_EQ(names_of(ArrayFile::open(data_file("state_dict.pt")).value_or_throw()),
            (std::vector<std::string>{"weight", "bias"}));
}

TEST(ArrayFile, ViewsOfTorchAreGathered) {
  const auto value = [](int i, int j, int k) { return double{(i * 3.0 + j) * 4 + k}; };
  const NpyArray transposed = array_of("views.pt", "transposed");
  const NpyArray sliced = array_of("views.pt", "sliced");
  const NpyArray expanded = array_of("views.pt", "expanded");
  EXPECT_EQ(transposed.shape, (Shape{3, 2, 4}));
  EXPECT_EQ(sliced.shape, (Shape{2, 2, 2}));
  EXPECT_EQ(expanded.shape, (Shape{5, 3, 4}));
  std::vector<double> swapped, parts, repeated;
  for (int j = 0; j < 3; ++j)
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 4; ++k) swapped.push_back(value(i, j, k));
  for (int i = 0; i < 2; ++i)
    for (int j = 1; j < 3; ++j)
      for (int k = 0; k < 4; k += 2) parts.push_back(value(i, j, k));
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 12; ++j) repeated.push_back(j);
  EXPECT_EQ(doubles_of(transposed), swapped);
  EXPECT_EQ(doubles_of(sliced), parts);
  EXPECT_EQ(doubles_of(expanded), repeated);
  EXPECT_EQ(doubles_of(array_of("views.pt", "row")), counted(20, 4));
  tests::expect_error(ErrorCode::unsupported, {"conjugated", "resolve_conj"},
                      ArrayFile::open(data_file("views.pt")).value_or_throw().read("conjugated"));
}

TEST(ArrayFile, RunsNoCodeAndNamesWhatItWouldRun) {
  tests::expect_error(ErrorCode::unsupported, {"code.pt", "system"},
                      ArrayFile::open(data_file("code.pt")));
}

TEST(ArrayFile, OtherFilesAreRefusedByName) {
  tests::expect_error(ErrorCode::unsupported, {"legacy.pt", "1.6"},
                      ArrayFile::open(data_file("legacy.pt")));
  tests::expect_error(ErrorCode::unsupported, {"GGUF"}, parsed("GGUF\x03\x00\x00\x00 and more"));
  tests::expect_error(ErrorCode::unsupported, {"1.6"}, parsed(std::string(257, 'x') + "ustar  "));
  tests::expect_error(ErrorCode::io, {"file", "hello"}, parsed("hello, world"));
  tests::expect_error(ErrorCode::io, {"file", "empty"}, parsed(""));
  tests::expect_error(ErrorCode::io, {"missing.npz"}, ArrayFile::open(data_file("missing.npz")));
}

TEST(ArrayFile, NamesAreListedWhenNoneOrAWrongOneIsGiven) {
  const ArrayFile file = ArrayFile::open(data_file("arrays.npz")).value_or_throw();
  tests::expect_error(ErrorCode::invalid_argument, {"arrays.npz", "q, k, layers.0.v", " 8 "},
                      file.read(std::nullopt));
  tests::expect_error(ErrorCode::invalid_argument, {"'z'", "q, k, layers.0.v"}, file.read("z"));
  tests::expect_error(ErrorCode::invalid_argument, {"'z'"},
                      parsed(small_npy()).value_or_throw().read("z"));
  tests::expect_error(ErrorCode::invalid_argument, {"file"},
                      parsed(zip_bytes({})).value_or_throw().read(std::nullopt));
}

TEST(ArrayFile, ReadsZip64AndComments) {
  for (const ZipEnd end : {ZipEnd::plain, ZipEnd::in_64_bits}) {
    for (const bool wide : {false, true}) {
      ZipPart part{.name = "q.npy", .data = small_npy()};
      part.in_64_bits = wide;
      const std::string bytes = zip_bytes({part}, end, "a comment with PK\x05\x06 in it");
      const ArrayFile file = parsed(bytes).value_or_throw();
      EXPECT_EQ(doubles_of(file.read("q").value_or_throw()), std::vector<double>{1.0});
    }
  }
}

TEST(ArrayFile, RefusesArchivesThatContradictThemselves) {
  const ZipPart good{.name = "q.npy", .data = small_npy()};
  const auto with = [&](auto change) {
    ZipPart part = good;
    change(part);
    return parsed(zip_bytes({part}));
  };
  tests::expect_error(ErrorCode::io, {"q.npy", "two"}, parsed(zip_bytes({good, good})));
  tests::expect_error(ErrorCode::unsupported, {"q.npy", "encrypted"},
                      with([](ZipPart& part) { part.flags = 1; }));
  tests::expect_error(ErrorCode::unsupported, {"q.npy", " 12"},
                      with([](ZipPart& part) { part.method = 12; }));
  tests::expect_error(ErrorCode::io, {"q.npy", "'other'"},
                      with([](ZipPart& part) { part.local_name = "other"; }));
  tests::expect_error(ErrorCode::io, {"q.npy", "133"},
                      with([](ZipPart& part) { part.size = 133; }));
  tests::expect_error(ErrorCode::io, {"q.npy", " 4000000000"},
                      with([](ZipPart& part) { part.packed = part.size = 4000000000; }));
  tests::expect_error(ErrorCode::io, {"q.npy", " 999"},
                      with([](ZipPart& part) { part.offset = 999; }));
  // More than deflate can produce: refused before memory is asked for.
  tests::expect_error(ErrorCode::io, {"q.npy", "4000000000000"}, with([](ZipPart& part) {
                        part.method = 8;
                        part.size = 4000000000000;
                        part.in_64_bits = true;
                      }));
  // Two entries for the same bytes.
  ZipPart again{.name = "again.npy", .data = small_npy()};
  again.offset = 0;
  again.local_name = "q.npy";
  tests::expect_error(ErrorCode::io, {"again.npy"}, parsed(zip_bytes({good, again})));
  ZipPart shorter = good;
  shorter.data += "PK\x03\x04";
  EXPECT_TRUE(parsed(zip_bytes({good})).ok());
  tests::expect_error(ErrorCode::io, {"q.npy"}, [&] {
    return parsed(zip_bytes({shorter})).value_or_throw().read("q").value_or_throw();
  });
}

TEST(ArrayFile, ADamagedMemberIsFoundByItsCheckSum) {
  for (const std::string name : {"arrays.npz", "tensor.pt"}) {
    std::string bytes = get(data_file(name));
    const float wanted = 7.0F;  // the number 7 of arange: changed to another float
    const std::size_t at =
        bytes.find(std::string_view(reinterpret_cast<const char*>(&wanted), sizeof(wanted)));
    ASSERT_NE(at, std::string::npos);
    bytes[at + 2] = static_cast<char>(bytes[at + 2] ^ 1);
    const ArrayFile file = parsed(bytes).value_or_throw();
    tests::expect_error(ErrorCode::io, {"file"}, file.read(std::size_t{0}));
  }
}

// Reads everything that a file offers. Whatever the bytes are, an array has the size of its shape.
void read_all(const std::string& bytes) {
  const Result<ArrayFile> file = parsed(bytes);
  if (!file) {
    EXPECT_FALSE(std::string_view(file.error().what()).empty());
    return;
  }
  for (std::size_t i = 0; i < file->entries().size(); ++i) {
    const Result<NpyArray> array = file->read(i);
    if (!array) continue;
    EXPECT_EQ(array->bytes.size(), static_cast<std::size_t>(array->size()) * size_of(array->type));
  }
}

const char* const kSeeds[] = {"arrays.npz", "arrays_deflated.npz", "nested.pt", "protocol4.pt",
                              "views.pt",   "state_dict.pt",       "tensor.pt", "one.npz"};

TEST(ArrayFile, AnyChangedByteIsSurvived) {
  for (const char* const name : kSeeds) {
    const std::string bytes = get(data_file(name));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (const int change : {0x01, 0x80, 0xff}) {
        std::string changed = bytes;
        changed[i] = static_cast<char>(changed[i] ^ change);
        read_all(changed);
      }
    }
  }
}

TEST(ArrayFile, AFileThatEndsEarlyIsRefused) {
  for (const char* const name : kSeeds) {
    const std::string bytes = get(data_file(name));
    for (std::size_t size = 0; size < bytes.size(); size += 7)
      EXPECT_FALSE(parsed(bytes.substr(0, size)).ok()) << name << " " << size;
  }
}

}  // namespace
}  // namespace phasor::io
