// phasor logits: a model's answer to token ids, as an array.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "model_options.hpp"
#include "phasor/core/error.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/roformer.hpp"
#include "spec.hpp"

namespace phasor::tools {
namespace {

struct LogitsFlags {
  ModelOptions model;
  std::string ids, mask, token_types, output, hidden;
  bool last = false, json = false;
};

struct Answer {
  std::string model_type;
  std::optional<io::NpyArray> logits, hidden;
};

// An array [before..., (batch,) after...] of float32 zeros: the batch axis only where ids have one.
io::NpyArray zeros(std::vector<std::int64_t> before, const IdArray& ids,
                   std::vector<std::int64_t> after) {
  if (ids.has_batch) before.push_back(ids.batch);
  before.insert(before.end(), after.begin(), after.end());
  return io::make_npy(io::NpyType::f32, std::move(before));
}

io::NpyArray filled(io::NpyArray array, const std::vector<float>& values) {
  if (array.bytes.size() != values.size() * sizeof(float))
    throw Error(ErrorCode::internal, message("logits: the model must give ", array.size(),
                                             " values, got ", values.size()));
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

// Rows of the tokens that are no padding, put where those stood.
class Scatter {
 public:
  Scatter(const IdArray& ids, const models::MaskedBatch& batch) : ids_(ids), batch_(batch) {}

  // `values` [arrays, tokens of all rows, width] into an array [arrays, (batch,) tokens, width].
  void operator()(const std::vector<float>& values, std::int64_t width, io::NpyArray& array) const {
    const std::int64_t slots = ids_.batch * ids_.tokens;
    const float* from = values.data();
    for (std::int64_t first = 0; first < array.size() / width; first += slots) {
      for (std::size_t row = 0; row < batch_.slots.size(); ++row) {
        for (const std::int64_t column : batch_.slots[row]) {
          const std::int64_t slot = first + static_cast<std::int64_t>(row) * ids_.tokens + column;
          std::copy_n(from, width, array.as<float>() + slot * width);
          from += width;
        }
      }
    }
  }

 private:
  const IdArray& ids_;
  const models::MaskedBatch& batch_;
};

Answer answer_of_decoder(models::Decoder& decoder, const LogitsFlags& flags, const IdArray& ids) {
  const models::MaskedBatch batch =
      models::unpad(ids.values, read_mask(flags.mask, ids), ids.batch);
  std::vector<models::Sequence> sequences;
  for (const auto& row : batch.rows)
    sequences.push_back(decoder.sequence({.capacity = static_cast<std::int64_t>(row.size())}));
  std::vector<models::Step> steps;
  for (std::size_t i = 0; i < batch.rows.size(); ++i)
    steps.push_back({&sequences[i], batch.rows[i]});
  models::ForwardOptions options;
  options.logits = flags.output.empty() ? models::LogitsOf::none
                   : flags.last         ? models::LogitsOf::last_token
                                        : models::LogitsOf::every_token;
  if (!flags.hidden.empty()) options.hidden = models::HiddenStates::collect;
  // In one call: frequencies that read the context are then those of the whole input.
  const models::ForwardResult result = decoder.forward(steps, options);

  const models::DecoderFacts& facts = decoder.facts();
  const Scatter scatter(ids, batch);
  Answer answer{facts.model_type, std::nullopt, std::nullopt};
  if (!flags.output.empty() && flags.last) {
    answer.logits = filled(zeros({}, ids, {facts.vocabulary}), result.logits);
  } else if (!flags.output.empty()) {
    answer.logits = zeros({}, ids, {ids.tokens, facts.vocabulary});
    scatter(result.logits, facts.vocabulary, *answer.logits);
  }
  if (!flags.hidden.empty()) {
    answer.hidden = zeros({facts.layers + 1}, ids, {ids.tokens, facts.hidden});
    scatter(result.hidden_states, facts.hidden, *answer.hidden);
  }
  return answer;
}

// Zeros where the mask is 0, in an array of [.., slots, width].
void clear_padding(io::NpyArray& array, const std::vector<std::uint8_t>& mask, std::int64_t width) {
  float* values = array.as<float>();
  const auto slots = static_cast<std::int64_t>(mask.size());
  for (std::int64_t row = 0; row < array.size() / width; ++row) {
    if (mask[static_cast<std::size_t>(row % slots)] == 0)
      std::fill_n(values + row * width, width, 0.0F);
  }
}

Answer answer_of_roformer(const LogitsFlags& flags, const IdArray& ids) {
  if (flags.last)
    throw Error(ErrorCode::invalid_argument,
                "--last must be asked of a decoder, got roformer, an encoder");
  models::RoFormer model =
      models::RoFormer::load(flags.model.model, compute_options(flags.model)).value_or_throw();
  const models::RoFormerFacts& facts = model.facts();
  if (!flags.output.empty() && facts.head == models::RoFormerHead::none)
    throw Error(ErrorCode::unsupported,
                "-o must be asked of a model with a head, got a base model; use --hidden");
  const std::vector<std::uint8_t> mask = read_mask(flags.mask, ids);
  IdArray types;
  if (!flags.token_types.empty()) {
    types = read_ids(flags.token_types);
    if (types.batch != ids.batch || types.tokens != ids.tokens)
      throw Error(ErrorCode::shape_mismatch,
                  message(flags.token_types, ": the shape must be that of the ids, ",
                          shape_text({ids.batch, ids.tokens}), ", got ",
                          shape_text({types.batch, types.tokens})));
  }
  const models::RoFormerResult result = model.forward(
      {.batch = ids.batch, .ids = ids.values, .token_types = types.values, .mask = mask},
      flags.hidden.empty() ? models::HiddenStates::leave : models::HiddenStates::collect);
  Answer answer{"roformer", std::nullopt, std::nullopt};
  if (!flags.output.empty()) {
    const bool labels = facts.head == models::RoFormerHead::classification;
    answer.logits = filled(
        labels ? zeros({}, ids, {facts.labels}) : zeros({}, ids, {ids.tokens, facts.vocabulary}),
        result.logits);
    if (!labels) clear_padding(*answer.logits, mask, facts.vocabulary);
  }
  if (!flags.hidden.empty()) {
    answer.hidden =
        filled(zeros({facts.layers + 1}, ids, {ids.tokens, facts.hidden}), result.hidden_states);
    clear_padding(*answer.hidden, mask, facts.hidden);
  }
  return answer;
}

int run_logits(const LogitsFlags& flags) {
  if (flags.output.empty() && flags.hidden.empty())
    throw Error(ErrorCode::invalid_argument, "-o or --hidden must be given, got neither");
  const IdArray ids = read_ids(flags.ids);
  models::Checkpoint checkpoint = models::Checkpoint::open(flags.model.model).value_or_throw();
  const auto start = std::chrono::steady_clock::now();
  Answer answer;
  if (checkpoint.config().model_type == "roformer") {
    answer = answer_of_roformer(flags, ids);
  } else {
    if (!flags.token_types.empty())
      throw Error(
          ErrorCode::invalid_argument,
          message("--token-types must be asked of roformer, got ", checkpoint.config().model_type));
    models::Decoder decoder =
        models::Decoder::load(std::move(checkpoint), compute_options(flags.model)).value_or_throw();
    answer = answer_of_decoder(decoder, flags, ids);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (answer.hidden) or_throw(io::write_npy(flags.hidden, *answer.hidden));
  if (answer.logits) or_throw(io::write_npy(flags.output, *answer.logits));
  if (flags.json) {
    nlohmann::ordered_json summary;
    summary["model_type"] = answer.model_type;
    summary["logits"] = answer.logits ? nlohmann::ordered_json(answer.logits->shape) : nullptr;
    summary["hidden"] = answer.hidden ? nlohmann::ordered_json(answer.hidden->shape) : nullptr;
    summary["precision"] = models::name_of(compute_options(flags.model).precision);
    summary["seconds"] = seconds;
    fmt::print("{}\n", summary.dump());
    return exit_code::done;
  }
  if (answer.logits)
    fmt::print("logits {} float32 -> {}\n", shape_text(answer.logits->shape), flags.output);
  if (answer.hidden)
    fmt::print("hidden {} float32 -> {}\n", shape_text(answer.hidden->shape), flags.hidden);
  return exit_code::done;
}

}  // namespace

void add_logits(CLI::App& app, Action& action) {
  auto flags = std::make_shared<LogitsFlags>();
  CLI::App* verb = app.add_subcommand("logits", "a model's answer to token ids, as an array");
  add_model_options(*verb, flags->model);
  verb->add_option("--ids", flags->ids, "[tokens] or [batch, tokens] integers")->required();
  verb->add_option("--mask", flags->mask, "in the shape of the ids: 0 = padding, on either side");
  verb->add_option("--token-types", flags->token_types,
                   "in the shape of the ids: which sentence a token is of (roformer)");
  verb->add_flag("--last", flags->last, "of each row only the last token that is no padding");
  verb->add_option("--hidden", flags->hidden,
                   "write hidden states too: [layers + 1, (batch,) tokens, hidden]");
  verb->add_option("-o,--output", flags->output, "where the logits go");
  verb->add_flag("--json", flags->json, "print what was done as one object");
  verb->footer(
      "Logits   [tokens, vocabulary] float32, with a batch axis in front where the ids have one;\n"
      "         --last: [vocabulary]; a roformer with a classification head: [labels].\n"
      "         Padded slots hold zeros.\n"
      "Hidden   the embedding first, the last entry after the final norm\n"
      "\n"
      "Positions of a decoder count the tokens that are no padding; RoFormer numbers all slots.\n"
      "\n"
      "Example  phasor logits model.gguf --ids ids.npy -o logits.npy");
  verb->callback([&action, flags] { action = [flags] { return run_logits(*flags); }; });
}

}  // namespace phasor::tools
