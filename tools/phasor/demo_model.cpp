#include "demo_model.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/models/decoder.hpp"
#include "text_files.hpp"

namespace phasor::tools {
namespace {

// One layer, so that a dropped token leaves no trace in the keys and values of the others.
constexpr std::string_view kConfig = R"({
  "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64, "rms_norm_eps": 1e-5,
  "max_position_embeddings": 128, "rope_theta": 10000.0, "hidden_act": "silu",
  "tie_word_embeddings": true
})";

class Folder {
 public:
  Folder() {
    std::string pattern =
        (io::as_folder(std::filesystem::temp_directory_path()) / "phasor-demo-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      refuse(ErrorCode::io,
             message("cannot create the folder ", pattern, ": ", std::strerror(errno)));
    path_ = pattern;
  }
  // Not by std::filesystem::remove_all(), which ends the program if memory runs out.
  ~Folder() {
    if (DIR* const folder = ::opendir(path_.c_str())) {
      while (const dirent* const entry = ::readdir(folder)) {
        ::unlinkat(::dirfd(folder), static_cast<const char*>(entry->d_name), 0);
      }
      ::closedir(folder);
    }
    ::rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_tiny_model(const std::filesystem::path& folder) {
  struct Named {
    std::string name;
    std::vector<std::int64_t> shape;
  };
  const std::string layer = "model.layers.0.";
  const std::vector<Named> all = {{"model.embed_tokens.weight", {64, 64}},
                                  {"model.norm.weight", {64}},
                                  {layer + "input_layernorm.weight", {64}},
                                  {layer + "post_attention_layernorm.weight", {64}},
                                  {layer + "self_attn.q_proj.weight", {64, 64}},
                                  {layer + "self_attn.k_proj.weight", {32, 64}},
                                  {layer + "self_attn.v_proj.weight", {32, 64}},
                                  {layer + "self_attn.o_proj.weight", {64, 64}},
                                  {layer + "mlp.gate_proj.weight", {96, 64}},
                                  {layer + "mlp.up_proj.weight", {96, 64}},
                                  {layer + "mlp.down_proj.weight", {64, 96}}};
  std::vector<std::vector<float>> values;
  std::vector<io::Tensor> tensors;
  double phase = 0.0;
  for (const Named& named : all) {
    io::Tensor tensor;
    tensor.name = named.name;
    tensor.shape = named.shape;
    std::vector<float>& floats = values.emplace_back(static_cast<std::size_t>(tensor.size()), 1.0F);
    if (named.shape.size() == 2) {
      for (float& value : floats) value = static_cast<float>(0.3 * std::sin(phase += 12.9898));
    }
    tensors.push_back(std::move(tensor));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    tensors[i].bytes = std::as_bytes(std::span(values[i]));
  (void)io::write_safetensors(folder / "model.safetensors", tensors).value_or_throw();
  write_text(folder / "config.json", kConfig);
}

std::vector<float> last_logits(models::Decoder& model, models::Sequence& sequence,
                               std::span<const std::int64_t> ids) {
  const models::Step step{&sequence, ids};
  return model.forward({&step, 1}).logits;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

}  // namespace

TinyModelCheck check_tiny_model() {
  const Folder folder;
  write_tiny_model(folder.path());
  models::Decoder model = models::Decoder::load(folder.path(), {.threads = 1}).value_or_throw();

  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 32; ++i) ids.push_back(i * 29 % 64);
  models::Sequence at_once = model.sequence({.capacity = 32});
  const std::vector<float> expected = last_logits(model, at_once, ids);

  models::Sequence one_by_one = model.sequence({.capacity = 32});
  std::vector<float> streamed;
  for (const std::int64_t& id : ids) streamed = last_logits(model, one_by_one, {&id, 1});

  // 40 other tokens first, then dropped: the rest moves to the positions of `ids`.
  models::Sequence shifted = model.sequence({.capacity = 72});
  const std::vector<std::int64_t> others(40, 7);
  (void)last_logits(model, shifted, others);
  (void)last_logits(model, shifted, std::span(ids).first(31));
  shifted.shift(0, 40);
  const std::vector<float> moved = last_logits(model, shifted, std::span(ids).last(1));

  TinyModelCheck check;
  check.one_by_one = largest_difference(expected, streamed);
  check.shifted = largest_difference(expected, moved);
  for (const float logit : expected)
    check.largest_logit = std::max(check.largest_logit, std::abs(static_cast<double>(logit)));
  return check;
}

}  // namespace phasor::tools
