// phasor logits: runs a model on token ids and writes the logits.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "commands.hpp"
#include "model_options.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/lab/internal/checkpoint.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/roformer.hpp"
#include "phasor/models/t5.hpp"
#include "ranks.hpp"
#include "spec.hpp"
#include "streams.hpp"

namespace phasor::tools {
namespace {

struct LogitsFlags {
  ModelOptions model;
  RopeOverride rope;
  std::string ids, mask, token_types, decoder_ids, output, hidden;
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
    refuse(ErrorCode::internal,
           message("logits: the model must give ", array.size(), " values, got ", values.size()));
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

Answer answer_of_decoder(models::Decoder& decoder, const LogitsFlags& flags, const IdArray& ids) {
  models::ForwardOptions options;
  options.logits = flags.output.empty() ? models::LogitsOf::none
                   : flags.last         ? models::LogitsOf::last_token
                                        : models::LogitsOf::every_token;
  if (!flags.hidden.empty()) options.hidden = models::HiddenStates::collect;
  options.rows = models::RowsOn::first_rank;
  agree_on_ids(ids.values);
  const models::ForwardResult result = models::forward_padded(
      decoder, ids.values, read_mask(flags.mask, ids), ids.batch, options, shared_context());

  const models::DecoderFacts& facts = decoder.facts();
  Answer answer{facts.model_type, std::nullopt, std::nullopt};
  if (!is_first_rank()) return answer;
  if (!flags.output.empty()) {
    answer.logits = filled(flags.last ? zeros({}, ids, {facts.vocabulary})
                                      : zeros({}, ids, {ids.tokens, facts.vocabulary}),
                           result.logits);
  }
  if (!flags.hidden.empty()) {
    answer.hidden =
        filled(zeros({facts.layers + 1}, ids, {ids.tokens, facts.hidden}), result.hidden_states);
  }
  return answer;
}

// Empty without the flag.
IdArray read_token_types(const LogitsFlags& flags, const IdArray& ids) {
  IdArray types;
  if (flags.token_types.empty()) return types;
  types = read_ids(flags.token_types);
  if (types.batch != ids.batch || types.tokens != ids.tokens)
    refuse(ErrorCode::shape_mismatch,
           message(flags.token_types, ": the shape must be that of the ids [", ids.batch, ", ",
                   ids.tokens, "], got [", types.batch, ", ", types.tokens, "]"));
  return types;
}

Answer answer_of_roformer(const LogitsFlags& flags, const IdArray& ids) {
  if (flags.rope.base || !flags.rope.scaling.empty())
    refuse(ErrorCode::unsupported,
           "--rope-base and --rope-scaling require a decoder, got roformer");
  if (flags.last)
    refuse(
        "--last requires a decoder of another family, got roformer; without --last the logits of "
        "every token are written");
  models::RoFormer model =
      models::RoFormer::load(flags.model.model, compute_options(flags.model)).value_or_throw();
  const models::RoFormerFacts& facts = model.facts();
  if (!flags.output.empty() && facts.head == models::RoFormerHead::none)
    refuse(ErrorCode::unsupported,
           "the model has no head, so there are no logits for -o; use --hidden");
  const std::vector<std::uint8_t> mask = read_mask(flags.mask, ids);
  const IdArray types = read_token_types(flags, ids);
  models::RoFormerResult result = model.forward(
      {.batch = ids.batch, .ids = ids.values, .token_types = types.values, .mask = mask},
      flags.hidden.empty() ? models::HiddenStates::leave : models::HiddenStates::collect);
  Answer answer{"roformer", std::nullopt, std::nullopt};
  if (!flags.output.empty()) {
    const std::int64_t columns = facts.logit_columns();
    const bool per_token = facts.has_logits_per_token();
    if (per_token) models::clear_padding(mask, columns, result.logits);
    answer.logits =
        filled(per_token ? zeros({}, ids, {ids.tokens, columns}) : zeros({}, ids, {columns}),
               result.logits);
  }
  if (!flags.hidden.empty()) {
    models::clear_padding(mask, facts.hidden, result.hidden_states);
    answer.hidden =
        filled(zeros({facts.layers + 1}, ids, {ids.tokens, facts.hidden}), result.hidden_states);
  }
  return answer;
}

// The decoder's ids, a row for each row of the input; without --decoder-ids, the start token.
IdArray decoder_ids(const LogitsFlags& flags, const IdArray& ids, std::int64_t start_token) {
  if (flags.decoder_ids.empty()) {
    IdArray starts = ids;
    starts.tokens = 1;
    starts.values.assign(static_cast<std::size_t>(ids.batch), start_token);
    return starts;
  }
  IdArray steps = read_ids(flags.decoder_ids);
  if (steps.batch != ids.batch)
    refuse(ErrorCode::shape_mismatch,
           message(flags.decoder_ids, ": the decoder needs a row of ids for each of the ",
                   ids.batch, " rows of --ids, got ", steps.batch));
  steps.has_batch = ids.has_batch;
  return steps;
}

Answer answer_of_t5(models::T5Model& model, const LogitsFlags& flags, const IdArray& ids) {
  const models::T5Facts& facts = model.facts();
  const IdArray steps = decoder_ids(flags, ids, facts.start_token);
  const models::MaskedBatch rows = models::unpad(ids.values, read_mask(flags.mask, ids), ids.batch);
  models::ForwardOptions options;
  options.logits = flags.output.empty() ? models::LogitsOf::none
                   : flags.last         ? models::LogitsOf::last_token
                                        : models::LogitsOf::every_token;
  if (!flags.hidden.empty()) options.hidden = models::HiddenStates::collect;
  std::vector<float> logits, hidden;
  const auto layer_size = static_cast<std::size_t>(steps.tokens * facts.hidden);
  hidden.resize(flags.hidden.empty() ? 0
                                     : static_cast<std::size_t>(facts.decoder_layers + 1) *
                                           rows.rows.size() * layer_size);
  for (std::size_t row = 0; row < rows.rows.size(); ++row) {
    models::T5Sequence sequence = model.sequence(rows.rows[row], {.capacity = steps.tokens});
    const models::ForwardResult result =
        model.forward(sequence, steps.row(static_cast<std::int64_t>(row)), options);
    logits.insert(logits.end(), result.logits.begin(), result.logits.end());
    for (std::size_t layer = 0; layer * layer_size < result.hidden_states.size(); ++layer) {
      std::copy_n(result.hidden_states.begin() + static_cast<std::ptrdiff_t>(layer * layer_size),
                  layer_size,
                  hidden.begin() +
                      static_cast<std::ptrdiff_t>((layer * rows.rows.size() + row) * layer_size));
    }
  }
  Answer answer{facts.model_type, std::nullopt, std::nullopt};
  if (!flags.output.empty()) {
    answer.logits = filled(flags.last ? zeros({}, ids, {facts.vocabulary})
                                      : zeros({}, ids, {steps.tokens, facts.vocabulary}),
                           logits);
  }
  if (!flags.hidden.empty()) {
    answer.hidden =
        filled(zeros({facts.decoder_layers + 1}, ids, {steps.tokens, facts.hidden}), hidden);
  }
  return answer;
}

// A network of the lab that no other model_type describes.
Answer answer_of_lab(const LogitsFlags& flags, const IdArray& ids) {
  const auto refuse_flag = [](std::string_view flag) {
    refuse(ErrorCode::unsupported,
           message(flag, " is not supported for model_type ", lab::kLabModelType));
  };
  if (flags.rope.base || !flags.rope.scaling.empty()) refuse_flag("--rope-base, --rope-scaling");
  if (!flags.hidden.empty()) refuse_flag("--hidden");
  if (flags.last) refuse_flag("--last");
  if (flags.model.fast) refuse_flag("--fast");
  lab::Network<float> network =
      lab::load_checkpoint(flags.model.model, {.threads = flags.model.threads}).value_or_throw();
  const lab::ModelSpec& spec = network.spec();
  const bool has_source = spec.architecture == lab::Architecture::encoder_decoder;
  if (has_source && flags.decoder_ids.empty()) {
    refuse("an encoder-decoder of the lab requires --decoder-ids, start token included");
  }
  if (!has_source && !flags.decoder_ids.empty()) {
    refuse(message("--decoder-ids requires an encoder-decoder, got ",
                   lab::name_of(spec.architecture)));
  }
  if (has_source && !flags.token_types.empty()) refuse_flag("--token-types");
  const IdArray of_logits = has_source ? decoder_ids(flags, ids, 0) : ids;
  lab::Batch batch;
  batch.rows = ids.batch;
  batch.tokens = of_logits.tokens;
  const auto narrowed = [&](const std::vector<std::int64_t>& values, std::string_view what,
                            std::int64_t count) {
    std::vector<std::int32_t> result;
    for (const std::int64_t value : values) {
      if (value < 0 || value >= count) {
        refuse(ErrorCode::out_of_range, message(what, " must be in [0, ", count, "), got ", value));
      }
      result.push_back(static_cast<std::int32_t>(value));
    }
    return result;
  };
  batch.ids = narrowed(of_logits.values, has_source ? "decoder ids" : "ids", spec.vocabulary);
  if (has_source) {
    batch.source_tokens = ids.tokens;
    batch.source_ids = narrowed(ids.values, "ids", spec.vocabulary);
  }
  if (!flags.token_types.empty()) {
    batch.token_types =
        narrowed(read_token_types(flags, ids).values, "token types", spec.token_types);
  }
  if (!flags.mask.empty()) {
    (has_source ? batch.source_mask : batch.mask) = read_mask(flags.mask, ids);
  }
  std::vector<float> logits = network.logits(batch);
  Answer answer{std::string(lab::kLabModelType), std::nullopt, std::nullopt};
  const bool per_token = spec.head == lab::Head::language_model;
  const std::int64_t columns = per_token ? spec.vocabulary : spec.labels;
  if (per_token && !batch.mask.empty()) models::clear_padding(batch.mask, columns, logits);
  answer.logits = filled(
      per_token ? zeros({}, ids, {batch.tokens, columns}) : zeros({}, ids, {columns}), logits);
  return answer;
}

// The model's logits, by its type.
Answer answer_of(const LogitsFlags& flags, const IdArray& ids) {
  if (lab::is_lab_checkpoint(flags.model.model)) {
    require_decoder_on_ranks("a network of the lab");
    return answer_of_lab(flags, ids);
  }
  models::Checkpoint checkpoint = open_checkpoint(flags.model.model, flags.rope);
  const std::string model_type = checkpoint.config().model_type;
  if (!flags.decoder_ids.empty() && !models::is_t5(model_type))
    refuse(message("--decoder-ids requires an encoder-decoder, got ", model_type));
  if (model_type == "roformer" || models::is_t5(model_type)) require_decoder_on_ranks(model_type);
  if (model_type == "roformer") return answer_of_roformer(flags, ids);
  if (!flags.token_types.empty())
    refuse(message("--token-types requires roformer, got ", model_type));
  if (models::is_t5(model_type)) {
    models::T5Model model =
        models::T5Model::load(std::move(checkpoint), compute_options(flags.model)).value_or_throw();
    return answer_of_t5(model, flags, ids);
  }
  models::Decoder decoder =
      models::Decoder::load(std::move(checkpoint), compute_options(flags.model)).value_or_throw();
  return answer_of_decoder(decoder, flags, ids);
}

int run_logits(const LogitsFlags& flags) {
  if (flags.output.empty() && flags.hidden.empty()) refuse("-o or --hidden is required");
  require_one_stdout({flags.output, flags.hidden});
  const IdArray ids = read_ids(flags.ids);
  const auto start = std::chrono::steady_clock::now();
  const Answer answer = answer_of(flags, ids);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (answer.hidden) write_array(flags.hidden, *answer.hidden);
  if (answer.logits) write_array(flags.output, *answer.logits);
  if (flags.json) {
    io::Json summary;
    summary["model_type"] = answer.model_type;
    summary["logits"] = answer.logits ? io::Json(answer.logits->shape) : nullptr;
    summary["hidden"] = answer.hidden ? io::Json(answer.hidden->shape) : nullptr;
    summary["precision"] = models::name_of(compute_options(flags.model).precision);
    summary["seconds"] = seconds;
    print_out("{}\n", summary.dump());
    return exit_code::done;
  }
  if (answer.logits)
    print_out("logits {} float32 -> {}\n", core::shape_text(answer.logits->shape), flags.output);
  if (answer.hidden)
    print_out("hidden {} float32 -> {}\n", core::shape_text(answer.hidden->shape), flags.hidden);
  return exit_code::done;
}

}  // namespace

void add_logits(CommandLine& line) {
  auto flags = std::make_shared<LogitsFlags>();
  Verb& verb = line.verb("logits", "run a model on token ids and write the logits");
  verb.runs_on_ranks = true;
  add_model_options(verb, flags->model);
  verb.flag("--ids", &flags->ids, "token ids: .npy [tokens] or [batch, tokens], or a list 1,2,3")
      .required();
  verb.flag("--mask", &flags->mask,
            "padding mask, in the shape of the ids: 0 = padding, on either side");
  verb.flag("--token-types", &flags->token_types,
            "sentence of each token, in the shape of the ids (roformer)");
  verb.flag(
      "--decoder-ids", &flags->decoder_ids,
      "ids of the decoder, as --ids, start token included (t5, encoder-decoders of the lab; t5's "
      "default: the start token)");
  add_rope_override(verb, flags->rope);
  verb.flag("--last", &flags->last, "only the last token of each row that is not padding");
  verb.flag("--hidden", &flags->hidden,
            "also write hidden states: [layers + 1, (batch,) tokens, hidden]");
  verb.flag("-o,--output", &flags->output, "write the logits here");
  verb.flag("--json", &flags->json, "print a summary as one JSON object");
  verb.footer =
      R"(Logits   [tokens, vocabulary] float32, or [batch, tokens, vocabulary] if the ids have a batch;
         --last: [vocabulary]. A roformer that classifies rows: [labels], tokens: [tokens, labels],
         one that answers questions: [tokens, 2], start and end.
         Padding tokens hold zeros. An encoder-decoder (t5, mt5, umt5, lab) reads --ids; logits and hidden
         states are those of --decoder-ids.
Hidden   first the embedding, then the output of each layer, the last one after the final norm

Decoders count positions without padding; RoFormer counts padding too.

)" + std::string(kArrayFiles) +
      R"(

Ranks    mpirun -n 4 phasor logits ... divides the tokens of a decoder among 4 ranks; rank 0 writes.
         Logits are within 1e-5 of those of one rank, relative to the largest.

Example  phasor logits model.gguf --ids ids.npy -o logits.npy)";
  verb.action = [flags] { return run_logits(*flags); };
}

}  // namespace phasor::tools
