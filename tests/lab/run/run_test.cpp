#include "phasor/lab/internal/run.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "lab/run/run_folder.hpp"
#include "lab/run/synthetic.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/lab/internal/checkpoint.hpp"
#include "phasor/lab/internal/report.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

namespace phasor::lab::testing {
namespace {

namespace fs = std::filesystem;
using io::testing::get;
using io::testing::put;
using phasor::tests::expect_error;

class Run : public io::testing::TemporaryFolder {
 protected:
  RunEnd go(const RunPlan& plan, std::string_view folder, const RunOptions& options = {}) const {
    return run(plan, *counting_data(plan.stage), nullptr, at(folder), options);
  }
  // Stops after the given number of steps of this call.
  RunEnd go_until(const RunPlan& plan, std::string_view folder, std::int64_t steps,
                  int threads = 0) const {
    core::Cancellation cancellation;
    RunOptions options;
    options.threads = threads;
    options.cancellation = &cancellation;
    options.progress = [&](const RunProgress& at_step) {
      if (at_step.step - at_step.first_step >= steps) cancellation.request();
    };
    return go(plan, folder, options);
  }
  [[nodiscard]] std::vector<std::string> checkpoints_of(std::string_view folder) const {
    return io::names_in(at(folder) / "checkpoints").value_or_throw();
  }
};

TEST_F(Run, trains_and_leaves_its_files) {
  const RunPlan plan = plan_of(kTiny);
  ASSERT_EQ(go(plan, "a"), RunEnd::finished);
  const io::Json result = read_result(at("a")).value_or_throw();
  EXPECT_EQ(result["steps"], io::Json(24));
  EXPECT_EQ(result["tokens"], io::Json(24 * 4 * 12));
  EXPECT_LT(result["validation_loss"].get<double>(), std::log(double{kWords}));
  EXPECT_EQ(result["contexts"].size(), 4U);  // two lengths, two scalings
  for (const io::Json& cell : result["contexts"]) {
    EXPECT_EQ(cell["tokens"], io::Json(48));
    EXPECT_TRUE(cell["nats"].is_number());
  }
  for (const char* const name :
       {"experiment.json", "run.json", "log.csv", "model/config.json", "model/model.safetensors"}) {
    EXPECT_TRUE(fs::exists(at("a") / name)) << name;
  }
  EXPECT_FALSE(fs::exists(at("a") / "checkpoints"));
  EXPECT_EQ(go(plan, "a"), RunEnd::already_finished);
  const std::string log = get(at("a") / "log.csv");
  // The header, step 0, every second step, every fifth and the last one.
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1 + 1 + 12 + 2);
}

TEST_F(Run, has_the_same_files_after_any_stop_and_with_any_number_of_threads) {
  const RunPlan plan = plan_of(kTiny);
  ASSERT_EQ(go(plan, "whole"), RunEnd::finished);
  const std::string log = get(at("whole") / "log.csv");
  const std::string weights = get(at("whole") / "model" / "model.safetensors");
  for (const std::int64_t steps : {1, 2, 5, 7, 8, 13, 23, 24}) {
    const std::string name = "stopped-" + std::to_string(steps);
    EXPECT_EQ(go_until(plan, name, steps, 1), RunEnd::stopped) << steps;
    EXPECT_EQ(newest_checkpoint(at(name)).filename().string().substr(0, 5), "step-");
    RunEnd end = RunEnd::stopped;
    for (int tries = 0; end == RunEnd::stopped && tries < 30; ++tries) {
      end = go_until(plan, name, steps + 1, 2);
    }
    EXPECT_EQ(end, RunEnd::finished) << steps;
    EXPECT_EQ(get(at(name) / "log.csv"), log) << steps;
    EXPECT_EQ(get(at(name) / "model" / "model.safetensors"), weights) << steps;
  }
}

// As after a kill: the log has rows that no checkpoint knows, a checkpoint lacks its last file.
TEST_F(Run, goes_on_from_the_newest_complete_checkpoint) {
  const RunPlan plan = plan_of(kTiny);
  ASSERT_EQ(go(plan, "whole"), RunEnd::finished);
  ASSERT_EQ(go_until(plan, "killed", 16), RunEnd::stopped);
  EXPECT_EQ(checkpoints_of("killed"),
            (std::vector<std::string>{"step-00000014", "step-00000016"}));  // the newest two
  fs::remove(at("killed") / "checkpoints" / "step-00000016" / "state.json");
  ASSERT_EQ(newest_checkpoint(at("killed")), at("killed") / "checkpoints" / "step-00000014");
  ASSERT_EQ(go(plan, "killed"), RunEnd::finished);
  EXPECT_EQ(get(at("killed") / "log.csv"), get(at("whole") / "log.csv"));
}

TEST_F(Run, refuses_a_folder_of_other_settings_or_data) {
  ASSERT_EQ(go_until(plan_of(kTiny), "a", 3), RunEnd::stopped);
  const RunPlan changed = plan_of(kTiny, {"", {}, {}, {"training.steps=48", "model.layers=2"}});
  expect_error(ErrorCode::invalid_argument, {"training.steps", "24", "48", "model.layers"},
               [&] { return go(changed, "a"); });
  const RunPlan plan = plan_of(kTiny);
  const std::shared_ptr<TaskData> data = counting_data(plan.stage);
  data->facts["text"] = "another text";
  expect_error(ErrorCode::invalid_argument, {"data.text", "counting", "another text"},
               [&] { return run(plan, *data, nullptr, at("a"), {}); });
}

TEST_F(Run, one_process_at_a_time_trains_in_a_folder) {
  const RunPlan plan = plan_of(kTiny);
  ASSERT_EQ(go_until(plan, "a", 3), RunEnd::stopped);
  {
    const io::Descriptor other = RunFolder(at("a")).lock();
    expect_error(ErrorCode::io, {"a"}, [&] { return go(plan, "a"); });
  }
  EXPECT_EQ(go(plan, "a"), RunEnd::finished);
}

class SharedPretraining : public Run {
 protected:
  // Two lengths after one pre-training.
  [[nodiscard]] static std::vector<RunPlan> plans(const std::string& pretraining_of_second = "") {
    return plan_runs(parse_experiment(R"({
      "name": "shared", "task": "causal_lm",
      "pretraining": {"name": "first", "task": "causal_lm",
                      "training": {"steps": 9, "batch": 4, "context": 12, "learning_rate": 0.02}},
      "model": {"hidden": 8, "layers": 1, "heads": 2, "intermediate": 16, "context": 24},
      "training": {"steps": 3, "batch": 4, "learning_rate": 0.02},
      "variants": [{"name": "short", "training": {"context": 12}},
                   {"name": "long", "training": {"context": 24})" +
                                      pretraining_of_second + "}]}"),
                     {});
  }
  RunEnd go_shared(const RunPlan& plan, const RunOptions& options = {}) const {
    return run(plan, *counting_data(plan.stage), counting_data(*plan.pretraining).get(),
               at("runs") / plan.name(), options);
  }
  [[nodiscard]] fs::path shared() const { return at("runs") / "pretraining" / "first-s1"; }
};

TEST_F(SharedPretraining, is_trained_once_and_gives_what_its_own_would) {
  const std::vector<RunPlan> both = plans();
  ASSERT_EQ(go_shared(both[0]), RunEnd::finished);
  const auto written = fs::last_write_time(shared() / "result.json");
  ASSERT_EQ(go_shared(both[1]), RunEnd::finished);
  EXPECT_EQ(fs::last_write_time(shared() / "result.json"), written);

  RunPlan alone = both[1];
  alone.pretraining_name.clear();
  ASSERT_EQ(run(alone, *counting_data(alone.stage), counting_data(*alone.pretraining).get(),
                at("alone"), {}),
            RunEnd::finished);
  EXPECT_EQ(get(at("alone") / "log.csv"), get(at("runs") / "long-s1" / "log.csv"));
  EXPECT_EQ(find_runs(at("runs")).value_or_throw().size(), 2U);  // not the shared one
}

TEST_F(SharedPretraining, the_second_run_goes_on_where_the_first_one_stopped) {
  const std::vector<RunPlan> both = plans();
  core::Cancellation cancellation;
  RunOptions options;
  options.cancellation = &cancellation;
  options.progress = [&](const RunProgress& at_step) {
    if (at_step.step == 4) cancellation.request();
  };
  ASSERT_EQ(go_shared(both[0], options), RunEnd::stopped);
  ASSERT_FALSE(newest_checkpoint(shared()).empty());
  std::int64_t first_step = -1;
  RunOptions watched;
  watched.progress = [&](const RunProgress& at_step) {
    if (first_step < 0) first_step = at_step.first_step;
  };
  ASSERT_EQ(go_shared(both[1], watched), RunEnd::finished);
  EXPECT_EQ(first_step, 4);
}

TEST_F(SharedPretraining, a_run_waits_for_another_that_is_training_it) {
  const std::vector<RunPlan> both = plans();
  core::Cancellation cancellation;
  RunOptions options;
  options.cancellation = &cancellation;
  {
    const io::Descriptor taken = RunFolder(shared()).lock();
    std::thread second([&] { EXPECT_EQ(go_shared(both[1], options), RunEnd::stopped); });
    cancellation.request();
    second.join();
  }
  EXPECT_FALSE(fs::exists(shared() / "log.csv"));
  EXPECT_EQ(go_shared(both[1]), RunEnd::finished);
}

TEST_F(SharedPretraining, refuses_other_settings_under_the_same_name) {
  const std::vector<RunPlan> both = plans(R"(, "pretraining": {"training": {"steps": 8}})");
  ASSERT_EQ(go_shared(both[0]), RunEnd::finished);
  expect_error(ErrorCode::invalid_argument, {"pretraining.training.steps: 9 -> 8"},
               [&] { static_cast<void>(go_shared(both[1])); });
  expect_error(ErrorCode::invalid_argument, {"a/b"},
               [&] { static_cast<void>(plans(R"(, "pretraining": {"name": "a/b"})")); });
}

TEST_F(Run, weights_can_be_rounded_to_f16) {
  ASSERT_EQ(go(plan_of(kTiny), "whole"), RunEnd::finished);
  ASSERT_EQ(go(plan_of(kTiny, {"", {}, {}, {"training.weights=f16"}}), "half"), RunEnd::finished);
  const auto tensors = [&](std::string_view folder) {
    return io::SafetensorsFile::open(at(folder) / "model" / "model.safetensors").value_or_throw();
  };
  const io::SafetensorsFile whole = tensors("whole"), half = tensors("half");
  ASSERT_EQ(whole.tensors().size(), half.tensors().size());
  for (const io::Tensor& tensor : whole.tensors()) {
    const io::Tensor* const rounded = half.find(tensor.name);
    ASSERT_NE(rounded, nullptr) << tensor.name;
    EXPECT_EQ(rounded->type, io::TensorType::f16);
    std::vector<float> exact(static_cast<std::size_t>(tensor.size())), got(exact.size());
    io::to_floats(tensor, 0, exact);
    io::to_floats(*rounded, 0, got);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      ASSERT_EQ(got[i], core::to_float(core::to_half(exact[i]))) << tensor.name << ' ' << i;
    }
  }
}

TEST_F(Run, refuses_a_checkpoint_of_another_vocabulary) {
  const RunPlan plan = plan_of(kTiny);
  ASSERT_EQ(go_until(plan, "a", 3), RunEnd::stopped);
  fs::remove(at("a") / "run.json");  // which shows the difference first
  const std::shared_ptr<TaskData> data = counting_data(plan.stage);
  data->vocabulary = kWords + 2;
  expect_error(ErrorCode::shape_mismatch, {"11", "13", "model.safetensors"},
               [&] { return run(plan, *data, nullptr, at("a"), {}); });
}

TEST_F(Run, refuses_a_log_that_lost_rows) {
  const RunPlan plan = plan_of(kTiny);
  ASSERT_EQ(go_until(plan, "a", 9), RunEnd::stopped);
  const std::string log = get(at("a") / "log.csv");
  put(at("a") / "log.csv", log.substr(0, log.rfind('\n', log.size() - 2) + 1));
  expect_error(ErrorCode::invalid_argument, {"log.csv", "rows"}, [&] { return go(plan, "a"); });
}

TEST_F(Run, stops_with_the_step_and_the_checkpoint_when_the_loss_is_not_finite) {
  const RunPlan plan = plan_of(kTiny);
  ASSERT_EQ(go_until(plan, "a", 8), RunEnd::stopped);
  // A number that overflows in the next step.
  Network<float> network(model_spec_of(plan, plan.stage, kWords, 0));
  const fs::path checkpoint = newest_checkpoint(at("a"));
  ASSERT_TRUE(read_parameters(checkpoint, network).ok());
  network.parameters()[0] = std::nanf("");
  ASSERT_TRUE(save_checkpoint(network, {}, checkpoint).ok());
  expect_error(ErrorCode::out_of_range, {"step 9", "nan", "step-00000008"},
               [&] { return go(plan, "a"); });
}

TEST_F(Run, stops_when_the_loss_diverges) {
  const RunPlan plan =
      plan_of(kTiny, {"",
                      {},
                      {},
                      {"training.learning_rate=1000", "training.schedule=constant",
                       "training.clip=0", "training.diverged_above=1.5", "training.steps=400"}});
  expect_error(ErrorCode::out_of_range, {"diverged", "step"}, [&] { return go(plan, "a"); });
}

TEST_F(Run, a_limit_of_the_file_size_leaves_whole_files_only) {
  const RunPlan plan = plan_of(kTiny);
  ASSERT_EQ(go(plan, "whole"), RunEnd::finished);
  ASSERT_EQ(go_until(plan, "a", 8), RunEnd::stopped);
  const auto size = fs::file_size(newest_checkpoint(at("a")) / "model.safetensors");
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = size - 1;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  try {
    static_cast<void>(go(plan, "a"));
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(checkpoints_of("a"), (std::vector<std::string>{"step-00000007", "step-00000008"}));
  for (const std::string& file : io::files_below(at("a")).value_or_throw()) {
    EXPECT_EQ(file.find(".tmp"), std::string::npos) << file;
  }
  ASSERT_EQ(go(plan, "a"), RunEnd::finished);
  EXPECT_EQ(get(at("a") / "log.csv"), get(at("whole") / "log.csv"));
}

TEST_F(Run, a_table_of_positions_has_no_loss_beyond_its_end) {
  const RunPlan plan = plan_of(kTiny, {"", {}, {"learned"}, {}});
  ASSERT_EQ(go(plan, "a"), RunEnd::finished);
  const io::Json result = read_result(at("a")).value_or_throw();
  ASSERT_EQ(result["contexts"].size(), 2U);
  EXPECT_TRUE(result["contexts"][0]["nats"].is_number());
  EXPECT_TRUE(result["contexts"][1]["nats"].is_null());
}

TEST_F(Run, the_report_has_means_over_seeds) {
  for (const RunPlan& plan : plan_runs(parse_experiment(kTiny), {})) {
    ASSERT_EQ(go(plan, "runs/" + plan.name()), RunEnd::finished);
  }
  const std::vector<FinishedRun> runs = find_runs(at("runs")).value_or_throw();
  ASSERT_EQ(runs.size(), 4U);
  const std::vector<ReportFile> files = make_report(runs, Figures::shown);
  std::map<std::string, std::string> by_name;
  for (const ReportFile& file : files) by_name[file.name] = file.content;
  EXPECT_NE(by_name["report.md"].find("| rope | 2 |"), std::string::npos) << by_name["report.md"];
  EXPECT_NE(by_name["report.md"].find("| rope + linear |"), std::string::npos);
  EXPECT_NE(by_name["report.md"].find("tiny-curves.svg"), std::string::npos);
  EXPECT_EQ(std::count(by_name["results.csv"].begin(), by_name["results.csv"].end(), '\n'), 5);
  EXPECT_EQ(by_name["tiny-curves.csv"].substr(0, 35), "experiment,encoding,step,loss,seed\n");
  // rope: two lengths, two scalings; learned: one length; two seeds
  EXPECT_EQ(
      std::count(by_name["tiny-contexts.csv"].begin(), by_name["tiny-contexts.csv"].end(), '\n'),
      1 + 2 * (4 + 1));
  expect_error(ErrorCode::invalid_argument, {"result.json"},
               find_runs(at("runs") / "rope-s3" / "model"));
}

TEST_F(Run, the_report_refuses_a_mean_of_different_settings) {
  ASSERT_EQ(go(plan_of(kTiny), "runs/a"), RunEnd::finished);
  ASSERT_EQ(go(plan_of(kTiny, {"", {4}, {}, {"training.steps=5"}}), "runs/b"), RunEnd::finished);
  const std::vector<FinishedRun> runs = find_runs(at("runs")).value_or_throw();
  expect_error(ErrorCode::invalid_argument, {"training.steps", "24", "5"},
               [&] { return make_report(runs, Figures::none); });
}

TEST(Spread, is_the_sample_deviation) {
  const std::vector<double> values = {1.0, 2.0, 4.0};
  EXPECT_DOUBLE_EQ(spread_of(values).mean, 7.0 / 3.0);
  EXPECT_NEAR(spread_of(values).deviation, std::sqrt(7.0 / 3.0), 1e-12);
  EXPECT_EQ(spread_of(std::vector<double>{5.0}).deviation, 0.0);
}

}  // namespace
}  // namespace phasor::lab::testing
