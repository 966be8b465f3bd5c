#include "phasor/attention/softmax.hpp"

#include <utility>

#include "attention/softmax/call.hpp"
#include "attention/softmax/few_queries.hpp"
#include "attention/softmax/passes.hpp"
#include "phasor/core/error.hpp"

namespace phasor::attention {
namespace {

void check_sizes(const AttentionSizes& sizes) {
  const std::pair<const char*, std::int64_t> counts[] = {
      {"batch", sizes.batch}, {"queries", sizes.queries}, {"keys", sizes.keys}};
  for (const auto& [name, count] : counts) {
    if (count < 0) refuse(message("attention plan: ", name, " must not be negative, got ", count));
  }
  const std::pair<const char*, std::int64_t> sides[] = {{"heads", sizes.heads},
                                                        {"key_heads", sizes.key_heads},
                                                        {"head_dim", sizes.head_dim},
                                                        {"value_dim", sizes.value_dim}};
  for (const auto& [name, size] : sides) {
    if (size < 1) refuse(message("attention plan: ", name, " must be at least 1, got ", size));
  }
  if (sizes.heads % sizes.key_heads != 0) {
    refuse(ErrorCode::shape_mismatch,
           message("attention plan: heads must be a multiple of key_heads, got ", sizes.heads,
                   " and ", sizes.key_heads));
  }
  if (sizes.arithmetic != core::DType::f32 && sizes.arithmetic != core::DType::f64) {
    refuse(ErrorCode::unsupported, message("attention plan: arithmetic must be f32 or f64, got ",
                                           core::name_of(sizes.arithmetic)));
  }
}

void check_backward(const encodings::ScoreTerms& terms, const AttentionOptions& options) {
  if (!terms.rotation || options.keys != KeyState::rotated) return;
  refuse(ErrorCode::unsupported,
         "attend_backward: keys must be KeyState::raw, got KeyState::rotated: the gradient of "
         "rotated keys would be that of the cache");
}

AttentionOptions without_workspace(AttentionOptions options) {
  options.workspace = nullptr;
  options.rotations = nullptr;
  return options;
}

std::size_t bytes_of(const encodings::ScoreTerms& terms) {
  std::size_t bytes = terms.slopes.size() * sizeof(double);
  for (const auto* rows : {&terms.query_rows, &terms.key_rows, &terms.bias, &terms.value_rows}) {
    if (!*rows) continue;
    bytes += (*rows)->map.rows.size() * sizeof(std::int32_t);
    if ((*rows)->computed != nullptr) {
      bytes += static_cast<std::size_t>((*rows)->table.heads * (*rows)->table.rows) *
               (sizeof(float) + sizeof(double));
    }
  }
  if (terms.rotation && terms.rotation->growth)
    bytes += terms.rotation->growth->rates.size() * sizeof(double);
  return bytes;
}

}  // namespace

struct AttentionPlan::State {
  State(encodings::ScoreTerms&& given, const AttentionSizes& planned,
        const AttentionOptions& wanted)
      : terms(std::move(given)),
        sizes(planned),
        options(without_workspace(wanted)),
        call(make_call("attention plan", terms, sizes, options, memory, Reuse::many_runs)) {
    if (wanted.workspace != nullptr) memory.shared = &wanted.workspace->memory();
  }

  encodings::ScoreTerms terms;
  AttentionSizes sizes;
  AttentionOptions options;
  CallMemory memory;
  Call call;  // refers to all of the above
};

AttentionPlan::AttentionPlan(encodings::ScoreTerms terms, const AttentionSizes& sizes,
                             const AttentionOptions& options, AttentionPasses passes) {
  check_sizes(sizes);
  if (passes == AttentionPasses::forward_and_backward) check_backward(terms, options);
  state_ = std::make_unique<State>(std::move(terms), sizes, options);
  Call& call = state_->call;
  if (call.most_keys == 0 || call.most_queries == 0) {
    call.has_backward = passes == AttentionPasses::forward_and_backward;
    return;
  }
  if (!call.is_wide() && suits_few_queries(call, {})) {
    prepare_few_queries(call);
  } else {
    prepare_forward(call);
  }
  if (passes == AttentionPasses::forward_and_backward) prepare_backward(call);
}

AttentionPlan::~AttentionPlan() = default;
AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;
AttentionPlan& AttentionPlan::operator=(AttentionPlan&&) noexcept = default;

const AttentionSizes& AttentionPlan::sizes() const noexcept { return state_->sizes; }

std::size_t AttentionPlan::bytes() const noexcept {
  return sizeof(State) + bytes_of(state_->terms) + state_->memory.bytes();
}

void AttentionPlan::run(core::ConstHeadsView q, core::ConstHeadsView k, core::ConstHeadsView v,
                        core::HeadsView out, const AttentionExtras& extras) {
  bind("attend", state_->call, q, k, v);
  run_forward(state_->call, out, extras);
}

void AttentionPlan::run_backward(core::ConstHeadsView q, core::ConstHeadsView k,
                                 core::ConstHeadsView v, const AttentionForward& forward,
                                 const AttentionGradients& gradients) {
  if (!state_->call.has_backward) {
    refuse(
        "attend_backward: the plan was made for AttentionPasses::forward alone; make it for "
        "forward_and_backward");
  }
  bind("attend_backward", state_->call, q, k, v);
  attention::run_backward(state_->call, forward, gradients);
}

void AttentionPlan::update_tables() { repack_tables(state_->call); }

void attend(const encodings::ScoreTerms& terms, core::ConstHeadsView q, core::ConstHeadsView k,
            core::ConstHeadsView v, core::HeadsView out, const AttentionOptions& options,
            const AttentionExtras& extras) {
  CallMemory own;
  CallMemory& memory = options.workspace == nullptr ? own : options.workspace->memory();
  Call call =
      make_call("attend", terms, sizes_of("attend", q, k, v), options, memory, Reuse::one_run);
  bind("attend", call, q, k, v);
  run_forward(call, out, extras);
}

void attend_backward(const encodings::ScoreTerms& terms, core::ConstHeadsView q,
                     core::ConstHeadsView k, core::ConstHeadsView v,
                     const AttentionForward& forward, const AttentionGradients& gradients,
                     const AttentionOptions& options) {
  check_backward(terms, options);
  const char* const where = "attend_backward";
  CallMemory memory;
  Call call = make_call(where, terms, sizes_of(where, q, k, v), options, memory, Reuse::one_run);
  bind(where, call, q, k, v);
  run_backward(call, forward, gradients);
}

}  // namespace phasor::attention
