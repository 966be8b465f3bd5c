#include "ranks.hpp"

namespace phasor::tools {
namespace {

RankContext* g_ranks = nullptr;

}  // namespace

RankContext* ranks() noexcept { return g_ranks; }
void set_ranks(RankContext* context) noexcept { g_ranks = context; }
models::ContextShare* shared_context() noexcept {
  return g_ranks == nullptr ? nullptr : &g_ranks->context();
}
bool is_first_rank() noexcept { return g_ranks == nullptr || g_ranks->rank() == 0; }

}  // namespace phasor::tools
