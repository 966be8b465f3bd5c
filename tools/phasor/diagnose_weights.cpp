#include "diagnose_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "commands.hpp"
#include "phasor/porting/diagnose.hpp"

namespace phasor::tools {
namespace {

// Never rounded up to 1.
std::string confidence_text(double confidence) {
  return confidence > 0.9999 ? "above 0.9999" : fmt::format("{:.4f}", confidence);
}

void print_verdict(const porting::WeightOrder& order) {
  if (!order.tells) {
    fmt::print("order: cannot tell (confidence {})\n", confidence_text(order.confidence));
    fmt::print("  {}\n", order.reason);
    return;
  }
  const porting::OrderCandidate& best = order.candidates.front();
  fmt::print("order: {} (confidence {})\n", best.text, confidence_text(order.confidence));
  fmt::print("  {}\n", order.reason);
  if (!best.consistent()) {
    fmt::print("  q and k have different orders: no engine can read these weights unchanged\n");
  } else if (!order.config_layout) {
    fmt::print("  the config does not state the layout\n");
  } else if (*order.config_layout == best.queries) {
    fmt::print("  the config rotates {} pairs: weights and config agree\n",
               core::name_of(*order.config_layout));
  } else {
    fmt::print("  the config rotates {} pairs: weights and config DISAGREE\n",
               core::name_of(*order.config_layout));
  }
}

void print_text(const porting::WeightOrder& order) {
  print_verdict(order);
  fmt::print("from {} layers of {} query and {} key heads\n\n", order.layers.size(), order.heads,
             order.key_heads);
  std::size_t width = 5;
  for (const porting::OrderCandidate& candidate : order.candidates) {
    width = std::max(width, candidate.text.size());
  }
  fmt::print("{:<{}}  antisymmetry  determinant  standard errors below best\n", "order", width);
  for (const porting::OrderCandidate& candidate : order.candidates) {
    fmt::print("{:<{}}  {:>+12.4f}  {:>+11.4f}  {:>26.1f}\n", candidate.text, width,
               candidate.antisymmetry, candidate.determinant, candidate.below_best);
  }
}

}  // namespace

int run_diagnose_weights(const std::string& path, WeightsPage page) {
  const porting::WeightOrder order = porting::infer_weight_order(path).value_or_throw();
  if (page == WeightsPage::json) {
    fmt::print("{}\n", porting::weight_order_json(order));
  } else {
    print_text(order);
  }
  return exit_code::done;
}

}  // namespace phasor::tools
