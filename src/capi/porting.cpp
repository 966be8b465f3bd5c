// The porting tools in C: what `phasor VERB --json` prints.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/arguments.hpp"
#include "capi/edge.hpp"
#include "capi/handles.hpp"
#include "capi/spec.hpp"
#include "phasor/core/internal/extent.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/models/internal/describe.hpp"
#include "phasor/phasor.h"
#include "phasor/porting/config_reports.hpp"
#include "phasor/porting/convert.hpp"
#include "phasor/porting/diagnose.hpp"

struct phasor_config {
  phasor::porting::ReadableConfig config;
};

namespace phasor::capi {
namespace {

std::string text_or_empty(const char* text) { return text == nullptr ? std::string() : text; }

std::vector<std::string> split_names(std::string_view names) {
  std::vector<std::string> all;
  for (;;) {
    const std::size_t comma = names.find(',');
    all.emplace_back(names.substr(0, comma));
    if (comma == std::string_view::npos) return all;
    names.remove_prefix(comma + 1);
  }
}

// 0 means "not given".
std::optional<std::int64_t> to_length(std::int64_t length, std::string_view where,
                                      std::string_view what) {
  if (length < 0) {
    throw Error(ErrorCode::invalid_argument,
                message(where, ": ", what, " must be positive, or 0 if unknown, got ", length));
  }
  return length == 0 ? std::nullopt : std::optional<std::int64_t>(length);
}

io::NpyType npy_type(core::DType dtype) {
  switch (dtype) {
    case core::DType::f64:
      return io::NpyType::f64;
    case core::DType::f32:
      return io::NpyType::f32;
    case core::DType::f16:
      return io::NpyType::f16;
    case core::DType::bf16:
      break;
  }
  return io::NpyType::bf16;
}

// diagnose reads dense arrays.
io::NpyArray dense_copy(const core::ConstHeadsView& view, std::string_view where,
                        std::string_view what) {
  for (const std::int64_t size : {view.batch, view.tokens, view.heads, view.head_dim}) {
    if (size < 0) {
      refuse(ErrorCode::shape_mismatch,
             message(where, ": ", what, " must have sizes of at least 0, got ",
                     core::shape_text(view)));
    }
  }
  core::check_extent(where, what, view);
  io::NpyArray copy =
      io::make_npy(npy_type(view.dtype), {view.batch, view.tokens, view.heads, view.head_dim});
  const std::size_t width = core::size_of(view.dtype);
  const std::size_t row = static_cast<std::size_t>(view.head_dim) * width;
  std::byte* to = copy.bytes.data();
  for (std::int64_t b = 0; b < view.batch; ++b) {
    for (std::int64_t t = 0; t < view.tokens; ++t) {
      for (std::int64_t h = 0; h < view.heads; ++h, to += row) {
        const std::int64_t at =
            b * view.batch_stride + t * view.token_stride + h * view.head_stride;
        if (row != 0) {
          std::memcpy(
              to, static_cast<const std::byte*>(view.data) + at * static_cast<std::int64_t>(width),
              row);
        }
      }
    }
  }
  return copy;
}

// [tokens], [batch, tokens] or [axes, batch, tokens] as diagnose reads them; `axes`: of the config.
io::NpyArray positions_copy(const core::Positions& positions, const core::ConstHeadsView& view,
                            std::string_view where, int axes) {
  if (positions.axes != 1 && positions.axes != axes) {
    refuse(ErrorCode::unsupported,
           message(where, ": positions must have ", axes, " axis rows, got ", positions.axes));
  }
  // Packed sequences are one row for all: diagnose takes one row or one per batch row.
  const bool packed = positions.kind == core::Positions::Kind::packed;
  (void)core::check_positions(positions, positions.axes, packed ? 1 : view.batch, view.tokens);
  const std::int64_t rows = std::max<std::int64_t>(positions.batch, 1), tokens = view.tokens;
  std::vector<std::int64_t> shape = {tokens};
  if (rows > 1 || positions.axes > 1) shape.insert(shape.begin(), rows);
  if (positions.axes > 1) shape.insert(shape.begin(), positions.axes);
  io::NpyArray copy = io::make_npy(io::NpyType::f64, shape);
  auto* to = copy.as<double>();
  for (int axis = 0; axis < positions.axes; ++axis) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t token = 0; token < tokens; ++token) *to++ = positions.at(axis, row, token);
    }
  }
  return copy;
}

// cos or sin of a table, [rows, pairs], widened.
std::vector<double> widened(const void* data, const core::CosSinRows& table, std::int64_t rows) {
  core::ConstHeadsView view;
  view.data = data;
  view.dtype = table.dtype;
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(rows * table.pairs));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t pair = 0; pair < table.pairs; ++pair) {
      values.push_back(core::element_of(view, row * table.token_stride + pair * table.pair_stride));
    }
  }
  return values;
}

}  // namespace
}  // namespace phasor::capi

using namespace phasor;        // NOLINT(google-build-using-namespace): the C edge of this room
using namespace phasor::capi;  // NOLINT(google-build-using-namespace)

phasor_status phasor_config_parse(const char* text, size_t length, phasor_config** out) {
  return guarded([&] {
    need(text, "phasor_config_parse", "text");
    need(out, "phasor_config_parse", "out");
    hand_over(porting::parse_readable_config({text, length}).value_or_throw(), out);
  });
}

phasor_status phasor_config_read(const char* path, phasor_config** out) {
  return guarded([&] {
    need(path, "phasor_config_read", "path");
    need(out, "phasor_config_read", "out");
    hand_over(porting::read_readable_config(path).value_or_throw(), out);
  });
}

void phasor_config_destroy(phasor_config* config) { delete config; }

phasor_status phasor_rope_from_config(const phasor_config* config, const char* layer,
                                      phasor_pair_layout layout, int64_t context,
                                      phasor_rope** out) {
  constexpr std::string_view kWhere = "phasor_rope_from_config";
  return guarded([&] {
    need(config, kWhere, "config");
    need(out, kWhere, "out");
    hand_over(layer_rotary(config->config.meaning, layer, layout, context, kWhere), out);
  });
}

phasor_status phasor_explain_json(const phasor_config* config, int64_t context, phasor_text** out) {
  constexpr std::string_view kWhere = "phasor_explain_json";
  return guarded([&] {
    need(config, kWhere, "config");
    need(out, kWhere, "out");
    hand_over(porting::explain_json(
                  porting::explain(config->config, to_context(context, kWhere)).value_or_throw()),
              out);
  });
}

phasor_status phasor_diff_json(const phasor_config* config, const phasor_diff_options* options,
                               phasor_text** out) {
  constexpr std::string_view kWhere = "phasor_diff_json";
  return guarded([&] {
    need(config, kWhere, "config");
    need(out, kWhere, "out");
    const phasor_diff_options from = take_options(options, phasor_diff_options{}, kWhere);
    porting::DiffOptions asked;
    if (from.between != nullptr) asked.between = split_names(from.between);
    asked.context = to_context(from.context, kWhere);
    asked.max_length = to_length(from.max_length, kWhere, "max_length");
    asked.shifts = from.shifts;
    asked.layer = text_or_empty(from.layer);
    hand_over(porting::diff_json(porting::diff(config->config, asked).value_or_throw()), out);
  });
}

phasor_status phasor_dialects_json(phasor_text** out) {
  return guarded([&] {
    need(out, "phasor_dialects_json", "out");
    hand_over(porting::dialects_json(), out);
  });
}

phasor_status phasor_plan_json(const phasor_config* config, int64_t to, int64_t trained,
                               const char* layer, phasor_text** out) {
  constexpr std::string_view kWhere = "phasor_plan_json";
  return guarded([&] {
    need(config, kWhere, "config");
    need(out, kWhere, "out");
    const porting::PlanOptions asked{
        .to = to, .trained = to_length(trained, kWhere, "trained"), .layer = text_or_empty(layer)};
    hand_over(porting::plan_json(porting::plan(config->config, asked).value_or_throw()), out);
  });
}

phasor_status phasor_diagnose_json(const phasor_heads* before, const phasor_heads* after,
                                   const phasor_positions* positions, const phasor_config* config,
                                   const char* layer, int64_t context, phasor_text** out) {
  constexpr std::string_view kWhere = "phasor_diagnose_json";
  return guarded([&] {
    need(out, kWhere, "out");
    const core::ConstHeadsView from = to_view(before, kWhere, "before");
    const io::NpyArray first = dense_copy(from, kWhere, "before");
    const io::NpyArray second = dense_copy(to_view(after, kWhere, "after"), kWhere, "after");
    std::optional<encodings::RopeSpec> spec;
    if (config != nullptr) spec = layer_spec(config->config.meaning, layer, kWhere);
    std::optional<io::NpyArray> places;
    if (positions != nullptr) {
      places = positions_copy(positions_of(positions, kWhere, "positions"), from, kWhere,
                              spec ? encodings::axis_count(spec->axes) : 1);
    }
    const porting::DiagnoseInput input{
        &first, &second, places ? &*places : nullptr, {"batch", "tokens", "heads", "dim"}};
    if (!spec) return hand_over(porting::diagnose_json(porting::diagnose(input)), out);
    const porting::ConfigDiagnosis both =
        porting::diagnose(input, *spec,
                          {.context = to_context(context, kWhere),
                           .heads = config->config.meaning.heads,
                           .key_heads = config->config.meaning.key_heads});
    hand_over(porting::diagnose_json(both.found, &both.check), out);
  });
}

phasor_status phasor_audit_json(const phasor_config* config, const char* layer,
                                const phasor_cos_sin_rows* table, size_t row_count,
                                const double* positions, size_t position_count, int64_t context,
                                double threshold, phasor_text** out) {
  constexpr std::string_view kWhere = "phasor_audit_json";
  return guarded([&] {
    need(config, kWhere, "config");
    need(out, kWhere, "out");
    const core::CosSinRows rows = to_rows(table, kWhere, "table");
    const auto count = static_cast<std::int64_t>(row_count);
    const core::Dimension dimensions[] = {{count, rows.token_stride},
                                          {rows.pairs, rows.pair_stride}};
    if (count < 0 || rows.pairs < 0 || !core::is_addressable(dimensions, sizeof(double))) {
      refuse(ErrorCode::shape_mismatch,
             message(kWhere, ": the table must lie within 2^56 bytes, got ", row_count, " rows of ",
                     rows.pairs, " pairs with the strides ", rows.token_stride, " and ",
                     rows.pair_stride));
    }
    if (!(threshold >= 0.0)) {
      throw Error(ErrorCode::invalid_argument,
                  message(kWhere, ": threshold must be at least 0, got ", threshold));
    }
    const encodings::RopeSpec spec = layer_spec(config->config.meaning, layer, kWhere);
    std::optional<std::int64_t> length = to_context(context, kWhere);
    const std::int64_t axes = encodings::axis_count(spec.axes);
    std::vector<double> places;
    need_array(positions, position_count, kWhere, "positions");
    if (positions == nullptr) {
      for (std::int64_t row = 0; row < count; ++row) {
        places.insert(places.end(), static_cast<std::size_t>(axes), static_cast<double>(row));
      }
    } else {
      need_count(position_count, count * axes, kWhere, "position_count");
      places.assign(positions, positions + position_count);
    }
    if (!places.empty()) {
      length =
          encodings::context_for(spec, length, *std::max_element(places.begin(), places.end()));
    }
    const std::vector<double> cos = widened(rows.cos, rows, count);
    const std::vector<double> sin = widened(rows.sin, rows, count);
    const porting::ForeignTable foreign{cos, sin, places, count, rows.dtype};
    const porting::AuditOptions asked{length, threshold};
    hand_over(porting::audit_json(porting::audit(spec, foreign, asked), foreign, asked), out);
  });
}

phasor_status phasor_weight_order_json(const char* path, phasor_text** out) {
  return guarded([&] {
    need(path, "phasor_weight_order_json", "path");
    need(out, "phasor_weight_order_json", "out");
    hand_over(porting::weight_order_json(porting::infer_weight_order(path).value_or_throw()), out);
  });
}

phasor_status phasor_describe_json(const char* path, phasor_text** out) {
  return guarded([&] {
    need(path, "phasor_describe_json", "path");
    need(out, "phasor_describe_json", "out");
    hand_over(models::describe_json(models::describe(path).value_or_throw()), out);
  });
}

phasor_status phasor_convert_checkpoint(const char* source, const char* destination,
                                        phasor_pair_layout to, phasor_pair_layout from,
                                        phasor_text** out) {
  constexpr std::string_view kWhere = "phasor_convert_checkpoint";
  return guarded([&] {
    need(source, kWhere, "source");
    need(destination, kWhere, "destination");
    need(out, kWhere, "out");
    const std::optional<core::PairLayout> target = to_layout(to, kWhere);
    if (!target) {
      throw Error(ErrorCode::invalid_argument,
                  message(kWhere, ": to must be chosen, got PHASOR_LAYOUT_UNSET"));
    }
    porting::ConvertOptions asked;
    asked.source = source;
    asked.destination = destination;
    asked.to = *target;
    asked.from = to_layout(from, kWhere);
    asked.before_finish = [&](const porting::ConvertResult& result) {
      hand_over(porting::convert_json(result), out);
    };
    (void)porting::convert_checkpoint(asked).value_or_throw();
  });
}
