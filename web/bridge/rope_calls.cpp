// Calls about one rotation: its frequencies, angles, tables and rotated vectors.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "bridge.hpp"
#include "phasor/core/error.hpp"
#include "phasor/encodings/internal/listed_frequencies.hpp"
#include "phasor/porting/config_reports.hpp"
#include "phasor/porting/convert.hpp"

namespace phasor::web {
namespace {

// A picture is a few thousand cells; this many keep a wrong request from taking all memory.
constexpr std::int64_t kMostCells = std::int64_t{1} << 22;
constexpr std::int64_t kFarthest = std::int64_t{1} << 52;

io::Json optional_json(const auto& value) { return value ? io::Json(*value) : io::Json(nullptr); }

// The length that the frequencies were trained at, as explain reports it.
std::optional<std::int64_t> trained_length(const config::ModelConfig& model,
                                           const encodings::RopeSpec& spec) {
  if (const auto original = encodings::original_length(spec.scaling)) return original;
  return model.trained_length ? model.trained_length : model.max_position;
}

void version(const Request& /*request*/, Answer& answer) {
  answer["version"] = PHASOR_VERSION;
#if defined(__wasm_simd128__)
  answer["simd"] = true;
#else
  answer["simd"] = false;
#endif
}

void frequencies(const Request& request, Answer& answer) {
  const config::ModelConfig model = request.model();
  const encodings::RopeSpec spec = request.spec_of(model);
  const core::Frequencies resolved = encodings::listed_frequencies(spec, request.context());
  const std::span<const double> values = resolved.values();
  answer["frequencies"] = answer.keep(std::vector<double>(values.begin(), values.end()));
  answer["wavelengths"] = answer.keep(wavelengths_of(values));
  answer["amplitude"] = resolved.amplitude();
  answer["layout"] = spec.layout ? io::Json(core::name_of(*spec.layout)) : io::Json(nullptr);
  answer["head_dim"] = spec.head_dim;
  answer["rotary_dim"] = spec.rotary_dim;
  answer["base"] = optional_json(encodings::base_of(spec));
  answer["scaling"] = encodings::name_of(spec.scaling);
  answer["trained_length"] = optional_json(trained_length(model, spec));
}

// The two features of pair i of a head, as the rotation reads them.
std::array<std::size_t, 2> features_of(const core::Rotary& rotary, std::int64_t pair) {
  const std::int64_t block = rotary.frequencies.pairs() / rotary.blocks;
  const std::int64_t start = rotary.offset + pair / block * 2 * block, i = pair % block;
  const bool half = rotary.layout == core::PairLayout::half;
  return {static_cast<std::size_t>(start + (half ? i : 2 * i)),
          static_cast<std::size_t>(start + (half ? i + block : 2 * i + 1))};
}

// The same in the rotated head.
std::array<std::size_t, 2> rotated_features_of(const core::Rotary& rotary, std::int64_t pair) {
  core::Rotary written = rotary;
  if (rotary.layout == core::PairLayout::interleaved_to_half)
    written.layout = core::PairLayout::half;
  return features_of(written, pair);
}

// Each pair's angle at a position, from the exact product, in (-pi, pi].
std::vector<double> reduced_angles(const core::Frequencies& frequencies, double position) {
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  std::vector<double> cos(pairs), sin(pairs), angles(pairs);
  const std::vector<double> axes(static_cast<std::size_t>(frequencies.axis_count()), position);
  core::cos_sin(frequencies, axes, cos, sin);
  for (std::size_t i = 0; i < pairs; ++i) angles[i] = std::atan2(sin[i], cos[i]);
  return angles;
}

std::vector<double> rotated(const core::Rotary& rotary, std::vector<double> head,
                            std::int64_t position, core::Role role) {
  const core::HeadsView view = core::heads_view(head.data(), 1, 1, 1, rotary.head_dim);
  const core::Rotation rotation{view, view, role};
  core::rotate(rotary, core::positions_from(position), std::span(&rotation, 1));
  return head;
}

void rotate(const Request& request, Answer& answer) {
  const encodings::RopeSpec spec = request.spec();
  const std::int64_t query = request.integer("query_position", -kFarthest, kFarthest);
  const std::int64_t key = request.integer("key_position", -kFarthest, kFarthest);
  const std::optional<std::int64_t> context =
      encodings::context_for(spec, request.context(), static_cast<double>(std::max(query, key)));
  const core::Rotary rotary = encodings::resolve(spec, context);
  const auto width = static_cast<std::size_t>(rotary.head_dim);
  const std::vector<double> q =
      rotated(rotary, request.numbers("q", width), query, core::Role::query);
  const std::vector<double> k = rotated(rotary, request.numbers("k", width), key, core::Role::key);
  std::vector<double> pair_scores;
  for (std::int64_t pair = 0; pair < rotary.frequencies.pairs(); ++pair) {
    const auto [a, b] = rotated_features_of(rotary, pair);
    pair_scores.push_back(q[a] * k[a] + q[b] * k[b]);
  }
  answer["score"] = std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
  answer["pair_scores"] = answer.keep(std::move(pair_scores));
  answer["angles_q"] = answer.keep(reduced_angles(rotary.frequencies, static_cast<double>(query)));
  answer["angles_k"] = answer.keep(reduced_angles(rotary.frequencies, static_cast<double>(key)));
  io::Json features = io::Json::array();
  for (std::int64_t pair = 0; pair < rotary.frequencies.pairs(); ++pair) {
    const auto [a, b] = rotated_features_of(rotary, pair);
    features.push_back(io::Json::array({a, b}));
  }
  answer["features"] = std::move(features);
  answer["q"] = answer.keep(q);
  answer["k"] = answer.keep(k);
}

void table(const Request& request, Answer& answer) {
  const encodings::RopeSpec spec = request.spec();
  const std::int64_t first = request.integer("first", -kFarthest, kFarthest);
  const std::int64_t count = request.integer("count", 0, kMostCells);
  const std::optional<std::int64_t> context =
      encodings::context_for(spec, request.context(), static_cast<double>(first + count - 1));
  const core::Frequencies resolved = encodings::resolve_frequencies(spec, context);
  const std::int64_t pairs = resolved.pairs();
  if (count * pairs > kMostCells) {
    request.reader().refuse("count", message("must be at most ", kMostCells / pairs, " for ", pairs,
                                             " pairs, got ", count));
  }
  const auto width = static_cast<std::size_t>(pairs);
  std::vector<float> cos(width * static_cast<std::size_t>(count)), sin(cos.size());
  std::vector<double> axes(static_cast<std::size_t>(resolved.axis_count()));
  for (std::size_t row = 0; row < static_cast<std::size_t>(count); ++row) {
    std::fill(axes.begin(), axes.end(),
              static_cast<double>(first + static_cast<std::int64_t>(row)));
    core::cos_sin(resolved, axes, std::span(cos).subspan(row * width, width),
                  std::span(sin).subspan(row * width, width));
  }
  answer["cos"] = answer.keep(std::move(cos));
  answer["sin"] = answer.keep(std::move(sin));
  answer["pairs"] = pairs;
  answer["count"] = count;
}

// One head rotated in a layout, with the features of each pair.
io::Json rotated_in(const core::Rotary& rotary, std::vector<double> head, std::int64_t position,
                    Answer& answer) {
  io::Json pairs = io::Json::array();
  for (std::int64_t pair = 0; pair < rotary.frequencies.pairs(); ++pair) {
    const auto [a, b] = features_of(rotary, pair);
    pairs.push_back(io::Json::array({a, b}));
  }
  io::Json result;
  result["pairs"] = std::move(pairs);
  result["rotated"] = answer.keep(rotated(rotary, std::move(head), position, core::Role::query));
  return result;
}

// `head` from interleaved to half.
std::vector<double> permuted(const std::vector<double>& head) {
  const std::array<std::int64_t, 1> shape = {std::ssize(head)}, strides = {1};
  std::vector<double> result(head.size());
  porting::convert_layout(
      {.to = core::PairLayout::half, .heads = 1}, 0,
      {std::as_bytes(std::span(head)).data(), sizeof(double), shape, strides},
      {std::as_writable_bytes(std::span(result)).data(), sizeof(double), shape, strides});
  return result;
}

// Both layouts of one head: rotating the permuted head in the half layout gives the permuted result of
// the interleaved one.
void layouts(const Request& request, Answer& answer) {
  const std::int64_t head_dim = request.integer_or("head_dim", 8, 2, 1024);
  const double base = request.reader().number("base").value_or(10000.0);
  const std::int64_t position = request.integer_or("position", 1, -kFarthest, kFarthest);
  const auto width = static_cast<std::size_t>(head_dim);
  // Without values: those of the worked example of the notes, the second query head of token 1.
  std::vector<double> head(width);
  std::iota(head.begin(), head.end(), 24.0);
  if (request.reader().has("values")) head = request.numbers("values", width);
  const core::Frequencies frequencies = core::make_frequencies({head_dim, base});
  const core::Rotary interleaved{frequencies, core::PairLayout::interleaved, head_dim};
  const core::Rotary half{frequencies, core::PairLayout::half, head_dim};
  std::vector<double> order(width);
  std::iota(order.begin(), order.end(), 0.0);
  answer["values"] = answer.keep(head);
  answer["angles"] = answer.keep(reduced_angles(frequencies, static_cast<double>(position)));
  answer["interleaved"] = rotated_in(interleaved, head, position, answer);
  answer["half"] = rotated_in(half, head, position, answer);
  answer["permutation"] = answer.keep(permuted(order));
  answer["permuted"] = answer.keep(permuted(head));
  answer["rotated_permuted"] =
      answer.keep(rotated(half, permuted(head), position, core::Role::query));
}

// The angle between the unit vectors of two (cos, sin), in (-pi, pi].
double angle_between(double cos, double sin, double exact_cos, double exact_sin) {
  return std::atan2(sin * exact_cos - cos * exact_sin, cos * exact_cos + sin * exact_sin);
}

io::Json angle_row(std::string_view name, core::AngleMode mode,
                   const core::Frequencies& frequencies, double position, Answer& answer) {
  const auto pairs = static_cast<std::size_t>(frequencies.pairs());
  const std::vector<double> axes(static_cast<std::size_t>(frequencies.axis_count()), position);
  std::vector<double> exact_cos(pairs), exact_sin(pairs);
  core::cos_sin(frequencies, axes, exact_cos, exact_sin);
  std::vector<float> cos(pairs), sin(pairs);
  core::cos_sin(frequencies, axes, cos, sin, mode);
  std::vector<double> values(pairs), errors(pairs), cos_errors(pairs), sin_errors(pairs);
  double largest = 0.0;
  for (std::size_t i = 0; i < pairs; ++i) {
    values[i] = std::atan2(double{sin[i]}, double{cos[i]});
    errors[i] = angle_between(cos[i], sin[i], exact_cos[i], exact_sin[i]);
    cos_errors[i] = cos[i] - exact_cos[i];
    sin_errors[i] = sin[i] - exact_sin[i];
    largest = std::max(largest, std::abs(errors[i]));
  }
  io::Json row;
  row["angles"] = name;
  row["values"] = answer.keep(std::move(values));
  row["error"] = answer.keep(std::move(errors));
  row["cos_error"] = answer.keep(std::move(cos_errors));
  row["sin_error"] = answer.keep(std::move(sin_errors));
  row["largest"] = largest;
  return row;
}

void angle_errors(const Request& request, Answer& answer) {
  const encodings::RopeSpec spec = request.spec();
  const auto position = static_cast<double>(request.integer("position", -kFarthest, kFarthest));
  const core::Frequencies frequencies = encodings::resolve_frequencies(
      spec, encodings::context_for(spec, request.context(), position));
  answer["exact"] = answer.keep(reduced_angles(frequencies, position));
  io::Json rows = io::Json::array();
  for (const std::string& name : request.texts("angles")) {
    const std::optional<core::AngleMode> mode = core::angle_mode_of(name);
    if (!mode) {
      request.reader().refuse("angles",
                              message("must be exact, float32, bfloat16_frequencies, bfloat16 or "
                                      "float16, got \"",
                                      name, "\""));
    }
    try {
      rows.push_back(angle_row(name, *mode, frequencies, position, answer));
    } catch (const Error& error) {  // float16 has no angle this large
      rows.push_back({{"angles", name}, {"note", error.what()}});
    }
  }
  answer["rows"] = std::move(rows);
}

// The spec under a method, and what the reader should know about its numbers.
struct Scaled {
  encodings::RopeSpec spec;
  std::string note;
};

Scaled scaled_by(std::string_view method, const encodings::RopeSpec& spec, double factor,
                 std::int64_t trained) {
  if (method == "present") return {spec, ""};
  const bool own_lists = std::holds_alternative<encodings::LongRopeScaling>(spec.scaling);
  if (method == "longrope" && own_lists) return {spec, "the lists of the config"};
  return {porting::extended_spec(spec, method, factor, trained),
          method == "longrope" ? "YaRN's factors: lists are found by a search with the model" : ""};
}

// Each method on the unscaled frequencies; "present" is the config's own scaling.
void scalings(const Request& request, Answer& answer) {
  const config::ModelConfig model = request.model();
  const encodings::RopeSpec spec = request.spec_of(model);
  const std::optional<std::int64_t> known = trained_length(model, spec);
  const std::int64_t trained =
      request.integer_or("trained_length", known.value_or(2048), 2, std::int64_t{1} << 40);
  const std::optional<std::int64_t> context = request.context();
  const double factor = request.reader().number("factor").value_or(
      context ? std::max(1.0, static_cast<double>(*context) / static_cast<double>(trained)) : 1.0);
  const core::Frequencies plain =
      encodings::resolve_frequencies(porting::extended_spec(spec, "none", 1.0, trained));
  io::Json rows = io::Json::array();
  for (const std::string& method : request.texts("methods")) {
    io::Json row;
    row["method"] = method;
    try {
      const Scaled scaled = scaled_by(method, spec, factor, trained);
      const core::Frequencies resolved = encodings::resolve_frequencies(scaled.spec, context);
      std::vector<double> values(resolved.values().begin(), resolved.values().end()), ratios;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double before = plain.values()[i];
        ratios.push_back(before == 0.0 ? 1.0 : values[i] / before);
      }
      row["scaling"] = porting::scaling_text(scaled.spec.scaling);
      row["base"] = optional_json(encodings::base_of(scaled.spec));
      row["amplitude"] = resolved.amplitude();
      row["wavelengths"] = answer.keep(wavelengths_of(values));
      row["frequencies"] = answer.keep(std::move(values));
      row["ratio"] = answer.keep(std::move(ratios));
      if (!scaled.note.empty()) row["note"] = scaled.note;
    } catch (const Error& error) {  // a method that does not apply to this spec is no failure
      row["note"] = error.what();
    }
    rows.push_back(std::move(row));
  }
  answer["rows"] = std::move(rows);
  answer["trained_length"] = trained;
  answer["factor"] = factor;
}

}  // namespace

std::span<const NamedCall> rope_calls() {
  static constexpr auto kCalls = std::to_array<NamedCall>({
      {"version", version},
      {"frequencies", frequencies},
      {"rotate", rotate},
      {"table", table},
      {"layouts", layouts},
      {"angle_errors", angle_errors},
      {"scalings", scalings},
  });
  return kCalls;
}

}  // namespace phasor::web
