#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "models/matrix/dispatch.hpp"
#include "models/matrix/packed.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/large_memory.hpp"
#include "phasor/core/internal/measured_choice.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/models/internal/gemm.hpp"

namespace phasor::models {
namespace {

using kernels::ActivationBlock;
using kernels::Kernels;
using kernels::kGroupRows;
using kernels::kSetColumns;
using kernels::kWalks;
using kernels::Results;
using kernels::StreamWalk;
using kernels::TileBlock;
using kernels::Weights;

// Up to this many tokens the weights are streamed; above, tiles or the GEMM library are faster.
constexpr std::int64_t kStreamExact = 24, kStreamFast = 4, kStreamFloats = 16;
static_assert(kStreamExact <= kernels::kMostStreamed && kStreamFast <= kernels::kMostStreamed);
constexpr float kSecondStep = 2.0F;
// Weights times tokens that are worth a thread. Less than core::kThreadBytes: weights come from
// memory, where 64 KiB take some five microseconds.
constexpr std::int64_t kWorthThread = std::int64_t{64} * 1024;
constexpr std::size_t kMostTileTokens = 16;
// Floats of a panel of dequantised rows, and its columns at most. The library is slow with panels of
// few rows and many columns: longer rows are multiplied in pieces, whose results are added.
constexpr std::int64_t kPanelFloats = std::int64_t{384} * 1024;
constexpr std::int64_t kPanelColumns = 768;
// Tokens of one call of the GEMM library, which cannot be cancelled: some 20 ms with such a panel.
constexpr std::int64_t kGemmTokens = 4096;
// Tokens of one call with float tiles: a second copy of them is written in the order of the tiles.
constexpr std::int64_t kFloatTokens = 768;
// Groups between two looks at the caller's cancellation, for many tokens without that library.
constexpr std::int64_t kGroupsPerLook = 8;

enum class Way : std::uint8_t { stream_exact, stream_fast, stream_floats, float_tile, gemm, tile };

// Which of kWalks to take through so many bytes of weights: prefetching helps on some CPUs and disturbs
// the own prefetching of others, so it is measured (ADR 22). Null: too few bytes to tell.
core::MeasuredChoice* walk_choice(core::InstructionSet isa, kernels::Format format,
                                  std::int64_t bytes, std::int64_t tokens) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 15;
  constexpr int kSizes = 8;
  constexpr int kFormats = static_cast<int>(kernels::Format::iq4_nl) + 1;
  if (bytes < kLeast) return nullptr;
  static core::MeasuredChoice choices[core::kChoiceLevels][kFormats][kSizes][2];
  return &choices[static_cast<int>(isa)][static_cast<int>(format)]
                 [core::size_class(bytes, kLeast, kSizes)][tokens == 1 ? 1 : 0];
}

static_assert(std::size(kWalks) <= core::MeasuredChoice::kMostWays);

bool is_plain(const Weights& weights) { return layout_of(weights.format).columns == 1; }

bool has_float_tiles(const Kernels& kernels) { return kernels.prefers_float_tiles || !has_gemm(); }

// One call of multiply(), after the checks.
class Call {
 public:
  Call(std::span<const Product> products, std::span<const Weights> weights, const float* x,
       std::int64_t tokens, std::int64_t columns, std::int64_t x_stride,
       const ComputeOptions& options)
      : products_(products),
        weights_(weights),
        x_(x),
        tokens_(tokens),
        columns_(columns),
        x_stride_(x_stride),
        options_(options),
        kernels_(kernels_for(options.isa)) {}

  void run() {
    for (const Weights& weights : weights_) bytes_ += weights.groups * weights.group_bytes;
    const int parts = wanted_parts();
    prepare(parts);
    if (floats_ != nullptr) {
      core::run_parts(
          parts,
          [](void* call, int part, int count) {
            static_cast<Call*>(call)->write_float_sets(part, count);
          },
          this);
    }
    core::run_parts(
        parts,
        [](void* call, int part, int count) { static_cast<Call*>(call)->run_part(part, count); },
        this);
    if (failed_) refuse(ErrorCode::internal, "multiply: the GEMM library failed");
  }

 private:
  [[nodiscard]] int wanted_parts() const {
    const int most = options_.threads == 0 ? core::available_threads() : options_.threads;
    const std::int64_t worth = std::max<std::int64_t>(1, bytes_ * tokens_ / kWorthThread);
    return static_cast<int>(std::min<std::int64_t>(most, worth));
  }

  [[nodiscard]] Way way_of(const Weights& weights) const {
    const Way floats = has_float_tiles(kernels_) ? Way::float_tile : Way::gemm;
    if (is_plain(weights)) return tokens_ <= kStreamFloats ? Way::stream_floats : floats;
    if (options_.precision == Precision::fast)
      return tokens_ <= kStreamFast ? Way::stream_fast : Way::tile;
    return tokens_ <= kStreamExact ? Way::stream_exact : floats;
  }

  // Prepares the activations for this call, and memory for each part.
  void prepare(int parts) {
    bool exact = false, fast = false, tile = false, floats = false;
    std::int64_t room = 0;
    for (const Weights& weights : weights_) {
      const Way way = way_of(weights);
      exact |= way == Way::stream_exact;
      fast |= way == Way::stream_fast;
      tile |= way == Way::tile;
      floats |= way == Way::float_tile;
      if (way == Way::gemm || way == Way::float_tile) {
        const std::int64_t groups =
            way == Way::gemm ? panel_groups(weights) : kernels_.panel_groups;
        room = std::max(room, groups * kGroupRows * panel_units(weights) *
                                  layout_of(weights.format).columns * std::int64_t{sizeof(float)});
      }
      if (way == Way::tile) room = std::max(room, 2 * kernels_.unpacked_bytes(weights));
    }
    // A call uses at most one of the three: weights with blocks agree on it.
    const std::int64_t block = exact  ? std::int64_t{sizeof(ActivationBlock<kernels::kExactSteps>)}
                               : fast ? std::int64_t{sizeof(ActivationBlock<kernels::kFastSteps>)}
                               : tile ? std::int64_t{sizeof(TileBlock)}
                                      : 0;
    const std::int64_t slots = tile ? rounded_up(tokens_, kernels_.tile_tokens) : tokens_;
    const std::int64_t row = columns_ / kernels::kBlock * block;  // of a token
    const std::int64_t activations = rounded_up(slots * row, 64);
    const std::int64_t set = kernels_.tile_tokens;
    const std::int64_t blocks = columns_ / kernels::kBlock;
    const std::int64_t second = tile ? rounded_up(slots * columns_, 64) : 0;
    const std::int64_t heavy =
        tile ? rounded_up(slots / set * (blocks + 1) * std::int64_t{sizeof(std::int32_t)}, 64) : 0;
    const std::int64_t sets =
        floats ? rounded_up(rounded_up(tokens_, kernels_.set_tokens) *
                                rounded_up(columns_, kSetColumns) * std::int64_t{sizeof(float)},
                            64)
               : 0;
    room_ = rounded_up(room, 64);
    codes_ = scratch_.at_least(
        static_cast<std::size_t>(activations + second + heavy + sets + parts * room_));
    tiles_ = {reinterpret_cast<TileBlock*>(codes_),
              reinterpret_cast<std::int8_t*>(codes_ + activations),
              reinterpret_cast<std::int32_t*>(codes_ + activations + second), blocks};
    rooms_ = codes_ + activations + second + heavy + sets;
    if (floats) floats_ = reinterpret_cast<float*>(rooms_ - sets);
    if (tile) {
      write_tiles(slots);
    } else if (block != 0) {
      write_streams(exact ? kernels_.write_exact : kernels_.write_fast, block);
    }
  }

  // A part's share of the sets of float tiles.
  void write_float_sets(int part, int parts) {
    const std::int64_t set = kernels_.set_tokens, sets = (tokens_ + set - 1) / set;
    const std::int64_t first = sets * part / parts * set;
    const std::int64_t end = std::min(sets * (part + 1) / parts * set, tokens_);
    if (first < end)
      kernels_.write_floats(x_ + first * x_stride_, x_stride_, end - first, columns_,
                            floats_ + first * rounded_up(columns_, kSetColumns));
  }

  void write_streams(decltype(Kernels::write_exact) write, std::int64_t block) {
    for (std::int64_t t = 0; t < tokens_; ++t)
      write(x_ + t * x_stride_, columns_ / kernels::kBlock, tokens_, codes_ + t * block);
  }

  // Sets of tile_tokens, the last filled up with zeros; then the second steps.
  void write_tiles(std::int64_t slots) {
    const std::int64_t set = kernels_.tile_tokens;
    const std::int64_t last = (slots - set) * tiles_.blocks;
    std::fill_n(tiles_.first + last, set * tiles_.blocks, TileBlock{});
    std::fill_n(tiles_.second + last * kernels::kBlock, set * columns_, std::int8_t{0});
    for (std::int64_t t = 0; t < tokens_; ++t) kernels_.write_tile(x_ + t * x_stride_, t, tiles_);
    for (std::int64_t first = 0; first < slots; first += set) write_second_steps(first);
  }

  // The error of one step is proportional to the scale of its block. If its square, in units of each
  // token's mean, exceeds kSecondStep over the set, the set uses the second step too.
  void write_second_steps(std::int64_t first) {
    const std::int64_t set = kernels_.tile_tokens;
    const TileBlock* const blocks = tiles_.first + first * tiles_.blocks;
    std::int32_t* const heavy = tiles_.heavy + first / set * (tiles_.blocks + 1);
    std::array<float, kMostTileTokens> units{};
    for (std::int64_t b = 0; b < tiles_.blocks; ++b) {
      for (std::int64_t t = 0; t < set; ++t) {
        const float scale = blocks[b * set + t].scale;
        units[static_cast<std::size_t>(t)] += scale * scale;
      }
    }
    const auto each = static_cast<float>(tiles_.blocks) / (kSecondStep * static_cast<float>(set));
    for (float& unit : units) unit = unit > 0.0F ? each / unit : 0.0F;
    heavy[0] = 0;
    for (std::int64_t b = 0; b < tiles_.blocks; ++b) {
      float sum = 0.0F;
      for (std::int64_t t = 0; t < set; ++t) {
        const float scale = blocks[b * set + t].scale;
        sum += scale * scale * units[static_cast<std::size_t>(t)];
      }
      if (!(sum > 1.0F)) continue;
      heavy[++heavy[0]] = static_cast<std::int32_t>(b);
      for (std::int64_t t = first; t < std::min(first + set, tokens_); ++t)
        kernels_.write_second(x_ + t * x_stride_, t, b, tiles_);
    }
  }

  // Units of a panel: the rows are divided into pieces of about the same length.
  [[nodiscard]] static std::int64_t panel_units(const Weights& weights) {
    const std::int64_t columns = weights.units * layout_of(weights.format).columns;
    const std::int64_t pieces = (columns + kPanelColumns - 1) / kPanelColumns;
    const std::int64_t units = (weights.units + pieces - 1) / pieces;
    const std::int64_t whole =
        is_plain(weights) ? kSetColumns : units_of_run(layout_of(weights.format));
    return std::min(rounded_up(units, whole), weights.units);
  }
  [[nodiscard]] static std::int64_t panel_groups(const Weights& weights) {
    const std::int64_t columns = panel_units(weights) * layout_of(weights.format).columns;
    return std::max<std::int64_t>(4, kPanelFloats / (columns * kGroupRows));
  }

  // Groups are distributed by their bytes, over all matrices of the call.
  void run_part(int part, int parts) {
    const std::int64_t from = bytes_ * part / parts, to = bytes_ * (part + 1) / parts;
    std::int64_t before = 0;
    for (std::size_t i = 0; i < products_.size(); ++i) {
      const Weights& weights = weights_[i];
      const auto group_at = [&](std::int64_t byte) {
        return std::clamp<std::int64_t>(
            (byte - before + weights.group_bytes - 1) / weights.group_bytes, 0, weights.groups);
      };
      const std::int64_t begin = from <= before ? 0 : group_at(from);
      const std::int64_t end = to <= before ? 0 : group_at(to);
      if (begin < end) run_groups(products_[i], weights, begin, end, rooms_ + part * room_);
      before += weights.groups * weights.group_bytes;
    }
  }

  [[nodiscard]] static Weights groups_of(const Weights& weights, std::int64_t begin,
                                         std::int64_t end) {
    Weights some = weights;
    some.data += begin * weights.group_bytes;
    some.groups = end - begin;
    return some;
  }
  // The same rows from unit `first` on, the first of a run.
  [[nodiscard]] static Weights units_of(const Weights& weights, std::int64_t first,
                                        std::int64_t count) {
    Weights some = weights;
    some.units = count;
    some.data += run_offset(layout_of(weights.format), first);
    return some;
  }
  [[nodiscard]] static Results results_of(const Product& product, std::int64_t rows,
                                          std::int64_t group, std::int64_t token) {
    const std::int64_t row = group * kGroupRows;
    return {product.out + token * product.out_stride + row, product.out_stride, rows - row,
            product.bias == nullptr ? nullptr : product.bias + row};
  }

  void run_groups(const Product& product, const Weights& weights, std::int64_t begin,
                  std::int64_t end, std::byte* room) {
    const std::int64_t rows = product.matrix->rows();
    const Way way = way_of(weights);
    if (way == Way::gemm) return run_gemm(product, weights, begin, end, room);
    if (way == Way::float_tile) return run_float_tiles(product, weights, begin, end, room);
    if (way == Way::tile) return run_tiles(product, weights, begin, end, room);
    const Weights some = groups_of(weights, begin, end);
    const Results results = results_of(product, rows, begin, 0);
    const std::int64_t bytes = some.groups * some.group_bytes;
    core::MeasuredChoice* const choice = walk_choice(options_.isa, weights.format, bytes, tokens_);
    const auto stream = [&](int number) {
      const StreamWalk walk = kWalks[number];
      if (way == Way::stream_floats)
        return kernels_.stream_floats(some, x_, tokens_, x_stride_, walk, results);
      (way == Way::stream_exact ? kernels_.stream_exact : kernels_.stream_fast)(
          some, codes_, tokens_, walk, results);
    };
    if (choice == nullptr) return stream(0);
    const int ways = tokens_ == 1 ? static_cast<int>(std::size(kWalks)) : kernels::kWalksOfOnePlace;
    choice->run(ways, static_cast<float>(bytes * tokens_), stream);
  }

  // A few rows at a time as floats, times all tokens.
  void run_float_tiles(const Product& product, const Weights& weights, std::int64_t begin,
                       std::int64_t end, std::byte* room) {
    const std::int64_t units = panel_units(weights), rows = product.matrix->rows();
    for (std::int64_t first = begin; first < end; first += kGroupsPerLook) {
      core::throw_if_cancelled();
      const Weights some = groups_of(weights, first, std::min(first + kGroupsPerLook, end));
      for (std::int64_t unit = 0; unit < weights.units; unit += units) {
        kernels_.float_tile(units_of(some, unit, std::min(units, weights.units - unit)),
                            {floats_, tokens_, rounded_up(columns_, kSetColumns),
                             unit * layout_of(weights.format).columns},
                            reinterpret_cast<float*>(room), results_of(product, rows, first, 0));
      }
    }
  }

  // Panels of rows as floats, times all tokens.
  void run_gemm(const Product& product, const Weights& weights, std::int64_t begin,
                std::int64_t end, std::byte* room) {
    const std::int64_t step = panel_groups(weights), units = panel_units(weights);
    for (std::int64_t first = begin; first < end; first += step) {
      const std::int64_t count = std::min(step, end - first);
      const Results results = results_of(product, product.matrix->rows(), first, 0);
      for (std::int64_t unit = 0; unit < weights.units; unit += units) {
        run_panel(groups_of(units_of(weights, unit, std::min(units, weights.units - unit)), first,
                            first + count),
                  unit * layout_of(weights.format).columns, results,
                  reinterpret_cast<float*>(room));
      }
      const std::int64_t rows = std::min(count * kGroupRows, results.rows);
      for (std::int64_t t = 0; t < tokens_ && results.bias != nullptr; ++t)
        kernels_.layer.add(results.out + t * results.stride, results.bias, rows);
    }
  }

  // `weights` begin at column `first`; the results of later columns are added to those before.
  void run_panel(const Weights& weights, std::int64_t first, const Results& results, float* panel) {
    const std::int64_t width = weights.groups * kGroupRows;
    const std::int64_t columns = weights.units * layout_of(weights.format).columns;
    for (std::int64_t g = 0; g < weights.groups; ++g)
      kernels_.dequantise(weights, g, panel + g * kGroupRows, width);
    for (std::int64_t t = 0; t < tokens_; t += kGemmTokens) {
      core::throw_if_cancelled();
      if (!gemm(std::min(kGemmTokens, tokens_ - t), std::min(width, results.rows), columns,
                {x_ + t * x_stride_ + first, x_stride_}, {panel, width},
                results.out + t * results.stride, results.stride,
                first == 0 ? Into::overwrite : Into::add, options_.isa)) {
        failed_ = true;
      }
    }
  }

  void run_tiles(const Product& product, const Weights& weights, std::int64_t begin,
                 std::int64_t end, std::byte* room) {
    const std::int64_t bytes = kernels_.unpacked_bytes(weights);
    for (std::int64_t first = begin; first < end; first += 2) {
      core::throw_if_cancelled();
      const std::int64_t count = std::min<std::int64_t>(2, end - first);
      for (std::int64_t g = 0; g < count; ++g)
        kernels_.unpack(weights, first + g, room + g * bytes);
      kernels_.tile(weights, room, count, tiles_, tokens_,
                    results_of(product, product.matrix->rows(), first, 0));
    }
  }

  std::span<const Product> products_;
  std::span<const Weights> weights_;
  const float* x_;
  std::int64_t tokens_, columns_, x_stride_;
  const ComputeOptions& options_;
  const Kernels& kernels_;
  std::int64_t bytes_ = 0;  // of all weights
  ThreadScratch scratch_;
  std::byte* codes_ = nullptr;
  float* floats_ = nullptr;  // sets of tokens for float tiles; null: none
  kernels::TileTokens tiles_{};
  std::byte* rooms_ = nullptr;
  std::int64_t room_ = 0;  // bytes of a part's
  std::atomic<bool> failed_ = false;
};

void check(const Product& product, std::int64_t columns, std::int64_t tokens) {
  if (product.matrix == nullptr || product.matrix->empty())
    refuse("multiply: the matrix of a product is missing");
  if (product.matrix->columns() != columns) {
    refuse(ErrorCode::shape_mismatch,
           message("multiply: matrices must have ", columns, " columns, as the first has, got ",
                   product.matrix->columns()));
  }
  if (tokens > 1 && product.out_stride < product.matrix->rows()) {
    refuse(ErrorCode::shape_mismatch,
           message("multiply: out_stride must be at least ", product.matrix->rows(), ", got ",
                   product.out_stride));
  }
}

}  // namespace

void multiply(std::span<const Product> products, const float* x, std::int64_t tokens,
              std::int64_t x_stride, const ComputeOptions& options) {
  if (tokens < 0)
    refuse(ErrorCode::shape_mismatch,
           message("multiply: tokens must not be negative, got ", tokens));
  if (products.empty()) return;
  const std::int64_t columns =
      products.front().matrix == nullptr ? 0 : products.front().matrix->columns();
  for (const Product& product : products) check(product, columns, tokens);
  if (tokens > 1 && x_stride < columns) {
    refuse(ErrorCode::shape_mismatch,
           message("multiply: x_stride must be at least ", columns, ", got ", x_stride));
  }
  if (tokens == 0) return;
  // A layer has a few products; more are computed in batches of kAtOnce.
  constexpr std::size_t kAtOnce = 8;
  // Pieces of about the same length, whole sets of every kind of tile.
  const std::int64_t pieces =
      has_float_tiles(kernels_for(options.isa)) ? (tokens + kFloatTokens - 1) / kFloatTokens : 1;
  const std::int64_t step = rounded_up((tokens + pieces - 1) / pieces, 48);
  for (std::size_t first = 0; first < products.size(); first += kAtOnce) {
    const std::span<const Product> some =
        products.subspan(first, std::min(kAtOnce, products.size() - first));
    std::array<Weights, kAtOnce> weights{};
    for (std::size_t i = 0; i < some.size(); ++i) weights[i] = some[i].matrix->packed_->weights;
    for (std::int64_t t = 0; t < tokens; t += step) {
      std::array<Product, kAtOnce> products_from_t{};
      for (std::size_t i = 0; i < some.size(); ++i) {
        products_from_t[i] = some[i];
        products_from_t[i].out += t * some[i].out_stride;
      }
      Call(std::span(products_from_t).first(some.size()), std::span(weights).first(some.size()),
           x + t * x_stride, std::min(step, tokens - t), columns, x_stride, options)
          .run();
    }
  }
}

}  // namespace phasor::models
