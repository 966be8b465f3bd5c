// The readers of encodings by distance in JSON; json.cpp has the others and the table of names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "config/encoding/tables.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/config/internal/json_reader.hpp"
#include "phasor/encodings/encoding.hpp"

namespace phasor::config {

// What the readers of one encoding share.
struct Draft {
  LoadedEncoding& loaded;
  TableReader& tables;
  const std::filesystem::path& folder;
  const EncodingRequest& request;

  [[nodiscard]] std::optional<std::int64_t> head_dim() const {
    return request.shape ? std::optional(request.shape->head_dim) : std::nullopt;
  }
};

// The encodings by distance. Each refuses a key that it does not know.
//
// throws   Error with the key
[[nodiscard]] encodings::Encoding read_kerple(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_t5(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_shaw(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_bert(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_transformer_xl(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_conformer(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_xlnet(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_deberta_v1(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_deberta_v2(const ObjectReader& reader, Draft& draft);
[[nodiscard]] encodings::Encoding read_tupe(const ObjectReader& reader, Draft& draft);

}  // namespace phasor::config
