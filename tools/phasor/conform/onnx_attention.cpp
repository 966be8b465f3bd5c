// Golden kind onnx_Attention: the operator of opsets 23 and 24, with 3-D or 4-D inputs, a past,
// masks, a soft cap and its fourth output.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conform/attend.hpp"
#include "conform/case.hpp"
#include "conform/kinds.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/core/internal/message_text.hpp"

namespace phasor::tools {
namespace {

struct AttentionAttributes {
  std::int64_t is_causal = 0;
  std::int64_t q_num_heads = 0, kv_num_heads = 0;
  std::int64_t qk_matmul_output_mode = 0;
  std::int64_t softmax_precision = 0;  // float32 arithmetic is compared with it
  std::optional<double> scale;
  double softcap = 0.0;
};

AttentionAttributes attention_attributes(const Case& golden) {
  AttentionAttributes attributes;
  const auto given = golden.json.find("attributes");
  if (given == golden.json.end() || given->is_null()) return attributes;
  for (const io::JsonMember* const entry : given->sorted_items()) {
    const std::string& name = entry->key;
    if (name == "scale") {
      attributes.scale = member<double>(*given, "scale", "attributes");
      continue;
    }
    if (name == "softcap") {
      attributes.softcap = member<double>(*given, "softcap", "attributes");
      continue;
    }
    std::int64_t* const member_of = name == "is_causal"      ? &attributes.is_causal
                                    : name == "q_num_heads"  ? &attributes.q_num_heads
                                    : name == "kv_num_heads" ? &attributes.kv_num_heads
                                    : name == "qk_matmul_output_mode"
                                        ? &attributes.qk_matmul_output_mode
                                    : name == "softmax_precision" ? &attributes.softmax_precision
                                                                  : nullptr;
    if (member_of == nullptr) {
      refuse(ErrorCode::unsupported,
             message("attributes: must be is_causal, q_num_heads, kv_num_heads, "
                     "qk_matmul_output_mode, scale, softcap or softmax_precision, got ",
                     name));
    }
    *member_of = member<std::int64_t>(*given, name.c_str(), "attributes");
  }
  return attributes;
}

// [batch, heads, seq, dim], or [batch, seq, heads * dim] with the number of heads.
core::HeadsView view_of(io::NpyArray& array, std::int64_t heads, const std::string& name) {
  const std::vector<std::int64_t>& shape = array.shape;
  core::HeadsView view;
  if (shape.size() == 4) {
    view = core::heads_first_view(array.as<float>(), shape[0], shape[1], shape[2], shape[3]);
  } else if (shape.size() == 3) {
    if (heads < 1 || shape[2] % heads != 0) {
      refuse(ErrorCode::shape_mismatch, message(name, ": the number of heads must divide the ",
                                                shape[2], " features of a 3-D input, got ", heads));
    }
    view = core::heads_view(array.as<float>(), shape[0], shape[1], heads, shape[2] / heads);
  } else {
    refuse(ErrorCode::shape_mismatch,
           message(name, ": must have 3 or 4 axes, got the shape ", core::shape_text(shape)));
  }
  view.data = array.bytes.data();
  view.dtype = io::dtype_of(array, name).value_or_throw();
  return view;
}

// The past followed by the new tokens: [batch, heads, seq, dim] in the dtype of the new ones.
io::NpyArray joined(const Case& golden, const std::string& past_name, const core::HeadsView& fresh,
                    io::NpyType type) {
  io::NpyArray past;
  std::int64_t past_tokens = 0;
  if (golden.inputs.contains(past_name)) {
    past = golden.input(past_name).data;
    const std::vector<std::int64_t>& shape = past.shape;
    if (shape.size() != 4 || shape[0] != fresh.batch || shape[1] != fresh.heads ||
        shape[3] != fresh.head_dim || past.type != type) {
      refuse(ErrorCode::shape_mismatch,
             message(past_name, ": must be ", io::name_of(type), " of the shape [", fresh.batch,
                     ", ", fresh.heads, ", past, ", fresh.head_dim, "], got ",
                     io::name_of(past.type), " ", core::shape_text(shape)));
    }
    past_tokens = shape[2];
  }
  const std::size_t row = static_cast<std::size_t>(fresh.head_dim) * io::size_of(type);
  io::NpyArray whole =
      io::make_npy(type, {fresh.batch, fresh.heads, past_tokens + fresh.tokens, fresh.head_dim});
  std::byte* to = whole.bytes.data();
  const std::byte* from = past.bytes.data();
  const auto* source = static_cast<const std::byte*>(fresh.data);
  for (std::int64_t batch = 0; batch < fresh.batch; ++batch) {
    for (std::int64_t head = 0; head < fresh.heads; ++head) {
      const std::size_t old = row * static_cast<std::size_t>(past_tokens);
      if (old > 0) std::memcpy(to, from, old);
      from += old;
      to += old;
      for (std::int64_t token = 0; token < fresh.tokens; ++token, to += row) {
        const std::int64_t at =
            batch * fresh.batch_stride + token * fresh.token_stride + head * fresh.head_stride;
        std::memcpy(to, source + at * static_cast<std::int64_t>(io::size_of(type)), row);
      }
    }
  }
  return whole;
}

std::vector<float> floats_of(const io::NpyArray& array) {
  const std::vector<double> values = io::to_doubles(array).value_or_throw();
  return {values.begin(), values.end()};
}

// The mask of the case, combined with its causality: query i sees keys up to past + i, even if
// there are fewer keys.
struct NodeMask {
  std::vector<float> floats;
  std::vector<std::uint8_t> booleans;
  attention::Mask mask;
};

void fold_causality(std::int64_t past, const encodings::AttentionShape& shape, std::int64_t batch,
                    NodeMask& node) {
  const attention::Mask given = node.mask;
  std::vector<float> folded;
  for (std::int64_t row = 0; row < batch; ++row) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t query = 0; query < shape.query_tokens; ++query) {
        for (std::int64_t key = 0; key < shape.key_tokens; ++key) {
          const std::int64_t at = row * given.batch_stride + head * given.head_stride +
                                  query * given.query_stride + key * given.key_stride;
          const auto index = static_cast<std::size_t>(at);
          const bool none = given.kind == attention::Mask::Kind::none;
          const bool hidden = key > past + query || (!none && key >= given.keys) ||
                              (!none && !node.booleans.empty() && node.booleans[index] == 0);
          const float added = none || node.floats.empty() || hidden ? 0.0F : node.floats[index];
          folded.push_back(hidden ? -std::numeric_limits<float>::infinity() : added);
        }
      }
    }
  }
  node.floats = std::move(folded);
  const std::vector<std::int64_t> whole = {batch, shape.heads, shape.query_tokens,
                                           shape.key_tokens};
  node.mask = attention::additive_mask(node.floats.data(), whole, batch, shape.heads,
                                       shape.query_tokens, shape.key_tokens);
}

void read_mask(const Case& golden, const encodings::AttentionShape& shape, std::int64_t batch,
               NodeMask& node) {
  const auto found = golden.inputs.find("attn_mask");
  if (found == golden.inputs.end()) return;
  const io::NpyArray& array = found->second.data;
  std::vector<std::int64_t> dims = array.shape;
  // The operator broadcasts to four axes; a lone axis is the keys.
  if (dims.size() == 1) dims.insert(dims.begin(), 1);
  if (array.type == io::NpyType::u8 || array.type == io::NpyType::boolean) {
    for (const double value : io::to_doubles(array).value_or_throw())
      node.booleans.push_back(value != 0.0 ? 1 : 0);
    node.mask = attention::boolean_mask(node.booleans.data(), dims, batch, shape.heads,
                                        shape.query_tokens, shape.key_tokens);
  } else {
    node.floats = floats_of(array);
    node.mask = attention::additive_mask(node.floats.data(), dims, batch, shape.heads,
                                         shape.query_tokens, shape.key_tokens);
  }
}

const std::vector<float>& fourth_output(std::int64_t mode, const Attended& attended) {
  switch (mode) {
    case 0:
      return attended.scores;
    case 1:
      return attended.capped;
    case 2:
      return attended.masked;
    case 3:
      return attended.probabilities;
    default:
      refuse(ErrorCode::unsupported,
             message("attributes: qk_matmul_output_mode must be 0 to 3, got ", mode));
  }
}

// Y has the axes of Q: [batch, seq, heads * dim] or [batch, heads, seq, dim].
Computed output_of(Attended& attended, std::size_t rank) {
  core::HeadsView view = attended.output_view();
  if (rank == 4) {
    std::swap(view.tokens, view.heads);
    std::swap(view.token_stride, view.head_stride);
    return computed_heads(view, {});
  }
  Computed output = computed_heads(view, {});
  output.shape = {attended.batch, attended.queries, attended.heads * attended.value_dim};
  return output;
}

void attention_node(const Case& golden, Comparison& comparison) {
  const AttentionAttributes attributes = attention_attributes(golden);
  CaseArray q_array = golden.input("Q"), k_array = golden.input("K"), v_array = golden.input("V");
  const core::HeadsView q = view_of(q_array.data, attributes.q_num_heads, "Q");
  const core::HeadsView new_k = view_of(k_array.data, attributes.kv_num_heads, "K");
  const core::HeadsView new_v = view_of(v_array.data, attributes.kv_num_heads, "V");
  io::NpyArray keys = joined(golden, "past_key", new_k, k_array.data.type);
  io::NpyArray values = joined(golden, "past_value", new_v, v_array.data.type);
  const core::HeadsView k = view_of(keys, 0, "present_key");
  const core::HeadsView v = view_of(values, 0, "present_value");

  const encodings::AttentionShape shape = encodings::attention_shape(q, k, v);
  attention::AttentionOptions options;
  options.scale = attributes.scale;
  options.soft_cap = attributes.softcap;
  NodeMask node;
  read_mask(golden, shape, q.batch, node);
  std::vector<std::int64_t> lengths;
  if (golden.inputs.contains("nonpad_kv_seqlen")) {
    lengths = io::to_integers(golden.input("nonpad_kv_seqlen").data).value_or_throw();
  }
  if (attributes.is_causal != 0) {
    // Query i is at position past + i; keys after the last query are not seen by any.
    const std::int64_t past = k.tokens - new_k.tokens;
    if (lengths.empty() && past + q.tokens <= k.tokens)
      lengths.assign(static_cast<std::size_t>(q.batch), past + q.tokens);
    if (lengths.empty()) {
      fold_causality(past, shape, q.batch, node);
    } else {
      options.causality = attention::Causality::bottom_right;
    }
  }
  options.mask = node.mask;
  options.key_lengths = lengths;
  const encodings::ScoreTerms terms = encodings::resolve(encodings::NoEncoding{}, shape);
  Attended attended = attend_heads(terms, q, k, v, options);

  comparison.result("Y", output_of(attended, q_array.data.shape.size()));
  if (expects(golden, "present_key"))
    comparison.result("present_key", {io::to_doubles(keys).value_or_throw(), keys.shape, {}, {}});
  if (expects(golden, "present_value"))
    comparison.result("present_value",
                      {io::to_doubles(values).value_or_throw(), values.shape, {}, {}});
  if (expects(golden, "qk_matmul_output")) {
    const std::int64_t mode = attributes.qk_matmul_output_mode;
    // Modes 0 and 1 return the scores before masking, including padded keys, which attention skips.
    if (mode < 2) {
      attention::AttentionOptions unmasked;
      unmasked.scale = options.scale;
      unmasked.soft_cap = options.soft_cap;
      attended = attend_heads(terms, q, k, v, unmasked);
    }
    compare_square(comparison, "qk_matmul_output", attended, fourth_output(mode, attended));
  }
}

}  // namespace

void add_onnx_attention_kinds(Kinds& kinds) { kinds["onnx_Attention"] = attention_node; }

}  // namespace phasor::tools
