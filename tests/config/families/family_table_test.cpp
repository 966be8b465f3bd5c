// The table of families is consistent, and docs/models.md matches it.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "phasor/config/internal/families.hpp"
#include "phasor/core/error.hpp"
#include "support/documents.hpp"

namespace phasor::config {
namespace {

TEST(FamilyTable, NamesAreUnique) {
  std::set<std::string_view> model_types, architectures;
  for (const Family& family : families()) {
    if (!family.model_type.empty()) {
      EXPECT_TRUE(model_types.insert(family.model_type).second) << family.model_type;
      EXPECT_EQ(find_family(family.model_type), &family);
    }
    if (family.gguf) {
      EXPECT_TRUE(architectures.insert(family.gguf->name).second) << family.gguf->name;
      EXPECT_EQ(find_architecture(family.gguf->name), &family);
    }
  }
  EXPECT_EQ(find_family(""), nullptr) << "rows without a model_type are not found by an empty one";
}

TEST(FamilyTable, ARowHasThePartsThatItsOtherPartsNeed) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.model_type.empty() ? family.architecture() : family.model_type);
    EXPECT_FALSE(family.model_type.empty() && !family.gguf) << "the row has no name";
    EXPECT_FALSE(family.gguf && !family.gguf_as.empty()) << "two architectures";
    if (!family.gguf_as.empty()) {
      EXPECT_NE(find_architecture(family.gguf_as), nullptr);
    }
    if (family.model_type.empty()) {
      EXPECT_FALSE(family.rotary || family.decoder || family.attention != nullptr);
    }
    if (family.published_attention != nullptr) {
      EXPECT_NE(family.attention, nullptr);
    }
    if (family.attention != nullptr) {
      EXPECT_TRUE(family.rotary.has_value());
    }
    if (family.latent_attention) {
      EXPECT_EQ(family.attention, nullptr);
    }
    if (family.rotary) {
      EXPECT_EQ(family.rotary->softmax == SoftmaxRule::latent, family.latent_attention);
      if (family.rotary->layers == LayerRule::all_alike) {
        EXPECT_EQ(family.rotary->layer_interval, 0);
      }
      EXPECT_TRUE(family.other_positions.empty());
      EXPECT_EQ(family.rotary->layout.has_value(), family.unsupported.empty());
    }
    if (family.decoder) {
      const bool rotates = family.decoder->positions == Positions::rotary;
      EXPECT_EQ(rotates, family.rotary.has_value());
      EXPECT_EQ(rotates, family.attention != nullptr);
      EXPECT_EQ(rotates, family.other_positions.empty());
      ASSERT_NE(family.decoder->names, nullptr);
      if (family.decoder->gguf_names != nullptr) {
        EXPECT_TRUE(family.gguf.has_value());
      }
    }
  }
}

// The decoder and `phasor convert` have names for the same tensors.
TEST(FamilyTable, DecodersAndConvertFindTheSameProjections) {
  for (const Family& family : families()) {
    if (!family.decoder || family.attention == nullptr) continue;
    const AttentionNames& convert = *family.attention;
    const bool separate = convert.order == HeadOrder::separate;
    const std::string_view query =
        separate ? family.decoder->names->query : family.decoder->names->fused;
    const std::string ending =
        message(convert.before, "{}", convert.after, separate ? "q_proj" : convert.queries);
    EXPECT_TRUE(query.ends_with(ending)) << family.model_type << ": " << query << ", " << ending;
  }
}

// ---- docs/models.md ----

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string activation_text(Activation activation) {
  static const std::map<Activation, std::string> kNames = {{Activation::silu, "SiLU"},
                                                           {Activation::gelu, "GELU"},
                                                           {Activation::gelu_tanh, "tanh GELU"},
                                                           {Activation::relu, "ReLU"}};
  return kNames.at(activation);
}

std::string layers_text(const Family& family) {
  const DecoderPart& part = *family.decoder;
  static const std::map<NormKind, std::string> kNorms = {
      {NormKind::rms, "RMS norm"},
      {NormKind::rms_from_one, "RMS norm with 1 + weight"},
      {NormKind::layer, "LayerNorm"},
      {NormKind::layer_without_bias, "LayerNorm without bias"}};
  static const std::map<Block, std::string> kBlocks = {
      {Block::parallel, "parallel block"},
      {Block::parallel_two, "parallel block with two norms"},
      {Block::sandwich, "norms before and after each part"},
      {Block::after, "norms after each part"}};
  static const std::map<FeedForward, std::string> kFeedForwards = {
      {FeedForward::gated, "gated "},
      {FeedForward::gated_fused, "gate and up fused, gated "},
      {FeedForward::plain, "plain "},
      {FeedForward::experts, "top experts of a router, gated "}};
  std::vector<std::string> parts = {kNorms.at(part.norm)};
  if (part.positions == Positions::learned) parts.push_back("learned positions");
  if (part.positions == Positions::alibi) parts.push_back("ALiBi");
  if (part.block != Block::sequential) parts.push_back(kBlocks.at(part.block));
  if (part.block == Block::sequential && part.parallel_block)
    parts.push_back("optional parallel block");
  if (part.query_key_norm == QueryKeyNorm::each_head)
    parts.push_back("q and k normalised per head");
  if (part.query_key_norm == QueryKeyNorm::layer_if_present ||
      part.query_key_norm == QueryKeyNorm::each_head_if_present)
    parts.push_back("optional LayerNorm of q and k");
  if (part.query_key_norm == QueryKeyNorm::whole) parts.push_back("q and k normalised");
  if (family.head_order() == HeadOrder::sections) parts.push_back("q, k, v fused");
  if (family.head_order() == HeadOrder::per_head) parts.push_back("q, k, v fused by head");
  if (part.attention_bias == BiasRule::always) parts.push_back("bias on q, k, v");
  parts.push_back(kFeedForwards.at(part.feed_forward) + activation_text(part.activation));
  if (part.scales_embeddings) parts.push_back("embeddings times sqrt(hidden)");
  if (part.head_bias == BiasRule::always) parts.push_back("bias on the head");
  if (part.logit_scale) parts.push_back("logit scale");
  if (part.final_soft_cap > 0.0) parts.push_back("soft caps");
  if (part.multipliers) parts.push_back("multipliers of embedding, branches and logits");
  return joined(parts);
}

std::string layout_text(const RotaryFacts& facts) {
  return facts.layout ? std::string(name_of(*facts.layout)) : "none";
}

std::string rotated_text(const RotaryFacts& facts) {
  if (facts.rotary_dim > 0) return message(facts.rotary_dim, " features");
  if (facts.softmax == SoftmaxRule::latent) return "qk_rope_head_dim";
  return facts.partial == 1.0 ? "all" : message(100.0 * facts.partial, " %");
}

std::string layer_rules_text(const RotaryFacts& facts) {
  const std::string nth = facts.layer_interval == 0
                              ? std::string("the layers that layer_types names")
                              : message("every ", facts.layer_interval,
                                        facts.layer_interval == 3 ? "rd layer" : "th layer");
  std::vector<std::string> parts;
  if (facts.layers == LayerRule::windows) parts.push_back("sliding windows except in " + nth);
  if (facts.layers == LayerRule::local_base)
    parts.push_back("sliding windows, with their own base, except in " + nth);
  if (facts.layers == LayerRule::full_unrotated)
    parts.push_back("sliding windows except in " + nth + "; no rotation there");
  if (facts.layers == LayerRule::skip_interval) parts.push_back(nth + " does not rotate");
  if (facts.window == WindowRule::every_layer) parts.push_back("sliding window");
  if (facts.window == WindowRule::above_layer)
    parts.push_back("sliding window with use_sliding_window");
  if (facts.window == WindowRule::alternating)
    parts.push_back("sliding window in every other layer");
  if (facts.mrope) parts.push_back("M-RoPE");
  if (facts.axial) parts.push_back("two axes");
  return joined(parts);
}

std::string base_text(const RotaryFacts& facts) {
  return facts.base ? message(*facts.base) : std::string();
}

// The architecture that the decoder runs from GGUF files.
std::string running_architecture(const Family& family) {
  const Family* row = find_architecture(family.architecture());
  const bool runs = row != nullptr && row->decoder && row->decoder->gguf_names != nullptr;
  return runs ? std::string(family.architecture()) : std::string();
}

std::string decoder_table() {
  std::string table =
      "| `model_type` | layers | rotated | windows | GGUF architecture |\n|---|---|---|---|---|\n";
  for (const Family& family : families()) {
    if (!family.decoder) continue;
    const std::string rotated =
        family.rotary ? message(layout_text(*family.rotary), ", ", rotated_text(*family.rotary))
                      : std::string("nothing");
    table += message("| ", family.model_type, " | ", layers_text(family), " | ", rotated, " | ",
                     family.rotary ? layer_rules_text(*family.rotary) : "", " | ",
                     running_architecture(family), " |\n");
  }
  return table;
}

std::string family_table() {
  std::string table =
      "| `model_type` | layout | default base | rotated | layers | GGUF architecture | convert | "
      "run "
      "|\n|---|---|---:|---|---|---|---|---|\n";
  std::vector<std::string> others;
  std::map<std::string, std::vector<std::string>> unrotated;
  std::string refused;
  for (const Family& family : families()) {
    if (!family.rotary) {
      if (family.model_type.empty()) others.emplace_back(family.gguf->name);
      if (!family.other_positions.empty())
        unrotated[std::string(family.other_positions)].emplace_back(family.model_type);
      if (!family.unsupported.empty())
        refused += message("| ", family.model_type, " | ", family.unsupported, " |\n");
      continue;
    }
    const std::string run = family.decoder ? "decoder" : family.encoder ? "encoder" : "";
    table += message("| ", family.model_type, " | ", layout_text(*family.rotary), " | ",
                     base_text(*family.rotary), " | ", rotated_text(*family.rotary), " | ",
                     layer_rules_text(*family.rotary), " | ", family.architecture(), " | ",
                     family.attention != nullptr ? "yes" : "", " | ", run, " |\n");
  }
  table += "\nGGUF architectures without a `model_type` above: " + joined(others) + ".\n";
  table +=
      "\nThese rotate in a way that no RoPE spec describes; they are refused by name:\n\n"
      "| `model_type` | what it does |\n|---|---|\n" +
      refused;
  table += "\nThese rotate nothing; `explain` says what they have instead:\n\n";
  for (const auto& [positions, names] : unrotated)
    table += message("- ", positions, ": ", joined(names), ".\n");
  return table;
}

TEST(FamilyTable, TheDocumentShowsIt) {
  const std::filesystem::path page = PHASOR_DOCS_DIR "/models.md";
  tests::expect_in_document(page, "decoders", decoder_table());
  tests::expect_in_document(page, "families", family_table());
}

}  // namespace
}  // namespace phasor::config
