#include "phasor/lab/internal/experiment.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "phasor/config/internal/json_reader.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/models/internal/perplexity.hpp"

namespace phasor::lab {
namespace {

using config::ObjectReader;
using io::Json;

constexpr core::EnumNames<Task::translation> kTasks("masked_lm", "causal_lm", "classification",
                                                    "match", "translation");
constexpr core::EnumNames<ScheduleShape::inverse_square_root> kScheduleNames("constant", "cosine",
                                                                             "inverse_square_root");
// The parts of an experiment that variants and sizes may change.
constexpr std::array<std::string_view, 7> kParts = {"task",     "data",       "tokenizer",  "model",
                                                    "training", "evaluation", "pretraining"};

// Objects are merged, everything else is replaced; null removes a key.
void merge(Json& into, const Json& patch) {
  if (!patch.is_object() || !into.is_object()) {
    into = patch;
    return;
  }
  for (const io::JsonMember& member : patch.items()) {
    if (member.value.is_null()) {
      into.erase(member.key);
    } else {
      merge(into[member.key], member.value);
    }
  }
}

template <auto kLast>
[[nodiscard]] std::optional<typename core::EnumNames<kLast>::Enum> read_named(
    const ObjectReader& reader, std::string_view key, const core::EnumNames<kLast>& names) {
  const std::optional<std::string> text = reader.text(key);
  if (!text) return std::nullopt;
  const auto found = names.find(*text);
  if (!found) {
    reader.refuse(key, message("must be ", core::list_text(names.all()), ", got \"", *text, "\"",
                               core::did_you_mean(*text, names.all())));
  }
  return found;
}

void read_at_least(const ObjectReader& reader, std::string_view key, std::int64_t least,
                   std::int64_t& into) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  const std::optional<std::int64_t> value = reader.integer(key);
  if (!value) return;
  if (*value < least || *value > kMost) {
    reader.refuse(key, message("must be from ", least, " to ", kMost, ", got ", *value));
  }
  into = *value;
}

void read_number(const ObjectReader& reader, std::string_view key, double least, double most,
                 double& into) {
  const std::optional<double> value = reader.number(key);
  if (!value) return;
  if (!(*value >= least && *value <= most)) {
    reader.refuse(key, message("must be from ", least, " to ", most, ", got ", *value));
  }
  into = *value;
}

[[nodiscard]] TrainingSettings read_training(const ObjectReader& reader) {
  TrainingSettings settings;
  read_at_least(reader, "steps", 1, settings.steps);
  settings.warmup = settings.steps / 10;
  settings.log_every = std::max<std::int64_t>(1, settings.steps / 100);
  settings.evaluate_every = std::max<std::int64_t>(1, settings.steps / 20);
  settings.checkpoint_every = std::max<std::int64_t>(1, settings.steps / 4);
  read_at_least(reader, "batch", 1, settings.batch);
  read_at_least(reader, "accumulation", 1, settings.accumulation);
  read_at_least(reader, "context", 1, settings.context);
  read_number(reader, "learning_rate", 0.0, 1e6, settings.learning_rate);
  read_at_least(reader, "warmup", 0, settings.warmup);
  if (const auto shape = read_named(reader, "schedule", kScheduleNames)) settings.schedule = *shape;
  read_number(reader, "floor", 0.0, 1.0, settings.floor);
  read_number(reader, "beta1", 0.0, 0.9999999, settings.optimiser.beta1);
  read_number(reader, "beta2", 0.0, 0.9999999, settings.optimiser.beta2);
  read_number(reader, "epsilon", 1e-30, 1.0, settings.optimiser.epsilon);
  read_number(reader, "weight_decay", 0.0, 10.0, settings.optimiser.weight_decay);
  read_number(reader, "clip", 0.0, 1e6, settings.clip);
  read_number(reader, "label_smoothing", 0.0, 0.999, settings.label_smoothing);
  read_number(reader, "diverged_above", 1.0, 1e6, settings.diverged_above);
  read_at_least(reader, "log_every", 1, settings.log_every);
  read_at_least(reader, "evaluate_every", 0, settings.evaluate_every);
  read_at_least(reader, "checkpoint_every", 0, settings.checkpoint_every);
  if (const auto weights = reader.text("weights")) {
    if (*weights != "f32" && *weights != "f16") {
      reader.refuse("weights", message("must be f32 or f16, got \"", *weights, "\""));
    }
    if (*weights == "f16") settings.weights = core::DType::f16;
  }
  reader.refuse_rest(
      "steps, batch, accumulation, context, learning_rate, warmup, schedule, floor, beta1, beta2, "
      "epsilon, weight_decay, clip, label_smoothing, diverged_above, log_every, evaluate_every, "
      "checkpoint_every, weights");
  if (settings.batch % settings.accumulation != 0) {
    reader.refuse("accumulation",
                  message("must divide batch ", settings.batch, ", got ", settings.accumulation));
  }
  return settings;
}

[[nodiscard]] EvaluationSettings read_evaluation(const ObjectReader& reader) {
  EvaluationSettings settings;
  read_at_least(reader, "batches", 1, settings.batches);
  read_at_least(reader, "test_batches", 0, settings.test_batches);
  read_at_least(reader, "tokens", 1, settings.tokens);
  read_at_least(reader, "sentences", 1, settings.sentences);
  read_at_least(reader, "longest", 1, settings.longest);
  if (auto contexts = reader.integers("contexts")) settings.contexts = std::move(*contexts);
  for (const std::int64_t context : settings.contexts) {
    if (context < 1) reader.refuse("contexts", message("must be at least 1, got ", context));
  }
  if (auto scalings = reader.texts("scalings")) settings.scalings = std::move(*scalings);
  for (const std::string& name : settings.scalings) {
    const auto scaling = models::scaling_for(name, 1, 1);
    if (!scaling) reader.refuse("scalings", scaling.error().what());
  }
  reader.refuse_rest("batches, test_batches, contexts, scalings, tokens, sentences, longest");
  return settings;
}

[[nodiscard]] Stage read_stage(const ObjectReader& reader) {
  Stage stage;
  const auto task = read_named(reader, "task", kTasks);
  if (!task) reader.refuse_missing("task", message("must be ", core::list_text(kTasks.all())));
  stage.task = *task;
  if (const auto data = reader.object("data")) stage.data = reader.value("data");
  if (const auto training = reader.object("training")) stage.training = read_training(*training);
  if (const auto evaluation = reader.object("evaluation")) {
    stage.evaluation = read_evaluation(*evaluation);
  }
  return stage;
}

[[nodiscard]] RunPlan read_plan(Json document) {
  RunPlan plan;
  plan.document = std::move(document);
  const ObjectReader reader(plan.document);
  plan.experiment = reader.text("experiment").value_or("");
  plan.variant = reader.text("variant").value_or("");
  plan.seed = static_cast<std::uint64_t>(reader.required_integer("seed"));
  plan.stage = read_stage(reader);
  if (const auto part = reader.object("pretraining")) {
    plan.pretraining = read_stage(*part);
    plan.pretraining_name = part->text("name").value_or("");
    if (plan.pretraining_name.find('/') != std::string::npos) {
      part->refuse("name", message("must have no \"/\", got \"", plan.pretraining_name, "\""));
    }
    part->refuse_rest("name, task, data, training, evaluation");
  }
  if (const auto part = reader.object("tokenizer")) plan.tokenizer = reader.value("tokenizer");
  if (!reader.has("model")) reader.refuse_missing("model", "expected an object");
  plan.model = reader.value("model");
  reader.mark_understood("model");
  reader.refuse_rest("task, data, tokenizer, model, training, evaluation, pretraining");
  static_cast<void>(model_spec_of(plan, plan.stage, kAnySize, kAnySize));
  if (plan.pretraining) {
    static_cast<void>(model_spec_of(plan, *plan.pretraining, kAnySize, kAnySize));
  }
  return plan;
}

// Names become folders and rows of tables.
void require_word(const ObjectReader& reader, std::string_view key, std::string_view word) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (!word.empty() && word.size() <= 64 && word.front() != '.' &&
      std::all_of(word.begin(), word.end(), fits)) {
    return;
  }
  reader.refuse(key,
                message("must be letters, digits, '-', '_' or '.', got ", io::shown(Json(word))));
}

[[nodiscard]] bool is_for_lists(std::string_view assignment) {
  return assignment.starts_with("seeds=");
}

// The document of one run.
[[nodiscard]] Json run_document(const Json& experiment, const Json& variant, std::uint64_t seed,
                                std::span<const std::string> assignments) {
  Json document = Json::object();
  document["experiment"] = experiment["name"];
  document["variant"] = variant["name"];
  document["seed"] = seed;
  for (const std::string_view part : kParts) {
    if (experiment.contains(part)) document[part] = experiment[part];
    if (variant.contains(part)) merge(document[part], variant[part]);
  }
  for (const std::string& assignment : assignments) {
    if (!is_for_lists(assignment)) assign(document, assignment);
  }
  return document;
}

[[nodiscard]] Json with_size(const Json& experiment, std::string_view size) {
  Json document = experiment;
  if (!size.empty()) merge(document, experiment["sizes"][size]);
  return document;
}

[[nodiscard]] std::vector<Json> variants_of(const Json& document) {
  if (!document.contains("variants") || document["variants"].empty()) {
    Json only = Json::object();
    only["name"] = "run";
    return {only};
  }
  std::vector<Json> list;
  for (const Json& variant : document["variants"]) list.push_back(variant);
  return list;
}

void check_variants(const ObjectReader& reader) {
  const Json& list = reader.value("variants");
  reader.mark_understood("variants");
  if (list.is_null()) return;
  if (!list.is_array() || list.empty()) {
    reader.refuse("variants", message("must be a list of objects, got ", io::shown(list)));
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const ObjectReader variant(list[i], message("variants[", i, "]"));
    const std::optional<std::string> name = variant.text("name");
    if (!name) variant.refuse_missing("name", "expected text");
    require_word(variant, "name", *name);
    if (std::find(names.begin(), names.end(), *name) != names.end()) {
      variant.refuse("name", message("\"", *name, "\" is the name of two variants"));
    }
    names.push_back(*name);
    for (const std::string_view part : kParts) variant.mark_understood(part);
    variant.refuse_rest("name, task, data, tokenizer, model, training, evaluation, pretraining");
  }
}

void check_sizes(const ObjectReader& reader) {
  const auto sizes = reader.object("sizes");
  if (!sizes) return;
  for (const std::string& name : sizes->keys()) {
    const auto size = sizes->object(name);
    if (!size) sizes->refuse_missing(name, "expected an object");
    for (const std::string_view part : kParts) size->mark_understood(part);
    size->mark_understood("variants");
    size->mark_understood("seeds");
    size->refuse_rest(
        "task, data, tokenizer, model, training, evaluation, pretraining, variants, seeds");
  }
}

[[nodiscard]] std::vector<std::uint64_t> seeds_of(const Json& document) {
  const ObjectReader reader(document);
  std::vector<std::uint64_t> seeds;
  for (const std::int64_t seed : reader.integers("seeds").value_or(std::vector<std::int64_t>{1})) {
    if (seed < 0) reader.refuse("seeds", message("must be at least 0, got ", seed));
    seeds.push_back(static_cast<std::uint64_t>(seed));
  }
  if (seeds.empty()) reader.refuse("seeds", "must have at least one seed");
  return seeds;
}

void list_differences(const std::string& path, const Json& before, const Json& after,
                      std::vector<std::string>& into) {
  if (before == after) return;
  if (!before.is_object() || !after.is_object()) {
    into.push_back(message(path, ": ", io::shown(before), " -> ", io::shown(after)));
    return;
  }
  const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  for (const io::JsonMember& member : before.items()) {
    list_differences(below(member.key), member.value,
                     after.contains(member.key) ? after[member.key] : Json(), into);
  }
  for (const io::JsonMember& member : after.items()) {
    if (!before.contains(member.key)) {
      list_differences(below(member.key), Json(), member.value, into);
    }
  }
}

}  // namespace

void assign(Json& document, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    refuse(message("--set must be KEY=VALUE, got \"", assignment, "\""));
  }
  std::string_view path = assignment.substr(0, equals);
  const std::string text(assignment.substr(equals + 1));
  Json value;
  try {
    value = Json::parse(text);
  } catch (const Error&) {
    value = text;
  }
  Json* at = &document;
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string_view key = path.substr(0, dot);
    if (key.empty()) refuse(message("--set: empty key in \"", assignment, "\""));
    if (!at->is_object()) *at = Json::object();
    at = &(*at)[key];
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }
  *at = value;
}

std::string_view name_of(Task task) noexcept { return kTasks[task]; }

ModelSpec model_spec_of(const RunPlan& plan, const Stage& stage, std::int64_t vocabulary,
                        std::int64_t labels) {
  Json json = plan.model;
  const auto fill = [&](std::string_view key, std::int64_t size) {
    if (!json.contains(key)) json[key] = size == kAnySize ? 2 : size;
  };
  const auto fill_from_data = [&](std::string_view key, std::int64_t size) {
    fill(key, size);
    if (size != kAnySize && json[key] != Json(size)) {
      refuse(message("model.", key, " must be that of the data, ", size, ", got ",
                     io::shown(json[key]), "; without the key it is taken from the data"));
    }
  };
  const bool classifies = stage.task == Task::classification || stage.task == Task::match;
  if (!json.contains("head")) json["head"] = classifies ? "classification" : "language_model";
  fill_from_data("vocabulary", vocabulary);
  if (classifies) fill_from_data("labels", labels);
  std::int64_t context = stage.training.context;
  if (plan.pretraining) {
    context = std::max(plan.stage.training.context, plan.pretraining->training.context);
  }
  fill("context", context);
  return parse_model_spec(json);
}

std::vector<std::string> Experiment::sizes() const {
  std::vector<std::string> names;
  if (!document.contains("sizes")) return names;
  for (const io::JsonMember& member : document["sizes"].items()) names.push_back(member.key);
  return names;
}

std::vector<std::string> Experiment::variants() const {
  std::vector<std::string> names;
  for (const Json& variant : variants_of(document)) names.push_back(variant["name"].text());
  return names;
}

std::string Experiment::time_of(std::string_view size) const {
  if (!document.contains("time") || !document["time"].contains(size)) return {};
  return document["time"][size].text();
}

Experiment parse_experiment(std::string_view json) {
  Experiment experiment;
  experiment.document = io::parse_object(json);
  const ObjectReader reader(experiment.document);
  const std::optional<std::string> name = reader.text("name");
  if (!name) reader.refuse_missing("name", "expected text");
  require_word(reader, "name", *name);
  experiment.name = *name;
  experiment.description = reader.text("description").value_or("");
  experiment.paper = reader.text("paper").value_or("");
  if (const auto time = reader.object("time")) {
    for (const std::string& size : time->keys()) static_cast<void>(time->text(size));
  }
  for (const std::string_view part : kParts) reader.mark_understood(part);
  check_variants(reader);
  check_sizes(reader);
  reader.mark_understood("seeds");
  reader.refuse_rest(
      "name, description, paper, task, data, tokenizer, model, training, evaluation, pretraining, "
      "variants, seeds, sizes, time");
  std::vector<std::string> sizes = experiment.sizes();
  if (sizes.empty()) sizes.emplace_back();
  for (const std::string& size : sizes) {
    static_cast<void>(plan_runs(experiment, {size, {}, {}, {}}));
  }
  return experiment;
}

std::vector<RunPlan> plan_runs(const Experiment& experiment, const PlanChoices& choices) {
  const std::vector<std::string> sizes = experiment.sizes();
  const auto is_size = [&](std::string_view name) {
    return std::find(sizes.begin(), sizes.end(), name) != sizes.end();
  };
  std::string size = choices.size;
  if (size.empty() && is_size("quick")) size = "quick";
  if (!size.empty() && !is_size(size)) {
    const std::vector<std::string_view> known(sizes.begin(), sizes.end());
    refuse(message("experiment ", experiment.name, " has ",
                   known.empty() ? std::string("no sizes") : "the sizes " + core::list_text(known),
                   ", got \"", size, "\""));
  }
  Json document = with_size(experiment.document, size);
  for (const std::string& assignment : choices.assignments) {
    if (is_for_lists(assignment)) assign(document, assignment);
  }
  const std::vector<Json> variants = variants_of(document);
  std::vector<std::string_view> names;
  for (const Json& variant : variants) names.push_back(variant["name"].text());
  for (const std::string& wanted : choices.variants) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) continue;
    refuse(message("experiment ", experiment.name, " has the variants ", core::list_text(names),
                   ", got \"", wanted, "\"", core::did_you_mean(wanted, names)));
  }
  const auto is_wanted = [&](const std::string& name) {
    return choices.variants.empty() || std::find(choices.variants.begin(), choices.variants.end(),
                                                 name) != choices.variants.end();
  };
  std::vector<RunPlan> plans;
  // Seeds outside: an interrupted comparison then has every variant with the first seeds.
  for (const std::uint64_t seed : choices.seeds.empty() ? seeds_of(document) : choices.seeds) {
    for (const Json& variant : variants) {
      if (!is_wanted(variant["name"].text())) continue;
      plans.push_back(read_plan(run_document(document, variant, seed, choices.assignments)));
    }
  }
  return plans;
}

std::string difference_of(const Json& before, const Json& after) {
  std::vector<std::string> lines;
  list_differences("", before, after, lines);
  std::string text;
  constexpr std::size_t kMost = 5;
  for (std::size_t i = 0; i < lines.size() && i < kMost; ++i) {
    text += (i == 0 ? "" : "; ") + lines[i];
  }
  if (lines.size() > kMost) text += message("; and ", lines.size() - kMost, " more");
  return text;
}

}  // namespace phasor::lab
