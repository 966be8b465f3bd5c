// Rotation in C: by a rope, by rows of the caller, and from one rope to another.
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "capi/arguments.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "capi/spec.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/phasor.h"

namespace phasor::capi {
namespace {

core::RotateOptions to_options(const phasor_rotate_options* given, std::string_view where) {
  core::RotateOptions options;
  const phasor_rotate_options from = take_options(given, phasor_rotate_options{}, where);
  static_assert(static_cast<int>(core::Direction::forward) == PHASOR_FORWARD);
  static_assert(static_cast<int>(core::Direction::transpose) == PHASOR_TRANSPOSE);
  static_assert(static_cast<int>(core::Direction::inverse) == PHASOR_INVERSE);
  options.direction = choice(from.direction, core::Direction::inverse, where, "direction");
  options.angles = to_angles(from.angles, where);
  options.table = from.table == nullptr ? nullptr : &from.table->table;
  options.threads = to_threads(from.threads, where);
  options.isa = to_isa(from.isa, where);
  return options;
}

core::Rotation to_rotation(const phasor_rotation& rotation, std::string_view where) {
  static_assert(static_cast<int>(core::Role::query) == PHASOR_QUERY);
  static_assert(static_cast<int>(core::Role::key) == PHASOR_KEY);
  const core::HeadsView out = to_view(rotation.out, where, "out");
  const core::Role role = choice(rotation.role, core::Role::key, where, "role");
  if (rotation.in == nullptr) return {out, out, role};
  return {to_view(rotation.in, where, "in"), out, role};
}

// The caller's rotations as the core takes them; a few need no allocation.
class Rotations {
 public:
  Rotations(const phasor_rotation* rotations, std::size_t count, std::string_view where)
      : many_(count > kFew ? count : 0), count_(count) {
    need_array(rotations, count, where, "rotations");
    core::Rotation* const all = many_.empty() ? few_.data() : many_.data();
    for (std::size_t i = 0; i < count; ++i) all[i] = to_rotation(rotations[i], where);
  }
  [[nodiscard]] std::span<const core::Rotation> get() const noexcept {
    return {many_.empty() ? few_.data() : many_.data(), count_};
  }

 private:
  static constexpr std::size_t kFew = 8;
  std::array<core::Rotation, kFew> few_;
  std::vector<core::Rotation> many_;
  std::size_t count_;
};

}  // namespace
}  // namespace phasor::capi

using namespace phasor;  // NOLINT(google-build-using-namespace): the functions below belong to no
                         // namespace
using namespace phasor::capi;  // NOLINT(google-build-using-namespace)

phasor_status phasor_rotate(const phasor_rope* rope, const phasor_positions* positions,
                            const phasor_rotation* rotations, size_t rotation_count,
                            const phasor_rotate_options* options) {
  constexpr std::string_view kWhere = "phasor_rotate";
  return guarded([&] {
    need(rope, kWhere, "rope");
    const Rotations all(rotations, rotation_count, kWhere);
    core::rotate(rope->rotary, positions_of(positions, kWhere, "positions"), all.get(),
                 to_options(options, kWhere));
  });
}

phasor_status phasor_rotate_by(const phasor_cos_sin_rows* rows, phasor_pair_layout layout,
                               int64_t rotary_offset, const phasor_rotation* rotations,
                               size_t rotation_count, const phasor_rotate_options* options) {
  constexpr std::string_view kWhere = "phasor_rotate_by";
  return guarded([&] {
    const core::CosSinRows given = to_rows(rows, kWhere, "rows");
    const std::optional<core::PairLayout> chosen = to_layout(layout, kWhere);
    if (!chosen) {
      throw Error(ErrorCode::invalid_argument,
                  message(kWhere, ": layout must be chosen, got PHASOR_LAYOUT_UNSET"));
    }
    const Rotations all(rotations, rotation_count, kWhere);
    core::rotate_by(given, *chosen, rotary_offset, all.get(), to_options(options, kWhere));
  });
}

phasor_status phasor_rotate_in_place(const phasor_rope* rope, const phasor_positions* positions,
                                     const phasor_heads* q, const phasor_heads* k,
                                     const phasor_rotate_options* options) {
  const phasor_rotation rotations[] = {{nullptr, q, PHASOR_QUERY}, {nullptr, k, PHASOR_KEY}};
  return phasor_rotate(rope, positions, rotations, k == nullptr ? 1 : 2, options);
}

phasor_status phasor_rerotate(const phasor_rope* from, const phasor_positions* from_positions,
                              const phasor_rope* to, const phasor_positions* to_positions,
                              const phasor_heads* keys, int32_t threads) {
  constexpr std::string_view kWhere = "phasor_rerotate";
  return guarded([&] {
    need(from, kWhere, "from");
    need(to, kWhere, "to");
    attention::rerotate({from->rotary, positions_of(from_positions, kWhere, "from_positions")},
                        {to->rotary, positions_of(to_positions, kWhere, "to_positions")},
                        to_view(keys, kWhere, "keys"), to_threads(threads, kWhere));
  });
}
