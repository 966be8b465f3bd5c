#include "phasor/attention/softmax.hpp"

#include "attention/rotation_rows.hpp"
#include "attention/softmax/call_memory.hpp"

namespace phasor::attention {
namespace {

template <class T>
std::size_t held_by(const std::vector<T>& values) noexcept {
  return values.capacity() * sizeof(T);
}

std::size_t held_by(const PackedTables& tables) noexcept {
  return held_by(tables.bias) + held_by(tables.query_rows) + held_by(tables.key_rows) +
         held_by(tables.value_rows) + tables.floats.bytes();
}

std::size_t held_by(const WideMemory& wide) noexcept {
  std::size_t bytes = wide.rotated_q.bytes() + wide.rotated_k.bytes() + wide.raw_q.bytes() +
                      wide.raw_k.bytes() + held_by(wide.threads);
  for_each_table([&](const std::vector<double>& table) { bytes += held_by(table); }, wide.tables);
  for (const WideThread& thread : wide.threads) {
    for (const std::vector<double>* values :
         {&thread.content, &thread.relative, &thread.segment_query, &thread.row,
          &thread.by_relative, &thread.by_segment, &thread.table_sums}) {
      bytes += held_by(*values);
    }
  }
  return bytes;
}

}  // namespace

std::size_t CallMemory::bytes() const noexcept {
  return held_by(sequences) + held_by(places.queries) + held_by(places.keys) +
         held_by(places.query_runs) + held_by(places.key_runs) + held_by(places.ahead) +
         held_by(places.behind) + held_by(queries.ids) + queries.rows.bytes() + held_by(keys.ids) +
         keys.rows.bytes() + held_by(positions) + few.bytes() + held_by(tables) +
         held_by(backward_tables) + held_by(tiles.keys) + held_by(tiles.queries) +
         held_by(tiles.benches) + held_by(tiles.segments) + held_by(backward.units) +
         held_by(backward.segments) + held_by(backward.shared_sums) + held_by(backward.row_sums) +
         held_by(wide) + scratch.bytes() +
         (shared == nullptr ? tiles.floats.bytes() + backward.floats.bytes() : 0);
}

AttentionWorkspace::AttentionWorkspace() noexcept = default;
AttentionWorkspace::~AttentionWorkspace() = default;
AttentionWorkspace::AttentionWorkspace(AttentionWorkspace&&) noexcept = default;
AttentionWorkspace& AttentionWorkspace::operator=(AttentionWorkspace&&) noexcept = default;

CallMemory& AttentionWorkspace::memory() {
  if (memory_ == nullptr) memory_ = std::make_unique<CallMemory>();
  return *memory_;
}

std::size_t AttentionWorkspace::bytes() const noexcept {
  return memory_ == nullptr ? 0 : sizeof(CallMemory) + memory_->bytes();
}

StepRotations::StepRotations() noexcept = default;
StepRotations::~StepRotations() = default;
StepRotations::StepRotations(StepRotations&&) noexcept = default;
StepRotations& StepRotations::operator=(StepRotations&&) noexcept = default;

SharedRows& StepRotations::rows() {
  if (rows_ == nullptr) rows_ = std::make_unique<SharedRows>();
  return *rows_;
}

}  // namespace phasor::attention
