// phasor conform on the kinds of attention: damage fails, and what a case leaves open is left open.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "phasor/io/internal/json.hpp"
#include "tools/golden_copies.hpp"

namespace phasor::tools::testing {
namespace {

namespace fs = std::filesystem;
using json = io::Json;

// One case at a time.
class ConformAttention : public Conform {
 protected:
  void borrow_alone(const std::string& group, const std::string& name) {
    fs::remove_all(at("cases"));
    borrow(group, name);
  }
  void expect_pass() const {
    const Outcome outcome = conform();
    EXPECT_EQ(outcome.exit, 0) << outcome.out << outcome.err;
  }
};

void nudge(io::NpyArray& array) { array.as<float>()[array.size() - 1] += 1e-3F; }

TEST_F(ConformAttention, every_expected_array_is_compared) {
  struct Damage {
    std::string group, name, file;
  };
  for (const Damage& damage :
       std::vector<Damage>{{"encodings", "alibi_causal_attention_h6", "probs"},
                           {"encodings", "bert_relative_key_query", "context"},
                           {"encodings", "conformer_relative", "probs"},
                           {"encodings", "shaw_relative_kv", "output"},
                           {"encodings", "t5_attention_encoder", "position_bias"},
                           {"encodings", "transformer_xl_mems", "pos_emb"},
                           {"encodings", "transformer_xl_mems", "attn_vec"},
                           {"encodings", "xlnet_bidirectional", "attn_prob"},
                           {"encodings", "xlnet_mems_masked", "pos_emb"},
                           {"encodings", "sinusoidal_shift_matrix", "shift_concat"},
                           {"encodings", "hierarchical_absolute_n12", "extended"},
                           {"gradients", "grad_tupe_cls", "d_theta2"},
                           {"gradients", "grad_tupe_cls", "d_bias_table"},
                           {"gradients", "grad_transformer_xl_mems", "d_r_head"},
                           {"gradients", "grad_shaw_kv", "d_rel_v"},
                           {"gradients", "linear_attention_backward", "d_k"},
                           {"linear_attention", "linear_attention_causal", "output"},
                           {"onnx_node", "attn23_past_causal", "present_value"},
                           {"onnx_node", "attn23_qk_output_softmax", "qk_matmul_output"},
                           {"onnx_node", "attn24_nonpad_mask", "Y"}}) {
    borrow_alone(damage.group, damage.name);
    expect_pass();
    edit(damage.file + ".npy", nudge);
    expect_failure(damage.file + "[");
  }
}

TEST_F(ConformAttention, truth_of_scores_is_compared) {
  borrow_alone("encodings", "deberta_v2_share_key");
  edit("scores_f64.npy", [](io::NpyArray& array) { array.as<double>()[7] += 1e-3; });
  expect_failure("scores_f64[");
  borrow_alone("encodings", "tupe_a_untied");
  edit("position_scores_f64.npy", [](io::NpyArray& array) { array.as<double>()[7] += 1e-3; });
  expect_failure("position_scores_f64[");
}

// Batch row 1 of this case has padding: its last queries see no key and are left out; the others
// not.
TEST_F(ConformAttention, only_queries_without_keys_are_left_out) {
  const auto nudge_query = [](io::NpyArray& array, std::int64_t batch, std::int64_t query) {
    const std::int64_t queries = array.shape[1], width = array.shape[2];
    array.as<float>()[(batch * queries + query) * width] += 1.0F;
  };
  borrow_alone("encodings", "deberta_v1_c2p_p2c");
  const io::NpyArray mask = io::read_npy(case_ / "mask.npy").value_or_throw();
  const std::int64_t queries = mask.shape[2], keys = mask.shape[3];
  std::size_t without = 0;
  for (std::int64_t row = 0; row < mask.shape[0] * queries; ++row) {
    bool sees = false;
    for (std::int64_t key = 0; key < keys; ++key)
      sees = sees || mask.as<std::uint8_t>()[row * keys + key] != 0;
    borrow_alone("encodings", "deberta_v1_c2p_p2c");
    io::NpyArray context = io::read_npy(case_ / "context.npy").value_or_throw();
    nudge_query(context, row / queries, row % queries);
    ASSERT_TRUE(io::write_npy(case_ / "context.npy", context).ok());
    if (sees) {
      expect_failure("context[");
    } else {
      ++without;
      expect_pass();
    }
  }
  EXPECT_EQ(without, 3u);
}

TEST_F(ConformAttention, positions_that_must_be_refused_are_tried) {
  for (const char* name : {"learned_absolute_plain", "hierarchical_absolute_n12"}) {
    borrow_alone("encodings", name);
    edit_description([](json& description) { description["error_positions"].push_back(3); });
    expect_failure("position 3 ");
  }
}

// Only the elements that a case lists, where its source rounds a logarithm to a neighbouring bucket,
// are left out.
TEST_F(ConformAttention, buckets_may_differ_by_one_where_the_case_says_so) {
  const auto change = [](io::NpyArray& array) { array.as<std::int64_t>()[600] += 1; };
  borrow_alone("encodings", "t5_bucket_32_128");
  const io::NpyArray positions = io::read_npy(case_ / "relative_position.npy").value_or_throw();
  ASSERT_EQ(positions.as<std::int64_t>()[600], 200);
  edit("bucket_bidirectional.npy", change);
  expect_failure("bucket_bidirectional[600]");
  edit_description([](json& description) {
    description["float32_disagrees_with_exact_at"]["bucket_bidirectional"].push_back(200);
  });
  expect_pass();
  edit("bucket_bidirectional.npy", change);
  expect_failure("bucket_bidirectional[600]");
}

TEST_F(ConformAttention, parameters_of_the_case_are_read) {
  const auto expect_damage = [&](const char* group, const char* name, void (*change)(json&)) {
    borrow_alone(group, name);
    edit_description(change);
    const Outcome outcome = conform();
    EXPECT_EQ(outcome.exit, 1) << name << "\n" << outcome.out;
    EXPECT_NE(outcome.out.find("0 passed, 1 failed, 0 unsupported\n"), std::string::npos)
        << outcome.out;
  };
  expect_damage("encodings", "shaw_relative_kv", [](json& c) { c["clip"] = 3; });
  expect_damage("encodings", "shaw_key_wav2vec2_bert", [](json& c) { c["left"] = 5; });
  expect_damage("encodings", "t5_attention_encoder", [](json& c) { c["max_distance"] = 40; });
  expect_damage("encodings", "t5_attention_encoder", [](json& c) { c["num_buckets"] = 16; });
  expect_damage("encodings", "t5_attention_decoder_past", [](json& c) { c["past"] = 8; });
  expect_damage("encodings", "deberta_v2_buckets",
                [](json& c) { c["pos_att_type"] = json::array({"c2p"}); });
  expect_damage("encodings", "deberta_v2_buckets", [](json& c) {
    c["pos_att_type"] = json::array({"c2p", "p2p"});
  });
  expect_damage("encodings", "tupe_a_untied", [](json& c) { c["reset_cls"] = false; });
  expect_damage("encodings", "bert_relative_key_query",
                [](json& c) { c["position_embedding_type"] = "relative_key"; });
  expect_damage("encodings", "alibi_mpt_h12", [](json& c) { c["alibi_bias_max"] = 4; });
  expect_damage("encodings", "conformer_relative", [](json& c) { c["scale"] = 0.5; });
  expect_damage("gradients", "grad_rope_half_window", [](json& c) { c["window"] = 8; });
  expect_damage("gradients", "grad_none_causal", [](json& c) { c["causal"] = false; });
  expect_damage("gradients", "grad_none", [](json& c) { c["encoding"] = "weave"; });
  expect_damage("linear_attention", "linear_attention_noncausal",
                [](json& c) { c["feature_map"] = "softmax_exp"; });
  expect_damage("linear_attention", "linear_attention_noncausal",
                [](json& c) { c["feature_map"] = "relu"; });
  expect_damage("onnx_node", "attn23_gqa_softcap_scale",
                [](json& c) { c["attributes"]["softcap"] = 0.0; });
  expect_damage("onnx_node", "attn23_causal", [](json& c) { c["attributes"]["is_causal"] = 0; });
  expect_damage("onnx_node", "attn23_qk_output_softmax",
                [](json& c) { c["attributes"]["qk_matmul_output_mode"] = 0; });
  expect_damage("onnx_node", "attn23_qk_output_softmax",
                [](json& c) { c["attributes"]["qk_matmul_output_mode"] = 4; });
  expect_damage("onnx_node", "attn23_plain",
                [](json& c) { c["attributes"]["sliding_window"] = 2; });
  expect_damage("onnx_node", "attn23_3d_gqa",
                [](json& c) { c["attributes"].erase("q_num_heads"); });
}

}  // namespace
}  // namespace phasor::tools::testing
