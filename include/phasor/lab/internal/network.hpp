// A transformer with gradients by hand: encoder, decoder or both, with any encoding of the lab.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/lab/internal/batch.hpp"
#include "phasor/lab/internal/model_spec.hpp"
#include "phasor/lab/internal/part_times.hpp"

namespace phasor::lab {

// A parameter tensor inside the network's one array of numbers.
struct Parameter {
  std::string name;                  // as in its checkpoint
  std::vector<std::int64_t> shape;   // row-major
  std::size_t first = 0, count = 0;  // its numbers
  // Weight decay applies to matrices only, not to biases, norms and small tables of encodings.
  enum class Decay : std::uint8_t { decays, exempt };
  Decay decay = Decay::exempt;
};

struct Loss {
  double sum = 0.0;  // of the negative log-likelihoods in nats, with label smoothing if asked for
  double plain_sum = 0.0;    // without label smoothing
  std::int64_t labels = 0;   // predictions that count
  std::int64_t correct = 0;  // whose largest logit is the label

  Loss& operator+=(const Loss& other) noexcept {
    sum += other.sum;
    plain_sum += other.plain_sum;
    labels += other.labels;
    correct += other.correct;
    return *this;
  }
};

struct TrainOptions {
  double label_smoothing = 0.0;
  // Gradients are those of sum * gradient_scale: 1 / labels of the whole step, whatever its parts.
  double gradient_scale = 1.0;
  // Of the dropout of this call: the same seed and step give the same masks.
  std::uint64_t seed = 0, step = 0;
  // The batch is the rows from here on of a larger one: its dropout is that of these rows in the whole.
  std::int64_t first_row = 0;
  // If set, called during backward with falling offsets: this call no longer changes gradients [first,
  // end). The last offset is 0.
  std::function<void(std::size_t first)> final_from = {};
};

struct NetworkOptions {
  int threads = 0;             // 0: all of the process
  PartTimes* times = nullptr;  // added to, if not null; it must outlive the network
};

// T is float (kernels) or double (plain loops: to check gradients).
//
// Deterministic: results do not depend on the number of threads, bit for bit. Not thread-safe.
template <class T>
class Network {
 public:
  // The parameters are zero until initialise() or a copy to parameters().
  //
  // throws   Error as validate(spec); std::bad_alloc
  explicit Network(const ModelSpec& spec, const NetworkOptions& options = {});
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;

  [[nodiscard]] const ModelSpec& spec() const noexcept;
  [[nodiscard]] const std::vector<Parameter>& layout() const noexcept;
  [[nodiscard]] std::span<T> parameters() noexcept;
  [[nodiscard]] std::span<const T> parameters() const noexcept;
  [[nodiscard]] std::span<T> gradients() noexcept;

  // Normal numbers: of a standard deviation of 0.02 for embeddings, of sqrt(2 / (5 hidden)) for matrices
  // (those that are added to the stream of `llama`: over sqrt(2 layers)); ones for norms, zeros for
  // biases.
  void initialise(std::uint64_t seed);

  // The loss of a batch; its gradients are added to gradients().
  //
  // throws   Error(invalid_argument | shape_mismatch | out_of_range) for a batch that does not fit,
  //          before a gradient is written: ids or labels outside of the vocabulary, rows longer than a
  //          table of positions. Error(cancelled), std::bad_alloc: gradients hold any numbers
  // memory   activations of the batch, kept for the next one of the same sizes
  Loss train(const Batch& batch, const TrainOptions& options = {});
  // The loss without dropout and gradients. Rows may be longer than spec().context unless the encoding
  // has a table of positions.
  [[nodiscard]] Loss evaluate(const Batch& batch);
  // Negative log-likelihood in nats of each label, [rows, tokens], 0 where there is none.
  [[nodiscard]] std::vector<float> losses(const Batch& batch);

  // Logits of every token [rows, tokens, vocabulary], or of every row [rows, labels].
  [[nodiscard]] std::vector<T> logits(const Batch& batch);

  // The same parameters with another encoding of rotations or slopes, for tests of longer rows: rope's
  // scaling, or alibi. Tables of other encodings cannot be changed.
  //
  // throws   Error(unsupported)
  void set_test_encoding(const EncodingSpec& encoding);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace phasor::lab
