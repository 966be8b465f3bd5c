#include "lab/run/evaluate.hpp"

#include <algorithm>
#include <span>

#include "phasor/core/cancellation.hpp"
#include "phasor/models/internal/perplexity.hpp"

namespace phasor::lab {
namespace {

constexpr std::int64_t kTokensAtOnce = 4096;  // of a batch that is only evaluated
constexpr std::size_t kSentencesAtOnce = 32;

// Rows [first, first + rows) of `length` tokens, with the next token as label.
[[nodiscard]] Batch next_token_rows(std::span<const std::int32_t> ids, std::int64_t first,
                                    std::int64_t rows, std::int64_t length) {
  Batch batch;
  batch.rows = rows;
  batch.tokens = length;
  const std::span<const std::int32_t> from = ids.subspan(static_cast<std::size_t>(first * length));
  const auto count = static_cast<std::size_t>(rows * length);
  batch.ids.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
  batch.labels.assign(from.begin() + 1, from.begin() + static_cast<std::ptrdiff_t>(count) + 1);
  return batch;
}

void measure(Network<float>& network, std::span<const std::int32_t> ids, std::int64_t most_tokens,
             const Ranks& ranks, ContextLoss& into) {
  const std::int64_t length = into.context;
  const std::int64_t available = (static_cast<std::int64_t>(ids.size()) - 1) / length;
  const std::int64_t rows = std::min(available, std::max<std::int64_t>(1, most_tokens / length));
  if (rows < 1) return;
  const std::int64_t at_once = std::max<std::int64_t>(1, kTokensAtOnce / length);
  const std::int64_t last_quarter = length - std::max<std::int64_t>(1, length / 4);
  double sum = 0.0, tail = 0.0;
  std::int64_t tail_tokens = 0;
  const auto losses_of = [&](std::int64_t part) {
    core::throw_if_cancelled();
    const std::int64_t row = part * at_once, count = std::min(at_once, rows - row);
    return bytes_of<float>(network.losses(next_token_rows(ids, row, count, length)));
  };
  for (const std::string& part : ranks.divided((rows + at_once - 1) / at_once, losses_of)) {
    const std::vector<float> losses = values_of<float>(part);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      sum += losses[i];
      if (static_cast<std::int64_t>(i) % length < last_quarter) continue;
      tail += losses[i];
      ++tail_tokens;
    }
  }
  into.tokens = rows * length;
  into.nats = sum / static_cast<double>(into.tokens);
  into.last_quarter_nats = tail / static_cast<double>(tail_tokens);
}

// The source side of sentences [first, first + rows), padded to the longest.
[[nodiscard]] Batch source_rows(std::span<const TaskData::Sentence> sentences, std::int32_t pad) {
  Batch batch;
  batch.rows = static_cast<std::int64_t>(sentences.size());
  for (const TaskData::Sentence& sentence : sentences) {
    batch.source_tokens =
        std::max(batch.source_tokens, static_cast<std::int64_t>(sentence.source.size()));
  }
  for (const TaskData::Sentence& sentence : sentences) {
    const auto padding = static_cast<std::size_t>(batch.source_tokens) - sentence.source.size();
    batch.source_ids.insert(batch.source_ids.end(), sentence.source.begin(), sentence.source.end());
    batch.source_ids.insert(batch.source_ids.end(), padding, pad);
    batch.source_mask.insert(batch.source_mask.end(), sentence.source.size(), 1);
    batch.source_mask.insert(batch.source_mask.end(), padding, 0);
  }
  return batch;
}

[[nodiscard]] std::vector<std::vector<std::int64_t>> translate_rows(
    Network<float>& network, std::span<const TaskData::Sentence> sentences,
    const text::SpecialTokens& specials, std::int64_t longest) {
  // [CLS] and [SEP] stand in, as in translation_batches().
  const auto begin =
      static_cast<std::int32_t>(specials.begin ? *specials.begin : *specials.classify);
  const auto end = static_cast<std::int32_t>(specials.end ? *specials.end : *specials.separate);
  Batch batch = source_rows(sentences, static_cast<std::int32_t>(specials.pad.value_or(end)));
  const std::size_t rows = sentences.size();
  const auto vocabulary = static_cast<std::size_t>(network.spec().vocabulary);
  std::vector<std::vector<std::int32_t>> answers(rows, {begin});
  std::vector<bool> ended(rows);
  for (std::int64_t length = 1; length <= longest; ++length) {
    core::throw_if_cancelled();
    batch.tokens = length;
    batch.ids.clear();
    for (const auto& answer : answers) {
      batch.ids.insert(batch.ids.end(), answer.begin(), answer.end());
    }
    const std::vector<float> logits = network.logits(batch);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t last = ((row + 1) * static_cast<std::size_t>(length) - 1) * vocabulary;
      const std::span<const float> own = std::span(logits).subspan(last, vocabulary);
      const auto best =
          static_cast<std::int32_t>(std::max_element(own.begin(), own.end()) - own.begin());
      if (best == end) ended[row] = true;
      answers[row].push_back(ended[row] ? end : best);
    }
    if (std::all_of(ended.begin(), ended.end(), [](bool done) { return done; })) break;
  }
  std::vector<std::vector<std::int64_t>> result(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto stop = std::find(answers[row].begin() + 1, answers[row].end(), end);
    result[row].assign(answers[row].begin() + 1, stop);
  }
  return result;
}

}  // namespace

Loss loss_of(Network<float>& network, const Batches& batches, std::int64_t most,
             const Ranks& ranks) {
  Loss loss;
  for (const std::string& batch :
       ranks.divided(std::min(most, batches.steps()), [&](std::int64_t step) {
         core::throw_if_cancelled();
         const Loss own = network.evaluate(batches.at(step));
         return bytes_of(std::span<const Loss>(&own, 1));
       })) {
    loss += values_of<Loss>(batch).front();
  }
  return loss;
}

std::vector<ContextLoss> losses_by_context(
    Network<float>& network, const TaskData& data, const TrainingSettings& training,
    const EvaluationSettings& settings, const Ranks& ranks,
    const std::function<void(const std::string&, double)>& report) {
  std::vector<ContextLoss> cells;
  const EncodingSpec own = network.spec().encoding;
  const bool scales = own.name == EncodingName::rope;
  std::vector<std::string> scalings = {"none"};
  if (scales) scalings = settings.scalings;
  const double all = static_cast<double>(settings.contexts.size() * scalings.size());
  for (const std::string& scaling : scalings) {
    for (const std::int64_t context : settings.contexts) {
      report(message("evaluating at ", context, scales ? ", scaling " + scaling : ""),
             static_cast<double>(cells.size()) / all);
      ContextLoss cell;
      cell.context = context;
      cell.scaling = scaling;
      EncodingSpec changed = own;
      if (const auto other =
              models::scaling_for(scaling, training.context, context).value_or_throw()) {
        changed.scaling = *other;
      }
      if (scaling != "none") network.set_test_encoding(changed);
      try {
        measure(network, data.held_out, settings.tokens, ranks, cell);
      } catch (const Error& error) {
        if (scaling != "none") network.set_test_encoding(own);
        // A table of positions ends.
        if (error.code() != ErrorCode::out_of_range) throw;
      }
      if (scaling != "none") network.set_test_encoding(own);
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

std::vector<std::string> translate(Network<float>& network, const TaskData& data,
                                   const EvaluationSettings& settings, const Ranks& ranks,
                                   const std::function<void(const std::string&, double)>& report) {
  const text::SpecialTokens& specials = data.tokenizer->specials();
  if ((!specials.begin && !specials.classify) || (!specials.end && !specials.separate)) {
    refuse("translation needs a tokenizer with a begin and an end token");
  }
  std::vector<std::string> answers;
  const auto count = std::min(data.sentences.size(), static_cast<std::size_t>(settings.sentences));
  const auto lines_of = [&](std::int64_t part) {
    const std::size_t first = static_cast<std::size_t>(part) * kSentencesAtOnce;
    report("translating", static_cast<double>(first) / static_cast<double>(count));
    const auto rows = std::min<std::size_t>(kSentencesAtOnce, count - first);
    std::string lines;
    for (const std::vector<std::int64_t>& ids : translate_rows(
             network, std::span(data.sentences).subspan(first, rows), specials, settings.longest)) {
      std::string text = data.tokenizer->decode(ids);
      // A line of the file is a sentence.
      std::replace_if(
          text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
      lines += text + "\n";
    }
    return lines;
  };
  const auto parts = static_cast<std::int64_t>((count + kSentencesAtOnce - 1) / kSentencesAtOnce);
  for (std::string_view lines : ranks.divided(parts, lines_of)) {
    for (; !lines.empty(); lines.remove_prefix(lines.find('\n') + 1)) {
      answers.emplace_back(lines.substr(0, lines.find('\n')));
    }
  }
  return answers;
}

}  // namespace phasor::lab
