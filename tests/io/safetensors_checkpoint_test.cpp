#include <gtest/gtest.h>

#include <string>

#include "io/safetensors_text.hpp"
#include "phasor/io/safetensors.hpp"
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
  // The message behind "FOLDER/INDEX: ", or "" when the folder opens.
  [[nodiscard]] std::string index_refusal(std::string_view text) const {
    put_index(text);
    const auto opened = SafetensorsCheckpoint::open(at(""));
    if (opened.ok()) return "";
    const std::string error = opened.error().what();
    const std::string front = at(kIndex).string() + ": ";
    EXPECT_TRUE(error.starts_with(front)) << error;
    return error.substr(std::min(front.size(), error.size()));
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
  const std::string must =
      ": must hold model.safetensors.index.json, model.safetensors or one .safetensors file, got ";
  auto opened = SafetensorsCheckpoint::open(at("."));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().what(), at(".").string() + must + "none of them");
  put(at("y.safetensors"), one_tensor("a"));
  put(at("x.safetensors"), one_tensor("a"));
  opened = SafetensorsCheckpoint::open(at("."));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().what(),
            at(".").string() + must + "2 ('x.safetensors', 'y.safetensors')");
}

TEST_F(Checkpoint, AnIndexJoinsItsShards) {
  put_shards();
  put(at("model.safetensors"), "not looked at");
  const auto opened = SafetensorsCheckpoint::open(at(""));
  ASSERT_TRUE(opened.ok()) << opened.error().what();
  ASSERT_EQ(opened->shards().size(), 2U);
  EXPECT_EQ(opened->shards()[1].name, "2.safetensors");
  ASSERT_NE(opened->find("b"), nullptr);
  EXPECT_EQ(std::to_integer<char>(opened->find("b")->bytes.front()), '2');
}

TEST_F(Checkpoint, RefusesAnIndexOfAnotherForm) {
  put_shards();
  EXPECT_EQ(index_refusal("{"), "expected JSON, got something else at line 1, column 2");
  EXPECT_EQ(index_refusal("[]"), "expected a JSON object, got []");
  EXPECT_EQ(index_refusal("{}"), "an index must have weight_map, got none");
  EXPECT_EQ(index_refusal(R"({"weight_map":{}})"), "weight_map must name a tensor, got none");
  EXPECT_EQ(index_refusal(R"({"weight_map":[]})"),
            "weight_map must be an object of file names, got []");
  EXPECT_EQ(index_refusal(R"({"metadata":1,"weight_map":{}})"),
            "metadata must be an object, got 1");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"1.safetensors"},"weights":{}})"),
            "an index must have the keys weight_map and metadata, got 'weights'");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})"),
            "a: a key must appear once in an object, got it twice");
  EXPECT_EQ(index_refusal(R"({"metadata":)" + std::string(100, '[')),
            "JSON must be nested at most 64 deep, got more");
}

TEST_F(Checkpoint, RefusesShardNamesThatAreNoPlainFileNames) {
  put_shards();
  for (const std::string_view name :
       {R"("")", R"(".")", R"("..")", R"("../1.safetensors")", R"("/1.safetensors")",
        R"("sub/1.safetensors")", R"("sub\\1.safetensors")", "7", "null"}) {
    EXPECT_EQ(
        index_refusal(message(R"({"weight_map":{"a":)", name, "}}")),
        message("weight_map: tensor 'a' must have the name of a file in the same folder, got ",
                name));
  }
}

TEST_F(Checkpoint, RefusesShardsThatTheIndexDoesNotDescribe) {
  put_shards();
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors",)"
                          R"("c":"2.safetensors"}})"),
            "tensor 'c' must be in '2.safetensors', got a file without it");
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"2.safetensors","b":"2.safetensors"}})"),
            "tensor 'a' must be in '2.safetensors', got a file without it");
  put(at("2.safetensors"), one_tensor("a"));
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})"),
            "tensor 'a' must be in '1.safetensors' alone, got it in '2.safetensors'");
  put(at("2.safetensors"), one_tensor("extra"));
  EXPECT_EQ(index_refusal(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})"),
            "tensor 'extra' of '2.safetensors' must be named, got nothing");
}

TEST_F(Checkpoint, RefusesAShardThatIsMissingOrDamaged) {
  put_shards();
  put(at("2.safetensors"), "short");
  auto opened = SafetensorsCheckpoint::open(at(""));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().what(), at("2.safetensors").string() +
                                       ": a safetensors file must have at least 8 bytes, got 5");
  fs::remove(at("2.safetensors"));
  opened = SafetensorsCheckpoint::open(at(""));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().what(),
            at("2.safetensors").string() + ": must be readable, got \"No such file or directory\"");
}

}  // namespace
}  // namespace phasor::io
