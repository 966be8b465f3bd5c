// Causal and masked language models: windows of a corpus.
#include <algorithm>
#include <cmath>

#include "lab/data/order.hpp"
#include "phasor/core/error.hpp"

namespace phasor::lab {
namespace {

// Where windows of `width` ids begin, of which the last needs `beyond` more after it.
class Windows {
 public:
  Windows(std::shared_ptr<const TokenCorpus> corpus, const BatchSettings& settings,
          std::int64_t width, std::int64_t beyond)
      : corpus_(std::move(corpus)), settings_(settings), width_(width) {
    const std::int64_t starts = corpus_->size() - beyond - width + 1;
    if (starts < 1) {
      refuse(message("batches: the corpus must have at least ", width + beyond,
                     " tokens, one window, got ", corpus_->size()));
    }
    offsets_ = settings.order == Order::shuffled ? std::min(width, starts) : 1;
    count_ = (starts - offsets_) / width + 1;
  }

  [[nodiscard]] const TokenCorpus& corpus() const noexcept { return *corpus_; }
  [[nodiscard]] const BatchSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] std::int64_t width() const noexcept { return width_; }
  [[nodiscard]] std::int64_t steps() const noexcept {
    return settings_.order == Order::shuffled ? std::max<std::int64_t>(1, count_ / settings_.rows)
                                              : (count_ + settings_.rows - 1) / settings_.rows;
  }
  [[nodiscard]] std::int64_t rows_of(std::int64_t step) const {
    check_step(settings_, step, steps());
    return settings_.order == Order::shuffled
               ? settings_.rows
               : std::min(settings_.rows, count_ - step * settings_.rows);
  }
  // The first token of a row; rows are counted over all steps.
  [[nodiscard]] std::int64_t first(std::int64_t row) const {
    if (settings_.order == Order::sequential) return row * width_;
    const std::int64_t epoch = row / count_;
    Random random(settings_.seed, Stream::batches, static_cast<std::uint64_t>(epoch));
    const std::int64_t window = permuted(random, row % count_, count_);
    return random.below(offsets_) + window * width_;
  }

 private:
  std::shared_ptr<const TokenCorpus> corpus_;
  BatchSettings settings_;
  std::int64_t width_, offsets_ = 0, count_ = 0;
};

class CausalBatches final : public Batches {
 public:
  explicit CausalBatches(Windows windows) : windows_(std::move(windows)) {}

  [[nodiscard]] std::int64_t steps() const noexcept override { return windows_.steps(); }
  [[nodiscard]] Batch at(std::int64_t step) const override {
    Batch batch;
    batch.rows = windows_.rows_of(step);
    batch.tokens = windows_.width();
    const auto size = static_cast<std::size_t>(batch.rows * batch.tokens);
    batch.ids.reserve(size);
    batch.labels.reserve(size);
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      const std::int64_t first = windows_.first(step * windows_.settings().rows + row);
      for (std::int64_t i = first; i < first + batch.tokens; ++i) {
        batch.ids.push_back(windows_.corpus()[i]);
        batch.labels.push_back(windows_.corpus()[i + 1]);
      }
    }
    return batch;
  }

 private:
  Windows windows_;
};

class MaskedBatches final : public Batches {
 public:
  explicit MaskedBatches(Windows windows)
      : windows_(std::move(windows)),
        classify_(needed(windows_.corpus().specials().classify, "[CLS]")),
        separate_(needed(windows_.corpus().specials().separate, "[SEP]")),
        mask_(needed(windows_.corpus().specials().mask, "[MASK]")) {
    if (windows_.corpus().ordinary().empty())
      refuse("batches: the tokenizer has only special tokens");
  }

  [[nodiscard]] std::int64_t steps() const noexcept override { return windows_.steps(); }
  [[nodiscard]] Batch at(std::int64_t step) const override {
    Batch batch;
    batch.rows = windows_.rows_of(step);
    batch.tokens = windows_.width() + 2;
    batch.ids.reserve(static_cast<std::size_t>(batch.rows * batch.tokens));
    batch.labels.assign(static_cast<std::size_t>(batch.rows * batch.tokens), kNoLabel);
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      const std::int64_t row = step * windows_.settings().rows + r, first = windows_.first(row);
      batch.ids.push_back(classify_);
      for (std::int64_t i = 0; i < windows_.width(); ++i)
        batch.ids.push_back(windows_.corpus()[first + i]);
      batch.ids.push_back(separate_);
      mask_row(row, static_cast<std::size_t>(r * batch.tokens), batch);
    }
    return batch;
  }

 private:
  void mask_row(std::int64_t row, std::size_t first, Batch& batch) const {
    const TokenCorpus& corpus = windows_.corpus();
    std::vector<std::size_t> places;
    for (std::size_t i = first; i < first + static_cast<std::size_t>(batch.tokens); ++i)
      if (corpus.is_ordinary(batch.ids[i])) places.push_back(i);
    if (places.empty()) return;
    const auto count = static_cast<std::int64_t>(places.size());
    const std::int64_t chosen =
        std::max<std::int64_t>(1, std::llround(kMaskedShare * static_cast<double>(count)));
    Random random(windows_.settings().seed, Stream::masking, static_cast<std::uint64_t>(row));
    for (std::int64_t i = 0; i < chosen; ++i) {
      // The first `chosen` steps of a shuffle by swaps.
      std::swap(places[static_cast<std::size_t>(i)],
                places[static_cast<std::size_t>(i + random.below(count - i))]);
      const std::size_t place = places[static_cast<std::size_t>(i)];
      batch.labels[place] = batch.ids[place];
      const double kind = random.uniform();
      const std::int64_t other = random.below(static_cast<std::int64_t>(corpus.ordinary().size()));
      if (kind < kMaskShare) {
        batch.ids[place] = mask_;
      } else if (kind < kMaskShare + kRandomShare) {
        batch.ids[place] = corpus.ordinary()[static_cast<std::size_t>(other)];
      }
    }
  }

  Windows windows_;
  std::int32_t classify_, separate_, mask_;
};

}  // namespace

std::unique_ptr<Batches> causal_batches(std::shared_ptr<const TokenCorpus> corpus,
                                        const BatchSettings& settings) {
  check_settings(settings, 1);
  return std::make_unique<CausalBatches>(Windows(std::move(corpus), settings, settings.tokens, 1));
}

std::unique_ptr<Batches> masked_batches(std::shared_ptr<const TokenCorpus> corpus,
                                        const BatchSettings& settings) {
  check_settings(settings, 3);
  return std::make_unique<MaskedBatches>(
      Windows(std::move(corpus), settings, settings.tokens - 2, 0));
}

}  // namespace phasor::lab
