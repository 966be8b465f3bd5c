#include "diagnose_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "commands.hpp"
#include "output.hpp"
#include "phasor/porting/diagnose.hpp"

namespace phasor::tools {
namespace {

// Never rounded up to 1.
std::string confidence_text(double confidence) {
  return confidence > 0.9999 ? "above 0.9999" : fmt::format("{:.4f}", confidence);
}

void print_verdict(const porting::WeightOrder& order) {
  if (!order.tells) {
    print_out("order: cannot tell (confidence {})\n", confidence_text(order.confidence));
    print_out("  {}\n", order.reason);
    return;
  }
  const porting::OrderCandidate& best = order.candidates.front();
  print_out("order: {} (confidence {})\n", best.text, confidence_text(order.confidence));
  print_out("  {}\n", order.reason);
  if (!best.consistent()) {
    print_out("  q and k have different orders: no engine can read these weights unchanged\n");
  } else if (!order.config_layout) {
    print_out("  the config does not state the layout\n");
  } else if (*order.config_layout == best.queries) {
    print_out("  the config rotates {} pairs: weights and config agree\n",
              core::name_of(*order.config_layout));
  } else {
    print_out("  the config rotates {} pairs: weights and config DISAGREE\n",
              core::name_of(*order.config_layout));
  }
}

void print_text(const porting::WeightOrder& order) {
  print_verdict(order);
  print_out("from {} layers of {} query and {} key heads\n\n", order.layers.size(), order.heads,
            order.key_heads);
  std::size_t width = 5;
  for (const porting::OrderCandidate& candidate : order.candidates) {
    width = std::max(width, candidate.text.size());
  }
  print_out("{:<{}}  antisymmetry  determinant  standard errors below best\n", "order", width);
  for (const porting::OrderCandidate& candidate : order.candidates) {
    print_out("{:<{}}  {:>+12.4f}  {:>+11.4f}  {:>26.1f}\n", candidate.text, width,
              candidate.antisymmetry, candidate.determinant, candidate.below_best);
  }
}

}  // namespace

int run_diagnose_weights(const std::string& path, WeightsPage page) {
  const porting::WeightOrder order = porting::infer_weight_order(path).value_or_throw();
  if (page == WeightsPage::json) {
    print_out("{}\n", porting::weight_order_json(order));
  } else {
    print_text(order);
  }
  return order.disagrees() ? exit_code::difference : exit_code::done;
}

}  // namespace phasor::tools
