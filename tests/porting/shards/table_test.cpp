// The calculated tables of docs/scale.md and docs/scale.zh.md are those of the planner.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "phasor/core/error.hpp"
#include "phasor/porting/shard_plan.hpp"
#include "support/documents.hpp"

namespace phasor::porting {
namespace {

// Sizes of Llama 3.1 8B.
constexpr const char* kLlama =
    R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "max_position_embeddings": 131072, "rope_theta": 500000.0})";
// The largest bf16 rate of an A100, for which papers give their figures.
constexpr double kA100Gflops = 312e3;

std::string formatted(const char* form, double value) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, form, value);
  return buffer;
}
std::string gib(double bytes) { return formatted("%.3g", bytes / (1024.0 * 1024 * 1024)); }
std::string seconds(double value) { return formatted(value < 1000.0 ? "%.3g" : "%.0f", value); }

std::string rows(double gflops) {
  const ReadableConfig config = parse_readable_config(kLlama).value_or_throw();
  std::string table;
  for (const int ranks : {8, 64, 256, 1024}) {
    for (const std::int64_t millions : {1, 10}) {
      for (const double bandwidth : {100.0, 400.0}) {
        ShardPlanOptions options;
        options.ranks = ranks;
        options.tokens = millions << 20;
        options.bandwidth = bandwidth;
        options.gflops = gflops;
        const ShardPlan plan = shard_plan(config, options).value_or_throw();
        const ShardStrategy* best = nullptr;
        const ShardStrategy& ring = plan.strategies.front();  // ring zigzag
        for (const ShardStrategy& one : plan.strategies) {
          if (one.name == plan.recommended) best = &one;
        }
        const auto total = [](const ShardStrategy& one) {
          return one.forward_seconds + one.backward_seconds;
        };
        table += message("| ", ranks, " | ", millions, "M | ", bandwidth, " | ", best->name, " | ",
                         gib(best->forward_bytes), " | ", gib(best->attention_bytes), " | ",
                         gib(best->cache_bytes), " | ",
                         seconds(best->compute_seconds + best->compute_backward_seconds), " | ",
                         seconds(best->transfer_seconds + best->transfer_backward_seconds), " | ",
                         seconds(total(*best)), " | ", seconds(total(ring)), " |\n");
      }
    }
  }
  return table;
}

TEST(ScaleTable, TheDocumentsShowIt) {
  const std::string cores = rows(kRankGflops), accelerators = rows(kA100Gflops);
  for (const auto& [page, header] :
       {std::pair("scale.md",
                  "| ranks | tokens | Gb/s | take | sent, GiB | attention, GiB | KV cache, GiB | "
                  "compute, s | transfer, s | total, s | ring zigzag, s |\n"),
        std::pair(
            "scale.zh.md",
            "| 进程数 | 词元 | Gb/s | 采用 | 发送，GiB | 注意力，GiB | 键值缓存，GiB | 计算，秒 | "
            "传输，秒 | 合计，秒 | 锯齿环，秒 |\n")}) {
    const std::string top =
        std::string(header) + "|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|\n";
    const std::filesystem::path path = std::filesystem::path(PHASOR_DOCS_DIR) / page;
    tests::expect_in_document(path, "calculated on cores", top + cores);
    tests::expect_in_document(path, "calculated on accelerators", top + accelerators);
  }
}

}  // namespace
}  // namespace phasor::porting
