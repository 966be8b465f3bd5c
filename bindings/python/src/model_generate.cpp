// generate and generate_ids: iterators that compute one step per __next__, with the GIL released.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "model.hpp"
#include "phasor/models/generate.hpp"
#include "without_gil.hpp"

namespace phasor::python {
namespace {

// A running generation. It has its own cache, so several can run on one model; the network computes
// one step at a time.
class IdAnswer {
 public:
  IdAnswer(std::shared_ptr<LoadedModel> loaded, models::Generation generation)
      : loaded_(std::move(loaded)), generation_(std::move(generation)) {}

  [[nodiscard]] std::int64_t next() {
    std::optional<std::int64_t> id;
    without_gil([&] {
      const InterruptibleLock lock(loaded_->busy);
      id = generation_.next();
    });
    if (!id) throw nb::stop_iteration();
    return *id;
  }

 private:
  std::shared_ptr<LoadedModel> loaded_;
  models::Generation generation_;
};

class TextAnswer {
 public:
  TextAnswer(std::shared_ptr<LoadedModel> loaded, models::Generation generation)
      : loaded_(std::move(loaded)), generation_(std::move(generation)) {}

  [[nodiscard]] std::string next() {
    std::string text;
    without_gil([&] {
      const InterruptibleLock lock(loaded_->busy);
      text = next_piece();
    });
    if (text.empty()) throw nb::stop_iteration();
    return text;
  }

 private:
  // Whole characters: a token that ends inside a UTF-8 sequence gives no text yet.
  [[nodiscard]] std::string next_piece() {
    const text::Tokenizer& tokenizer = *loaded_->tokenizer;
    while (const std::optional<std::int64_t> id = generation_.next()) {
      if (tokenizer.is_special(*id)) continue;
      std::string text = stream_.push(tokenizer.piece(*id));
      if (!text.empty()) return text;
    }
    return stream_.finish();
  }

  std::shared_ptr<LoadedModel> loaded_;
  models::Generation generation_;
  text::TextStream stream_;
};

[[nodiscard]] models::WindowFull window_full_of(std::string_view name) {
  if (name == "refuse") return models::WindowFull::refuse;
  if (name == "shift") return models::WindowFull::shift;
  refuse(message("Model.generate: when_full must be refuse or shift, got ", name));
}

[[nodiscard]] std::vector<std::int64_t> ids_of(const LoadedModel& loaded, nb::handle prompt) {
  if (nb::isinstance<nb::str>(prompt)) {
    return text::prompt_ids(loaded.text("Model.generate"), nb::cast<std::string>(prompt));
  }
  const Numbers<std::int64_t> numbers(prompt, "Model.generate: prompt");
  if (!numbers.given() || numbers.shape().size() != 1)
    refuse(ErrorCode::shape_mismatch,
           message("Model.generate: prompt must be a str or token ids [tokens], got ",
                   numbers.given() ? numbers.text() : "None"));
  return {numbers.get().begin(), numbers.get().end()};
}

template <class Answer>
[[nodiscard]] Answer generate(const PyModel& model, nb::handle prompt, std::int64_t tokens,
                              double temperature, std::int64_t top_k, double top_p, double min_p,
                              double repetition_penalty, std::uint64_t seed, std::int64_t context,
                              std::string_view when_full,
                              const std::optional<std::vector<std::int64_t>>& stops) {
  LoadedModel& loaded = *model.loaded;
  models::Decoder& decoder = loaded.decoder("Model.generate");
  if constexpr (std::is_same_v<Answer, TextAnswer>) (void)loaded.text("Model.generate");
  if (temperature == 0.0 && (top_k != 0 || top_p != 1.0 || min_p != 0.0))
    refuse("Model.generate: top_k, top_p and min_p need a temperature above 0, got 0");
  const models::GenerateOptions options{
      .tokens = tokens,
      .sampler = {.temperature = temperature,
                  .top_k = top_k,
                  .top_p = top_p,
                  .min_p = min_p,
                  .repetition_penalty = repetition_penalty,
                  .seed = seed},
      .stops = stops ? *stops : models::stop_tokens(decoder, loaded.tokenizer.get()),
      .context = context,
      .when_full = window_full_of(when_full)};
  return {model.loaded, models::Generator(decoder).start(ids_of(loaded, prompt), options)};
}

template <class Answer>
void add(nb::module_& module, nb::class_<PyModel>& model, const char* name, const char* method,
         const char* words) {
  nb::class_<Answer>(module, name, nb::is_final())
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &Answer::next);
  model.def(method, &generate<Answer>, nb::arg("prompt"), nb::kw_only(), nb::arg("tokens") = 128,
            nb::arg("temperature") = 0.0, nb::arg("top_k") = 0, nb::arg("top_p") = 1.0,
            nb::arg("min_p") = 0.0, nb::arg("repetition_penalty") = 1.0, nb::arg("seed") = 0,
            nb::arg("context") = 0, nb::arg("when_full") = "refuse", nb::arg("stops") = nb::none(),
            words);
}

}  // namespace

void add_generate(nb::module_& module, nb::class_<PyModel>& model) {
  add<TextAnswer>(
      module, model, "_TextAnswer", "generate",
      "Yields the answer as text while it is computed: whole characters, special tokens "
      "omitted.\n\n"
      "prompt: text (the begin token is added if the tokenizer asks for one) or token ids, used\n"
      "unchanged. Arguments are checked here; the first piece is computed by the first next(). "
      "Drop\n"
      "the iterator to cancel. Several can run on one model: each has its own cache, and the "
      "model\n"
      "computes one step at a time.\n\n"
      "tokens: at most. temperature 0: the most likely token. context: the window in tokens, 0: "
      "the\n"
      "trained length. when_full: \"shift\" drops the oldest half of a full window and continues,\n"
      "\"refuse\" raises Error before the first token if the answer may not fit. stops: ids that "
      "end\n"
      "the answer, None: those of the model.");
  add<IdAnswer>(module, model, "_IdAnswer", "generate_ids",
                "generate() as token ids; needs no tokenizer if the prompt is token ids.");
}

}  // namespace phasor::python
