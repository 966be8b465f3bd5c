// What attention reads and writes, as views of a layer's memory.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "phasor/attention/softmax.hpp"
#include "phasor/lab/internal/model_spec.hpp"

namespace phasor::lab {

// Head h of part `part` of rows that hold `parts` vectors of `hidden` numbers.
template <class T>
[[nodiscard]] core::HeadsView heads_of(T* data, const ModelSpec& spec, std::int64_t rows,
                                       std::int64_t tokens, std::int64_t part, std::int64_t parts) {
  core::HeadsView view =
      core::heads_view(data + part * spec.hidden, rows, tokens, spec.heads, spec.head_dim());
  view.token_stride = parts * spec.hidden;
  view.batch_stride = tokens * view.token_stride;
  return view;
}

template <class T>
[[nodiscard]] attention::AttentionExtras extras_of(std::vector<T>& log_sums) {
  attention::AttentionExtras extras;
  if constexpr (std::is_same_v<T, float>) {
    extras.log_sum_exp = log_sums.data();
  } else {
    extras.wide_log_sum_exp = log_sums.data();
  }
  return extras;
}

template <class T>
[[nodiscard]] attention::AttentionForward forward_of(core::ConstHeadsView out,
                                                     core::ConstHeadsView d_out,
                                                     const std::vector<T>& log_sums) {
  attention::AttentionForward forward{.out = out, .d_out = d_out};
  if constexpr (std::is_same_v<T, float>) {
    forward.log_sum_exp = log_sums.data();
  } else {
    forward.wide_log_sum_exp = log_sums.data();
  }
  return forward;
}

}  // namespace phasor::lab
