#include "attention/linear/linear_plan.hpp"

#include <algorithm>

#include "attention/softmax/call.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/angle_range.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/positions.hpp"

namespace phasor::attention {
namespace {

constexpr std::int64_t kKeptFloats = std::int64_t{1} << 21;  // 8 MiB

[[nodiscard]] bool is_per_batch_row(const core::Positions& positions) noexcept {
  return positions.kind == core::Positions::Kind::packed ||
         (positions.kind != core::Positions::Kind::offset && positions.batch != 0);
}
[[nodiscard]] std::int64_t batch_rows(const core::Positions& positions,
                                      std::int64_t batch) noexcept {
  return is_per_batch_row(positions) ? batch : 1;
}

// The same positions, with lists copied to `ids`.
core::Positions owned(const core::Positions& positions, int axes, const core::ConstHeadsView& x,
                      std::vector<double>& ids) {
  if (positions.kind == core::Positions::Kind::offset) return positions;
  const std::int64_t count = batch_rows(positions, x.batch) * x.tokens;
  ids.resize(static_cast<std::size_t>(axes * count + 1));  // + 1: never null
  core::PositionCursor cursor(positions, axes, x.tokens, 0);
  for (std::int64_t t = 0; t < count; ++t) {
    double token[core::kMaxAxes];
    cursor.next(token);
    for (int axis = 0; axis < axes; ++axis) {
      ids[static_cast<std::size_t>(axis * count + t)] = token[axis];
    }
  }
  core::Positions copy = core::positions_per_row(ids.data(), axes, x.batch, x.tokens);
  if (!is_per_batch_row(positions)) copy.batch = 0;
  return copy;
}

[[nodiscard]] bool has_forward(LinearUse use) noexcept { return use != LinearUse::backward; }
[[nodiscard]] bool has_backward(LinearUse use) noexcept {
  return use == LinearUse::backward || use == LinearUse::training;
}

void keep_rows(LinearPlanParts& parts) {
  LinearCall& call = parts.call;
  if (!call.rotations || call.is_wide() || call.is_empty() || parts.use == LinearUse::stream) {
    return;
  }
  const RotationRows& rotations = *call.rotations;
  const std::int64_t key_tokens = batch_rows(call.key_positions, call.k.batch) * call.k.tokens;
  const std::int64_t query_tokens =
      call.rows_are_shared ? 0 : batch_rows(call.query_positions, call.q.batch) * call.q.tokens;
  const std::int64_t key_floats = rotations.floats_for(key_tokens);
  const std::int64_t floats = key_floats + rotations.floats_for(query_tokens);
  const std::int64_t copies = has_backward(parts.use) ? 2 : 1;
  if (copies * floats > kKeptFloats) return;
  parts.rows.resize(static_cast<std::size_t>(copies * floats));
  const auto keep = [&](const core::Positions& positions, const core::ConstHeadsView& x,
                        core::Role role, float* rows) {
    KeptRows kept{rows, nullptr, is_per_batch_row(positions)};
    const std::int64_t batch = batch_rows(positions, x.batch);
    for (std::int64_t b = 0; b < batch; ++b) {
      rotations.make(positions, x.tokens, b, 0, x.tokens, role,
                     rows + b * x.tokens * rotations.row_floats());
    }
    if (copies == 2) {
      rotations.transpose(rows, batch * x.tokens, rows + floats);
      kept.transposed = rows + floats;
    }
    return kept;
  };
  call.kept_keys = keep(call.key_positions, call.k, core::Role::key, parts.rows.data());
  if (call.rows_are_shared) return;
  call.kept_queries =
      keep(call.query_positions, call.q, core::Role::query, parts.rows.data() + key_floats);
}

void check_stream(const LinearCall& call) {
  if (call.is_wide()) {
    refuse(ErrorCode::unsupported, kLinearWhere,
           "a state has float32 sums: q, k and v must be f32, f16 or bf16, got f64");
  }
  if (!call.is_causal()) {
    refuse(ErrorCode::invalid_argument, kLinearWhere,
           "a state needs causality bottom_right, not none: later keys would count for earlier "
           "queries");
  }
  if (call.offset != 0) {
    refuse(ErrorCode::shape_mismatch, kLinearWhere,
           message("with a state every token has a query and a key, got ", call.q.tokens,
                   " queries and ", call.k.tokens, " keys"));
  }
}

void check_state(const LinearCall& call, const LinearState& state) {
  if (state.batch() != call.k.batch || state.key_heads() != call.k.heads ||
      state.head_dim() != call.dim || state.value_dim() != call.value_dim) {
    refuse(ErrorCode::shape_mismatch, kLinearWhere,
           message("the call needs a state of batch ", call.k.batch, ", key_heads ", call.k.heads,
                   call.is_favor() ? ", feature_count " : ", head_dim ", call.dim, ", value_dim ",
                   call.value_dim, ", got ", state.batch(), ", ", state.key_heads(), ", ",
                   state.head_dim(), ", ", state.value_dim()));
  }
  if (LinearStateAccess::has_map_of(state, call.options, call.k.head_dim)) return;
  const auto text = [](const LinearOptions& options) {
    return message(name_of(options.features), " of seed ", options.seed, ", rotating ",
                   name_of(options.rotates));
  };
  refuse(ErrorCode::invalid_argument, kLinearWhere,
         message("the keys of the state were mapped by ", text(LinearStateAccess::map_of(state)),
                 ", got ", text(call.options)));
}

void check_use(LinearUse use, bool is_included, const char* what) {
  if (is_included) return;
  refuse(ErrorCode::invalid_argument, kLinearWhere,
         message(what, " needs a plan made for it, got a plan for ", name_of(use)));
}

// Positions of tokens that follow those of a state.
void move_positions(LinearPlanParts& parts, std::int64_t tokens) {
  if (!parts.rotary || (parts.options.query_positions && parts.options.key_positions)) return;
  if (parts.sizes.keys > 0) {
    core::check_angle_range(kLinearWhere, parts.rotary->frequencies, static_cast<double>(tokens),
                            static_cast<double>(tokens + parts.sizes.keys - 1));
  }
  const core::Positions positions = core::positions_from(tokens);
  if (!parts.options.query_positions) parts.call.query_positions = positions;
  if (!parts.options.key_positions) parts.call.key_positions = positions;
}

// The order of rotated inputs does not matter to (19), but W reads it: float64, which rotates with
// core::rotate, must not change it either.
std::optional<core::Rotary> rotary_for(std::optional<core::Rotary> rotary,
                                       const LinearOptions& options) {
  if (rotary && options.rotates == Rotates::inputs &&
      rotary->layout == core::PairLayout::interleaved_to_half) {
    rotary->layout = core::PairLayout::interleaved;
  }
  return rotary;
}

template <class T>
std::size_t bytes_of(const std::vector<T>& values) noexcept {
  return values.size() * sizeof(T);
}

}  // namespace

std::string_view name_of(LinearUse use) noexcept {
  static constexpr core::EnumNames<LinearUse::training> kNames("forward", "stream", "backward",
                                                               "training");
  return kNames[use];
}

LinearPlanParts::LinearPlanParts(const std::optional<core::Rotary>& rotary_,
                                 const LinearSizes& sizes_, const LinearOptions& options_,
                                 LinearUse use_, LinearExtent extent)
    : rotary(rotary_for(rotary_, options_)),
      sizes(sizes_),
      options(options_),
      use(use_),
      call(checked_linear_call(rotary, sizes, options)) {
  if (use == LinearUse::stream) check_stream(call);
  if (rotary) {
    const int axes = rotary->frequencies.axis_count();
    call.query_positions = owned(call.query_positions, axes, call.q, query_ids);
    call.key_positions = owned(call.key_positions, axes, call.k, key_ids);
  }
  if (call.is_empty()) return;
  if (call.is_wide()) {
    wide = std::make_unique<WideLinearMemory>(
        call, has_backward(use) ? WidePasses::both : WidePasses::forward);
    return;
  }
  keep_rows(*this);
  if (has_forward(use)) {
    forward = make_linear_forward_memory(
        call, use == LinearUse::stream ? StateUse::given : StateUse::none);
  }
  if (has_backward(use)) backward = make_linear_backward_memory(call, extent);
}

void LinearPlanParts::bind(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                           const core::ConstHeadsView& v) {
  check_linear_view("q", q, call.q, sizes.head_dim);
  check_linear_view("k", k, call.k, sizes.head_dim);
  check_linear_view("v", v, call.v, sizes.value_dim);
  call.q = q;
  call.k = k;
  call.v = v;
}

void LinearPlanParts::check_out(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                                const core::ConstHeadsView& v, const core::HeadsView& out) const {
  check_linear_view("out", out, q, sizes.value_dim);
  check_linear_output("out", out, {q, k, v});
}

void LinearPlanParts::check_gradients(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                                      const core::ConstHeadsView& v,
                                      const core::ConstHeadsView& d_out, const core::HeadsView& d_q,
                                      const core::HeadsView& d_k,
                                      const core::HeadsView& d_v) const {
  check_linear_view("d_out", d_out, q, sizes.value_dim);
  check_linear_view("d_q", d_q, q, sizes.head_dim);
  check_linear_view("d_k", d_k, k, sizes.head_dim);
  check_linear_view("d_v", d_v, v, sizes.value_dim);
  check_linear_output("d_q", d_q, {q, k, v, d_out, d_k, d_v});
  check_linear_output("d_k", d_k, {q, k, v, d_out, d_v});
  check_linear_output("d_v", d_v, {q, k, v, d_out});
}

std::int64_t LinearPlanParts::bytes() const noexcept {
  const LinearPlanParts& p = *this;
  const std::size_t bytes =
      sizeof(LinearPlanParts) + bytes_of(p.query_ids) + bytes_of(p.key_ids) + bytes_of(p.rows) +
      p.forward.scratch.bytes() + bytes_of(p.forward.next_sums) +
      bytes_of(p.forward.next_exponents) + p.backward.scratch.bytes() +
      bytes_of(p.backward.inverses) + bytes_of(p.backward.d_denominators) +
      static_cast<std::size_t>(p.backward.cut_room) * sizeof(LinearCut) +
      bytes_of(p.backward.cut_counts) + (p.wide == nullptr ? 0 : p.wide->bytes()) +
      (p.call.random == nullptr ? 0 : p.call.random->bytes());
  return static_cast<std::int64_t>(bytes);
}

LinearPlan::LinearPlan(const std::optional<core::Rotary>& rotary, const LinearSizes& sizes,
                       const LinearOptions& options, LinearUse use)
    : parts_(std::make_unique<LinearPlanParts>(rotary, sizes, options, use)) {}
LinearPlan::~LinearPlan() = default;
LinearPlan::LinearPlan(LinearPlan&&) noexcept = default;
LinearPlan& LinearPlan::operator=(LinearPlan&&) noexcept = default;

const LinearSizes& LinearPlan::sizes() const noexcept { return parts_->sizes; }
LinearUse LinearPlan::use() const noexcept { return parts_->use; }

std::int64_t LinearPlan::bytes() const noexcept { return parts_->bytes(); }

void LinearPlan::run(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                     const core::ConstHeadsView& v, const core::HeadsView& out) {
  LinearPlanParts& p = *parts_;
  check_use(p.use, p.use == LinearUse::forward || p.use == LinearUse::training,
            "a run without a state");
  p.bind(q, k, v);
  p.check_out(q, k, v, out);
  if (p.call.is_empty()) return;
  if (p.call.is_wide()) return run_wide_linear_forward(p.rotary, p.call, *p.wide, out);
  run_linear_forward(p.call, p.forward, out, nullptr);
}

void LinearPlan::run(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                     const core::ConstHeadsView& v, const core::HeadsView& out,
                     LinearState& state) {
  LinearPlanParts& p = *parts_;
  check_use(p.use, p.use == LinearUse::stream, "a run with a state");
  p.bind(q, k, v);
  p.check_out(q, k, v, out);
  check_state(p.call, state);
  move_positions(p, state.tokens());
  if (!p.call.is_empty()) run_linear_forward(p.call, p.forward, out, &state);
}

void LinearPlan::run_backward(const core::ConstHeadsView& q, const core::ConstHeadsView& k,
                              const core::ConstHeadsView& v, const core::ConstHeadsView& d_out,
                              const core::HeadsView& d_q, const core::HeadsView& d_k,
                              const core::HeadsView& d_v) {
  LinearPlanParts& p = *parts_;
  check_use(p.use, has_backward(p.use), "backward");
  p.bind(q, k, v);
  p.check_gradients(q, k, v, d_out, d_q, d_k, d_v);
  if (p.call.is_empty()) return;
  if (p.call.is_wide()) {
    return run_wide_linear_backward(p.rotary, p.call, *p.wide, d_out, d_q, d_k, d_v);
  }
  run_linear_backward(p.call, p.backward, d_out, d_q, d_k, d_v);
}

}  // namespace phasor::attention
