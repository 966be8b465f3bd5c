// Classification and translation: rows of their own lengths, padded.
#include <algorithm>
#include <array>
#include <utility>

#include "lab/data/order.hpp"
#include "phasor/core/error.hpp"

namespace phasor::lab {
namespace {

using Ids = std::vector<std::int32_t>;

// The ids of a text, at most `most`.
class Encoder {
 public:
  Encoder(const BatchSettings& settings, std::string_view what)
      : settings_(settings), what_(what) {}

  [[nodiscard]] Ids encode(const text::Tokenizer& tokenizer, std::string_view text,
                           std::int64_t extra, std::size_t row) {
    const std::vector<std::int64_t> ids = tokenizer.encode(text, text::SpecialText::as_text);
    const auto most = static_cast<std::size_t>(settings_.tokens - extra);
    if (ids.size() > most) {
      if (settings_.too_long == TooLong::refuse) {
        refuse(message("batches: ", what_, " of row ", row, " has ",
                       ids.size() + static_cast<std::size_t>(extra),
                       " tokens, special ones included; at most ", settings_.tokens, " fit"));
      }
      truncated_ = true;
    }
    Ids kept;
    for (std::size_t i = 0; i < std::min(ids.size(), most); ++i)
      kept.push_back(static_cast<std::int32_t>(ids[i]));
    return kept;
  }
  [[nodiscard]] bool take_truncated() noexcept { return std::exchange(truncated_, false); }

 private:
  BatchSettings settings_;
  std::string_view what_;
  bool truncated_ = false;
};

// Rows of different lengths as [rows, tokens] with padding; the mask stays empty if there is none.
std::int64_t pad(const std::vector<const Ids*>& rows, std::int32_t padding, Ids& out,
                 std::vector<std::uint8_t>* mask) {
  std::size_t tokens = 0, sum = 0;
  for (const Ids* row : rows) {
    tokens = std::max(tokens, row->size());
    sum += row->size();
  }
  out.assign(rows.size() * tokens, padding);
  if (mask != nullptr && sum != out.size()) mask->assign(out.size(), 0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::copy(rows[r]->begin(), rows[r]->end(),
              out.begin() + static_cast<std::ptrdiff_t>(r * tokens));
    if (mask != nullptr && !mask->empty())
      std::fill_n(mask->begin() + static_cast<std::ptrdiff_t>(r * tokens), rows[r]->size(), 1);
  }
  return static_cast<std::int64_t>(tokens);
}

std::int32_t padding_of(const text::Tokenizer& tokenizer) {
  return static_cast<std::int32_t>(tokenizer.specials().pad.value_or(0));
}

class ClassificationBatches final : public Batches {
 public:
  ClassificationBatches(const LabelledSet& set, const text::Tokenizer& tokenizer,
                        const BatchSettings& settings)
      : padding_(padding_of(tokenizer)) {
    const std::int32_t classify = needed(tokenizer.specials().classify, "[CLS]");
    const std::int32_t separate = needed(tokenizer.specials().separate, "[SEP]");
    Encoder encoder(settings, "text");
    std::vector<std::int64_t> lengths;
    for (const LabelledSet::Row& row : set.rows) {
      Ids ids = encoder.encode(tokenizer, row.text, 2, rows_.size());
      truncated_ += encoder.take_truncated();
      ids.insert(ids.begin(), classify);
      ids.push_back(separate);
      lengths.push_back(static_cast<std::int64_t>(ids.size()));
      rows_.push_back({std::move(ids), row.label});
    }
    order_.emplace(settings, std::move(lengths));
  }

  [[nodiscard]] std::int64_t steps() const noexcept override { return order_->steps(); }
  [[nodiscard]] std::int64_t truncated() const noexcept override { return truncated_; }
  [[nodiscard]] Batch at(std::int64_t step) const override {
    Batch batch;
    std::vector<const Ids*> rows;
    for (const std::int64_t i : order_->rows_of(step)) {
      rows.push_back(&rows_[static_cast<std::size_t>(i)].ids);
      batch.labels.push_back(rows_[static_cast<std::size_t>(i)].label);
    }
    batch.rows = static_cast<std::int64_t>(rows.size());
    batch.tokens = pad(rows, padding_, batch.ids, &batch.mask);
    return batch;
  }

 private:
  struct Row {
    Ids ids;
    std::int32_t label = 0;
  };
  std::vector<Row> rows_;
  std::optional<RowOrder> order_;
  std::int32_t padding_;
  std::int64_t truncated_ = 0;
};

class TranslationBatches final : public Batches {
 public:
  TranslationBatches(const PairSet& set, const text::Tokenizer& source,
                     const text::Tokenizer& target, const BatchSettings& settings)
      : source_padding_(padding_of(source)), target_padding_(padding_of(target)) {
    const auto end_of = [](const text::SpecialTokens& specials) {
      return needed(specials.end ? specials.end : specials.separate, "end or [SEP]");
    };
    const text::SpecialTokens& specials = target.specials();
    const std::int32_t begin =
        needed(specials.begin ? specials.begin : specials.classify, "begin or [CLS]");
    const std::int32_t source_end = end_of(source.specials()), target_end = end_of(specials);
    Encoder sources(settings, "source"), targets(settings, "target");
    std::vector<std::int64_t> lengths;
    for (const PairSet::Row& row : set.rows) {
      Row made;
      made.source = sources.encode(source, row.source, 1, rows_.size());
      made.labels = targets.encode(target, row.target, 1, rows_.size());
      const std::array cuts = {sources.take_truncated(), targets.take_truncated()};
      truncated_ += cuts[0] || cuts[1];
      made.source.push_back(source_end);
      made.ids = made.labels;
      made.ids.insert(made.ids.begin(), begin);
      made.labels.push_back(target_end);
      lengths.push_back(static_cast<std::int64_t>(made.source.size() + made.ids.size()));
      rows_.push_back(std::move(made));
    }
    order_.emplace(settings, std::move(lengths));
  }

  [[nodiscard]] std::int64_t steps() const noexcept override { return order_->steps(); }
  [[nodiscard]] std::int64_t truncated() const noexcept override { return truncated_; }
  [[nodiscard]] Batch at(std::int64_t step) const override {
    Batch batch;
    std::vector<const Ids*> sources, ids, labels;
    for (const std::int64_t i : order_->rows_of(step)) {
      const Row& row = rows_[static_cast<std::size_t>(i)];
      sources.push_back(&row.source);
      ids.push_back(&row.ids);
      labels.push_back(&row.labels);
    }
    batch.rows = static_cast<std::int64_t>(ids.size());
    batch.tokens = pad(ids, target_padding_, batch.ids, &batch.mask);
    (void)pad(labels, kNoLabel, batch.labels, nullptr);
    batch.source_tokens = pad(sources, source_padding_, batch.source_ids, &batch.source_mask);
    return batch;
  }

 private:
  struct Row {
    Ids source, ids, labels;
  };
  std::vector<Row> rows_;
  std::optional<RowOrder> order_;
  std::int32_t source_padding_, target_padding_;
  std::int64_t truncated_ = 0;
};

}  // namespace

std::unique_ptr<Batches> classification_batches(const LabelledSet& set,
                                                const text::Tokenizer& tokenizer,
                                                const BatchSettings& settings) {
  check_settings(settings, 3);
  return std::make_unique<ClassificationBatches>(set, tokenizer, settings);
}

std::unique_ptr<Batches> translation_batches(const PairSet& set, const text::Tokenizer& source,
                                             const text::Tokenizer& target,
                                             const BatchSettings& settings) {
  check_settings(settings, 2);
  return std::make_unique<TranslationBatches>(set, source, target, settings);
}

}  // namespace phasor::lab
