#include "faults/inputs.hpp"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "faults/sweep.hpp"
#include "phasor/io/npy.hpp"
#include "support/gguf_writer.hpp"

namespace phasor::faults {
namespace {

namespace fs = std::filesystem;
using io::testing::GgufWriter;

void put(const fs::path& path, std::string_view bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

template <class T>
void put_array(const fs::path& path, io::NpyType type, std::vector<std::int64_t> shape,
               const std::function<T(std::size_t)>& value) {
  io::NpyArray array = io::make_npy(type, std::move(shape));
  const auto count = static_cast<std::size_t>(array.size());
  for (std::size_t i = 0; i < count; ++i) array.as<T>()[i] = value(i);
  (void)io::write_npy(path, array).value_or_throw();
}

void put_arrays(const fs::path& folder) {
  const auto wave = [](std::size_t i) { return std::sin(0.7F * static_cast<float>(i)); };
  put_array<float>(folder / "X.npy", io::NpyType::f32, {3, 2, 8}, wave);
  put_array<float>(folder / "large.npy", io::NpyType::f32, {1, 4096, 8, 8}, wave);
  put_array<float>(folder / "Q.npy", io::NpyType::f32, {1, 3, 2, 4}, wave);
  put_array<float>(folder / "Q64.npy", io::NpyType::f32, {2, 64, 2, 4}, wave);
  put_array<float>(folder / "T.npy", io::NpyType::f32, {2, 6, 4}, wave);
  put_array<std::int64_t>(folder / "P.npy", io::NpyType::i64, {4096},
                          [](std::size_t i) { return static_cast<std::int64_t>(2 * i); });
  put_array<std::int64_t>(folder / "ids.npy", io::NpyType::i64, {40},
                          [](std::size_t i) { return static_cast<std::int64_t>(i * 31 % 97); });
}

void put_tokenizers(const fs::path& folder) {
  put(folder / "words/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nfox\n##es\nquick\n");
  put(folder / "bytes/tokenizer.json", R"({"version": "1.0", "normalizer": null,
    "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  for (const char* name : {"unigram", "bpe"}) {
    put(folder / name / "tokenizer.model",
        contents_of(fs::path(PHASOR_TEXT_DATA_DIR) / (std::string(name) + ".model")));
  }
}

void copy_model(const char* golden, const fs::path& to) {
  const fs::path from = fs::path(PHASOR_GOLDEN_DIR) / "models" / golden / "model";
  for (const char* part : {"config.json", "model.safetensors"})
    put(to / part, contents_of(from / part));
}

// One layer of 32 features, all weights Q8_0: blocks of a 16-bit scale and 32 bytes.
std::string quantised_model() {
  constexpr std::uint32_t kF32 = 0, kQ8 = 8;
  constexpr std::uint64_t kWidth = 32;
  const auto matrix = [](std::uint64_t rows) {
    std::string bytes;
    for (std::uint64_t row = 0; row < rows; ++row) {
      io::testing::append<std::uint16_t>(bytes, 0x2000);
      for (std::uint64_t i = 0; i < kWidth; ++i)
        bytes.push_back(static_cast<char>((row * 7 + i * 13) % 251));
    }
    return bytes;
  };
  std::string ones;
  for (std::uint64_t i = 0; i < kWidth; ++i) io::testing::append(ones, 1.0F);
  GgufWriter writer;
  writer.text("general.architecture", "llama")
      .number<std::uint32_t>("llama.block_count", 1)
      .number<std::uint32_t>("llama.context_length", 128)
      .number<std::uint32_t>("llama.embedding_length", kWidth)
      .number<std::uint32_t>("llama.feed_forward_length", kWidth)
      .number<std::uint32_t>("llama.attention.head_count", 2)
      .number<float>("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.tensor("token_embd.weight", kQ8, {kWidth, 48}, matrix(48));
  writer.tensor("output.weight", kQ8, {kWidth, 48}, matrix(48));
  for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"})
    writer.tensor(std::string(name) + ".weight", kF32, {kWidth}, ones);
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    writer.tensor("blk.0." + std::string(name) + ".weight", kQ8, {kWidth, kWidth}, matrix(kWidth));
  }
  return writer.bytes();
}

void make_inputs(const fs::path& folder) {
  std::string text;
  for (int line = 0; line < 40; ++line) text += "the cat and the hat\n";
  put(folder / "text.txt", text);
  put(folder / "experiment.json", R"({"name": "tiny", "task": "causal_lm",
    "data": {"corpus": ")" + (folder / "text.txt").string() +
                                      R"("}, "tokenizer": {"kind": "bytes"},
    "model": {"hidden": 8, "layers": 1, "heads": 2, "intermediate": 8},
    "training": {"steps": 2, "batch": 2, "context": 8},
    "evaluation": {"batches": 1, "test_batches": 1, "contexts": [16], "tokens": 32}})");
  put(folder / "model.json",
      R"({"vocabulary": 16, "hidden": 8, "layers": 1, "heads": 2, "intermediate": 8})");
  put(folder / "four.json", R"({"head_dim": 4, "layout": "half"})");
  put(folder / "spec.json",
      R"({"head_dim": 8, "base": 10000, "layout": "interleaved", "rotary_dim": 8})");
  put(folder / "t5.json", R"({"model_type": "t5", "num_heads": 8, "num_layers": 2})");
  put(folder / "yarn.json", R"({"model_type": "llama", "hidden_size": 64,
    "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 4096,
    "rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
    "original_max_position_embeddings": 1024}})");
  put_arrays(folder);
  put_tokenizers(folder);
  copy_model("llama_gqa_llama3", folder / "model");
  copy_model("roformer_mlm", folder / "roformer");
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncapital\nof\nfrance\nis\n.\n";
  for (int i = 11; i < 97; ++i) words += "w" + std::to_string(i) + "\n";
  put(folder / "roformer/vocab.txt", words);
  put(folder / "tiny.gguf", quantised_model());
  fs::copy(fs::path(PHASOR_EXAMPLES_DIR) / "encodings", folder / "encodings",
           fs::copy_options::recursive);
  // In C the number of tokens is not known when an encoding is parsed.
  std::string xlnet = contents_of(folder / "encodings/xlnet_segments.json");
  put(folder / "encodings/xlnet_segments.json",
      xlnet.insert(xlnet.find('{') + 1, R"("first_distance": 3,)"));
}

}  // namespace

Inputs::Inputs() {
  std::string pattern = (fs::temp_directory_path() / "phasor-faults-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  folder_ = pattern;
  const Run made = run_in_child(
      [&] {
        make_inputs(folder_);
        return 0;
      },
      {});
  if (made.code != 0) throw std::runtime_error("the inputs cannot be made: " + made.err);
}

Inputs::~Inputs() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string contents_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::map<std::string, std::string> contents_below(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = contents_of(entry.path());
  }
  return files;
}

}  // namespace phasor::faults
