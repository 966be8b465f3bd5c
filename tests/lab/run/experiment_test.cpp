#include "phasor/lab/internal/experiment.hpp"

#include <gtest/gtest.h>

#include <string>

#include "lab/run/synthetic.hpp"
#include "support/errors.hpp"

namespace phasor::lab::testing {
namespace {

using phasor::tests::expect_error;

const std::string kSized = R"({
  "name": "sized", "task": "masked_lm", "data": {"corpus": "english"},
  "model": {"architecture": "encoder", "hidden": 8, "layers": 1, "heads": 2, "intermediate": 16},
  "training": {"batch": 4, "context": 12},
  "sizes": {"quick": {"training": {"steps": 40}, "seeds": [1]},
            "full": {"training": {"steps": 400}, "model": {"layers": 3}, "seeds": [1, 2]}},
  "variants": [{"name": "t5", "model": {"encoding": {"name": "t5", "buckets": 16}}},
               {"name": "long", "training": {"context": 24}}]})";

TEST(Experiment, variants_seeds_sizes_and_assignments_make_the_runs) {
  const Experiment experiment = parse_experiment(kSized);
  EXPECT_EQ(experiment.sizes(), (std::vector<std::string>{"quick", "full"}));
  EXPECT_EQ(experiment.variants(), (std::vector<std::string>{"t5", "long"}));
  const std::vector<RunPlan> quick = plan_runs(experiment, {});
  ASSERT_EQ(quick.size(), 2U);
  EXPECT_EQ(quick[0].name(), "t5-s1");
  EXPECT_EQ(quick[0].stage.training.steps, 40);
  EXPECT_EQ(quick[0].stage.training.warmup, 4);  // follows from the steps
  const std::vector<RunPlan> full = plan_runs(experiment, {"full", {}, {}, {}});
  ASSERT_EQ(full.size(), 4U);
  EXPECT_EQ(full[3].name(), "long-s2");
  const ModelSpec t5 = model_spec_of(full[0], full[0].stage, 99, 0);
  EXPECT_EQ(t5.layers, 3);
  EXPECT_EQ(t5.vocabulary, 99);
  EXPECT_EQ(t5.context, 12);
  EXPECT_EQ(t5.encoding.buckets, 16);
  EXPECT_EQ(model_spec_of(full[3], full[3].stage, 99, 0).context, 24);

  const std::vector<RunPlan> chosen = plan_runs(
      experiment,
      {"full", {7}, {"long"}, {"training.steps=5", "training.context=6", "data.corpus=mine"}});
  ASSERT_EQ(chosen.size(), 1U);
  EXPECT_EQ(chosen[0].seed, 7U);
  EXPECT_EQ(chosen[0].stage.training.steps, 5);
  EXPECT_EQ(chosen[0].stage.training.context, 6);  // above the variant
  EXPECT_EQ(chosen[0].stage.data["corpus"].text(), "mine");
}

TEST(Experiment, every_built_in_one_can_be_planned) {
  ASSERT_GE(built_in_names().size(), 7U);
  for (const std::string_view name : built_in_names()) {
    const Experiment experiment = parse_experiment(*built_in_experiment(name));
    EXPECT_EQ(experiment.name, name);
    EXPECT_FALSE(experiment.description.empty() || experiment.paper.empty()) << name;
    for (const std::string& size : experiment.sizes()) {
      EXPECT_FALSE(plan_runs(experiment, {size, {}, {}, {}}).empty()) << name << " " << size;
    }
    for (const char* const size : {"quick", "full"}) {
      EXPECT_FALSE(plan_runs(experiment, {size, {}, {}, {}}).empty()) << name << " " << size;
      EXPECT_FALSE(experiment.time_of(size).empty()) << name << " " << size;
    }
  }
  EXPECT_FALSE(built_in_experiment("mlm").has_value());
}

std::string with(std::string json, std::string_view from, std::string_view to) {
  const std::size_t place = json.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return json.replace(place, from.size(), to);
}

TEST(Experiment, refuses_what_it_does_not_know) {
  const auto refused = [](const std::string& json, std::initializer_list<std::string_view> values) {
    expect_error(ErrorCode::invalid_argument, values, [&] { return parse_experiment(json); });
  };
  refused(with(kSized, "\"batch\"", "\"bathc\""), {"training", "bathc", "batch"});
  refused(with(kSized, "masked_lm", "masked"), {"task", "masked", "masked_lm"});
  refused(with(kSized, "\"sizes\"", "\"size\""), {"size", "sizes"});
  refused(with(kSized, "\"steps\": 40", "\"steps\": 0"), {"training.steps", "0"});
  refused(with(kSized, "\"batch\": 4", "\"batch\": 4, \"accumulation\": 3"),
          {"accumulation", "4", "3"});
  refused(with(kSized, "\"hidden\": 8", "\"hidden\": 9"), {"hidden", "9"});
  refused(with(kSized, "\"name\": \"long\"", "\"name\": \"t5\""), {"variants[1].name", "t5"});
  refused(with(kSized, "\"name\": \"long\"", "\"name\": \"../up\""), {"variants[1].name", "../up"});
  refused(with(kSized, "\"name\": \"long\"", "\"name\": \"long\", \"modle\": {}"),
          {"modle", "model"});
  refused(with(kSized, "\"seeds\": [1, 2]", "\"seeds\": [-1]"), {"seeds", "-1"});
  refused(with(kTiny, "\"linear\"", "\"lniear\""), {"scalings", "lniear"});
  refused("[]", {});
}

TEST(Experiment, refuses_choices_that_it_does_not_have) {
  const Experiment experiment = parse_experiment(kSized);
  const auto refused = [&](const PlanChoices& choices,
                           std::initializer_list<std::string_view> values) {
    expect_error(ErrorCode::invalid_argument, values,
                 [&] { return plan_runs(experiment, choices); });
  };
  refused({"huge", {}, {}, {}}, {"huge", "quick", "full"});
  refused({"", {}, {"t6"}, {}}, {"t6", "t5"});
  refused({"", {}, {}, {"training.stepss=4"}}, {"training", "stepss", "steps"});
  refused({"", {}, {}, {"training.steps"}}, {"training.steps", "KEY=VALUE"});
  refused({"", {}, {}, {"training.steps=many"}}, {"training.steps", "many"});
}

TEST(Experiment, a_vocabulary_must_be_that_of_the_data) {
  const RunPlan plan = plan_of(kTiny, {"", {}, {}, {"model.vocabulary=50"}});
  EXPECT_EQ(model_spec_of(plan, plan.stage, 50, 0).vocabulary, 50);
  expect_error(ErrorCode::invalid_argument, {"vocabulary", "50", "60"},
               [&] { return model_spec_of(plan, plan.stage, 60, 0); });
}

TEST(DifferenceOf, names_the_paths) {
  const auto difference = [](std::string_view before, std::string_view after) {
    return difference_of(io::Json::parse(before), io::Json::parse(after));
  };
  EXPECT_EQ(difference(R"({"a": {"b": 1}})", R"({"a": {"b": 1.0}})"), "");
  EXPECT_EQ(difference(R"({"a": {"b": 1}})", R"({"a": {"b": 2}})"), "a.b: 1 -> 2");
  EXPECT_EQ(difference(R"({"a": 1})", R"({"b": [1]})"), "a: 1 -> null; b: null -> [1]");
}

}  // namespace
}  // namespace phasor::lab::testing
