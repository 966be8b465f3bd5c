// Golden kinds that rotate queries and keys: rope_apply and its relatives, rope_backward,
// rope_accuracy and the worked example. Every rotation runs through the kernels in the dtype of its
// input.
#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "conform/rotary.hpp"
#include "phasor/core/rotate.hpp"

namespace phasor::tools {
namespace {

std::string without(const std::string& text, std::string_view end) {
  return text.substr(0, text.size() - end.size());
}

// The names of all results, whether an output, a truth (name_f64) or both are expected.
std::map<std::string, const CaseArray*> results_of(const Case& golden) {
  std::map<std::string, const CaseArray*> results;
  for (const auto& [name, array] : golden.outputs) results.emplace(name, &array);
  for (const auto& [name, array] : golden.truth) {
    if (name.ends_with("_f64")) results.emplace(without(name, "_f64"), &array);
  }
  return results;
}

bool is_key(std::string_view input) { return input == "k" || input == "xk" || input == "d_k_out"; }

// An array like the expected one to hold a result, in the dtype of the input it is computed from.
CaseArray result_like(const CaseArray& expected, const CaseArray& input) {
  CaseArray result;
  result.data = io::make_npy(input.data.type, expected.data.shape);
  result.dims = expected.dims.empty() ? input.dims : expected.dims;
  return result;
}

struct Plan {
  std::string result;
  CaseArray input, output;
  core::Role role;
};

// Which input gives which result: q -> q_out going forward, d_q_out -> d_q going back.
std::vector<Plan> plan_rotations(const Case& golden, core::Direction direction) {
  std::vector<Plan> plans;
  for (const auto& [name, expected] : results_of(golden)) {
    std::string input = name + "_out";
    if (direction == core::Direction::forward) {
      if (!name.ends_with("_out")) continue;
      input = without(name, "_out");
    }
    const auto found = golden.inputs.find(input);
    if (found == golden.inputs.end()) continue;
    plans.push_back({name, found->second, result_like(*expected, found->second),
                     is_key(input) ? core::Role::key : core::Role::query});
  }
  if (plans.empty()) {
    refuse(message(kCaseFile, ": no input is the source of an expected result"));
  }
  return plans;
}

struct Rotated {
  core::Rotary rotary;
  core::Positions positions;
  std::map<std::string, CaseArray> results;
};

// All tensors of the case in one call, as a model would.
std::map<std::string, CaseArray> rotate_all(std::vector<Plan> plans, const core::Rotary& rotary,
                                            const core::Positions& positions,
                                            core::Direction direction) {
  std::vector<core::Rotation> rotations;
  rotations.reserve(plans.size());
  for (Plan& plan : plans) {
    rotations.push_back(
        {heads_of(plan.input, plan.result), heads_of(plan.output, plan.result), plan.role});
  }
  core::RotateOptions options;
  options.direction = direction;
  core::rotate(rotary, positions, rotations, options);
  std::map<std::string, CaseArray> results;
  for (Plan& plan : plans) results.emplace(plan.result, std::move(plan.output));
  return results;
}

Rotated rotate_case(const Case& golden, const encodings::RopeSpec& spec,
                    core::Direction direction) {
  std::vector<Plan> plans = plan_rotations(golden, direction);
  const core::HeadsView first = heads_of(plans.front().input, plans.front().result);
  core::Positions positions =
      case_positions(golden.input("position_ids"), "position_ids", spec, first.batch, first.tokens);
  core::Rotary rotary = rotary_of(golden.json, spec, positions, std::string(kCaseFile));
  auto results = rotate_all(std::move(plans), rotary, positions, direction);
  return {std::move(rotary), std::move(positions), std::move(results)};
}

void compare_rotated(const Rotated& rotated, Comparison& comparison) {
  for (const auto& [name, array] : rotated.results) comparison.result(name, computed_from(array));
  comparison.scalar("attention_scaling", rotated.rotary.frequencies.amplitude());
}

void rope_apply(const Case& golden, Comparison& comparison) {
  const encodings::RopeSpec spec = spec_of(golden.json, std::string(kCaseFile));
  compare_rotated(rotate_case(golden, spec, core::Direction::forward), comparison);
}

void rope_backward(const Case& golden, Comparison& comparison) {
  const encodings::RopeSpec spec = spec_of(golden.json, std::string(kCaseFile));
  compare_rotated(rotate_case(golden, spec, core::Direction::transpose), comparison);
}

// Scores q . k of rotated heads, summed in double: [(batch,) head, query, key], whatever order the
// inputs have.
Computed scores_of(CaseArray q, CaseArray k) {
  const std::vector<double> q_values = io::to_doubles(q.data).value_or_throw();
  const std::vector<double> k_values = io::to_doubles(k.data).value_or_throw();
  const core::HeadsView a = heads_of(q, "q_out");
  const core::HeadsView b = heads_of(k, "k_out");
  if (b.heads == 0 || a.heads % b.heads != 0 || a.batch != b.batch || a.head_dim != b.head_dim) {
    refuse(ErrorCode::shape_mismatch,
           message("scores: query heads must be a multiple of key heads, got ", a.heads, " and ",
                   b.heads));
  }
  Computed scores;
  const bool batched = std::find(q.dims.begin(), q.dims.end(), "batch") != q.dims.end();
  if (batched) scores.shape.push_back(a.batch);
  scores.shape.insert(scores.shape.end(), {a.heads, a.tokens, b.tokens});
  for (std::int64_t row = 0; row < a.batch; ++row) {
    for (std::int64_t head = 0; head < a.heads; ++head) {
      const std::int64_t key_head = head / (a.heads / b.heads);
      for (std::int64_t m = 0; m < a.tokens; ++m) {
        const double* query =
            q_values.data() + row * a.batch_stride + head * a.head_stride + m * a.token_stride;
        for (std::int64_t n = 0; n < b.tokens; ++n) {
          const double* key = k_values.data() + row * b.batch_stride + key_head * b.head_stride +
                              n * b.token_stride;
          double sum = 0.0;
          for (std::int64_t i = 0; i < a.head_dim; ++i) sum += query[i] * key[i];
          scores.values.push_back(sum);
        }
      }
    }
  }
  return scores;
}

void rope_apply_xpos(const Case& golden, Comparison& comparison) {
  const std::string where(kCaseFile);
  encodings::RopeSpec spec = spec_of(golden.json, where);
  encodings::Xpos xpos;
  xpos.scale_base = member<double>(golden.json, "scale_base", where);
  xpos.gamma = member<double>(golden.json, "gamma", where);
  xpos.policy = encodings::Xpos::Centre::fixed;
  xpos.centre = member<double>(golden.json, "centre", where);
  spec.xpos = xpos;
  const Rotated rotated = rotate_case(golden, spec, core::Direction::forward);
  compare_rotated(rotated, comparison);
  if (golden.outputs.contains("scores") || golden.truth.contains("scores_f64")) {
    comparison.result("scores",
                      scores_of(rotated.results.at("q_out"), rotated.results.at("k_out")));
  }
}

struct CosSin {
  Computed cos, sin;
};

CosSin cos_sin_of(const core::Frequencies& frequencies, const core::Positions& positions) {
  const std::int64_t tokens = positions.tokens;
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  CosSin result;
  result.cos.shape = result.sin.shape = {tokens, frequencies.pairs()};
  std::vector<float> cos(pairs), sin(pairs);
  std::vector<double> per_axis(static_cast<std::size_t>(frequencies.axis_count()));
  for (std::int64_t token = 0; token < tokens; ++token) {
    positions.read_token(0, token, per_axis);
    core::cos_sin(frequencies, per_axis, std::span(cos), std::span(sin));
    result.cos.values.insert(result.cos.values.end(), cos.begin(), cos.end());
    result.sin.values.insert(result.sin.values.end(), sin.begin(), sin.end());
  }
  return result;
}

// Truth called X_exact and X_f32freq: X is cos, sin or a rotated input.
void rope_accuracy(const Case& golden, Comparison& comparison) {
  const encodings::RopeSpec spec = spec_of(golden.json, std::string(kCaseFile));
  CaseArray q = golden.input("q");
  const core::HeadsView heads = heads_of(q, "q");
  const core::Positions positions =
      case_positions(golden.input("position_ids"), "position_ids", spec, heads.batch, heads.tokens);
  const core::Rotary exact = rotary_of(golden.json, spec, positions, std::string(kCaseFile));
  core::Rotary rounded = exact;
  rounded.frequencies =
      core::Frequencies(io::to_doubles(golden.input("inv_freq").data).value_or_throw(),
                        exact.frequencies.amplitude());
  for (const auto& [suffix, rotary] :
       {std::pair<std::string, const core::Rotary*>{"_exact", &exact}, {"_f32freq", &rounded}}) {
    const CosSin rows = cos_sin_of(rotary->frequencies, positions);
    comparison.entry("cos" + suffix, rows.cos);
    comparison.entry("sin" + suffix, rows.sin);
    std::vector<Plan> plans;
    for (const auto& [name, expected] : golden.truth) {
      if (!name.ends_with("_out" + suffix)) continue;
      const std::string input = without(name, "_out" + suffix);
      const CaseArray& source = golden.input(input);
      plans.push_back({name, source, result_like(expected, source),
                       is_key(input) ? core::Role::key : core::Role::query});
    }
    if (plans.empty()) continue;
    for (const auto& [name, array] :
         rotate_all(std::move(plans), *rotary, positions, core::Direction::forward)) {
      comparison.entry(name, computed_from(array));
    }
  }
}

// freqs_cis [seq, freq, 2] = (cos, sin), and xq, xk rotated.
void worked_example(const Case& golden, Comparison& comparison) {
  const encodings::RopeSpec spec = spec_of(golden.json, std::string(kCaseFile));
  const Rotated rotated = rotate_case(golden, spec, core::Direction::forward);
  compare_rotated(rotated, comparison);
  const auto results = results_of(golden);
  const auto table = results.find("freqs_cis");
  if (table == results.end()) return;
  const CosSin rows = cos_sin_of(rotated.rotary.frequencies, rotated.positions);
  Computed freqs_cis;
  freqs_cis.shape = {rows.cos.shape[0], rows.cos.shape[1], 2};
  for (std::size_t at = 0; at < rows.cos.values.size(); ++at) {
    freqs_cis.values.push_back(rows.cos.values[at]);
    freqs_cis.values.push_back(rows.sin.values[at]);
  }
  comparison.result("freqs_cis", freqs_cis);
}

}  // namespace

void add_rope_kinds(Kinds& kinds) {
  kinds["rope_apply"] = rope_apply;
  kinds["rope_apply_roformer"] = rope_apply;
  kinds["rope_apply_mrope"] = rope_apply;
  kinds["rope_apply_vision2d"] = rope_apply;
  kinds["rope_apply_xpos"] = rope_apply_xpos;
  kinds["rope_accuracy"] = rope_accuracy;
  kinds["rope_backward"] = rope_backward;
  kinds["worked_example"] = worked_example;
}

}  // namespace phasor::tools
