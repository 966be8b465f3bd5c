#include <gtest/gtest.h>

#include <string>

#include "io/safetensors_text.hpp"
#include "phasor/io/tensors.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;
using testing::one_tensor;
using testing::put;

constexpr std::string_view kIndex = "model.safetensors.index.json";

class Checkpoint : public testing::TemporaryFolder {
 protected:
  // Two shards of one tensor each, and their index.
  void put_shards() const {
    put(at("1.safetensors"), one_tensor("a", "11111111"));
    put(at("2.safetensors"), one_tensor("b", "22222222"));
    put_index(R"({"metadata":{"total_size":16},)"
              R"("weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  }
  void put_index(std::string_view text) const { put(at(kIndex), text); }
  void expect_index_refused(std::string_view text,
                            std::initializer_list<std::string_view> values) const {
    SCOPED_TRACE(text);
    put_index(text);
    const auto opened = SafetensorsCheckpoint::open(at(""));
    tests::expect_error(ErrorCode::io, values, opened);
    tests::expect_error(ErrorCode::io, {at(kIndex).string()}, opened);
  }
};

TEST_F(Checkpoint, AFileIsACheckpointOfOneShard) {
  put(at("x.safetensors"), one_tensor("a"));
  const auto opened = SafetensorsCheckpoint::open(at("x.safetensors"));
  ASSERT_TRUE(opened.ok()) << opened.error().what();
  ASSERT_EQ(opened->shards().size(), 1U);
  EXPECT_EQ(opened->shards()[0].name, "x.safetensors");
  EXPECT_EQ(opened->folder(), at("x.safetensors").parent_path());
  EXPECT_NE(opened->find("a"), nullptr);
  EXPECT_EQ(opened->find("b"), nullptr);
}

TEST_F(Checkpoint, AFolderMayHoldOneFileOfAnyName) {
  put(at("config.json"), "{}");
  put(at("x.safetensors"), one_tensor("a"));
  auto opened = SafetensorsCheckpoint::open(at(""));
  ASSERT_TRUE(opened.ok()) << opened.error().what();
  EXPECT_EQ(opened->shards()[0].name, "x.safetensors");
  // The usual name goes before the others.
  put(at("model.safetensors"), one_tensor("b"));
  opened = SafetensorsCheckpoint::open(at(""));
  ASSERT_TRUE(opened.ok()) << opened.error().what();
  EXPECT_NE(opened->find("b"), nullptr);
}

TEST_F(Checkpoint, AFolderOfNoneOrSeveralIsRefused) {
  tests::expect_error(ErrorCode::io, {at(".").string(), "no model.safetensors", kIndex},
                      SafetensorsCheckpoint::open(at(".")));
  put(at("y.safetensors"), one_tensor("a"));
  put(at("x.safetensors"), one_tensor("a"));
  tests::expect_error(ErrorCode::io,
                      {at(".").string(), " 2 ", "'x.safetensors'", "'y.safetensors'", kIndex},
                      SafetensorsCheckpoint::open(at(".")));
}

TEST_F(Checkpoint, AnIndexJoinsItsShards) {
  put_shards();
  put(at("model.safetensors"), "not looked at");
  const auto opened = SafetensorsCheckpoint::open(at(""));
  ASSERT_TRUE(opened.ok()) << opened.error().what();
  ASSERT_EQ(opened->shards().size(), 2U);
  EXPECT_EQ(opened->shards()[1].name, "2.safetensors");
  ASSERT_NE(opened->find("b"), nullptr);
  std::byte first{};
  read_bytes(*opened->find("b"), 0, std::span(&first, 1));
  EXPECT_EQ(first, std::byte{'2'});
}

TEST_F(Checkpoint, RefusesAnIndexOfAnotherForm) {
  put_shards();
  expect_index_refused("{", {"line 1, column 2"});
  expect_index_refused("[]", {"object", "[]"});
  expect_index_refused("{}", {"missing key 'weight_map'"});
  expect_index_refused(R"({"weight_map":{}})", {"weight_map", "empty"});
  expect_index_refused(R"({"weight_map":[]})", {"weight_map", "[]"});
  expect_index_refused(R"({"metadata":1,"weight_map":{}})", {"metadata", " 1"});
  expect_index_refused(R"({"weight_map":{"a":"1.safetensors"},"weights":{}})", {"'weights'"});
  expect_index_refused(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})",
                       {"\"a\"", "twice"});
  expect_index_refused(R"({"metadata":)" + std::string(100, '['), {" 64 "});
}

TEST_F(Checkpoint, RefusesShardNamesThatAreNoPlainFileNames) {
  put_shards();
  for (const std::string_view name :
       {R"("")", R"(".")", R"("..")", R"("../1.safetensors")", R"("/1.safetensors")",
        R"("sub/1.safetensors")", R"("sub\\1.safetensors")", "7", "null"}) {
    expect_index_refused(message(R"({"weight_map":{"a":)", name, "}}"), {"'a'", name});
  }
}

TEST_F(Checkpoint, RefusesShardsThatTheIndexDoesNotDescribe) {
  put_shards();
  const std::string_view both = R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})";
  expect_index_refused(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors",)"
                       R"("c":"2.safetensors"}})",
                       {"'c' is missing from '2.safetensors'"});
  expect_index_refused(R"({"weight_map":{"a":"2.safetensors","b":"2.safetensors"}})",
                       {"'a' is missing from '2.safetensors'"});
  put(at("2.safetensors"), one_tensor("a"));
  expect_index_refused(both, {"'a' of '2.safetensors'", "in '1.safetensors'"});
  put(at("2.safetensors"), one_tensor("extra"));
  expect_index_refused(both, {"'extra' of '2.safetensors'", "missing from the index"});
}

TEST_F(Checkpoint, RefusesAShardThatIsMissingOrDamaged) {
  put_shards();
  put(at("2.safetensors"), "short");
  tests::expect_error(ErrorCode::io, {at("2.safetensors").string(), "truncated", " 8 ", " 5"},
                      SafetensorsCheckpoint::open(at("")));
  fs::remove(at("2.safetensors"));
  tests::expect_error(ErrorCode::io, {at("2.safetensors").string(), "no such file or directory"},
                      SafetensorsCheckpoint::open(at("")));
}

}  // namespace
}  // namespace phasor::io
