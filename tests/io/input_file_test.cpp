// Files that are read while other processes write to them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <string>
#include <vector>

#include "phasor/io/internal/posix_file.hpp"
#include "phasor/io/tensors.hpp"
#include "support/errors.hpp"
#include "support/gguf_writer.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using testing::put;

class InputFiles : public testing::TemporaryFolder {
 protected:
  [[nodiscard]] InputFile open(std::string_view name) const {
    return open_input(at(name)).value_or_throw();
  }
  [[nodiscard]] static std::string read(const InputFile& file, std::uint64_t offset,
                                        std::size_t count) {
    std::string text(count, '\0');
    (void)read_at(file, offset, std::as_writable_bytes(std::span(text))).value_or_throw();
    return text;
  }
};

TEST_F(InputFiles, ReadsFromAnyOffset) {
  put(at("a"), "some text");
  const InputFile file = open("a");
  EXPECT_EQ(file.size, 9U);
  EXPECT_EQ(read(file, 5, 4), "text");
  EXPECT_EQ(read(file, 0, 4), "some");
  EXPECT_EQ(read(file, 9, 0), "");
}

TEST_F(InputFiles, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  for (const auto& path : {at("missing"), at("."), at("pipe"), fs::path("/dev/zero")}) {
    tests::expect_error(ErrorCode::io, {path.string()}, open_input(path));
  }
}

TEST_F(InputFiles, AFileThatBecameShorterIsAnError) {
  put(at("a"), "some text");
  const InputFile file = open("a");
  fs::resize_file(at("a"), 5);
  EXPECT_EQ(read(file, 0, 5), "some ");
  std::array<std::byte, 4> into{};
  tests::expect_error(ErrorCode::io, {at("a").string(), "9"}, read_at(file, 3, into));
}

TEST_F(InputFiles, AReplacedFileStaysAsItWas) {
  put(at("a"), "old");
  const InputFile file = open("a");
  put(at("b"), "new");
  fs::rename(at("b"), at("a"));
  EXPECT_EQ(read(file, 0, 3), "old");
  EXPECT_TRUE(check_unchanged(file, "read").ok());
}

TEST_F(InputFiles, AFileThatWasWrittenToHasChanged) {
  put(at("a"), "one");
  const InputFile longer = open("a");
  EXPECT_TRUE(check_unchanged(longer, "read").ok());
  put(at("a"), "three");
  tests::expect_error(ErrorCode::io, {at("a").string(), "5", "3"}, check_unchanged(longer, "read"));
  const InputFile other = open("a");
  fs::last_write_time(at("a"), fs::last_write_time(at("a")) + std::chrono::seconds(1));
  tests::expect_error(ErrorCode::io, {at("a").string(), "5"}, check_unchanged(other, "read"));
}

// A mapping of the file would raise SIGBUS in each of these.
TEST_F(InputFiles, TensorsOfAFileThatBecameShorterAreAnError) {
  const std::vector<float> values(10'000, 2.5F);
  put(at("m.gguf"), testing::GgufWriter().floats("t", values).bytes());
  const Tensor tensor{"t", TensorType::f32, {10'000}, std::as_bytes(std::span(values))};
  ASSERT_TRUE(write_safetensors(at("m.safetensors"), {tensor}).ok());
  const GgufFile gguf = GgufFile::open(at("m.gguf")).value_or_throw();
  const SafetensorsFile safetensors = SafetensorsFile::open(at("m.safetensors")).value_or_throw();
  for (const Tensor* const stored : {gguf.find("t"), safetensors.find("t")}) {
    std::vector<float> got(values.size());
    to_floats(*stored, 0, got);
    EXPECT_EQ(got, values);
    EXPECT_TRUE(same_bytes(*stored, tensor));
  }
  for (const char* name : {"m.gguf", "m.safetensors"}) {
    fs::resize_file(at(name), 20'000);
    const Tensor* const stored = at(name) == at("m.gguf") ? gguf.find("t") : safetensors.find("t");
    std::vector<float> got(values.size());
    to_floats(*stored, 0, std::span(got).first(1000));
    tests::expect_error(ErrorCode::io, {at(name).string()}, [&] {
      to_floats(*stored, 0, got);
      return 0;
    });
    tests::expect_error(ErrorCode::io, {at(name).string()},
                        [&] { return same_bytes(*stored, tensor); });
  }
}

TEST_F(InputFiles, BytesOutsideATensorAreRefused) {
  const std::string text = "01234567";
  const Tensor tensor{"t", TensorType::f32, {2}, bytes_of(text)};
  std::array<std::byte, 4> out{};
  read_bytes(tensor, 4, out);
  EXPECT_EQ(out[0], std::byte{'4'});
  tests::expect_error(ErrorCode::out_of_range, {"'t'", " 8 ", " 4 ", " 5"}, [&] {
    read_bytes(tensor, 5, out);
    return 0;
  });
}

// Metadata longer than what is read at once.
TEST_F(InputFiles, GgufMetadataOfAnyLength) {
  testing::GgufWriter writer;
  for (const std::size_t length : {0U, 1U, 65'534U, 65'535U, 65'536U, 200'000U})
    writer.text("k" + std::to_string(length), std::string(length, 'x') + "y");
  put(at("m.gguf"), writer.bytes());
  const GgufFile file = GgufFile::open(at("m.gguf")).value_or_throw();
  ASSERT_EQ(file.metadata().size(), 6U);
  for (const auto& [key, value] : file.metadata()) {
    EXPECT_EQ(std::get<std::string>(value), std::string(std::stoul(key.substr(1)), 'x') + "y");
  }
}

}  // namespace
}  // namespace phasor::io
