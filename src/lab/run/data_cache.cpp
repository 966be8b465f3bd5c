#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "phasor/config/internal/json_reader.hpp"
#include "phasor/core/internal/enum_names.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/content_hash.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/lab/internal/batches.hpp"
#include "phasor/lab/internal/corpus.hpp"
#include "phasor/lab/internal/task_data.hpp"

namespace phasor::lab {

enum class Split : std::uint8_t { train, valid, test };

struct TokenizerChoice {
  text::TokenizerKind kind = text::TokenizerKind::bpe;
  std::int64_t vocabulary = 4096;
  std::int64_t min_character_frequency = 1;  // wordpiece
  std::string corpus;                        // empty: the data's own texts
};

// A tokenizer and its files.
struct MadeTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<text::TokenizerFile> files;
  std::string hash;
};

namespace {

namespace fs = std::filesystem;
using io::Json;

constexpr core::EnumNames<Split::test> kSplits("train", "valid", "test");
constexpr core::EnumNames<text::TokenizerKind::wordpiece> kTokenizerKinds("bytes", "bpe",
                                                                          "wordpiece");
constexpr core::EnumNames<Unit::section> kUnits("work", "section");

[[nodiscard]] TokenizerChoice read_tokenizer_choice(const Json& json) {
  TokenizerChoice choice;
  if (json.is_null()) return choice;
  const config::ObjectReader reader(json, "tokenizer");
  if (const auto kind = reader.text("kind")) {
    const auto found = kTokenizerKinds.find(*kind);
    if (!found) {
      reader.refuse("kind", message("must be ", core::list_text(kTokenizerKinds.all()), ", got \"",
                                    *kind, "\""));
    }
    choice.kind = *found;
  }
  if (const auto size = reader.integer("vocabulary")) choice.vocabulary = *size;
  if (const auto least = reader.integer("min_character_frequency")) {
    choice.min_character_frequency = *least;
  }
  choice.corpus = reader.text("corpus").value_or("");
  reader.refuse_rest("kind, vocabulary, min_character_frequency, corpus");
  return choice;
}

[[nodiscard]] bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Text without parts: the last tenth is the test, the one before it valid. Whole works if there are
// enough of them.
[[nodiscard]] TextCorpus part_of(const TextCorpus& all, Split split, const std::string& name) {
  const std::vector<TextCorpus::Work>& works = all.works();
  constexpr std::size_t kTenths = 10;
  const auto cut = [&](std::size_t size) {
    const std::size_t first = size * (kTenths - 2) / kTenths,
                      second = size * (kTenths - 1) / kTenths;
    return split == Split::train   ? std::pair<std::size_t, std::size_t>{0, first}
           : split == Split::valid ? std::pair{first, second}
                                   : std::pair{second, size};
  };
  const bool whole = works.size() >= kTenths;
  const auto [first_work, end_work] =
      whole ? cut(works.size()) : std::pair<std::size_t, std::size_t>{0, works.size()};
  std::string text;
  for (std::size_t i = first_work; i < end_work; ++i) {
    for (const std::string& section : works[i].sections) text += section + "\f";
  }
  if (whole) return TextCorpus::of_text(name, text).value_or_throw();
  auto [first, end] = cut(text.size());
  for (std::size_t* place : {&first, &end}) {  // between characters
    while (*place < text.size() && (static_cast<unsigned char>(text[*place]) & 0xc0U) == 0x80U) {
      ++*place;
    }
  }
  return TextCorpus::of_text(name, std::string_view(text).substr(first, end - first))
      .value_or_throw();
}

}  // namespace

struct DataCache::State {
  fs::path folder;  // of corpora
  std::map<std::string, std::shared_ptr<const TextCorpus>> corpora;
  std::map<std::string, MadeTokenizer> tokenizers;
  std::map<std::string, std::shared_ptr<const TokenCorpus>> tokens;
  std::map<std::string, std::shared_ptr<const LabelledSet>> labelled;
  std::map<std::string, std::shared_ptr<const PairSet>> pairs;
  std::vector<std::string> notes;

  template <class T>
  [[nodiscard]] static T& once(std::map<std::string, T>& cache, const std::string& key,
                               const std::function<T()>& make) {
    const auto found = cache.find(key);
    return found != cache.end() ? found->second : cache.emplace(key, make()).first->second;
  }

  // The folder or file of a name or path.
  [[nodiscard]] fs::path place_of(const std::string& name) const {
    if (!folder.empty() && is_there(folder / name)) return folder / name;
    if (is_there(name)) return io::as_folder(name);
    refuse(ErrorCode::io,
           message("no corpus \"", name, "\"",
                   folder.empty() ? std::string() : " in " + folder.string(),
                   " and no file of this name; ./dev corpora makes those of the experiments"));
  }

  [[nodiscard]] TextCorpus read_corpus(const std::string& name, Split split) {
    const bool is_found = (!folder.empty() && is_there(folder / name)) || is_there(name);
    if (const auto text = built_in_text(name); text && !is_found) {
      const std::string note =
          message("no corpus \"", name, "\": the excerpt that comes with Phasor (",
                  text->size() / 1000, " kB) is used; ./dev corpora makes the whole one");
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
      return part_of(TextCorpus::of_text(name, *text).value_or_throw(), split, name);
    }
    const fs::path place = place_of(name);
    const fs::path own = place / kSplits[split];
    if (is_there(own)) return TextCorpus::read(std::span(&own, 1)).value_or_throw();
    return part_of(TextCorpus::read(std::span(&place, 1)).value_or_throw(), split, name);
  }

  [[nodiscard]] std::shared_ptr<const TextCorpus> corpus(const std::string& name, Split split) {
    return once<std::shared_ptr<const TextCorpus>>(
        corpora, message(kSplits[split], "/", name),
        [&] { return std::make_shared<const TextCorpus>(read_corpus(name, split)); });
  }

  [[nodiscard]] MadeTokenizer tokenizer(
      const TokenizerChoice& choice, const std::string& key,
      const std::function<std::vector<std::string_view>()>& texts) {
    const std::string name = message(kTokenizerKinds[choice.kind], "/", choice.vocabulary, "/",
                                     choice.min_character_frequency, "/", key);
    return once<MadeTokenizer>(tokenizers, name, [&] {
      text::TrainerSettings settings;
      settings.kind = choice.kind;
      settings.vocabulary = choice.vocabulary;
      settings.min_character_frequency = choice.min_character_frequency;
      const text::TrainedTokenizer trained = text::train_tokenizer(settings, texts());
      MadeTokenizer made;
      made.files = text::tokenizer_files(trained);
      io::ContentHash hash;
      for (const text::TokenizerFile& file : made.files) hash.add(file.content);
      made.hash = hash.text();
      made.tokenizer = text::tokenizer_of(trained);
      return made;
    });
  }

  // The tokenizer of a plan: of its own corpus, or of the given texts.
  [[nodiscard]] MadeTokenizer tokenizer_of(
      const RunPlan& plan, const std::string& key,
      const std::function<std::vector<std::string_view>()>& texts) {
    const TokenizerChoice choice = read_tokenizer_choice(plan.tokenizer);
    if (choice.corpus.empty()) return tokenizer(choice, key, texts);
    return tokenizer(choice, "corpus/" + choice.corpus,
                     [&] { return corpus(choice.corpus, Split::train)->texts(); });
  }

  [[nodiscard]] std::shared_ptr<const TokenCorpus> token_corpus(const std::string& name,
                                                                Split split,
                                                                const MadeTokenizer& made) {
    return once<std::shared_ptr<const TokenCorpus>>(
        tokens, message(kSplits[split], "/", name, "/", made.hash),
        [&] { return std::make_shared<const TokenCorpus>(*corpus(name, split), *made.tokenizer); });
  }

  [[nodiscard]] fs::path rows_file(const std::string& name, Split split) const {
    return place_of(name) / message(kSplits[split], ".jsonl");
  }

  [[nodiscard]] std::shared_ptr<const LabelledSet> labelled_set(const std::string& name,
                                                                Split split) {
    return once<std::shared_ptr<const LabelledSet>>(
        labelled, message(kSplits[split], "/", name), [&] {
          return std::make_shared<const LabelledSet>(
              read_labelled(rows_file(name, split)).value_or_throw());
        });
  }

  [[nodiscard]] std::shared_ptr<const PairSet> pair_set(const std::string& name, Split split) {
    return once<std::shared_ptr<const PairSet>>(pairs, message(kSplits[split], "/", name), [&] {
      return std::make_shared<const PairSet>(read_pairs(rows_file(name, split)).value_or_throw());
    });
  }

  void load_text(const RunPlan& plan, const Stage& stage, TaskData& into);
  void load_labelled(const RunPlan& plan, const Stage& stage, TaskData& into);
  void load_pairs(const RunPlan& plan, const Stage& stage, TaskData& into);
};

namespace {

[[nodiscard]] BatchSettings batch_settings(const Stage& stage, Order order, std::uint64_t seed) {
  BatchSettings settings;
  settings.rows = stage.training.batch / stage.training.accumulation;
  settings.tokens = stage.training.context;
  settings.seed = seed;
  settings.order = order;
  return settings;
}

void use_tokenizer(const MadeTokenizer& made, TaskData& into) {
  into.tokenizer = made.tokenizer;
  into.tokenizer_files = made.files;
  into.vocabulary = made.tokenizer->size();
  Json facts = Json::object();
  facts["vocabulary"] = into.vocabulary;
  facts["hash"] = made.hash;
  into.facts["tokenizer"] = facts;
}

// Batches are made by `make(split, settings)`; what is evaluated is in its own order.
template <class Make>
void use_batches(const Stage& stage, Make make, TaskData& into) {
  constexpr std::uint64_t kNoSeed = 0;
  into.train = [=](std::uint64_t seed) {
    return make(Split::train, batch_settings(stage, Order::shuffled, seed));
  };
  into.validation = [=] {
    return make(Split::valid, batch_settings(stage, Order::sequential, kNoSeed));
  };
  into.test = [=] { return make(Split::test, batch_settings(stage, Order::sequential, kNoSeed)); };
}

// Makes each kind of batches once, so that what they refuse is refused before the first step.
void try_batches(const Stage& stage, const TaskData& data) {
  static_cast<void>(data.train(0));
  static_cast<void>(data.validation());
  if (stage.evaluation.test_batches > 0) static_cast<void>(data.test());
}

}  // namespace

void DataCache::State::load_text(const RunPlan& plan, const Stage& stage, TaskData& into) {
  const config::ObjectReader reader(stage.data, "data");
  const std::optional<std::string> name = reader.text("corpus");
  if (!name) reader.refuse_missing("corpus", "expected a name or a path");
  MatchingSettings matching;
  if (stage.task == Task::match) {
    if (const auto unit = reader.text("unit")) {
      const auto found = kUnits.find(*unit);
      if (!found) reader.refuse("unit", message("must be work or section, got \"", *unit, "\""));
      matching.unit = *found;
    }
    matching.longest_tokens = reader.integer("longest").value_or(0);
  }
  reader.refuse_rest(stage.task == Task::match ? "corpus, unit, longest" : "corpus");
  const MadeTokenizer made =
      tokenizer_of(plan, "corpus/" + *name, [&] { return corpus(*name, Split::train)->texts(); });
  use_tokenizer(made, into);
  std::array<std::shared_ptr<const TokenCorpus>, 3> parts;
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    parts[static_cast<std::size_t>(split)] = token_corpus(*name, split, made);
    Json facts = Json::object();
    facts["bytes"] = corpus(*name, split)->bytes();
    facts["tokens"] = parts[static_cast<std::size_t>(split)]->size();
    facts["hash"] = corpus(*name, split)->hash();
    into.facts[kSplits[split]] = facts;
  }
  if (stage.task == Task::causal_lm && !stage.evaluation.contexts.empty()) {
    const TokenCorpus& test = *parts[static_cast<std::size_t>(Split::test)];
    const std::int64_t longest =
        *std::max_element(stage.evaluation.contexts.begin(), stage.evaluation.contexts.end());
    const std::int64_t wanted = std::max(stage.evaluation.tokens, longest) + 1;
    for (std::int64_t i = 0; i < std::min(wanted, test.size()); ++i) {
      into.held_out.push_back(test[i]);
    }
  }
  const Task task = stage.task;
  use_batches(
      stage,
      [parts, task, matching](Split split, const BatchSettings& settings) {
        const auto& part = parts[static_cast<std::size_t>(split)];
        return task == Task::match       ? matching_batches(*part, settings, matching)
               : task == Task::masked_lm ? masked_batches(part, settings)
                                         : causal_batches(part, settings);
      },
      into);
  if (task == Task::match) into.labels = 2;
}

void DataCache::State::load_labelled(const RunPlan& plan, const Stage& stage, TaskData& into) {
  const config::ObjectReader reader(stage.data, "data");
  const std::optional<std::string> name = reader.text("labelled");
  if (!name) reader.refuse_missing("labelled", "expected a name or a path");
  reader.refuse_rest("labelled");
  std::array<std::shared_ptr<const LabelledSet>, 3> parts;
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    const std::shared_ptr<const LabelledSet> part = labelled_set(*name, split);
    parts[static_cast<std::size_t>(split)] = part;
    Json facts = Json::object();
    facts["rows"] = part->rows.size();
    facts["hash"] = part->hash;
    into.facts[kSplits[split]] = facts;
    into.labels = std::max<std::int64_t>(into.labels, part->labels);
  }
  const MadeTokenizer made = tokenizer_of(plan, "labelled/" + *name, [&] {
    std::vector<std::string_view> texts;
    for (const LabelledSet::Row& row : parts.front()->rows) texts.push_back(row.text);
    return texts;
  });
  use_tokenizer(made, into);
  use_batches(
      stage,
      [parts, tokenizer = made.tokenizer](Split split, const BatchSettings& settings) {
        return classification_batches(*parts[static_cast<std::size_t>(split)], *tokenizer,
                                      settings);
      },
      into);
}

void DataCache::State::load_pairs(const RunPlan& plan, const Stage& stage, TaskData& into) {
  const config::ObjectReader reader(stage.data, "data");
  const std::optional<std::string> name = reader.text("pairs");
  if (!name) reader.refuse_missing("pairs", "expected a name or a path");
  reader.refuse_rest("pairs");
  std::array<std::shared_ptr<const PairSet>, 3> parts;
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    const std::shared_ptr<const PairSet> part = pair_set(*name, split);
    parts[static_cast<std::size_t>(split)] = part;
    Json facts = Json::object();
    facts["rows"] = part->rows.size();
    facts["hash"] = part->hash;
    into.facts[kSplits[split]] = facts;
  }
  const MadeTokenizer made = tokenizer_of(plan, "pairs/" + *name, [&] {
    std::vector<std::string_view> texts;
    for (const PairSet::Row& row : parts.front()->rows) {
      texts.push_back(row.source);
      texts.push_back(row.target);
    }
    return texts;
  });
  use_tokenizer(made, into);
  use_batches(
      stage,
      [parts, tokenizer = made.tokenizer](Split split, const BatchSettings& settings) {
        return translation_batches(*parts[static_cast<std::size_t>(split)], *tokenizer, *tokenizer,
                                   settings);
      },
      into);
  const text::SpecialTokens& specials = made.tokenizer->specials();
  const auto end = specials.end ? specials.end : specials.separate;
  const auto longest = static_cast<std::size_t>(stage.training.context);
  for (const PairSet::Row& row : parts.back()->rows) {
    if (static_cast<std::int64_t>(into.sentences.size()) == stage.evaluation.sentences) break;
    TaskData::Sentence sentence;
    sentence.source_text = row.source;
    sentence.reference = row.target;
    for (const std::int64_t id : made.tokenizer->encode(row.source, text::SpecialText::as_text)) {
      sentence.source.push_back(static_cast<std::int32_t>(id));
    }
    if (end) {
      sentence.source.resize(std::min(sentence.source.size(), longest - 1));
      sentence.source.push_back(static_cast<std::int32_t>(*end));
    }
    into.sentences.push_back(std::move(sentence));
  }
}

DataCache::DataCache(fs::path corpora) : state_(std::make_unique<State>()) {
  state_->folder = std::move(corpora);
}
DataCache::~DataCache() = default;

std::shared_ptr<const TaskData> DataCache::load(const RunPlan& plan, const Stage& stage) {
  auto data = std::make_shared<TaskData>();
  const Json& given = stage.data;
  if (given.is_null()) refuse("missing key \"data\": expected an object");
  try {
    switch (stage.task) {
      case Task::masked_lm:
      case Task::causal_lm:
      case Task::match:
        state_->load_text(plan, stage, *data);
        break;
      case Task::classification:
        state_->load_labelled(plan, stage, *data);
        break;
      case Task::translation:
        state_->load_pairs(plan, stage, *data);
        break;
    }
    try_batches(stage, *data);
  } catch (const Error& error) {
    // What an excerpt is too short for, the whole corpus may have.
    if (state_->notes.empty()) throw;
    throw Error(error.code(), message(error.what(), "; ", state_->notes.back()));
  }
  data->notes = state_->notes;
  return data;
}

}  // namespace phasor::lab
