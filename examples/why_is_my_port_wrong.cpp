// A port that rotates the wrong pairs with the wrong base. check_config() finds both from the
// numbers before and after the rotation.
#include <cstdio>
#include <random>
#include <string_view>

#include "phasor/porting/diagnose.hpp"
#include "phasor/rope.hpp"

namespace {

constexpr std::string_view kConfig = R"({"model_type": "llama", "hidden_size": 256,
  "num_attention_heads": 4, "max_position_embeddings": 8192, "rope_theta": 500000.0})";

}  // namespace

int main() {
  constexpr std::int64_t kTokens = 24, kHeads = 4, kHeadDim = 64;
  phasor::io::NpyArray before =
      phasor::io::make_npy(phasor::io::NpyType::f32, {kTokens, kHeads, kHeadDim});
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < before.size(); ++i) before.as<float>()[i] = normal(random);

  // The port: layout interleaved instead of half, base 10000 instead of 500000.
  phasor::io::NpyArray after = before;
  const phasor::Rotary port = phasor::resolve(
      {.head_dim = kHeadDim, .rotary_dim = kHeadDim, .layout = phasor::PairLayout::interleaved});
  phasor::rotate(port, phasor::positions_from(0),
                 phasor::heads_view(after.as<float>(), 1, kTokens, kHeads, kHeadDim));

  const phasor::ModelConfig config = phasor::parse_config(kConfig).value_or_throw();
  const phasor::RopeSpec asked = *phasor::select_layer(config, "").value_or_throw().rope;
  phasor::porting::DiagnoseInput input;
  input.before = &before;
  input.after = &after;
  const phasor::porting::ConfigCheck check = phasor::porting::check_config(input, asked);
  std::printf("%s\n", check.text.c_str());
  return check.agrees ? 1 : 0;
}
