#include "phasor/parallel/internal/lab.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lab/nn/networks.hpp"
#include "lab/run/synthetic.hpp"
#include "parallel/ranks.hpp"
#include "phasor/lab/internal/network.hpp"
#include "phasor/lab/internal/optimiser.hpp"
#include "phasor/lab/internal/run.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::parallel {
namespace {

using io::testing::get;
using lab::Architecture;
using lab::Batch;
using lab::EncodingName;
using lab::ModelSpec;
using lab::RunEnd;
using lab::Slice;
using lab::TrainOptions;
using tests::ranks;

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

std::vector<float> random_floats(std::uint64_t seed, std::size_t count) {
  lab::Random random(seed, lab::Stream::sampling);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random.normal());
  return numbers;
}

TEST(GradientExchange, SumsSlicesInTheOrderOfRanks) {
  Communicator& all = ranks();
  const auto size = static_cast<std::size_t>(all.size());
  for (const std::size_t count : {1U, 3U, 64U, 1001U}) {
    for (const std::size_t bucket : {1U, 16U, 4096U}) {
      MpiGradientExchange exchange(all, {.bucket = bucket});
      exchange.divide(count);
      std::vector<float> sums;
      for (std::uint64_t r = 0; r < size; ++r) {
        const std::vector<float> theirs = random_floats(r, count);
        for (std::size_t i = 0; i < count; ++i) {
          if (r == 0) sums.push_back(theirs[i]);
          if (r > 0) sums[i] += theirs[i];
        }
      }
      std::vector<float> own = random_floats(static_cast<std::uint64_t>(all.rank()), count);
      const std::int64_t before = all.bytes_sent();
      exchange.begin(own);
      // Gradients become final at other moments on each rank; on rank 0 never before the end.
      for (int part = 0; part < all.rank(); ++part) {
        exchange.final_from(count - count * static_cast<std::size_t>(part) / size);
      }
      exchange.finish();
      for (const Slice& slice : exchange.slices()) {
        for (std::size_t i = slice.first; i < slice.first + slice.count; ++i) {
          ASSERT_EQ(own[i], sums[i]) << i << " of " << count << ", bucket " << bucket;
        }
      }
      exchange.gather_slices(own);
      EXPECT_EQ(own, sums) << count << ", bucket " << bucket;
      std::int64_t bytes = all.bytes_sent() - before;
      all.sum(std::span(&bytes, 1));
      EXPECT_EQ(bytes, training_bytes_per_step(static_cast<std::int64_t>(count), all.size()));

      // What a checkpoint holds, to rank 0 and back.
      std::vector<float> mine, back;
      for (const Slice& slice : exchange.slices()) {
        const auto first = sums.begin() + static_cast<std::ptrdiff_t>(slice.first);
        mine.insert(mine.end(), first, first + static_cast<std::ptrdiff_t>(slice.count));
      }
      std::vector<float> whole(all.rank() == 0 ? count : 0);
      exchange.collect(mine, whole);
      EXPECT_EQ(whole, all.rank() == 0 ? sums : std::vector<float>());
      back.resize(mine.size());
      exchange.spread(whole, back);
      EXPECT_EQ(back, mine);
    }
  }
}

TEST(GradientExchange, DividesTheStateOfTheOptimiserEvenly) {
  Communicator& all = ranks();
  MpiGradientExchange exchange(all, {.bucket = 1000});
  exchange.divide(10'500);
  const lab::AdamW optimiser({}, {{"matrix", {105, 100}, 0, 10'500}}, exchange.slices());
  const double share = 10'500.0 / all.size();
  EXPECT_LE(std::abs(static_cast<double>(optimiser.first_moments().size()) - share), 11.0);
  EXPECT_EQ(optimiser.second_moments().size(), optimiser.first_moments().size());
}

// Rows of a batch, as a rank computes them.
Batch cut_rows(const Batch& batch, std::int64_t first, std::int64_t count) {
  const auto cut = [&](const auto& numbers) {
    const auto width = static_cast<std::int64_t>(numbers.size()) / batch.rows;
    return std::decay_t<decltype(numbers)>(numbers.begin() + first * width,
                                           numbers.begin() + (first + count) * width);
  };
  return {count,
          batch.tokens,
          cut(batch.ids),
          cut(batch.token_types),
          cut(batch.mask),
          cut(batch.labels),
          batch.source_tokens,
          cut(batch.source_ids),
          cut(batch.source_mask)};
}

// How far the gradients of divided rows are from those of the whole batch, relative to their norm, in epsilon.
double gradient_difference(const ModelSpec& spec, std::int64_t rows) {
  Communicator& all = ranks();
  const Batch batch = lab::tests::small_batch(spec, rows, 7, 5);
  TrainOptions options{.gradient_scale = 1.0 / 9.0, .seed = 3, .step = 8};
  lab::Network<float> whole(spec, {.threads = 1}), part(spec, {.threads = 1});
  lab::tests::randomise(whole, 4);
  lab::tests::randomise(part, 4);
  const lab::Loss expected = whole.train(batch, options);

  MpiGradientExchange exchange(all, {.bucket = 100});
  exchange.divide(part.parameters().size());
  exchange.begin(part.gradients());
  std::size_t last = part.parameters().size();
  options.final_from = [&](std::size_t first) {
    EXPECT_LE(first, last);
    last = first;
    exchange.final_from(first);
  };
  options.first_row = rows * all.rank() / all.size();
  const std::int64_t count = rows * (all.rank() + 1) / all.size() - options.first_row;
  lab::Loss loss;
  if (count > 0) {
    loss = part.train(cut_rows(batch, options.first_row, count), options);
    EXPECT_EQ(last, 0U);
  }
  exchange.finish();
  exchange.gather_slices(part.gradients());
  std::vector<double> sums{loss.plain_sum, static_cast<double>(loss.labels)};
  all.sum(std::span(sums));
  EXPECT_NEAR(sums[0] / expected.plain_sum, 1.0, lab::kRanksLossError * kEpsilon);
  EXPECT_EQ(sums[1], static_cast<double>(expected.labels));
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < part.gradients().size(); ++i) {
    const double a = part.gradients()[i], b = whole.gradients()[i];
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  return std::sqrt(difference / norm) / kEpsilon;
}

TEST(GradientExchange, GradientsOfDividedRowsAreThoseOfTheBatch) {
  double most = 0.0;
  for (const Architecture architecture :
       {Architecture::encoder, Architecture::decoder, Architecture::encoder_decoder}) {
    for (const EncodingName encoding : lab::tests::kEveryEncoding) {
      ModelSpec spec = lab::tests::small_spec(architecture, encoding);
      spec.dropout = 0.25;
      if (encoding == EncodingName::xlnet) spec.output = ModelSpec::Output::own;
      try {
        validate(spec);
      } catch (const Error&) {
        continue;  // not every encoding is for every architecture
      }
      for (const std::int64_t rows : {2, 5}) {
        const double difference = gradient_difference(spec, rows);
        EXPECT_LE(difference, lab::kRanksGradientError)
            << name_of(architecture) << " " << name_of(encoding) << " " << rows << " rows";
        most = std::max(most, difference);
      }
    }
  }
  RecordProperty("most", std::to_string(most));
}

class SmallBatches : public lab::Batches {
 public:
  SmallBatches(const ModelSpec& spec, std::int64_t rows, std::uint64_t seed)
      : spec_(spec), rows_(rows), seed_(seed) {}
  [[nodiscard]] Batch at(std::int64_t step) const override {
    return lab::tests::small_batch(spec_, rows_, 6,
                                   seed_ * 1000 + static_cast<std::uint64_t>(step));
  }
  [[nodiscard]] std::int64_t steps() const noexcept override { return 3; }

 private:
  ModelSpec spec_;
  std::int64_t rows_;
  std::uint64_t seed_;
};

lab::TaskData small_data(const lab::RunPlan& plan) {
  lab::TaskData data;
  data.vocabulary = 23;
  data.labels = 3;
  const ModelSpec spec = model_spec_of(plan, plan.stage, data.vocabulary, data.labels);
  const std::int64_t rows = plan.stage.training.batch / plan.stage.training.accumulation;
  const auto make = [=](std::uint64_t seed) -> std::unique_ptr<lab::Batches> {
    return std::make_unique<SmallBatches>(spec, rows, seed);
  };
  data.train = make;
  data.validation = [=] { return make(100); };
  data.test = [=] { return make(200); };
  return data;
}

// Column of log.csv by step; rows without it are left out.
std::map<std::int64_t, double> curve_of(const std::string& log, int column) {
  std::map<std::int64_t, double> curve;
  std::istringstream lines(log);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    std::string cell, step;
    std::getline(cells, step, ',');
    for (int at = 0; at < column; ++at) std::getline(cells, cell, ',');
    if (!cell.empty()) curve[std::stoll(step)] = std::stod(cell);
  }
  return curve;
}
constexpr int kLossColumn = 2, kNormColumn = 4, kValidationColumn = 5;

class LabOnRanks : public io::testing::TemporaryFolder {
 protected:
  struct Stop {
    int rank = 0;             // the rank that asks for it
    std::int64_t steps = -1;  // after so many of this call; -1: never
  };
  // Null: a process alone.
  RunEnd go(Communicator* group, const lab::RunPlan& plan, const lab::TaskData& data,
            std::string_view folder, const Stop& stop) const {
    core::Cancellation cancellation;
    lab::RunOptions options;
    options.threads = 1;
    options.cancellation = &cancellation;
    if (group == nullptr || group->rank() == 0) {
      options.progress = [&](const lab::RunProgress& now) {
        if (stop.steps >= 0 && stop.rank == 0 && now.step - now.first_step >= stop.steps) {
          cancellation.request();
        }
      };
    }
    if (group == nullptr) return lab::run(plan, data, nullptr, at(folder), options);
    // The other ranks have no progress: they are asked from the start.
    if (stop.steps >= 0 && stop.rank == group->rank() && stop.rank != 0) cancellation.request();
    MpiGradientExchange exchange(*group);
    options.exchange = &exchange;
    std::optional<lab::SharedError> shared;
    const RunEnd end = group->guarded([&] {
      try {
        return lab::run(plan, data, nullptr, at(folder), options);
      } catch (const lab::SharedError& error) {  // nothing to announce
        shared = error;
        return RunEnd::stopped;
      }
    });
    if (shared) throw lab::SharedError(*shared);
    return end;
  }

  static void expect_close(const std::string& log, const std::string& expected, int column,
                           std::size_t least, double& most) {
    const auto got = curve_of(log, column), want = curve_of(expected, column);
    std::size_t compared = 0;
    for (const auto& [step, value] : want) {
      const auto found = got.find(step);
      if (found == got.end()) continue;
      ++compared;
      const double units = std::abs(found->second / value - 1.0) / kEpsilon /
                           static_cast<double>(std::max<std::int64_t>(step, 1));
      most = std::max(most, units);
      EXPECT_LE(units, lab::kRanksCurveError)
          << "column " << column << ", step " << step << ": " << found->second << ", " << value;
    }
    EXPECT_GE(compared, least);
  }
};

constexpr std::string_view kTraining =
    R"("training": {"steps": 30, "learning_rate": 0.004, "warmup": 4, "log_every": 1, "evaluate_every": 8,
       "context": 8, )";

TEST_F(LabOnRanks, HasTheCurveOfOneRank) {
  struct Case {
    std::string name, task, model, training;
  };
  const std::string sizes = R"("hidden": 12, "layers": 2, "heads": 3, "intermediate": 20, )";
  const std::vector<Case> cases = {
      {"tied", "causal_lm", R"("encoding": "rope", "output": "tied")", R"("batch": 5)"},
      {"tables", "causal_lm", R"("encoding": "transformer_xl", "output": "own", "dropout": 0.1)",
       R"("batch": 6, "accumulation": 2, "clip": 0.2)"},
      {"few-rows", "masked_lm",
       R"("architecture": "encoder", "encoding": "tupe", "token_types": 2)", R"("batch": 2)"},
      {"classifier", "classification",
       R"("architecture": "encoder", "encoding": "learned", "token_types": 2, "dropout": 0.1)",
       R"("batch": 7)"},
      {"both", "translation",
       R"("architecture": "encoder-decoder", "encoding": "t5", "dropout": 0.2)",
       R"("batch": 6, "accumulation": 3, "label_smoothing": 0.1)"},
  };
  double most = 0.0;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const lab::RunPlan plan = lab::testing::plan_of(
        message(R"({"name": ")", one.name, R"(", "task": ")", one.task, R"(", "model": {)", sizes,
                one.model, "}, ", kTraining, one.training, R"(}, "variants": [{"name": "v"}]})"));
    const lab::TaskData data = small_data(plan);
    // Before evaluations of the end, which need a tokenizer for translations.
    const std::string alone = one.name + "-alone";
    if (ranks().rank() == 0) {
      ASSERT_EQ(go(nullptr, plan, data, alone, {0, 27}), RunEnd::stopped);
    }
    ASSERT_EQ(go(&ranks(), plan, data, one.name, {0, 25}), RunEnd::stopped);
    if (ranks().rank() != 0) {
      EXPECT_FALSE(std::filesystem::exists(at(one.name)));  // rank 0 alone writes
      continue;
    }
    const std::string got = get(at(one.name) / "log.csv"), want = get(at(alone) / "log.csv");
    expect_close(got, want, kLossColumn, 25, most);
    expect_close(got, want, kValidationColumn, 4, most);
    if (ranks().size() == 1) {
      EXPECT_EQ(got, want.substr(0, got.size()));
    }
  }
  RecordProperty("most", std::to_string(most));
}

lab::RunPlan tiny_plan(const std::vector<std::string>& assignments = {}, std::uint64_t seed = 3) {
  return lab::testing::plan_of(lab::testing::kTiny, {"", {seed}, {}, assignments});
}

// The first `count` ranks; null on the others.
std::unique_ptr<Communicator> first_ranks(int count) {
  const bool in = ranks().rank() < count;
  std::unique_ptr<Communicator> group = ranks().split(in ? 0 : 1, ranks().rank());
  if (!in) return nullptr;
  return group;
}

TEST_F(LabOnRanks, GoesOnWithAnotherNumberOfRanks) {
  const lab::RunPlan plan = tiny_plan();
  const std::shared_ptr<lab::TaskData> data = lab::testing::counting_data(plan.stage);
  const int size = ranks().size();
  for (const int count : {std::min(size, 2), std::min(size, 3)}) {
    const std::unique_ptr<Communicator> group = first_ranks(count);
    if (group) {
      EXPECT_EQ(go(group.get(), plan, *data, "run", {0, 6}), RunEnd::stopped);
      group->barrier();
    }
  }
  if (ranks().rank() == 0) {
    EXPECT_EQ(go(nullptr, plan, *data, "run", {0, 3}), RunEnd::stopped);
  }
  EXPECT_EQ(go(&ranks(), plan, *data, "run", {}), RunEnd::finished);
  EXPECT_EQ(go(&ranks(), plan, *data, "run", {}), RunEnd::already_finished);
  if (ranks().rank() != 0) return;
  EXPECT_EQ(go(nullptr, plan, *data, "alone", {}), RunEnd::finished);
  const std::string got = get(at("run") / "log.csv"), want = get(at("alone") / "log.csv");
  double most = 0.0;
  expect_close(got, want, kLossColumn, 14, most);
  expect_close(got, want, kNormColumn, 14, most);
  expect_close(got, want, kValidationColumn, 6, most);
  RecordProperty("most", std::to_string(most));
  EXPECT_FALSE(std::filesystem::exists(at("run") / "checkpoints"));
  const io::Json result = lab::read_result(at("run")).value_or_throw();
  const io::Json expected = lab::read_result(at("alone")).value_or_throw();
  ASSERT_EQ(result["contexts"].size(), 4U);
  for (std::size_t cell = 0; cell < 4; ++cell) {
    EXPECT_NEAR(result["contexts"][cell]["nats"].get<double>(),
                expected["contexts"][cell]["nats"].get<double>(),
                24 * lab::kRanksCurveError * kEpsilon);
  }
}

TEST_F(LabOnRanks, EvaluatesTheSameParametersToTheSameBits) {
  const lab::RunPlan plan = tiny_plan({"training.steps=1"});
  const std::shared_ptr<lab::TaskData> data = lab::testing::counting_data(plan.stage);
  ASSERT_EQ(go(&ranks(), plan, *data, "run", {}), RunEnd::finished);
  if (ranks().rank() != 0) return;
  ASSERT_EQ(go(nullptr, plan, *data, "alone", {}), RunEnd::finished);
  const auto first = [&](const char* run) {
    return curve_of(get(at(run) / "log.csv"), kValidationColumn).at(0);
  };
  EXPECT_EQ(first("run"), first("alone"));
}

TEST_F(LabOnRanks, StopsOnEveryRankWhenOneIsAsked) {
  const lab::RunPlan plan = tiny_plan();
  const std::shared_ptr<lab::TaskData> data = lab::testing::counting_data(plan.stage);
  const int last = ranks().size() - 1;
  if (last == 0) return;
  // The request of the last rank ends an evaluation or the steps; nobody else asks.
  EXPECT_EQ(go(&ranks(), plan, *data, "run", {last, 0}), RunEnd::stopped);
  EXPECT_EQ(lab::newest_checkpoint(at("run")).empty(), ranks().rank() != 0);
  EXPECT_EQ(go(&ranks(), plan, *data, "run", {}), RunEnd::finished);
}

// What every rank was refused with.
std::string shared_error_of(const auto& call) {
  try {
    static_cast<void>(call());
  } catch (const lab::SharedError& error) {
    return error.what();
  } catch (const Error& error) {
    return message("of one rank: ", error.what());
  }
  return "no error";
}

TEST_F(LabOnRanks, ADivergedLossStopsAllAndAnotherRunCanFollow) {
  const lab::RunPlan plan = tiny_plan({"training.learning_rate=1000", "training.clip=0"});
  const std::shared_ptr<lab::TaskData> data = lab::testing::counting_data(plan.stage);
  const std::string error = shared_error_of([&] { return go(&ranks(), plan, *data, "run", {}); });
  EXPECT_NE(error.find("step "), std::string::npos) << error;
  EXPECT_EQ(error.find("of one rank"), std::string::npos) << error;
  const std::vector<std::string> all = ranks().gather(error.substr(0, error.find(';')));
  for (const std::string& other : all) EXPECT_EQ(other, all.front());
  EXPECT_EQ(go(&ranks(), tiny_plan(), *data, "next", {}), RunEnd::finished);
}

TEST_F(LabOnRanks, RefusesRanksWithOtherSettingsOrData) {
  if (ranks().size() == 1) return;
  const int last = ranks().size() - 1;
  const bool differs = ranks().rank() == last;
  const std::shared_ptr<lab::TaskData> data = lab::testing::counting_data(tiny_plan().stage);
  const lab::RunPlan other = tiny_plan({}, differs ? 9 : 3);
  std::string error = shared_error_of([&] { return go(&ranks(), other, *data, "run", {}); });
  EXPECT_NE(error.find(message("rank ", last)), std::string::npos) << error;
  EXPECT_NE(error.find("seed: 3 -> 9"), std::string::npos) << error;
  if (differs) data->facts["text"] = "other";
  error = shared_error_of([&] { return go(&ranks(), tiny_plan(), *data, "run", {}); });
  EXPECT_NE(error.find("data.text"), std::string::npos) << error;
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

// A folder of other settings, which rank 0 alone sees.
TEST_F(LabOnRanks, AnErrorOfTheFolderIsThatOfEveryRank) {
  const std::shared_ptr<lab::TaskData> data = lab::testing::counting_data(tiny_plan().stage);
  EXPECT_EQ(go(&ranks(), tiny_plan(), *data, "run", {0, 2}), RunEnd::stopped);
  const lab::RunPlan other = tiny_plan({"training.clip=3"});
  const std::string error = shared_error_of([&] { return go(&ranks(), other, *data, "run", {}); });
  EXPECT_NE(error.find("clip"), std::string::npos) << error;
}

class FailingBatches : public lab::testing::CountingBatches {
 public:
  using CountingBatches::CountingBatches;
  [[nodiscard]] Batch at(std::int64_t step) const override {
    if (step >= 6) refuse(ErrorCode::io, "cannot read row 77");
    return CountingBatches::at(step);
  }
};

TEST_F(LabOnRanks, AnErrorOfOneRankEndsTheWaitsOfTheOthers) {
  if (ranks().size() == 1) return;
  Communicator group(ranks().handle(), ranks().options());
  const int last = group.size() - 1;
  const std::shared_ptr<lab::TaskData> data = lab::testing::counting_data(tiny_plan().stage);
  if (group.rank() == last) {
    data->train = [](std::uint64_t seed) { return std::make_unique<FailingBatches>(seed, 2, 12); };
  }
  const std::string error =
      shared_error_of([&] { return go(&group, tiny_plan(), *data, "run", {}); });
  EXPECT_NE(error.find("cannot read row 77"), std::string::npos) << error;
  if (group.rank() != last) {
    EXPECT_NE(error.find(message("rank ", last, " stopped")), std::string::npos) << error;
  }
  ranks().barrier();
}

}  // namespace
}  // namespace phasor::parallel
