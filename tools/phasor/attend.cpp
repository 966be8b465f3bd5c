// phasor attend: attention with any encoding, softmax or linear.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "commands.hpp"
#include "config_source.hpp"
#include "heads_file.hpp"
#include "linear_flags.hpp"
#include "output.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"
#include "spec.hpp"
#include "streams.hpp"

namespace phasor::tools {
namespace {

struct AttendOptions {
  std::string encoding, layer;
  RopeFlags rope;
  LinearFlags linear;
  std::string q, k, v, output;
  std::string kind = "softmax", angles = "exact";
  std::string mask, key_padding, key_lengths, segments, positions, query_positions;
  std::string probabilities, log_sum_exp;
  std::optional<std::int64_t> window, offset, context;
  std::optional<double> scale, soft_cap;
  bool causal = false, json = false;
  int threads = 0;
};

struct Inputs {
  HeadsFile q, k, v;

  explicit Inputs(const AttendOptions& options)
      : q(options.q, "q"), k(options.k, "k"), v(options.v, "v") {
    if (q.batched != k.batched || q.batched != v.batched || q.view.batch != k.view.batch ||
        q.view.batch != v.view.batch) {
      refuse(ErrorCode::shape_mismatch,
             message("q, k and v must have the same batch size, or no batch axis: got ",
                     core::shape_text(q.array.shape), ", ", core::shape_text(k.array.shape),
                     " and ", core::shape_text(v.array.shape)));
    }
  }
};

void check_flags(const AttendOptions& options) {
  if (options.scale && !std::isfinite(*options.scale)) {
    refuse(message("--scale must be finite, got ", *options.scale));
  }
  if (options.soft_cap && !(std::isfinite(*options.soft_cap) && *options.soft_cap > 0.0)) {
    refuse(message("--soft-cap must be finite and positive, got ", *options.soft_cap));
  }
  if (options.kind != "linear") {
    refuse_linear_flags(options.linear);
    return;
  }
  check_linear_flags(options.linear);
  const std::vector<std::pair<const char*, bool>> softmax_only = {
      {"--window", options.window.has_value()},
      {"--scale", options.scale.has_value()},
      {"--soft-cap", options.soft_cap.has_value()},
      {"--mask", !options.mask.empty()},
      {"--key-lengths", !options.key_lengths.empty()},
      {"--segments", !options.segments.empty()},
      {"--probabilities", !options.probabilities.empty()},
      {"--log-sum-exp", !options.log_sum_exp.empty()},
      {"--angles float32", options.angles == "float32"}};
  for (const auto& [flag, given] : softmax_only) {
    if (given) {
      refuse(ErrorCode::unsupported, message(flag, " cannot be combined with --kind linear"));
    }
  }
}

encodings::RopeSpec* rope_of(config::LoadedEncoding& loaded) {
  for (encodings::Encoding& part : loaded.parts) {
    if (auto* spec = std::get_if<encodings::RopeSpec>(&part)) return spec;
  }
  return nullptr;
}

// Positions of the keys as given, of the queries those of the last keys unless given.
struct TokenPositions {
  std::optional<core::Positions> queries, keys;

  [[nodiscard]] bool given() const noexcept { return keys.has_value(); }
  // For the rotation of a spec, or for distances: then one axis.
  void fit(const encodings::RopeSpec* spec, const Inputs& inputs) {
    const auto fit_one = [&](std::optional<core::Positions>& one, const HeadsFile& of) {
      if (!one) return;
      const std::int64_t tokens = of.view.tokens;
      one = spec != nullptr
                ? fit_positions(*spec, *one, of.batch(), tokens)
                : core::fit_positions(*one, {.axes = 1, .batch = of.batch(), .tokens = tokens});
    };
    fit_one(keys, inputs.k);
    fit_one(queries, inputs.q);
  }
  // Whether they are one position per token of these heads, so that they have distances.
  [[nodiscard]] bool has_distances(const Inputs& inputs) const {
    const auto fits = [](const std::optional<core::Positions>& one, const HeadsFile& of) {
      return one && one->axes == 1 && one->tokens == of.view.tokens &&
             (one->batch == 0 || one->batch == of.view.batch);
    };
    return fits(queries, inputs.q) && fits(keys, inputs.k);
  }
};

TokenPositions positions_of(const AttendOptions& options, const Inputs& inputs) {
  TokenPositions positions;
  const bool given =
      !options.positions.empty() || !options.query_positions.empty() || options.offset;
  const std::int64_t queries = inputs.q.view.tokens, keys = inputs.k.view.tokens;
  if (!given) return positions;
  const core::Positions of_keys = options.positions.empty()
                                      ? core::positions_counted(options.offset.value_or(0), keys)
                                      : parse_positions(options.positions);
  if (options.query_positions.empty() && queries > of_keys.tokens) {
    refuse(ErrorCode::shape_mismatch, message("--query-positions is missing: there are ", queries,
                                              " queries and ", of_keys.tokens, " keys"));
  }
  positions.keys = of_keys;
  positions.queries = options.query_positions.empty() ? of_keys.last_tokens(queries)
                                                      : parse_positions(options.query_positions);
  return positions;
}

// [batch, keys] of flags or [batch] of lengths; an array without its batch axis is fine where the
// heads have none.
io::NpyArray read_rows(const std::string& path, const char* flag, const Inputs& inputs,
                       std::vector<std::int64_t> shape) {
  io::NpyArray array = read_array(path);
  std::vector<std::int64_t> without = shape;
  without.erase(without.begin());
  const bool fits = array.shape == shape || (!inputs.q.batched && array.shape == without);
  if (!fits || (!io::is_integer(array.type) && array.type != io::NpyType::boolean)) {
    refuse(ErrorCode::shape_mismatch,
           message(path, ": ", flag, " must be bool or integers of the shape ",
                   core::shape_text(shape), ", got ", io::name_of(array.type), " ",
                   core::shape_text(array.shape)));
  }
  return array;
}

std::vector<std::uint8_t> flags_of(const io::NpyArray& array) {
  std::vector<std::uint8_t> flags;
  for (const double value : io::to_doubles(array).value_or_throw())
    flags.push_back(value != 0.0 ? 1 : 0);
  return flags;
}

// What the options of a call point into.
struct CallStorage {
  std::vector<std::uint8_t> mask_flags, key_padding;
  std::vector<float> mask_floats;
  std::vector<std::int64_t> key_lengths;
  std::vector<std::int32_t> query_segments, key_segments;
};

attention::Mask read_mask(const std::string& path, const Inputs& inputs, CallStorage& storage) {
  const io::NpyArray array = read_array(path);
  const std::int64_t batch = inputs.q.view.batch, heads = inputs.q.view.heads;
  const std::int64_t queries = inputs.q.view.tokens, keys = inputs.k.view.tokens;
  try {
    if (array.type == io::NpyType::boolean || array.type == io::NpyType::u8) {
      storage.mask_flags = flags_of(array);
      return attention::boolean_mask(storage.mask_flags.data(), array.shape, batch, heads, queries,
                                     keys);
    }
    if (io::is_integer(array.type)) {
      refuse(ErrorCode::unsupported,
             message("the mask must be bool, uint8 or floats, got ", io::name_of(array.type)));
    }
    const std::vector<double> values = io::to_doubles(array).value_or_throw();
    storage.mask_floats.assign(values.begin(), values.end());
    return attention::additive_mask(storage.mask_floats.data(), array.shape, batch, heads, queries,
                                    keys);
  } catch (const Error& error) {
    throw Error(error.code(), message(path, ": ", error.what()));
  }
}

void read_segments(const std::string& path, const Inputs& inputs, CallStorage& storage) {
  const std::int64_t queries = inputs.q.view.tokens, keys = inputs.k.view.tokens;
  const io::NpyArray array = read_rows(path, "--segments", inputs, {inputs.q.view.batch, keys});
  if (queries > keys) {
    refuse(ErrorCode::shape_mismatch,
           message("--segments: queries are the last of the keys, but there are ", queries,
                   " queries and ", keys, " keys"));
  }
  const std::vector<double> values = io::to_doubles(array).value_or_throw();
  for (std::size_t at = 0; at < values.size(); ++at) {
    const auto segment = static_cast<std::int32_t>(values[at]);
    storage.key_segments.push_back(segment);
    if (static_cast<std::int64_t>(at) % keys >= keys - queries)
      storage.query_segments.push_back(segment);
  }
}

io::NpyArray floats(std::vector<std::int64_t> shape, bool batched,
                    io::NpyType type = io::NpyType::f32) {
  if (!batched) shape.erase(shape.begin());
  return io::make_npy(type, std::move(shape));
}

struct Answer {
  io::NpyArray output;
  std::optional<io::NpyArray> probabilities, log_sum_exp;
  double scale = 0.0;
};

core::HeadsView output_view(const Inputs& inputs, io::NpyArray& output) {
  core::HeadsView view =
      core::heads_view(output.as<float>(), inputs.q.view.batch, inputs.q.view.tokens,
                       inputs.q.view.heads, inputs.v.view.head_dim);
  view.data = output.bytes.data();
  view.dtype = inputs.q.view.dtype;
  return view;
}

void attend_softmax(const AttendOptions& options, const Inputs& inputs,
                    const encodings::ScoreTerms& terms, const TokenPositions& positions,
                    Answer& answer) {
  CallStorage storage;
  attention::AttentionOptions call;
  call.causality = options.causal ? attention::Causality::bottom_right : attention::Causality::none;
  call.window = options.window;
  call.scale = options.scale;
  call.soft_cap = options.soft_cap.value_or(0.0);
  call.threads = options.threads;
  call.angles = parse_angles(options.angles);
  call.query_positions = positions.queries;
  call.key_positions = positions.keys;
  const std::int64_t batch = inputs.q.view.batch, keys = inputs.k.view.tokens;
  if (!options.mask.empty()) call.mask = read_mask(options.mask, inputs, storage);
  if (!options.key_padding.empty()) {
    storage.key_padding =
        flags_of(read_rows(options.key_padding, "--key-padding", inputs, {batch, keys}));
    call.key_padding = storage.key_padding;
  }
  if (!options.key_lengths.empty()) {
    const io::NpyArray lengths = read_rows(options.key_lengths, "--key-lengths", inputs, {batch});
    storage.key_lengths = io::to_integers(lengths).value_or_throw();
    call.key_lengths = storage.key_lengths;
  }
  if (terms.segment_rows.given() && options.segments.empty()) {
    refuse("--segments is required by an encoding with segment embeddings");
  }
  if (!options.segments.empty()) {
    read_segments(options.segments, inputs, storage);
    call.query_segments = storage.query_segments;
    call.key_segments = storage.key_segments;
  }
  attention::AttentionExtras extras;
  const std::int64_t heads = inputs.q.view.heads, queries = inputs.q.view.tokens;
  if (!options.probabilities.empty()) {
    answer.probabilities = floats({batch, heads, queries, keys}, inputs.q.batched);
    extras.probabilities = answer.probabilities->as<float>();
  }
  if (!options.log_sum_exp.empty()) {
    if (inputs.q.view.dtype == core::DType::f64) {
      answer.log_sum_exp = floats({batch, heads, queries}, inputs.q.batched, io::NpyType::f64);
      extras.wide_log_sum_exp = answer.log_sum_exp->as<double>();
    } else {
      answer.log_sum_exp = floats({batch, heads, queries}, inputs.q.batched);
      extras.log_sum_exp = answer.log_sum_exp->as<float>();
    }
  }
  answer.scale = call.scale.value_or(terms.scale);
  attention::attend(terms, inputs.q.view, inputs.k.view, inputs.v.view,
                    output_view(inputs, answer.output), call, extras);
}

void attend_linear(const AttendOptions& options, const Inputs& inputs,
                   const encodings::ScoreTerms& terms, const TokenPositions& positions,
                   Answer& answer) {
  attention::LinearOptions call = linear_options(options.linear);
  call.causality = options.causal ? attention::Causality::bottom_right : attention::Causality::none;
  call.threads = options.threads;
  call.query_positions = positions.queries;
  call.key_positions = positions.keys;
  std::vector<std::uint8_t> key_padding;
  if (!options.key_padding.empty()) {
    key_padding = flags_of(read_rows(options.key_padding, "--key-padding", inputs,
                                     {inputs.q.view.batch, inputs.k.view.tokens}));
    call.key_padding = key_padding;
  }
  attention::linear_attend(terms.rotation, inputs.q.view, inputs.k.view, inputs.v.view,
                           output_view(inputs, answer.output), call);
}

void print_json(const AttendOptions& options, const config::LoadedEncoding& loaded,
                const Answer& answer) {
  io::Json summary;
  summary["shape"] = answer.output.shape;
  summary["dtype"] = io::name_of(answer.output.type);
  summary["kind"] = options.kind;
  summary["encoding"] = io::Json::array();
  for (const encodings::Encoding& part : loaded.parts)
    summary["encoding"].push_back(encodings::name_of(part));
  summary["causal"] = options.causal;
  summary["window"] = options.window ? io::Json(*options.window) : nullptr;
  if (options.kind == "softmax") {
    summary["scale"] = answer.scale;
  } else {
    describe(options.linear, summary);
  }
  print_out("{}\n", summary.dump());
}

// The encoding of --encoding, or a rope of the flags, as wide as what it rotates.
config::LoadedEncoding read_encoding(const AttendOptions& options,
                                     const config::EncodingRequest& request) {
  const std::string& given = options.encoding;
  if (given.empty()) {
    if (!options.rope.given()) refuse("--encoding is required, or --base or --layout for a rope");
    RopeFlags rope = options.rope;
    if (!rope.head_dim) rope.head_dim = request.shape->head_dim;
    return config::parse_encoding(spec_json(rope), ".", "the flags", request).value_or_throw();
  }
  if (given != "-" && !is_json_text(given))
    return config::read_encoding(given, request).value_or_throw();
  return config::parse_encoding(read_json_text(given), ".", config_name(given), request)
      .value_or_throw();
}

int run_attend(const AttendOptions& options) {
  check_flags(options);
  require_one_stdout({options.output, options.probabilities, options.log_sum_exp});
  const Inputs inputs(options);
  TokenPositions positions = positions_of(options, inputs);
  attention::AttentionOptions at_positions;
  if (positions.has_distances(inputs)) {
    at_positions.query_positions = positions.queries;
    at_positions.key_positions = positions.keys;
  }
  encodings::AttentionShape shape =
      attention::attention_shape(inputs.q.view, inputs.k.view, inputs.v.view, at_positions);
  // Random features are rotated, not the heads that they are made from.
  const std::optional<std::int64_t> rotated_features = options.linear.rotated_features();
  if (rotated_features) shape.head_dim = *rotated_features;
  config::EncodingRequest request;
  request.shape = shape;
  request.layer = options.layer;
  config::LoadedEncoding loaded = read_encoding(options, request);

  encodings::RopeSpec* const spec = rope_of(loaded);
  const auto is_none = [](const encodings::Encoding& part) {
    return std::holds_alternative<encodings::NoEncoding>(part);
  };
  if (positions.given() && std::ranges::all_of(loaded.parts, is_none))
    refuse(
        "--positions, --query-positions and --offset cannot be combined with encoding \"none\": it "
        "reads no positions");
  positions.fit(spec, inputs);
  if (spec != nullptr) {
    if (!options.encoding.empty())
      *spec = replaced_by(options.rope, *spec, std::nullopt, config_name(options.encoding));
    const SpecOptions at{.config = options.encoding, .context = options.context};
    const core::Positions keys =
        positions.keys.value_or(core::positions_counted(0, shape.key_tokens));
    shape.context = context_for(*spec, at, keys, "attend");
  } else if (options.context || options.rope.given()) {
    refuse(
        message("--context, --layout, --base, --rotary-dim, --head-dim and --scaling require an "
                "encoding that rotates (rope, xpos), got ",
                loaded.parts.empty() ? "none" : encodings::name_of(loaded.parts.front())));
  }
  if (options.kind == "linear") {
    if (spec != nullptr && rotated_features && spec->head_dim != shape.head_dim) {
      refuse(ErrorCode::shape_mismatch,
             message("--rotates features needs a rope for head_dim ", shape.head_dim,
                     " (--feature-count), got head_dim ", spec->head_dim,
                     "; --rotates inputs rotates q and k"));
    }
    for (const encodings::Encoding& part : loaded.parts) {
      if (!std::holds_alternative<encodings::RopeSpec>(part) &&
          !std::holds_alternative<encodings::NoEncoding>(part)) {
        refuse(ErrorCode::unsupported,
               message("--kind linear supports the encodings rope and none, got ",
                       encodings::name_of(part)));
      }
    }
  }
  const encodings::ScoreTerms terms = config::resolve(loaded, shape);

  Answer answer;
  std::vector<std::int64_t> output_shape = inputs.q.array.shape;
  output_shape.back() = inputs.v.view.head_dim;
  answer.output = io::make_npy(inputs.q.array.type, std::move(output_shape));
  if (options.kind == "linear") {
    attend_linear(options, inputs, terms, positions, answer);
  } else {
    attend_softmax(options, inputs, terms, positions, answer);
  }
  if (answer.probabilities) write_array(options.probabilities, *answer.probabilities);
  if (answer.log_sum_exp) write_array(options.log_sum_exp, *answer.log_sum_exp);
  write_array(options.output, answer.output);
  if (options.json) print_json(options, loaded, answer);
  return exit_code::done;
}

}  // namespace

void add_attend(CommandLine& line) {
  auto options = std::make_shared<AttendOptions>();
  Verb& verb = line.verb("attend", "attention with any encoding, softmax or linear");
  verb.flag(
          "--encoding", &options->encoding,
          "an encoding as JSON, a file or '{...}' itself, or a config as for --config of the other "
          "verbs (rope)")
      .value("ENCODING")
      .read_by(config_path);
  verb.flag("-q,--query", &options->q, "queries").required();
  verb.flag("-k,--key", &options->k, "keys; the number of heads divides that of the queries")
      .required();
  verb.flag("-v,--value", &options->v, "values; any head_dim").required();
  verb.flag("-o,--output", &options->output, "write the result here").required();
  verb.flag("--kind", &options->kind, "softmax (default) or linear (rope or none)")
      .one_of({"softmax", "linear"});
  verb.flag("--causal", &options->causal,
            "causal mask, aligned bottom-right: the last query sees all keys");
  verb.flag("--window", &options->window, "only keys at a distance less than W").at_least(1);
  verb.flag("--scale", &options->scale,
            "multiply the scores by this (default: the encoding's own)");
  verb.flag("--soft-cap", &options->soft_cap, "replace each score s by C tanh(s / C)");
  verb.flag("--mask", &options->mask,
            "bool or uint8 (0 hides) or floats (added): [queries, keys], [heads, ...] or "
            "[batch, heads, ...]");
  verb.flag("--key-padding", &options->key_padding, "[batch, keys]: 0 hides a key");
  verb.flag("--key-lengths", &options->key_lengths,
            "[batch]: keys at or after the length are padding");
  verb.flag("--segments", &options->segments,
            "[batch, keys] integers, for XLNet; the queries are the last tokens");
  verb.flag("--positions", &options->positions,
            "positions of the keys: a .npy file or A:B (default 0:keys); the queries are the last "
            "tokens. Rotations and distances read them, masks count tokens");
  verb.flag("--query-positions", &options->query_positions,
            "positions of the queries, if they are not the last keys");
  verb.flag("--offset", &options->offset, "key j is at position N + j").excludes("--positions");
  verb.flag("--context", &options->context,
            "context length, for scalings that depend on it (dynamic, longrope, xPos)")
      .at_least(1);
  verb.flag("--layer", &options->layer, "layer index or layer type, if layers differ").free_text();
  add_rope_flags(verb, options->rope);
  add_angles_option(verb, options->angles);
  add_linear_flags(verb, options->linear);
  verb.flag("--probabilities", &options->probabilities,
            "also write [batch, heads, queries, keys] float32");
  verb.flag("--log-sum-exp", &options->log_sum_exp,
            "also write [batch, heads, queries]: float32, or float64 if -q is");
  verb.flag("--threads", &options->threads, "use at most N threads; 0: choose automatically")
      .at_least(0);
  verb.flag("--json", &options->json, "print a summary as one JSON object");
  verb.footer = R"(Shapes   Q [batch, queries, heads, dim], K [batch, keys, key_heads, dim],
         V [batch, keys, key_heads, value_dim], all with batch or all without;
         float32, float16 or bfloat16, or all float64 (computed in float64, slower);
         O [batch, queries, heads, value_dim] as Q

Encoding {"encoding": NAME, ...}, NAME one of none, rope, xpos, alibi, kerple, t5,
         shaw, bert_relative, transformer_xl, conformer_relative, xlnet, deberta_v1,
         deberta_v2, tupe; or {"encoding": [{...}, {...}]} for several at once; or a
         config.json or plain spec, which is a rope. Tables are lists of numbers or
         .npy files in the JSON's folder. examples/encodings/ has one of each.

O is replaced only after success. A query that sees no key gets zeros; NaN propagates.

)" + std::string(kArrayFiles) +
                R"(

Example  phasor attend --encoding alibi.json -q Q.npy -k K.npy -v V.npy -o O.npy --causal
         phasor attend --base 500000 --layout half -q Q.npy -k K.npy -v V.npy -o O.npy)";
  verb.action = [options] { return run_attend(*options); };
}

}  // namespace phasor::tools
