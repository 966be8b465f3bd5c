// A loaded model, shared by the Model object and its running generators.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "phasor/models/decoder.hpp"
#include "phasor/models/roformer.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor::python {

struct LoadedModel {
  using Network = std::variant<models::Decoder, models::RoFormer>;
  LoadedModel(Network network, std::unique_ptr<text::Tokenizer> tokenizer, std::string no_tokenizer)
      : network(std::move(network)),
        tokenizer(std::move(tokenizer)),
        no_tokenizer(std::move(no_tokenizer)) {}

  Network network;
  std::unique_ptr<text::Tokenizer> tokenizer;  // null if there is none
  std::string no_tokenizer;                    // why there is none
  // A network runs one call at a time. Release the GIL before locking it: InterruptibleLock.
  std::timed_mutex busy;

  // throws   Error(unsupported) if it is the other kind; `where` starts the message
  [[nodiscard]] models::Decoder& decoder(const char* where);
  [[nodiscard]] models::RoFormer& roformer(const char* where);
  // throws   Error(unsupported) if there is none
  [[nodiscard]] const text::Tokenizer& text(const char* where) const;
};

struct PyModel {
  std::shared_ptr<LoadedModel> loaded;
};

// generate and generate_ids; model_generate.cpp
void add_generate(nanobind::module_& module, nanobind::class_<PyModel>& model);

}  // namespace phasor::python
