#include <phasor/phasor.hpp>

#include <cstdio>
#include <vector>

int main() {
  const phasor::RopeSpec spec{.head_dim = 64, .rotary_dim = 64, .layout = phasor::PairLayout::half};
  std::vector<float> q(64, 1.0F);
  phasor::rotate(phasor::resolve(spec), phasor::positions_from(1),
                 phasor::heads_view(q.data(), 1, 1, 1, 64));
  std::printf("consumer: %.6f\n", double{q[0]});  // cos 1 - sin 1
  return q[0] < -0.3011F && q[0] > -0.3012F ? 0 : 1;
}
