#include "lab/nn/head.hpp"

#include <algorithm>

namespace phasor::lab {
namespace {

// Logits of so many numbers at a time: the gradient of the output's weights is read and written once for
// each, and products of few rows are slow.
constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 22;
constexpr std::int64_t kRowsAtOnce = 1024;
constexpr std::int64_t kRowsOfPiece = 16;

[[nodiscard]] std::int64_t rows_at_once(std::int64_t classes) {
  return std::clamp<std::int64_t>(kLogitsAtOnce / classes, 64, kRowsAtOnce);
}

// Rows of logits are not a multiple of a page apart: their columns, which the gradient of the weights
// reads, would share a few sets of the cache.
[[nodiscard]] std::int64_t stride_of(std::int64_t classes) {
  constexpr std::int64_t kPage = 1024, kLine = 16;
  return classes % kPage == 0 ? classes + kLine : classes;
}

}  // namespace

template <class T>
HeadOf<T>::HeadOf(const ModelSpec& spec, std::size_t words, ParameterList& parameters)
    : spec_(spec) {
  const std::int64_t hidden = spec.hidden;
  const Initial matrix = matrix_initial(hidden);
  if (spec.head == Head::classification) {
    transform_ = parameters.linear("classifier.", {"dense"}, hidden, hidden, Bias::own, matrix);
    output_ =
        parameters.linear("classifier.", {"out_proj"}, spec.labels, hidden, Bias::own, matrix);
    return;
  }
  output_ = {.weight = words, .out = spec.vocabulary, .in = hidden};
  const bool own = spec.output == ModelSpec::Output::own;
  if (spec.style == Style::roformer) {
    transform_ = parameters.linear("cls.predictions.transform.", {"dense"}, hidden, hidden,
                                   Bias::own, matrix);
    norm_ = parameters.norm("cls.predictions.transform.LayerNorm", hidden, Bias::own);
    output_.bias = parameters.add("cls.predictions.bias", {spec.vocabulary}, kZeros);
    if (own) {
      output_.weight =
          parameters.add("cls.predictions.decoder.weight", {spec.vocabulary, hidden}, kEmbedding);
    }
  } else if (own) {
    output_.weight = parameters.add("lm_head.weight", {spec.vocabulary, hidden}, kEmbedding);
  }
}

template <class T>
void HeadOf<T>::forward(const Workers& workers, const Numbers<T>& numbers, const T* hidden,
                        std::span<const std::int32_t> places, T* logits, std::int64_t stride) {
  const auto count = static_cast<std::int64_t>(places.size());
  const std::int64_t width = spec_.hidden;
  const auto size = static_cast<std::size_t>(count * width);
  rows_.resize(size);
  gather(workers, places, width, hidden, rows_.data(), Add::no);
  const T* x = rows_.data();
  if (transform_) {
    dense_.resize(size);
    active_.resize(size);
    multiply(workers, count, width, width, stored(x, width),
             transposed(numbers.at(transform_->weight), width), dense_.data(), width, Add::no,
             numbers.at(transform_->bias));
    activate(workers, models::Activation::gelu, Gate::none, count, width, dense_.data(),
             active_.data());
    x = active_.data();
  }
  if (norm_) {
    normed_.resize(size);
    normalise(workers, NormKind::layer, count, width, x, numbers.at(norm_->weight),
              numbers.at(norm_->bias), normed_.data());
    x = normed_.data();
  }
  multiply(workers, count, output_.out, width, stored(x, width),
           transposed(numbers.at(output_.weight), width), logits, stride, Add::no,
           numbers.at(output_.bias));
}

template <class T>
void HeadOf<T>::backward(const Workers& workers, const Numbers<T>& numbers,
                         std::span<const std::int32_t> places, T* d_hidden) {
  const auto count = static_cast<std::int64_t>(places.size());
  const std::int64_t width = spec_.hidden, classes = output_.out, stride = stride_of(classes);
  const auto size = static_cast<std::size_t>(count * width);
  const T* const x = norm_ ? normed_.data() : transform_ ? active_.data() : rows_.data();
  d_rows_.resize(size);
  d_more_.resize(size);
  const T* const d_logits = logits_.data();
  multiply(workers, classes, width, count, transposed(d_logits, stride), stored(x, width),
           numbers.gradient(output_.weight), width, Add::yes);
  if (output_.bias != kAbsent) {
    add_columns(workers, count, classes, d_logits, stride, numbers.gradient(output_.bias));
  }
  multiply(workers, count, width, classes, stored(d_logits, stride),
           stored(numbers.at(output_.weight), width), d_rows_.data(), width);
  if (norm_) {
    normalise_backward<T>(workers, NormKind::layer, count, width, active_.data(),
                          numbers.at(norm_->weight), d_rows_.data(), nullptr, d_rows_.data(),
                          numbers.gradient(norm_->weight), numbers.gradient(norm_->bias));
  }
  if (transform_) {
    activate_backward(workers, models::Activation::gelu, Gate::none, count, width, dense_.data(),
                      d_rows_.data(), d_more_.data());
    multiply(workers, width, width, count, transposed(d_more_.data(), width),
             stored(rows_.data(), width), numbers.gradient(transform_->weight), width, Add::yes);
    add_columns(workers, count, width, d_more_.data(), width, numbers.gradient(transform_->bias));
    multiply(workers, count, width, width, stored(d_more_.data(), width),
             stored(numbers.at(transform_->weight), width), d_rows_.data(), width);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const T* const from = d_rows_.data() + i * width;
    std::copy(from, from + width, d_hidden + places[static_cast<std::size_t>(i)] * width);
  }
}

template <class T>
Loss HeadOf<T>::loss(const Workers& workers, const Numbers<T>& numbers, const T* hidden,
                     std::span<const Target> targets, const TrainOptions& options, T* d_hidden,
                     std::span<float> each) {
  Loss total;
  const std::int64_t classes = output_.out, stride = stride_of(classes);
  const auto group = static_cast<std::size_t>(rows_at_once(classes));
  std::vector<std::int32_t> places;
  for (std::size_t first = 0; first < targets.size(); first += group) {
    const auto chunk = targets.subspan(first, std::min(group, targets.size() - first));
    places.clear();
    for (const Target& target : chunk) places.push_back(target.place);
    logits_.resize(chunk.size() * static_cast<std::size_t>(stride));
    forward(workers, numbers, hidden, places, logits_.data(), stride);
    const auto count = static_cast<std::int64_t>(chunk.size());
    std::vector<Loss> losses(static_cast<std::size_t>((count + kRowsOfPiece - 1) / kRowsOfPiece));
    {
      const TimedPart timed = workers.timed(Part::loss);
      workers.for_runs(count, kRowsOfPiece, [&](std::int64_t start, std::int64_t rows) {
        Loss& sum = losses[static_cast<std::size_t>(start / kRowsOfPiece)];
        for (std::int64_t row = start; row < start + rows; ++row) {
          const Target& target = chunk[static_cast<std::size_t>(row)];
          const models::CrossEntropy got =
              cross_entropy<T>({logits_.data() + row * stride, static_cast<std::size_t>(classes)},
                               target.label, options.label_smoothing, options.gradient_scale);
          sum += {got.smoothed, got.plain, 1, got.largest == target.label ? 1 : 0};
          if (!each.empty()) {
            each[first + static_cast<std::size_t>(row)] = static_cast<float>(got.plain);
          }
        }
      });
    }
    for (const Loss& loss : losses) total += loss;
    if (d_hidden != nullptr) backward(workers, numbers, places, d_hidden);
  }
  return total;
}

template <class T>
void HeadOf<T>::logits(const Workers& workers, const Numbers<T>& numbers, const T* hidden,
                       std::span<const std::int32_t> places, T* out) {
  const auto group = static_cast<std::size_t>(rows_at_once(output_.out));
  for (std::size_t first = 0; first < places.size(); first += group) {
    forward(workers, numbers, hidden, places.subspan(first, std::min(group, places.size() - first)),
            out + static_cast<std::int64_t>(first) * output_.out, output_.out);
  }
}

template class HeadOf<float>;
template class HeadOf<double>;

}  // namespace phasor::lab
