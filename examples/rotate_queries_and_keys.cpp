// The shortest use: rotate queries and keys in place; a score depends only on m - n.
#include <cmath>
#include <cstdio>
#include <vector>

#include "phasor/rope.hpp"

namespace {

// The score of one query head and one key head at two positions.
double score(const phasor::Rotary& rope, std::int64_t query_position, std::int64_t key_position) {
  std::vector<float> q(8, 0.5F);
  std::vector<float> k{0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F, 0.7F, 0.8F};
  phasor::rotate(rope, phasor::positions_from(query_position),
                 phasor::heads_view(q.data(), 1, 1, 1, 8));
  phasor::rotate(rope, phasor::positions_from(key_position),
                 phasor::heads_view(k.data(), 1, 1, 1, 8));
  double sum = 0.0;
  for (std::size_t i = 0; i < q.size(); ++i) sum += double{q[i]} * double{k[i]};
  return sum;
}

}  // namespace

int main() {
  // [batch, tokens, heads, head_dim]: 32 query heads share 8 key heads.
  constexpr std::int64_t kBatch = 1, kTokens = 16, kQueryHeads = 32, kKeyHeads = 8, kHeadDim = 128;
  std::vector<float> q(kBatch * kTokens * kQueryHeads * kHeadDim, 1.0F);
  std::vector<float> k(kBatch * kTokens * kKeyHeads * kHeadDim, 1.0F);

  phasor::RopeSpec spec{.head_dim = kHeadDim,
                        .rotary_dim = kHeadDim,
                        .base = 500000.0,
                        .layout = phasor::PairLayout::half};
  const phasor::Rotary rope = phasor::resolve(spec);
  phasor::rotate_qk(rope, phasor::positions_from(0),  // positions 0, 1, 2, ...
                    phasor::heads_view(q.data(), kBatch, kTokens, kQueryHeads, kHeadDim),
                    phasor::heads_view(k.data(), kBatch, kTokens, kKeyHeads, kHeadDim));
  std::printf("q[token 1, head 0, feature 0] = %.6f, cos 1 - sin 1 = %.6f\n",
              double{q[kQueryHeads * kHeadDim]}, std::cos(1.0) - std::sin(1.0));

  spec.head_dim = spec.rotary_dim = 8;
  const phasor::Rotary small = phasor::resolve(spec);
  const double near = score(small, 7, 3);
  const double far = score(small, 100007, 100003);
  std::printf("score at positions (7, 3): %.6f, at (100007, 100003): %.6f\n", near, far);
  return std::abs(near - far) < 1e-6 ? 0 : 1;
}
