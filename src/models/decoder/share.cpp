#include "models/decoder/share.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "models/decoder/state.hpp"
#include "phasor/attention/internal/merge.hpp"

namespace phasor::models {
namespace {

// Tokens [first, last) of a cache.
[[nodiscard]] core::ConstHeadsView rows_of(core::ConstHeadsView view, std::int64_t first,
                                           std::int64_t last) {
  view.data = static_cast<const std::byte*>(view.data) +
              first * view.token_stride * static_cast<std::int64_t>(core::size_of(view.dtype));
  view.tokens = last - first;
  return view;
}

[[nodiscard]] std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

class SharedAttention {
 public:
  SharedAttention(const Run& run, const SharedLayer& layer, ShareWorkspace& work)
      : run_(run),
        layer_(layer),
        work_(work),
        share_(*run.sequence->options.share),
        positions_(run.owners->own_positions()),
        width_(layer.heads * layer.head_dim) {}

  void run(const float* query, float* out) {
    const auto ranks = index(share_.ranks());
    const std::int64_t count = run_.count(), answer = answer_size(count);
    std::vector<float>& answers = work_.answers;
    answers.resize(ranks * index(answer));
    const std::span<const float> question(query, index(count * width_));
    if (run_.everywhere) {
      work_.partial.resize(index(answer));
      const auto owner = std::find_if(run_.blocks.begin(), run_.blocks.end(),
                                      [](const TokenBlock& block) { return block.count > 0; });
      attend(static_cast<int>(owner - run_.blocks.begin()), question, work_.partial);
      const std::vector<std::int64_t> sizes(ranks, answer * std::int64_t{sizeof(float)});
      share_.gather(std::as_bytes(std::span(work_.partial)), sizes, ContextShare::kEveryRank,
                    std::as_writable_bytes(std::span(answers)));
    } else {
      std::vector<ContextShare::Sizes> sizes;
      for (const TokenBlock& block : run_.blocks)
        sizes.push_back({block.count * width_, answer_size(block.count)});
      share_.ask(
          question, sizes,
          [&](int asker, std::span<const float> asked, std::span<float> into) {
            attend(asker, asked, into);
          },
          answers);
    }
    merge(count, out);
  }

 private:
  // [count, heads, head_dim], then the log-sum-exp [heads, count].
  [[nodiscard]] std::int64_t answer_size(std::int64_t count) const {
    return count * (width_ + layer_.heads);
  }

  // The queries of a rank's block over the keys of this one.
  void attend(int asker, std::span<const float> queries, std::span<float> answer) {
    const auto& blocks = run_.blocks;
    const TokenBlock& block = blocks[index(asker)];
    const TokenBlock& mine = blocks[index(share_.rank())];
    const std::int64_t count = block.count;
    const bool own = asker == share_.rank();
    const std::int64_t first =
        run_.sequence->options.first_position + run_.first_token() + block.first;  // position
    // This rank's tokens of the call are before all queries of a later block.
    const std::int64_t end = run_.had_own + (own || mine.first < block.first ? mine.count : 0);
    std::int64_t begin = 0;
    attention::AttentionOptions options = layer_.options;
    if (options.window) {
      begin = std::lower_bound(positions_.begin(), positions_.begin() + end,
                               first - *options.window + 1) -
              positions_.begin();
    }
    float* const log_sums = answer.data() + count * width_;
    if (begin == end) {
      std::fill(answer.data(), log_sums, 0.0F);
      std::fill_n(log_sums, count * layer_.heads, -std::numeric_limits<float>::infinity());
      return;
    }
    options.causality = own ? attention::Causality::bottom_right : attention::Causality::none;
    if (options.window) add_window(first, count, begin, end, options);
    options.query_positions = core::positions_counted(first, count);
    if (!layer_.terms.slopes.empty())
      options.key_positions =
          core::positions_per_token(positions_.subspan(index(begin), index(end - begin)));
    if (layer_.cache.spec().rotary) options.keys = attention::KeyState::rotated;
    options.rotations = &work_.rotations[layer_.run * index(share_.ranks()) + index(asker)];
    attention::attend(
        layer_.terms, core::heads_view(queries.data(), 1, count, layer_.heads, layer_.head_dim),
        rows_of(layer_.cache.keys(), begin, end), rows_of(layer_.cache.values(), begin, end),
        core::heads_view(answer.data(), 1, count, layer_.heads, layer_.head_dim), options,
        {.log_sum_exp = log_sums});
  }

  // A window counts tokens of the whole context, of which this rank has some: as a mask, if it hides any.
  void add_window(std::int64_t first, std::int64_t count, std::int64_t begin, std::int64_t end,
                  attention::AttentionOptions& options) {
    const std::int64_t window = *options.window;
    options.window = std::nullopt;
    if (first + count - 1 - positions_[index(begin)] < window) return;
    work_.mask.resize(index(count * (end - begin)));
    auto seen = work_.mask.begin();
    for (std::int64_t query = first; query < first + count; ++query) {
      for (std::int64_t key = begin; key < end; ++key)
        *seen++ = query - positions_[index(key)] < window ? 1 : 0;
    }
    const std::int64_t shape[] = {count, end - begin};
    options.mask =
        attention::boolean_mask(work_.mask.data(), shape, 1, layer_.heads, count, end - begin);
  }

  void merge(std::int64_t count, float* out) const {
    const auto ranks = index(share_.ranks());
    const auto answer = index(answer_size(count));
    std::vector<double> log_sums(ranks), weights(ranks);
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t head = 0; head < layer_.heads; ++head) {
        for (std::size_t r = 0; r < ranks; ++r)
          log_sums[r] = work_.answers[r * answer + index(count * width_ + head * count + row)];
        attention::merge_weights(log_sums, weights);
        float* const to = out + row * width_ + head * layer_.head_dim;
        std::fill_n(to, layer_.head_dim, 0.0F);
        for (std::size_t r = 0; r < ranks; ++r) {
          if (weights[r] == 0.0) continue;
          const auto weight = static_cast<float>(weights[r]);
          const float* const from =
              work_.answers.data() + r * answer + row * width_ + head * layer_.head_dim;
          for (std::int64_t c = 0; c < layer_.head_dim; ++c) to[c] += weight * from[c];
        }
      }
    }
  }

  const Run& run_;
  const SharedLayer& layer_;
  ShareWorkspace& work_;
  ContextShare& share_;
  std::span<const std::int64_t> positions_;
  std::int64_t width_;
};

}  // namespace

// After a call that was divided, no rank has more than ceil(tokens / ranks), unless it had before. A call that
// was not divided gives fewer than kTokensToDivide * ranks tokens to the rank that has the fewest, which is at
// most tokens / ranks.
std::int64_t share_of_capacity(std::int64_t capacity, int ranks) noexcept {
  return std::min(capacity, (capacity + ranks - 1) / ranks + kTokensToDivide * ranks);
}

TokenOwners::TokenOwners(const ContextShare& share, std::int64_t first_position,
                         std::int64_t capacity)
    : held_(index(share.ranks()), 0), first_position_(first_position), rank_(share.rank()) {
  owners_.reserve(index(capacity));
  own_.reserve(index(share_of_capacity(capacity, share.ranks())));
}

bool TokenOwners::divides(std::int64_t tokens) const noexcept {
  return tokens >= kTokensToDivide * static_cast<std::int64_t>(held_.size());
}

std::vector<TokenBlock> TokenOwners::blocks(std::int64_t tokens) const {
  std::vector<TokenBlock> blocks(held_.size());
  if (!divides(tokens)) {
    blocks[index(std::min_element(held_.begin(), held_.end()) - held_.begin())].count = tokens;
    return blocks;
  }
  // The level to which ranks with fewer tokens are filled; what is left is less than one token for each.
  const auto filled = [&](std::int64_t level) {
    return std::accumulate(held_.begin(), held_.end(), std::int64_t{0},
                           [&](std::int64_t sum, std::int64_t held) {
                             return sum + std::max<std::int64_t>(0, level - held);
                           });
  };
  std::int64_t level = *std::min_element(held_.begin(), held_.end());
  for (std::int64_t step = tokens; step > 0; step /= 2) {
    while (filled(level + step) <= tokens) level += step;
  }
  std::int64_t left = tokens - filled(level), first = 0;
  for (std::size_t r = 0; r < held_.size(); ++r) {
    TokenBlock& block = blocks[r];
    block.first = first;
    block.count = std::max<std::int64_t>(0, level - held_[r]);
    if (left > 0 && held_[r] <= level) {
      ++block.count;
      --left;
    }
    first += block.count;
  }
  return blocks;
}

void TokenOwners::append(std::span<const TokenBlock> blocks) {
  for (std::size_t r = 0; r < blocks.size(); ++r) {
    for (std::int64_t i = 0; i < blocks[r].count; ++i) {
      if (static_cast<int>(r) == rank_)
        own_.push_back(first_position_ + static_cast<std::int64_t>(owners_.size()));
      owners_.push_back(static_cast<int>(r));
    }
    held_[r] += blocks[r].count;
  }
}

void TokenOwners::truncate(std::int64_t tokens) noexcept {
  for (; static_cast<std::int64_t>(owners_.size()) > tokens; owners_.pop_back()) {
    --held_[index(owners_.back())];
    if (owners_.back() == rank_) own_.pop_back();
  }
}

void attend_shared(const Run& run, const SharedLayer& layer, const float* query, float* out,
                   ShareWorkspace& work) {
  SharedAttention(run, layer, work).run(query, out);
}

}  // namespace phasor::models
