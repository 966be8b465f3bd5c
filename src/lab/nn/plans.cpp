#include "lab/nn/plans.hpp"

#include <algorithm>

namespace phasor::lab {
namespace {

// Plans of so many sizes are kept: batches of sentences come in a few.
constexpr std::size_t kKeptPlans = 6;

}  // namespace

template <class T>
bool Plans<T>::fits(const StackInput<T>& input) const noexcept {
  return rows == input.rows && tokens == input.tokens && memory_tokens == input.memory_tokens &&
         masked == !input.mask.empty() && memory_masked == !input.memory_mask.empty() &&
         (pass == input.pass || pass == Pass::train);
}

template <class T>
Plans<T> KeptPlans<T>::make(const Workers& workers, const Numbers<T>& numbers,
                            const PositionEncoding& position, const StackInput<T>& input) const {
  Plans<T> plans{.rows = input.rows,
                 .tokens = input.tokens,
                 .memory_tokens = input.memory_tokens,
                 .masked = !input.mask.empty(),
                 .memory_masked = !input.memory_mask.empty(),
                 .pass = input.pass};
  plans.padding.assign(input.mask.begin(), input.mask.end());
  plans.memory_padding.assign(input.memory_mask.begin(), input.memory_mask.end());
  const auto causality =
      mask_ == Mask::causal ? attention::Causality::bottom_right : attention::Causality::none;
  const auto passes = input.pass == Pass::train ? attention::AttentionPasses::forward_and_backward
                                                : attention::AttentionPasses::forward;
  if (spec_.attention == AttentionKind::linear) {
    std::optional<core::Rotary> rotary;
    if (spec_.encoding.name == EncodingName::rope) {
      encodings::RopeSpec rope = position.rope();
      // RoFormer (19) rotates the features, of which a random map has its own number.
      if (spec_.features == attention::FeatureMap::favor &&
          spec_.rotates == attention::Rotates::features) {
        rope.head_dim = rope.rotary_dim = spec_.feature_count;
      }
      rotary = encodings::resolve(rope, input.tokens);
    }
    attention::LinearOptions options;
    options.causality = causality;
    options.features = spec_.features;
    options.feature_count = spec_.feature_count;
    options.seed = spec_.feature_seed;
    options.rotates = spec_.rotates;
    options.key_padding = plans.padding;
    options.threads = workers.threads();
    plans.linear.emplace(
        rotary,
        attention::LinearSizes{.batch = input.rows,
                               .queries = input.tokens,
                               .keys = input.tokens,
                               .heads = spec_.heads,
                               .key_heads = spec_.heads,
                               .head_dim = spec_.head_dim(),
                               .value_dim = spec_.head_dim(),
                               .dtype = core::dtype_of<T>()},
        options,
        input.pass == Pass::train ? attention::LinearUse::training : attention::LinearUse::forward);
    return plans;
  }
  attention::AttentionSizes sizes{.batch = input.rows,
                                  .queries = input.tokens,
                                  .keys = input.tokens,
                                  .heads = spec_.heads,
                                  .key_heads = spec_.heads,
                                  .head_dim = spec_.head_dim(),
                                  .value_dim = spec_.head_dim(),
                                  .arithmetic = core::dtype_of<T>()};
  attention::AttentionOptions options;
  options.causality = causality;
  options.scale = position.scale();
  options.key_padding = plans.padding;
  options.threads = workers.threads();
  if (position.reads_segments()) {
    plans.segments.resize(static_cast<std::size_t>(input.rows * input.tokens));
    options.query_segments = options.key_segments = plans.segments;
  }
  plans.tables.resize(position.table_sets());
  for (std::size_t set = 0; set < plans.tables.size(); ++set) {
    position.compute_tables(workers, numbers, set, input.tokens, plans.tables[set]);
    plans.softmax.emplace_back(position.terms(&plans.tables[set], input.tokens), sizes, options,
                               passes);
  }
  if (plans.tables.empty()) {
    plans.softmax.emplace_back(position.terms<T>(nullptr, input.tokens), sizes, options, passes);
  }
  if (cross_ == CrossAttention::present) {
    sizes.keys = input.memory_tokens;
    attention::AttentionOptions across;
    across.key_padding = plans.memory_padding;
    across.threads = workers.threads();
    encodings::Encoding encoding = encodings::NoEncoding{};
    if (spec_.cross == ModelSpec::Cross::rope) {
      // Both sides count their own tokens from 0.
      encoding = position.rope();
      across.query_positions = across.key_positions = core::positions_from(0);
    }
    plans.cross.emplace(encodings::resolve(encoding, attention::attention_shape(sizes, across)),
                        sizes, across, passes);
  }
  return plans;
}

template <class T>
Plans<T>& KeptPlans<T>::of(const Workers& workers, const Numbers<T>& numbers,
                           const PositionEncoding& position, const StackInput<T>& input) {
  const auto found = std::find_if(plans_.begin(), plans_.end(),
                                  [&](const Plans<T>& plans) { return plans.fits(input); });
  if (found == plans_.end()) {
    plans_.push_front(make(workers, numbers, position, input));
    if (plans_.size() > kKeptPlans) plans_.pop_back();
  } else {
    plans_.splice(plans_.begin(), plans_, found);
    Plans<T>& plans = plans_.front();
    for (std::size_t set = 0; set < plans.tables.size(); ++set) {
      position.compute_tables(workers, numbers, set, input.tokens, plans.tables[set]);
      plans.softmax[set].update_tables();
    }
  }
  Plans<T>& plans = plans_.front();
  std::copy(input.mask.begin(), input.mask.end(), plans.padding.begin());
  std::copy(input.memory_mask.begin(), input.memory_mask.end(), plans.memory_padding.begin());
  if (!plans.segments.empty()) {
    std::fill(plans.segments.begin(), plans.segments.end(), 0);
    std::copy(input.segments.begin(), input.segments.end(), plans.segments.begin());
  }
  return plans;
}

template struct Plans<float>;
template struct Plans<double>;
template class KeptPlans<float>;
template class KeptPlans<double>;

}  // namespace phasor::lab
