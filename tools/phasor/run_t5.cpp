// phasor run with an encoder-decoder: an input, then its answer.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "phasor/core/error.hpp"
#include "phasor/models/t5.hpp"
#include "run_parts.hpp"

namespace phasor::tools {
namespace {

void refuse_decoder_flags(const RunFlags& flags, const std::string& model_type) {
  const std::pair<bool, std::string_view> given[] = {{flags.chat, "--chat"},
                                                     {flags.interactive, "--interactive"},
                                                     {flags.shift, "--shift"},
                                                     {flags.context.has_value(), "--context"}};
  for (const auto& [is_given, name] : given) {
    if (is_given)
      refuse(ErrorCode::unsupported,
             message(name, " requires a decoder, got the encoder-decoder ", model_type));
  }
}

models::GenerateOptions answer_options(const RunFlags& flags, const models::T5Model& model,
                                       const text::Tokenizer* tokenizer) {
  models::GenerateOptions options;
  options.tokens = flags.tokens.value_or(options.tokens);
  options.sampler = flags.sampler;
  options.sampler.temperature = flags.temperature.value_or(0.0);
  options.sampler.seed = flags.seed.value_or(0);
  options.stops = model.facts().stops;
  if (tokenizer != nullptr) {
    const std::vector<std::int64_t>& more = tokenizer->specials().stops;
    options.stops.insert(options.stops.end(), more.begin(), more.end());
  }
  return options;
}

}  // namespace

int run_t5(const RunFlags& flags, models::Checkpoint checkpoint) {
  refuse_decoder_flags(flags, checkpoint.config().model_type);
  IdArray ids;
  std::unique_ptr<text::Tokenizer> tokenizer;
  const auto start = std::chrono::steady_clock::now();
  if (flags.ids.empty()) {
    tokenizer = text::read_tokenizer(flags.model.model).value_or_throw();
    const std::string text = prompt_text(flags);
    ids.values = flags.raw ? text::prompt_ids(*tokenizer, text, text::BeginToken::leave_out)
                           : models::t5_input_ids(*tokenizer, text);
    ids.tokens = static_cast<std::int64_t>(ids.values.size());
  } else {
    ids = read_ids(flags.ids);
  }
  const models::MaskedBatch rows = models::unpad(ids.values, read_mask(flags.mask, ids), ids.batch);
  models::T5Model model =
      models::T5Model::load(std::move(checkpoint), compute_options(flags.model)).value_or_throw();
  const LoadCost cost{
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      model.facts().weight_bytes};
  const models::GenerateOptions options = answer_options(flags, model, tokenizer.get());
  const std::optional<core::DType> cache = cache_options(flags).cache;
  if (rows.rows.size() > 1) {
    std::vector<models::GenerateResult> results;
    for (const std::vector<std::int64_t>& row : rows.rows)
      results.push_back(models::generate(model, row, options, cache));
    return print_rows(flags, cost, results);
  }
  const Interrupt interrupt;
  const Written written =
      write_answer(flags, tokenizer.get(),
                   [&](const auto& on_token) {
                     return models::generate(model, rows.rows.front(), options, cache, on_token);
                   },
                   {.space = AnswerStart::FirstSpace::drop});
  return finish_answer(flags, tokenizer.get(), cost, written);
}

}  // namespace phasor::tools
