// phasor inspect: what a checkpoint file holds.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "phasor/io/tensors.hpp"
#include "support/gguf_writer.hpp"
#include "tools/run_phasor.hpp"

namespace phasor::tools::testing {
namespace {

using json = io::Json;

class InspectCommand : public Phasor {
 protected:
  static std::string golden() {
    return std::string(PHASOR_GOLDEN_DIR) + "/models/llama_gqa_llama3/model";
  }
};

TEST_F(InspectCommand, SafetensorsFolderAndFile) {
  for (const std::string& path : {golden(), golden() + "/model.safetensors"}) {
    const Outcome outcome = run({"inspect", path, "--json"});
    ASSERT_EQ(outcome.exit, 0) << outcome.err;
    const json page = json::parse(outcome.out);
    EXPECT_EQ(page.at("format"), "safetensors");
    const auto file = io::SafetensorsFile::open(golden() + "/model.safetensors").value_or_throw();
    ASSERT_EQ(page.at("tensors").size(), file.tensors().size());
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < file.tensors().size(); ++i) {
      const io::Tensor& tensor = file.tensors()[i];
      EXPECT_EQ(page.at("tensors").at(i).at("name"), tensor.name);
      EXPECT_EQ(page.at("tensors").at(i).at("type"), std::string(io::name_of(tensor.type)));
      EXPECT_EQ(page.at("tensors").at(i).at("shape"), tensor.shape);
      EXPECT_EQ(page.at("tensors").at(i).at("file"), "model.safetensors");
      bytes += tensor.byte_size();
    }
    EXPECT_EQ(page.at("bytes"), bytes);
  }
}

TEST_F(InspectCommand, ArraysOfNumpyAndTorch) {
  const std::string folder = std::string(PHASOR_IO_DATA_DIR) + "/arrays/";
  const json npz = json::parse(run({"inspect", folder + "arrays.npz", "--json"}).out);
  EXPECT_EQ(npz.at("format"), "npz");
  ASSERT_EQ(npz.at("tensors").size(), 8U);
  EXPECT_EQ(npz.at("tensors").at(0),
            (json{{"name", "q"}, {"type", "float32"}, {"shape", {2, 3, 4}}, {"bytes", 96}}));

  const json torch = json::parse(run({"inspect", folder + "nested.pt", "--json"}).out);
  EXPECT_EQ(torch.at("format"), "torch");
  EXPECT_EQ(torch.at("tensors").size(), 11U);
  EXPECT_EQ(torch.at("tensors").at(3).at("name"), "layers.1.k");
  EXPECT_EQ(torch.at("tensors").at(3).at("type"), "bfloat16");
  EXPECT_EQ(torch.at("unsupported").at(0).at("type"), "float8_e4m3fn");

  const std::string npy = put_array<float>("X.npy", io::NpyType::f32, {2, 1}, {1.0F, 2.0F});
  const json one = json::parse(run({"inspect", npy, "--json"}).out);
  EXPECT_EQ(one.at("format"), "npy");
  EXPECT_EQ(one.at("tensors").at(0).at("shape"), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(run({"inspect", npy}).exit, 0);
  expect_refusal(run({"inspect", folder + "code.pt"}), "inspect", {"code.pt", "system"});
}

TEST_F(InspectCommand, PageListsEveryTensor) {
  const Outcome outcome = run({"inspect", golden()});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  for (const char* text : {"safetensors", "model.embed_tokens.weight", "f32", "[97, 64]"})
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << "\n" << outcome.out;
}

TEST_F(InspectCommand, AFilterSelectsNames) {
  const json page = json::parse(run({"inspect", golden(), "--json", "--filter", "*embed*"}).out);
  ASSERT_EQ(page.at("tensors").size(), 1U);
  EXPECT_EQ(page.at("tensors").at(0).at("name"), "model.embed_tokens.weight");
  EXPECT_EQ(page.at("bytes"), page.at("tensors").at(0).at("bytes"));
  expect_refusal(run({"inspect", golden(), "--filter", "model.embed_tokens.wieght"}), "inspect",
                 {"model.embed_tokens.wieght", "\"model.embed_tokens.weight\""});
}

TEST_F(InspectCommand, LongValuesAreCutUnlessAllIsAskedFor) {
  io::testing::GgufWriter gguf;
  gguf.text("general.architecture", "llama").text("general.description", std::string(1000, 'x'));
  const std::string path = put_text("long.gguf", gguf.bytes()), all(1000, 'x');
  EXPECT_EQ(run({"inspect", path}).out.find(all), std::string::npos);
  EXPECT_NE(run({"inspect", path, "--full"}).out.find(all), std::string::npos);
}

TEST_F(InspectCommand, GgufMetadata) {
  io::testing::GgufWriter gguf;
  gguf.text("general.architecture", "llama")
      .text("tokenizer.chat_template", std::string(1000, 'x') + "\n\x1b[31m")
      .number<std::uint32_t>("llama.block_count", 3);
  const std::string path = put_text("model.gguf", gguf.bytes());
  const json page = json::parse(run({"inspect", path, "--json"}).out);
  EXPECT_EQ(page.at("metadata").at("llama.block_count"), 3);
  EXPECT_EQ(page.at("metadata").at("general.architecture"), "llama");
  EXPECT_EQ(page.at("metadata").at("tokenizer.chat_template").get<std::string>().size(), 1006u);
  const Outcome outcome = run({"inspect", path});
  ASSERT_EQ(outcome.exit, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("llama.block_count"), std::string::npos);
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);  // nothing that a terminal would obey
  EXPECT_LT(outcome.out.size(), 600u) << "long values are cut";
}

TEST_F(InspectCommand, Refusals) {
  expect_refusal(run({"inspect"}), "inspect", "model");
  expect_refusal(run({"inspect", file("absent.gguf")}), "inspect", "absent.gguf");
  expect_refusal(run({"inspect", put_text("cut.gguf", "GGUF\x03")}), "inspect", "cut.gguf");
  expect_refusal(run({"inspect", put_text("notes.txt", "hello")}), "inspect", "notes.txt");
  expect_refusal(run({"inspect", put_text("x.safetensors", "12345678")}), "inspect",
                 "x.safetensors");
}

}  // namespace
}  // namespace phasor::tools::testing
