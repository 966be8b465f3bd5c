#include "phasor/core/rotate.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/angles/float32_engine.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/dispatch.hpp"
#include "phasor/core/internal/large_memory.hpp"

namespace phasor::core {
namespace {

// Below this many entries a thread costs more than it saves.
constexpr std::int64_t kEntriesPerThread = 16384;

std::shared_ptr<float[]> allocate_rows(std::int64_t count, std::int64_t pairs) {
  auto memory = allocate_large(static_cast<std::size_t>(count),
                               2 * static_cast<std::size_t>(pairs) * sizeof(float));
  auto* rows = reinterpret_cast<float*>(memory.get());
  return {std::move(memory), rows};
}

struct Filling {
  const Frequencies& frequencies;
  float* rows;
  PositionRange range;
  AngleMode mode;
  kernels::RowFunctionF32 row;
};

void fill_part(void* context, int part, int parts) {
  const Filling& filling = *static_cast<const Filling*>(context);
  const std::int64_t begin = filling.range.count * part / parts;
  const std::int64_t end = filling.range.count * (part + 1) / parts;
  const std::int64_t pairs = filling.frequencies.pairs();
  const kernels::Angles angles = kernel_angles(filling.frequencies);
  double positions[kMaxAxes];
  constexpr std::int64_t kRowsPerLook = 1024;
  for (std::int64_t r = begin; r < end; ++r) {
    if ((r - begin) % kRowsPerLook == 0) throw_if_cancelled();
    // A table has one row per position; M-RoPE picks from several rows when it is used.
    std::fill(std::begin(positions), std::end(positions),
              static_cast<double>(filling.range.first + r));
    float* cos = filling.rows + r * 2 * pairs;
    if (filling.mode != AngleMode::exact) {
      float32_row(filling.frequencies, positions, filling.mode, cos, cos + pairs);
    } else {
      filling.row(angles, positions, cos, cos + pairs);
    }
  }
}

void fill(const Frequencies& frequencies, PositionRange range, AngleMode mode, int threads,
          InstructionSet isa, float* rows) {
  if (range.count <= 0) return;
  Filling filling{frequencies, rows, range, mode, kernels_for(isa).row_f32};
  const std::int64_t wanted = threads > 0 ? threads : available_threads();
  const std::int64_t useful = range.count * frequencies.pairs() / kEntriesPerThread;
  run_parts(static_cast<int>(std::clamp<std::int64_t>(std::min(wanted, useful), 1, range.count)),
            fill_part, &filling);
}

void check_range(const Frequencies& frequencies, PositionRange range, AngleMode mode) {
  if (range.count < 0) {
    refuse(message("table: the number of positions must not be negative, got ", range.count));
  }
  const auto first = static_cast<double>(range.first);
  check_angle_range("table", frequencies, first,
                    first + static_cast<double>(std::max<std::int64_t>(range.count, 1) - 1), mode);
}

}  // namespace

CosSinTable CosSinTable::build(const Frequencies& frequencies, PositionRange range, AngleMode mode,
                               int threads, InstructionSet isa) {
  check_range(frequencies, range, mode);
  const auto rows = allocate_rows(range.count, frequencies.pairs());
  fill(frequencies, range, mode, threads, isa, rows.get());
  CosSinTable table;
  table.rows_ = rows;
  table.range_ = range;
  table.pairs_ = frequencies.pairs();
  table.amplitude_ = frequencies.amplitude();
  table.frequencies_ = frequencies;
  table.mode_ = mode;
  return table;
}

CosSinTable CosSinTable::grown(PositionRange range, int threads) const {
  if (!frequencies_) {
    refuse(ErrorCode::unsupported,
           "table: a table made with from_rows() cannot grow: its frequencies are unknown");
  }
  check_range(*frequencies_, range, mode_);
  const std::int64_t row = 2 * pairs_;
  const auto rows = allocate_rows(range.count, pairs_);
  const std::int64_t end = range.first + range.count;
  const std::int64_t kept_begin = std::clamp(range_.first, range.first, end);
  const std::int64_t kept_end = std::clamp(range_.first + range_.count, kept_begin, end);
  if (kept_end > kept_begin) {
    std::memcpy(rows.get() + (kept_begin - range.first) * row,
                rows_.get() + (kept_begin - range_.first) * row,
                static_cast<std::size_t>((kept_end - kept_begin) * row) * sizeof(float));
  }
  const auto fill_gap = [&](std::int64_t begin, std::int64_t stop) {
    fill(*frequencies_, {begin, stop - begin}, mode_, threads, InstructionSet::best,
         rows.get() + (begin - range.first) * row);
  };
  fill_gap(range.first, kept_begin);
  fill_gap(kept_end, end);
  CosSinTable table = *this;
  table.rows_ = rows;
  table.range_ = range;
  return table;
}

CosSinTable CosSinTable::from_rows(std::span<const float> cos, std::span<const float> sin,
                                   std::int64_t pairs, std::int64_t first) {
  if (pairs < 1 || pairs > kMaxRotaryDim / 2) {
    refuse(message("table: pairs must be between 1 and ", kMaxRotaryDim / 2, ", got ", pairs));
  }
  if (cos.size() != sin.size() || cos.size() % static_cast<std::size_t>(pairs) != 0) {
    refuse(ErrorCode::shape_mismatch,
           message("table: cos and sin must both be [rows, ", pairs, "], got ", cos.size(), " and ",
                   sin.size(), " entries"));
  }
  CosSinTable table;
  table.range_ = {first, static_cast<std::int64_t>(cos.size()) / pairs};
  table.pairs_ = pairs;
  const auto rows = allocate_rows(table.range_.count, pairs);
  const auto bytes = static_cast<std::size_t>(pairs) * sizeof(float);
  for (std::int64_t r = 0; r < table.range_.count; ++r) {
    std::memcpy(rows.get() + r * 2 * pairs, cos.data() + r * pairs, bytes);
    std::memcpy(rows.get() + (r * 2 + 1) * pairs, sin.data() + r * pairs, bytes);
  }
  table.rows_ = rows;
  return table;
}

bool CosSinTable::serves(const Frequencies& frequencies, AngleMode mode) const noexcept {
  if (pairs_ != frequencies.pairs()) return false;
  return !frequencies_ || (mode_ == mode && frequencies_->same_values(frequencies));
}

std::span<const float> CosSinTable::cos(std::int64_t position) const noexcept {
  return {rows_.get() + (position - range_.first) * 2 * pairs_, static_cast<std::size_t>(pairs_)};
}
std::span<const float> CosSinTable::sin(std::int64_t position) const noexcept {
  return {rows_.get() + ((position - range_.first) * 2 + 1) * pairs_,
          static_cast<std::size_t>(pairs_)};
}

}  // namespace phasor::core
