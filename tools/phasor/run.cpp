// phasor run: generates text from a prompt.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "commands.hpp"
#include "embedded_model.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/models/t5.hpp"
#include "ranks.hpp"
#include "run_parts.hpp"
#include "text_files.hpp"

namespace phasor::tools {

std::int64_t context_of(const RunFlags& flags, const models::Decoder& decoder) {
  return flags.context.value_or(decoder.facts().trained_length);
}

models::GenerateOptions generate_options(const RunFlags& flags, const LoadedModel& model) {
  constexpr std::int64_t kTokens = 128, kChatTokens = 512;
  models::GenerateOptions options;
  options.tokens = flags.tokens.value_or(flags.chat || flags.interactive ? kChatTokens : kTokens);
  options.sampler = flags.sampler;
  options.sampler.temperature = flags.temperature.value_or(0.0);
  options.sampler.seed = flags.seed.value_or(0);
  options.context = context_of(flags, model.decoder);
  options.when_full = flags.shift ? models::WindowFull::shift : models::WindowFull::refuse;
  options.keep = flags.keep;
  options.stops = models::stop_tokens(model.decoder, model.tokenizer.get());
  return options;
}

models::SequenceOptions cache_options(const RunFlags& flags) {
  models::SequenceOptions options;
  options.share = shared_context();
  if (flags.cache == "f32") options.cache = core::DType::f32;
  if (flags.cache == "f16") options.cache = core::DType::f16;
  if (flags.cache == "bf16") options.cache = core::DType::bf16;
  return options;
}

std::vector<std::int64_t> prompt_ids(const RunFlags& flags, const text::Tokenizer& tokenizer,
                                     const std::string& text) {
  return text::prompt_ids(tokenizer, text,
                          flags.raw ? text::BeginToken::leave_out : text::BeginToken::as_wanted);
}

text::ChatStyle chat_style(const RunFlags& flags, const text::Tokenizer& tokenizer) {
  text::ChatStyle style = text::chat_style(tokenizer, flags.chat_format);
  if (flags.system) style.system = *flags.system;
  return style;
}

std::string prompt_text(const RunFlags& flags) {
  return flags.prompt ? *flags.prompt : read_text_or_stdin(flags.prompt_file);
}

namespace {

// Everything that can be checked without reading a file.
void check_flags(const RunFlags& flags) {
  const int sources =
      (flags.prompt ? 1 : 0) + (flags.prompt_file.empty() ? 0 : 1) + (flags.ids.empty() ? 0 : 1);
  if (sources > 1 || (sources == 0 && !flags.interactive))
    refuse(sources == 0 ? "the prompt is missing: give --prompt, --prompt-file or --ids"
                        : "--prompt, --prompt-file and --ids cannot be combined");
  if (flags.embedded && !flags.model.model.empty())
    refuse(message("--embedded and a MODEL cannot be combined, got ", flags.model.model));
  if (!flags.embedded && flags.model.model.empty())
    refuse("the MODEL is missing: give a folder, a GGUF file or org/name, or --embedded");
  if (!flags.ids.empty() && (flags.chat || flags.interactive || flags.raw))
    refuse("--ids cannot be combined with --chat, --interactive or --raw");
  if (!flags.chat && !flags.interactive && (flags.system || flags.chat_format))
    refuse(message(flags.system ? "--system" : "--chat-format",
                   " requires --chat or --interactive: a plain prompt has no such part"));
  if (ranks() != nullptr && (flags.interactive || flags.shift || !flags.mask.empty()))
    refuse(ErrorCode::unsupported,
           message(flags.interactive ? "--interactive"
                   : flags.shift     ? "--shift"
                                     : "--mask",
                   " runs on one rank, got ", ranks()->size(), ": start it without mpirun"));
  if (flags.interactive && (flags.json || !flags.prompt_file.empty()))
    refuse("--interactive cannot be combined with --json or --prompt-file");
  const bool filters =
      flags.sampler.top_k != 0 || flags.sampler.top_p != 1.0 || flags.sampler.min_p != 0.0;
  if (filters && flags.temperature.value_or(0.0) == 0.0)
    refuse("--top-k, --top-p and --min-p require a --temperature above 0");
  models::SamplerOptions sampler = flags.sampler;
  sampler.temperature = flags.temperature.value_or(0.0);
  (void)models::Sampler(sampler);
}

// Samples differ from run to run unless --seed repeats them.
void choose_seed(RunFlags& flags) {
  if (flags.seed || flags.temperature.value_or(0.0) == 0.0) return;
  std::string seed = std::to_string(std::random_device()());
  if (ranks() != nullptr) ranks()->broadcast(seed);
  flags.seed = std::stoull(seed);
  print_err("phasor run: --seed {} repeats this answer\n", *flags.seed);
}

LoadedModel load(const RunFlags& flags, models::Checkpoint checkpoint) {
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (flags.ids.empty()) {
    tokenizer = flags.embedded ? embedded_tokenizer()
                               : text::read_tokenizer(flags.model.model).value_or_throw();
  }
  LoadedModel model{
      models::Decoder::load(std::move(checkpoint), compute_options(flags.model)).value_or_throw(),
      std::move(tokenizer)};
  model.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::int64_t trained = model.decoder.facts().trained_length;
  if (flags.context && trained > 0 && *flags.context > trained)
    print_err("phasor run: note: the model was trained to {} positions, not {}\n", trained,
              *flags.context);
  return model;
}

// Prompt and answer must fit the context, unless it may shift: a longer answer is cut.
void fit_context(const RunFlags& flags, const models::Decoder& decoder, std::int64_t prompt_tokens,
                 models::GenerateOptions& options) {
  if (options.context <= 0 || prompt_tokens > options.context) return;  // generate() checks these
  if (options.when_full == models::WindowFull::shift) return;
  const std::int64_t room = options.context - prompt_tokens;
  if (options.tokens <= room) return;
  // A learned table of positions ends, and the cache cannot shift along it.
  const bool ends = decoder.facts().position_limit > 0;
  if (room == 0) {
    refuse(ErrorCode::out_of_range,
           message("the prompt has ", prompt_tokens, " tokens and fills the context of ",
                   options.context, ends ? "" : "; raise --context or use --shift"));
  }
  if (flags.tokens) {
    print_err("phasor run: note: the context of {} has room for {} of the {} tokens{}\n",
              options.context, room, options.tokens, ends ? "" : "; --shift continues beyond it");
  }
  options.tokens = room;
}

// Generates for all rows together; ids in, ids out.
int run_batch(const RunFlags& flags, LoadedModel& model, const IdArray& ids) {
  const models::MaskedBatch batch =
      models::unpad(ids.values, read_mask(flags.mask, ids), ids.batch);
  models::GenerateOptions options = generate_options(flags, model);
  std::int64_t longest = 0;
  for (const std::vector<std::int64_t>& row : batch.rows)
    longest = std::max(longest, static_cast<std::int64_t>(row.size()));
  fit_context(flags, model.decoder, longest, options);
  return print_rows(flags, cost_of(model),
                    models::generate_batch(model.decoder, batch.rows, options));
}

int run_one(const RunFlags& flags, LoadedModel& model, const std::vector<std::int64_t>& prompt,
            const std::string& shown) {
  models::GenerateOptions options = generate_options(flags, model);
  fit_context(flags, model.decoder, static_cast<std::int64_t>(prompt.size()), options);
  agree_on_ids(prompt);
  models::Generator generator(model.decoder, cache_options(flags));
  // Ranks cannot stop at the same token: there Ctrl-C ends the command.
  std::optional<Interrupt> interrupt;
  if (ranks() == nullptr) interrupt.emplace();
  const Written written = write_answer(
      flags, model.tokenizer.get(),
      [&](const auto& on_token) { return generator.generate(prompt, options, on_token); },
      {.before = shown});
  return finish_answer(flags, model.tokenizer.get(), cost_of(model), written, shown);
}

int run_run(RunFlags flags) {
  check_flags(flags);
  choose_seed(flags);
  models::Checkpoint checkpoint = flags.embedded ? with_rope(embedded_checkpoint(), flags.rope)
                                                 : open_checkpoint(flags.model.model, flags.rope);
  if (models::is_t5(checkpoint.config().model_type)) {
    require_decoder_on_ranks(checkpoint.config().model_type);
    return run_t5(flags, std::move(checkpoint));
  }
  if (!flags.ids.empty()) {
    const IdArray ids = read_ids(flags.ids);
    if (ranks() != nullptr && ids.batch > 1)
      refuse(ErrorCode::unsupported,
             message("a batch of ", ids.batch, " rows of --ids runs on one rank, got ",
                     ranks()->size(), ": start it without mpirun"));
    LoadedModel model = load(flags, std::move(checkpoint));
    if (ids.batch > 1 || !flags.mask.empty()) return run_batch(flags, model, ids);
    return run_one(flags, model, ids.values, "");
  }
  if (flags.interactive) {
    LoadedModel model = load(flags, std::move(checkpoint));
    return run_interactive(flags, model);
  }
  const std::string text = prompt_text(flags);
  if (text.empty() && flags.chat) refuse("--prompt is empty: a chat needs a message");
  LoadedModel model = load(flags, std::move(checkpoint));
  if (!flags.chat) return run_one(flags, model, prompt_ids(flags, *model.tokenizer, text), text);
  const text::ChatStyle style = chat_style(flags, *model.tokenizer);
  std::vector<text::ChatMessage> messages;
  if (!style.system.empty()) messages.push_back({"system", style.system});
  messages.push_back({"user", text});
  const std::string conversation = text::format_chat(style.format, messages);
  return run_one(flags, model, prompt_ids(flags, *model.tokenizer, conversation), "");
}

}  // namespace

void add_run(CommandLine& line) {
  auto flags = std::make_shared<RunFlags>();
  models::SamplerOptions& sampler = flags->sampler;
  Verb& verb = line.verb("run", "generate text with a model");
  verb.runs_on_ranks = true;
  add_model_options(verb, flags->model, ModelArgument::optional);
  verb.flag("--embedded", &flags->embedded,
            "the small model inside this command: English of 1.2 million parameters, byte by byte");
  verb.flag("-p,--prompt", &flags->prompt, "the text to continue").free_text();
  verb.flag("--prompt-file", &flags->prompt_file, "a file that holds the prompt; -: stdin");
  verb.flag(
      "--ids", &flags->ids,
      "token ids instead of text, .npy [tokens] or [batch, tokens], or a list 1,2,3; prints ids");
  verb.flag("--mask", &flags->mask,
            "padding mask, .npy in the shape of the ids: 0 = padding, on either side")
      .needs("--ids");
  verb.flag("-n,--tokens", &flags->tokens, "generate at most N tokens (default 128; a chat: 512)")
      .at_least(0);
  verb.flag("--temperature", &flags->temperature, "0 (default): always the most likely token");
  verb.flag("--top-k", &sampler.top_k, "sample from the K most likely tokens; 0: all").at_least(0);
  verb.flag("--top-p", &sampler.top_p,
            "sample from the fewest tokens whose probabilities add up to P");
  verb.flag("--min-p", &sampler.min_p, "drop tokens below P times the highest probability");
  verb.flag("--repetition-penalty", &sampler.repetition_penalty,
            "divide the logits of the last 64 tokens by this");
  verb.flag("--seed", &flags->seed,
            "seed of the random numbers (default: a new one, which is printed)");
  verb.flag("--context", &flags->context, "context length in tokens (default: the trained length)")
      .at_least(1);
  add_rope_override(verb, flags->rope);
  verb.flag("--shift", &flags->shift,
            "when the context is full, drop the oldest half and continue");
  verb.flag("--keep", &flags->keep, "keep the first N tokens in every shift (default 4)")
      .at_least(0);
  verb.flag("--chat", &flags->chat, "the prompt is a chat message: answer it");
  verb.flag("--interactive", &flags->interactive,
            "chat: each line of stdin is a message, /help lists commands");
  verb.flag("--system", &flags->system, "the system message of a chat").free_text();
  verb.flag("--chat-format", &flags->chat_format, "format of a chat (default: the model's own)")
      .value("FORMAT")
      .one_of({"chatml", "llama2", "llama3", "mistral", "mistral_v3", "gemma", "phi3", "zephyr",
               "glm4", "command_r"});
  verb.flag("--raw", &flags->raw,
            "add no begin token to the prompt and print special tokens of the answer");
  verb.flag("--cache", &flags->cache,
            "type of cached keys and values (default f32, with --fast f16)")
      .one_of({"f32", "f16", "bf16"});
  verb.flag("--stats", &flags->stats, "print speed and memory to stderr");
  verb.flag("--json", &flags->json, "print the complete answer as one JSON object");
  verb.footer =
      R"(Prints the prompt and its continuation as it is generated; a chat prints only the answer.
Ctrl-C stops after the current token (exit 130), a second Ctrl-C at once.
An encoder-decoder (t5, mt5, umt5) reads the prompt as its input and prints only the answer.
mpirun -n 4 phasor run ... divides the keys and values of the context among 4 ranks.

Example  phasor run --embedded -p "It is a truth" --temperature 0.6
         phasor run model.gguf -p "The quick brown fox" -n 32
         phasor run model.gguf --chat -p "Why is the sky blue?" --temperature 0.7
         phasor run model.gguf --interactive --shift
         phasor run model.gguf -p "..." --rope-scaling yarn:factor=4 --context 8k)";
  verb.action = [flags] { return run_run(*flags); };
}

}  // namespace phasor::tools
