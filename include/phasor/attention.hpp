// Softmax and linear attention with every encoding, the KV cache, and rope.hpp.
#pragma once

#include "phasor/attention/decay.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/position_ids.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/rope.hpp"

namespace phasor {

// Encodings other than RoPE, and the terms they add to attention.
using encodings::Alibi;
using encodings::attention_shape;
using encodings::AttentionShape;
using encodings::BertRelative;
using encodings::Deberta;
using encodings::Encoding;
using encodings::Kerple;
using encodings::kerple_backward;
using encodings::NoEncoding;
using encodings::ScoreTermGradients;
using encodings::ScoreTerms;
using encodings::Shaw;
using encodings::T5;
using encodings::Table;
using encodings::TableGradient;
using encodings::TransformerXl;
using encodings::Tupe;
using encodings::Xlnet;

// Encodings from JSON.
using config::LoadedEncoding;
using config::parse_encoding;
using config::read_encoding;

// Attention, forward and backward.
using attention::additive_mask;
using attention::attend;
using attention::attend_backward;
using attention::attention_shape;
using attention::AttentionExtras;
using attention::AttentionForward;
using attention::AttentionGradients;
using attention::AttentionOptions;
using attention::AttentionPasses;
using attention::AttentionPlan;
using attention::AttentionSizes;
using attention::boolean_mask;
using attention::Causality;
using attention::favor_weights;
using attention::FeatureMap;
using attention::KeyState;
using attention::linear_attend;
using attention::linear_attend_backward;
using attention::LinearOptions;
using attention::LinearState;
using attention::Mask;
using attention::Rotates;

// Keys and values of earlier tokens.
using attention::CacheMode;
using attention::CacheSpec;
using attention::KVCache;
using attention::rerotate;
using attention::RotaryAt;

// How scores decay with distance.
using attention::abel_bounds;
using attention::mean_partial_sums;
using attention::mean_rotated_scores;
using attention::rotated_scores;

}  // namespace phasor
