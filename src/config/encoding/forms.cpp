// The encodings that a file can name, in words.
#include <array>

#include "phasor/config/encoding.hpp"

namespace phasor::config {

std::span<const EncodingForm> encoding_forms() {
  static constexpr std::array kForms = {
      EncodingForm{"none", ""},
      EncodingForm{"rope",
                   "head_dim and the other members of a RopeSpec; or config and layer; layout"},
      EncodingForm{"xpos",
                   "head_dim, rotary_dim, base (10000), layout, scale_base (512), gamma (0.4), "
                   "centre (0; or middle_floor, middle_ceil)"},
      EncodingForm{"alibi", "max_bias (8), order (bloom; or mpt), or slopes [head]"},
      EncodingForm{"kerple", "r1, r2 [head]"},
      EncodingForm{
          "t5",
          "relative_attention_bias [bucket, head], num_buckets, max_distance (128), bidirectional "
          "(true)"},
      EncodingForm{
          "shaw",
          "clip, or left and right; rel_k, rel_v [relative, dim] or [head, relative, dim], or "
          "sinusoidal"},
      EncodingForm{
          "bert_relative",
          "distance_embedding [relative, dim] or [head, relative, dim], "
          "max_position_embeddings, position_embedding_type (relative_key; or relative_key_query)"},
      EncodingForm{"transformer_xl",
                   "u_bias, v_bias [head, dim]; r_head [relative, head, dim] or [relative, "
                   "dim], or sinusoidal; first_distance (rows - 1)"},
      EncodingForm{"conformer_relative",
                   "pos_bias_u, pos_bias_v [head, dim]; pos_proj [relative, head, dim] or "
                   "[relative, dim], or sinusoidal; first_distance ((rows - 1) / 2)"},
      EncodingForm{
          "xlnet",
          "r_w_bias, r_r_bias [head, dim]; k_head_r [relative, head, dim] or [relative, dim], "
          "or sinusoidal; r_s_bias [head, dim], seg_embed [2, head, dim]; first_distance (the "
          "number of keys)"},
      EncodingForm{"deberta_v1",
                   "pos_k, pos_q [head, relative, dim] or [relative, dim], pos_att_type, "
                   "max_relative_positions"},
      EncodingForm{"deberta_v2",
                   "pos_k, pos_q [head, relative, dim] or [relative, dim], pos_att_type, "
                   "max_relative_positions, position_buckets (0)"},
      EncodingForm{
          "tupe",
          "pos_q, pos_k [head, seq, dim]; bias_table [bucket, head], num_buckets, max_distance "
          "(128), bidirectional (true), relative_bias; theta1, theta2 [head], reset_cls"},
  };
  return kForms;
}

}  // namespace phasor::config
