// Arguments that linear attention refuses: the error code, the sizes in the message, and nothing written.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "attention/linear/linear_support.hpp"
#include "support/errors.hpp"

namespace phasor::attention {
namespace {

using core::DType;
using tests::Rotating;

struct Arguments {
  std::vector<float> memory = std::vector<float>(8192, 0.5F);
  std::vector<float> results = std::vector<float>(8192, 0.25F);
  std::optional<core::Rotary> rotary = tests::rotary_for(Rotating::half, 8);
  core::ConstHeadsView q = core::heads_view(memory.data(), 2, 5, 4, 8);
  core::ConstHeadsView k = core::heads_view(memory.data() + 1000, 2, 5, 2, 8);
  core::ConstHeadsView v = core::heads_view(memory.data() + 2000, 2, 5, 2, 6);
  core::ConstHeadsView d_out = core::heads_view(memory.data() + 3000, 2, 5, 4, 6);
  core::HeadsView out = core::heads_view(results.data(), 2, 5, 4, 6);
  core::HeadsView d_q = core::heads_view(results.data() + 1000, 2, 5, 4, 8);
  core::HeadsView d_k = core::heads_view(results.data() + 2000, 2, 5, 2, 8);
  core::HeadsView d_v = core::heads_view(results.data() + 3000, 2, 5, 2, 6);
  LinearOptions options{.causality = Causality::bottom_right};
  LinearState state{2, 2, 8, 6};
  LinearState* used = nullptr;
  std::vector<std::int64_t> ids;
  std::vector<std::uint8_t> padding;

  void forward() { linear_attend(rotary, q, k, v, out, options, used); }
  void backward() { linear_attend_backward(rotary, q, k, v, d_out, d_q, d_k, d_v, options); }
};

struct LinearRefusal {
  const char* name;
  std::function<void(Arguments&)> spoil;
  ErrorCode code;
  std::vector<std::string> values;  // that the message shows
};

void expect_refusal(const LinearRefusal& refusal, void (Arguments::*call)()) {
  SCOPED_TRACE(refusal.name);
  Arguments a;
  refusal.spoil(a);
  const std::vector<float> memory = a.memory, results = a.results;
  const std::int64_t tokens = a.state.tokens();
  try {
    (a.*call)();
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), refusal.code) << error.what();
    for (const std::string& value : refusal.values) {
      EXPECT_NE(std::string(error.what()).find(value), std::string::npos)
          << value << " in: " << error.what();
    }
  }
  EXPECT_EQ(a.memory, memory);
  EXPECT_EQ(a.results, results);
  EXPECT_EQ(a.state.tokens(), tokens);
}

// Arguments that both passes must refuse.
const std::vector<LinearRefusal>& shared_refusals() {
  static const std::vector<LinearRefusal> kRefusals = {
      {"batch",
       [](Arguments& a) { a.k.batch = 1; },
       ErrorCode::shape_mismatch,
       {"[2, 5, 4, 8]", "[1, 5, 2, 8]", "[2, 5, 2, 6]"}},
      {"keys and values",
       [](Arguments& a) { a.v.tokens = 4; },
       ErrorCode::shape_mismatch,
       {"[2, 4, 2, 6]"}},
      {"key heads",
       [](Arguments& a) { a.v.heads = 1; },
       ErrorCode::shape_mismatch,
       {"[2, 5, 1, 6]"}},
      {"head_dim of k",
       [](Arguments& a) { a.k.head_dim = 7; },
       ErrorCode::shape_mismatch,
       {"[2, 5, 2, 7]"}},
      {"groups",
       [](Arguments& a) {
         a.k.heads = a.v.heads = 3;
         a.used = nullptr;
       },
       ErrorCode::shape_mismatch,
       {"4 heads", "3"}},
      {"no head",
       [](Arguments& a) { a.q.heads = 0; },
       ErrorCode::shape_mismatch,
       {"q", "[2, 5, 0, 8]"}},
      {"negative tokens",
       [](Arguments& a) { a.k.tokens = -1; },
       ErrorCode::shape_mismatch,
       {"k", "[2, -1, 2, 8]"}},
      {"float64",
       [](Arguments& a) { a.v.dtype = DType::f64; },
       ErrorCode::unsupported,
       {"v", "f64"}},
      {"null",
       [](Arguments& a) { a.q.data = nullptr; },
       ErrorCode::invalid_argument,
       {"q", "null", "[2, 5, 4, 8]"}},
      {"rotary of another width",
       [](Arguments& a) { a.rotary = tests::rotary_for(Rotating::half, 16); },
       ErrorCode::shape_mismatch,
       {"16", "8", "head_dim"}},
      {"positions",
       [](Arguments& a) {
         a.ids = {1, 2, 3};
         a.options.key_positions = core::positions_per_token(a.ids);
       },
       ErrorCode::shape_mismatch,
       {"3", "5"}},
      {"positions too far",
       [](Arguments& a) {
         a.options.query_positions = core::positions_from(std::int64_t{1} << 60);
       },
       ErrorCode::out_of_range,
       {"position"}},
      {"padding",
       [](Arguments& a) {
         a.padding.resize(9);
         a.options.key_padding = a.padding;
       },
       ErrorCode::shape_mismatch,
       {"key_padding", "2", "5", "9"}},
      {"threads",
       [](Arguments& a) { a.options.threads = -1; },
       ErrorCode::invalid_argument,
       {"threads", "-1"}},
      {"favor without a number of features",
       [](Arguments& a) { a.options.features = FeatureMap::favor; },
       ErrorCode::out_of_range,
       {"feature_count", "65536", "0"}},
      {"favor with too many features",
       [](Arguments& a) {
         a.options.features = FeatureMap::favor;
         a.options.feature_count = kMaxFeatureCount + 1;
       },
       ErrorCode::out_of_range,
       {"feature_count", "65537"}},
      {"a number of features that the map does not have",
       [](Arguments& a) { a.options.feature_count = 16; },
       ErrorCode::invalid_argument,
       {"elu_plus_one", "feature_count", "16"}},
      {"a rotary of q for random features",
       [](Arguments& a) {
         a.options.features = FeatureMap::favor;
         a.options.feature_count = 12;
       },
       ErrorCode::shape_mismatch,
       {"head_dim 8", "feature_count 12"}},
      {"a rotary of random features for q",
       [](Arguments& a) {
         a.options.features = FeatureMap::favor;
         a.options.feature_count = 12;
         a.options.rotates = Rotates::inputs;
         a.rotary = tests::rotary_for(Rotating::half, 12);
       },
       ErrorCode::shape_mismatch,
       {"head_dim 12", "head_dim 8"}},
  };
  return kRefusals;
}

TEST(LinearRefusals, Forward) {
  for (const LinearRefusal& refusal : shared_refusals())
    expect_refusal(refusal, &Arguments::forward);
  for (const LinearRefusal& refusal : std::vector<LinearRefusal>{
           {"out's shape",
            [](Arguments& a) { a.out.head_dim = 8; },
            ErrorCode::shape_mismatch,
            {"out", "[2, 5, 4, 6]", "[2, 5, 4, 8]"}},
           {"out's type",
            [](Arguments& a) { a.out.dtype = DType::f64; },
            ErrorCode::unsupported,
            {"out", "f64"}},
           {"out on itself",
            [](Arguments& a) { a.out.head_stride = 0; },
            ErrorCode::invalid_argument,
            {"out", "strides"}},
           {"out on an input",
            [](Arguments& a) { a.out.data = a.memory.data() + 1010; },
            ErrorCode::invalid_argument,
            {"out", "overlaps"}},
           {"a state without causality",
            [](Arguments& a) {
              a.used = &a.state;
              a.options.causality = Causality::none;
            },
            ErrorCode::invalid_argument,
            {"state", "bottom_right"}},
           {"a state with other numbers of queries",
            [](Arguments& a) {
              a.used = &a.state;
              a.q.tokens = a.out.tokens = 3;
            },
            ErrorCode::shape_mismatch,
            {"3 queries", "5 keys"}},
           {"a state of another shape",
            [](Arguments& a) {
              a.state = LinearState(2, 2, 8, 7);
              a.used = &a.state;
            },
            ErrorCode::shape_mismatch,
            {"2, 2, 8, 7", "value_dim 6"}},
           {"a state of another map",
            [](Arguments& a) {
              a.used = &a.state;
              a.forward();
              a.options.features = FeatureMap::softmax_exp;
            },
            ErrorCode::invalid_argument,
            {"elu_plus_one", "softmax_exp"}},
           {"a state that rotated something else",
            [](Arguments& a) {
              a.used = &a.state;
              a.forward();
              a.options.rotates = Rotates::inputs;
            },
            ErrorCode::invalid_argument,
            {"features", "inputs"}},
           {"a state of another seed",
            [](Arguments& a) {
              a.options.features = FeatureMap::favor;
              a.options.feature_count = 8;
              a.options.seed = 3;
              a.used = &a.state;
              a.forward();
              a.options.seed = 4;
            },
            ErrorCode::invalid_argument,
            {"seed 3", "seed 4"}},
           {"a state as wide as q",
            [](Arguments& a) {
              a.options.features = FeatureMap::favor;
              a.options.feature_count = 12;
              a.rotary.reset();
              a.used = &a.state;
            },
            ErrorCode::shape_mismatch,
            {"feature_count 12", "2, 2, 8, 6"}},
       }) {
    expect_refusal(refusal, &Arguments::forward);
  }
}

TEST(LinearRefusals, Backward) {
  for (const LinearRefusal& refusal : shared_refusals())
    expect_refusal(refusal, &Arguments::backward);
  for (const LinearRefusal& refusal : std::vector<LinearRefusal>{
           {"d_out",
            [](Arguments& a) { a.d_out.tokens = 4; },
            ErrorCode::shape_mismatch,
            {"d_out", "[2, 5, 4, 6]", "[2, 4, 4, 6]"}},
           {"d_q",
            [](Arguments& a) { a.d_q.head_dim = 6; },
            ErrorCode::shape_mismatch,
            {"d_q", "[2, 5, 4, 8]", "[2, 5, 4, 6]"}},
           {"d_k",
            [](Arguments& a) { a.d_k.heads = 4; },
            ErrorCode::shape_mismatch,
            {"d_k", "[2, 5, 2, 8]", "[2, 5, 4, 8]"}},
           {"d_v",
            [](Arguments& a) { a.d_v.dtype = DType::f64; },
            ErrorCode::unsupported,
            {"d_v", "f64"}},
           {"d_k on d_v",
            [](Arguments& a) { a.d_k.data = a.results.data() + 3001; },
            ErrorCode::invalid_argument,
            {"d_k", "overlaps"}},
           {"d_v on d_out",
            [](Arguments& a) { a.d_v.data = a.memory.data() + 3001; },
            ErrorCode::invalid_argument,
            {"d_v", "overlaps"}},
       }) {
    expect_refusal(refusal, &Arguments::backward);
  }
}

TEST(LinearRefusals, AStateNeedsSizes) {
  EXPECT_THROW(LinearState(-1, 1, 1, 1), Error);
  EXPECT_THROW(LinearState(1, 0, 1, 1), Error);
  EXPECT_THROW(LinearState(1, 1, 0, 1), Error);
  phasor::tests::expect_error(ErrorCode::shape_mismatch, {"head_dim 8", "value_dim 0"},
                              [] { return LinearState(1, 1, 8, 0); });
}

// Without a change the arguments are accepted.
TEST(LinearRefusals, NothingOfValidArguments) {
  Arguments a;
  a.used = &a.state;
  EXPECT_NO_THROW(a.forward());
  EXPECT_EQ(a.state.tokens(), 5);
  EXPECT_NO_THROW(a.backward());
}

}  // namespace
}  // namespace phasor::attention
