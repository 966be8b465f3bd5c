// Encodings written as JSON: what `phasor attend --encoding` reads. Tables of trained numbers are
// in the file itself or in .npy files next to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/export.h"

namespace phasor::config {

// An encoding and the numbers that its tables point to. Movable, not copyable: the tables of a copy
// would point into the original.
struct LoadedEncoding {
  std::vector<encodings::Encoding> parts;  // one, or several at once
  // The factor on the scores, if it is not the encoding's own.
  std::optional<double> scale = std::nullopt;
  // ALiBi's, if the file lists them; empty: those of encodings::Alibi.
  std::vector<double> slopes;
  std::optional<encodings::SlopeOrder> slope_order = std::nullopt;
  std::vector<std::vector<float>> storage;
  std::vector<std::vector<double>> wide_storage;  // for attention in float64

  LoadedEncoding() = default;
  LoadedEncoding(LoadedEncoding&&) noexcept = default;
  LoadedEncoding& operator=(LoadedEncoding&&) noexcept = default;
  LoadedEncoding(const LoadedEncoding&) = delete;
  LoadedEncoding& operator=(const LoadedEncoding&) = delete;
  ~LoadedEncoding() = default;
};

// A table in the caller's memory: what {"array": NAME} refers to. Both spans and the numbers must
// outlive the parsed encoding.
//
// f32 is read in place if the features of a row are contiguous; other strides are free. f64 is read in place by attention in float64 (Table::wide)
// if it is row-major without gaps, with a float32 copy for the rest. Everything else is copied
// to LoadedEncoding's storage, 16-bit floats as float32.
struct NamedTable {
  std::string_view name;
  const void* data = nullptr;
  core::DType dtype = core::DType::f32;
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;  // counted in elements; empty: row-major without gaps
};

// An encoding that a file can name, and its members in words: the shape of a table in [], the default
// of a number in ().
struct EncodingForm {
  std::string_view name;
  std::string_view members;
};
// All of them; docs/python.md has the list.
[[nodiscard]] PHASOR_API std::span<const EncodingForm> encoding_forms();

// What the file may leave out.
struct EncodingRequest {
  // Shape of the attention: gives a head width that is missing in the file, XLNet's first_distance and
  // the number of sinusoidal rows. nullopt: the file must have them.
  std::optional<encodings::AttentionShape> shape = std::nullopt;
  // Layer of a config.json whose layers differ, as for select_layer().
  std::string layer;
  // The arrays that tables may name.
  std::span<const NamedTable> tables = {};
};

// A file is {"encoding": NAME, ...}, or {"encoding": [{...}, ...]} for several at once, or, without
// the key "encoding", anything that parse_config() takes: a rope. "scale" sets the factor on the
// scores. A table is the name of a .npy file (in `folder` or below it: neither absolute nor with "..";
// float32, float16 or bfloat16)
// or nested lists of numbers, or {"array": NAME} for one of the request's tables; rows that may be sinusoidal can also be
// {"sinusoidal": {"variant": interleaved | concat | fairseq, "base": 10000, "dim": head_dim}}.
// The names and their members are those of encoding_forms().
//
// refuses  unknown names and keys; sinusoidal, learned_absolute and hierarchical_absolute, which
//          are added to the input before the projections; tables of another rank or type; sizes
//          that contradict the file (num_buckets, max_position_embeddings, pos_att_type,
//          reset_cls ...)
[[nodiscard]] PHASOR_API Result<LoadedEncoding> parse_encoding(std::string_view text,
                                                               const std::filesystem::path& folder,
                                                               std::string_view name = "encoding",
                                                               const EncodingRequest& request = {});
// A file, or a directory that holds config.json.
[[nodiscard]] PHASOR_API Result<LoadedEncoding> read_encoding(const std::filesystem::path& path,
                                                              const EncodingRequest& request = {});

// As encodings::resolve(), with the file's own scale and slopes. The terms point into `loaded`.
//
// throws   as encodings::resolve()
[[nodiscard]] PHASOR_API encodings::ScoreTerms resolve(const LoadedEncoding& loaded,
                                                       const encodings::AttentionShape& shape);

}  // namespace phasor::config
