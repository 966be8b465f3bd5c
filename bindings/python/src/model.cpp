// Model: load, facts, tokenizer, logits, chat, fill.
#include "model.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "module.hpp"
#include "phasor/text/tokenizer.hpp"
#include "without_gil.hpp"

namespace phasor::python {

models::Decoder& LoadedModel::decoder(const char* where) {
  if (auto* decoder = std::get_if<models::Decoder>(&network)) return *decoder;
  refuse(ErrorCode::unsupported,
         message(where, ": the model must be a decoder of another family, got roformer"));
}

models::RoFormer& LoadedModel::roformer(const char* where) {
  if (auto* roformer = std::get_if<models::RoFormer>(&network)) return *roformer;
  refuse(ErrorCode::unsupported, message(where, ": the model must be a roformer, got the decoder ",
                                         std::get<models::Decoder>(network).facts().model_type));
}

const text::Tokenizer& LoadedModel::text(const char* where) const {
  if (tokenizer) return *tokenizer;
  refuse(ErrorCode::unsupported, message(where, ": the model has no tokenizer: ", no_tokenizer));
}

namespace {

[[nodiscard]] models::Precision precision_of(std::string_view name) {
  for (const models::Precision precision : {models::Precision::exact, models::Precision::fast})
    if (name == models::name_of(precision)) return precision;
  refuse(message("Model.load: precision must be exact or fast, got ", name));
}

[[nodiscard]] LoadedModel::Network network_of(const std::filesystem::path& path,
                                              const models::ComputeOptions& options) {
  models::Checkpoint checkpoint = models::Checkpoint::open(path).value_or_throw();
  if (checkpoint.config().model_type == "roformer")
    return models::RoFormer::load(path, options).value_or_throw();
  return models::Decoder::load(std::move(checkpoint), options).value_or_throw();
}

[[nodiscard]] PyModel load(const std::filesystem::path& path, std::string_view precision,
                           int threads) {
  const models::ComputeOptions options{.precision = precision_of(precision), .threads = threads};
  if (threads < 0)
    refuse(message("Model.load: threads must be 0 (automatic) or more, got ", threads));
  return without_gil([&] {
    Result<std::unique_ptr<text::Tokenizer>> tokenizer = text::read_tokenizer(path);
    std::string missing = tokenizer ? std::string() : tokenizer.error().what();
    return PyModel{std::make_shared<LoadedModel>(
        network_of(path, options),
        tokenizer ? std::move(tokenizer).value() : std::unique_ptr<text::Tokenizer>(),
        std::move(missing))};
  });
}

[[nodiscard]] const char* model_kind(const PyModel& model) {
  return std::holds_alternative<models::Decoder>(model.loaded->network) ? "decoder" : "roformer";
}

template <class T>
[[nodiscard]] nb::list list_of(const std::vector<T>& values) {
  nb::list list;
  for (const T& value : values) list.append(value);
  return list;
}

void put_facts(const models::DecoderFacts& facts, nb::dict& out) {
  out["model_type"] = facts.model_type;
  out["layers"] = facts.layers;
  out["hidden"] = facts.hidden;
  out["intermediate"] = facts.intermediate;
  out["vocabulary"] = facts.vocabulary;
  out["heads"] = facts.heads;
  out["key_heads"] = facts.key_heads;
  out["head_dim"] = facts.head_dim;
  out["experts"] = facts.experts;
  out["experts_used"] = facts.experts_used;
  out["parameters"] = facts.parameters;
  out["weight_bytes"] = facts.weight_bytes;
  out["weight_types"] = list_of(facts.weight_types);
  out["stops"] = list_of(facts.stops);
}

void put_facts(const models::RoFormerFacts& facts, nb::dict& out) {
  const std::string head(models::name_of(facts.head));
  out["model_type"] = "roformer";
  out["head"] = head.empty() ? nb::object(nb::none()) : nb::object(nb::str(head.c_str()));
  out["causal"] = facts.is_causal;
  out["layers"] = facts.layers;
  out["hidden"] = facts.hidden;
  out["embedding"] = facts.embedding;
  out["vocabulary"] = facts.vocabulary;
  out["heads"] = facts.heads;
  out["head_dim"] = facts.head_dim;
  out["token_types"] = facts.token_types;
  out["labels"] = list_of(facts.label_names);
  out["parameters"] = facts.parameters;
}

[[nodiscard]] nb::dict facts_of(const PyModel& model) {
  nb::dict out;
  std::visit(
      [&](const auto& network) {
        const auto& facts = network.facts();
        put_facts(facts, out);
        out["trained_length"] =
            facts.trained_length > 0 ? nb::object(nb::int_(facts.trained_length)) : nb::none();
      },
      model.loaded->network);
  const text::Tokenizer* tokenizer = model.loaded->tokenizer.get();
  out["tokenizer"] = tokenizer == nullptr ? nb::object(nb::none())
                                          : nb::object(nb::str(tokenizer->description().c_str()));
  return out;
}

[[nodiscard]] std::string model_repr(const PyModel& model) {
  const nb::dict facts = facts_of(model);
  const auto word = [&](const char* key) {
    const nb::object value = facts[key];
    return nb::cast<std::string>(nb::str(value));
  };
  return "<phasor.Model: " + word("model_type") + ", " + word("layers") + " layers, " +
         word("parameters") + " parameters>";
}

[[nodiscard]] std::vector<std::int64_t> encode(const PyModel& model, std::string_view text,
                                               std::string_view special) {
  if (special != "parse" && special != "as_text")
    refuse(message("Model.encode: special must be parse or as_text, got ", special));
  const text::Tokenizer& tokenizer = model.loaded->text("Model.encode");
  return without_gil([&] {
    return tokenizer.encode(
        text, special == "parse" ? text::SpecialText::parse : text::SpecialText::as_text);
  });
}

[[nodiscard]] std::string decode(const PyModel& model, nb::handle ids) {
  const text::Tokenizer& tokenizer = model.loaded->text("Model.decode");
  const Numbers<std::int64_t> numbers(ids, "Model.decode: ids");
  return tokenizer.decode(numbers.get());
}

// ids [tokens] or [batch, tokens], and arrays of the same shape.
struct IdsArgument {
  explicit IdsArgument(nb::handle object) : numbers(object, "Model.logits: ids") {
    if (!numbers.given() || numbers.shape().empty() || numbers.shape().size() > 2 ||
        numbers.get().empty())
      refuse(ErrorCode::shape_mismatch,
             message("Model.logits: ids must be [tokens] or [batch, tokens] with at least one "
                     "token, got ",
                     numbers.given() ? numbers.text() : "None"));
    batch = numbers.shape().size() == 2 ? numbers.shape()[0] : 1;
    tokens = numbers.shape().back();
  }
  template <class T>
  void require_same_shape(const Numbers<T>& other, const char* where) const {
    if (other.given() && !std::ranges::equal(other.shape(), numbers.shape()))
      refuse(ErrorCode::shape_mismatch, message(where, " must have the shape of ids, ",
                                                numbers.text(), ", got ", other.text()));
  }
  // The batch axis, if ids have one, then `rest`.
  [[nodiscard]] std::vector<std::int64_t> shape(std::vector<std::int64_t> rest) const {
    if (numbers.shape().size() == 2) rest.insert(rest.begin(), batch);
    return rest;
  }

  Numbers<std::int64_t> numbers;
  std::int64_t batch = 1, tokens = 0;
};

struct Logits {
  std::vector<float> values;
  std::vector<std::int64_t> shape;
};

[[nodiscard]] Logits decoder_logits(models::Decoder& decoder, const IdsArgument& ids,
                                    std::span<const std::uint8_t> mask) {
  models::ForwardResult result = models::forward_padded(decoder, ids.numbers.get(), mask, ids.batch,
                                                        {.logits = models::LogitsOf::every_token});
  return {std::move(result.logits), ids.shape({ids.tokens, decoder.facts().vocabulary})};
}

[[nodiscard]] Logits roformer_logits(models::RoFormer& roformer, const IdsArgument& ids,
                                     std::span<const std::uint8_t> mask,
                                     std::span<const std::int64_t> token_types) {
  const models::RoFormerFacts& facts = roformer.facts();
  if (facts.head == models::RoFormerHead::none)
    refuse(ErrorCode::unsupported, "Model.logits: the model has no head (base model): no logits");
  models::RoFormerResult result = roformer.forward(
      {.batch = ids.batch, .ids = ids.numbers.get(), .token_types = token_types, .mask = mask});
  const std::int64_t columns = facts.logit_columns();
  if (!facts.has_logits_per_token()) return {std::move(result.logits), ids.shape({columns})};
  if (!mask.empty()) models::clear_padding(mask, columns, result.logits);
  return {std::move(result.logits), ids.shape({ids.tokens, columns})};
}

[[nodiscard]] nb::object logits(const PyModel& model, nb::handle ids, nb::handle mask,
                                nb::handle token_types) {
  const IdsArgument row(ids);
  const Numbers<std::uint8_t> kept(mask, "Model.logits: mask");
  const Numbers<std::int64_t> types(token_types, "Model.logits: token_types");
  row.require_same_shape(kept, "Model.logits: mask");
  row.require_same_shape(types, "Model.logits: token_types");
  LoadedModel& loaded = *model.loaded;
  if (types.given()) (void)loaded.roformer("Model.logits: token_types");
  Logits result;
  without_gil([&] {
    const InterruptibleLock lock(loaded.busy);
    if (auto* decoder = std::get_if<models::Decoder>(&loaded.network)) {
      result = decoder_logits(*decoder, row, kept.get());
    } else {
      result =
          roformer_logits(std::get<models::RoFormer>(loaded.network), row, kept.get(), types.get());
    }
  });
  nb::object array = numpy_empty(result.shape, Element::f32);
  std::memcpy(numpy_data(array), result.values.data(), result.values.size() * sizeof(float));
  return array;
}

[[nodiscard]] text::ChatMessage message_of(nb::handle object) {
  text::ChatMessage read;
  for (const auto& [name, member] : {std::pair{"role", &read.role}, {"content", &read.content}}) {
    nb::object value = nb::none();
    if (nb::isinstance<nb::dict>(object)) value = object.attr("get")(name);
    if (!nb::isinstance<nb::str>(value))
      refuse(
          message("Model.chat: a message must be a dictionary with the strings role and "
                  "content, got ",
                  nb::cast<std::string>(nb::repr(object))));
    *member = nb::cast<std::string>(value);
  }
  return read;
}

[[nodiscard]] std::string chat(const PyModel& model, nb::handle messages,
                               const std::optional<std::string>& format) {
  const text::ChatStyle style = text::chat_style(model.loaded->text("Model.chat"), format);
  std::vector<text::ChatMessage> conversation;
  for (const nb::handle entry : nb::iter(messages)) conversation.push_back(message_of(entry));
  if (!style.system.empty() && !conversation.empty() && conversation.front().role != "system")
    conversation.insert(conversation.begin(), {"system", style.system});
  return text::format_chat(style.format, conversation);
}

[[nodiscard]] nb::list fill(const PyModel& model, const std::string& text, std::int64_t count) {
  LoadedModel& loaded = *model.loaded;
  models::RoFormer& roformer = loaded.roformer("Model.fill");
  const text::Tokenizer& tokenizer = loaded.text("Model.fill");
  std::vector<models::Filling> fillings;
  without_gil([&] {
    const InterruptibleLock lock(loaded.busy);
    fillings = models::fill(roformer, tokenizer, text, count);
  });
  nb::list made;
  for (const models::Filling& filling : fillings) {
    nb::list choices;
    for (const models::Filling::Choice& choice : filling.choices) {
      nb::dict entry;
      entry["id"] = choice.id;
      entry["token"] = choice.token;
      entry["probability"] = choice.probability;
      entry["logit"] = choice.logit;
      choices.append(entry);
    }
    nb::dict slot;
    slot["slot"] = filling.slot;
    slot["choices"] = choices;
    made.append(slot);
  }
  return made;
}

}  // namespace

void add_model(nb::module_& module) {
  nb::class_<PyModel> model(module, "Model", nb::is_final(),
                            "A decoder or a RoFormer, with its tokenizer.");
  model
      .def_static("load", &load, nb::arg("path"), nb::kw_only(), nb::arg("precision") = "exact",
                  nb::arg("threads") = 0,
                  "A folder of config.json and safetensors, or a GGUF file; the tokenizer is read\n"
                  "from the same place if there is one.")
      .def_prop_ro("kind", &model_kind)
      .def_prop_ro("facts", &facts_of, "Layers, widths, vocabulary, parameters ...")
      .def(
          "encode", &encode, nb::arg("text"), nb::kw_only(), nb::arg("special") = "parse",
          "Token ids, without begin or end tokens. special: whether \"<|im_end|>\" in the text is\n"
          "that token (parse) or plain text (as_text).")
      .def("decode", &decode, nb::arg("ids"), "Text; special tokens are omitted.")
      .def(
          "logits", &logits, nb::arg("ids"), nb::kw_only(), nb::arg("mask") = nb::none(),
          nb::arg("token_types") = nb::none(),
          "[tokens, vocabulary] for ids [tokens], [batch, tokens, vocabulary] for ids [batch,\n"
          "tokens]. A roformer that classifies gives [labels] or [batch, labels]; one that labels\n"
          "tokens, or marks the start and end of an answer, has labels in place of the "
          "vocabulary.\n\n"
          "mask, in the shape of ids: 0 is padding, on either side; its logits are zeros. "
          "A\n"
          "decoder counts positions without padding, a roformer counts all tokens.\n"
          "token_types (roformer): the sentence that each token belongs to.")
      .def("chat", &chat, nb::arg("messages"), nb::kw_only(), nb::arg("format") = nb::none(),
           "The conversation as the prompt that generate() takes: messages of {\"role\",\n"
           "\"content\"}, the last one from the user. The chat template of the model is "
           "recognised; its\n"
           "default system message is used if the conversation has none.")
      .def("fill", &fill, nb::arg("text"), nb::kw_only(), nb::arg("count") = 5,
           "The most likely tokens at each [MASK]: {\"slot\", \"choices\": [{\"id\", \"token\",\n"
           "\"probability\", \"logit\"}]}, most likely first.")
      .def("__repr__", &model_repr);
  add_generate(module, model);
}

}  // namespace phasor::python
