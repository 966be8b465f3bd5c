// Everyday names. `#include "phasor/phasor.hpp"` gives what most programs need, in namespace
// phasor; each room's own header has the rest.
#pragma once

#include "phasor/attention/decay.hpp"
#include "phasor/attention/kv_cache.hpp"
#include "phasor/attention/linear.hpp"
#include "phasor/attention/position_ids.hpp"
#include "phasor/attention/rerotate.hpp"
#include "phasor/attention/softmax.hpp"
#include "phasor/config/config.hpp"
#include "phasor/config/encoding.hpp"
#include "phasor/core/angles.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/frequencies.hpp"
#include "phasor/core/instruction_set.hpp"
#include "phasor/core/rotary.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/table.hpp"
#include "phasor/core/threads.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/absolute.hpp"
#include "phasor/encodings/encoding.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/encodings/rope_scaling.hpp"
#include "phasor/io/gguf.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/io/safetensors.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/generate.hpp"
#include "phasor/models/roformer.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor {

// What a model asks for.
using encodings::AxialAxes;
using encodings::DefaultScaling;
using encodings::DynamicScaling;
using encodings::LinearScaling;
using encodings::Llama3Scaling;
using encodings::LongRopeScaling;
using encodings::MropeAxes;
using encodings::NtkByPartsScaling;
using encodings::NtkScaling;
using encodings::ProportionalScaling;
using encodings::resolve;
using encodings::RopeScaling;
using encodings::RopeSpec;
using encodings::Xpos;
using encodings::YarnScaling;

// Where it is written down.
using config::LayerGroup;
using config::ModelConfig;
using config::parse_config;
using config::read_config;
using config::select_layer;

// What it comes down to.
using core::AngleMode;
using core::cos_sin;
using core::CosSinTable;
using core::Frequencies;
using core::PairLayout;
using core::PositionRange;
using core::Rotary;

// Turning.
using attention::rerotate;
using attention::RotaryAt;
using core::BFloat16;
using core::ConstHeadsView;
using core::Direction;
using core::DType;
using core::Half;
using core::heads_first_view;
using core::heads_view;
using core::HeadsView;
using core::InstructionSet;
using core::Positions;
using core::positions_from;
using core::positions_packed;
using core::positions_per_row;
using core::positions_per_token;
using core::Role;
using core::rotate;
using core::rotate_qk;
using core::RotateOptions;
using core::Rotation;

// Other encodings, and what they add to attention.
using encodings::Alibi;
using encodings::AttentionShape;
using encodings::BertRelative;
using encodings::Deberta;
using encodings::Encoding;
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
// Where they are written down.
using config::LoadedEncoding;
using config::parse_encoding;
using config::read_encoding;

// Attending.
using attention::additive_mask;
using attention::attend;
using attention::attend_backward;
using attention::AttentionExtras;
using attention::AttentionForward;
using attention::AttentionGradients;
using attention::AttentionOptions;
using attention::boolean_mask;
using attention::CacheMode;
using attention::CacheSpec;
using attention::Causality;
using attention::FeatureMap;
using attention::KeyState;
using attention::KVCache;
using attention::linear_attend;
using attention::linear_attend_backward;
using attention::LinearOptions;
using attention::LinearState;
using attention::Mask;

// How scores fall with distance.
using attention::abel_bounds;
using attention::mean_partial_sums;
using attention::mean_rotated_scores;
using attention::rotated_scores;

// Arrays in files.
using io::NpyArray;
using io::NpyType;
using io::read_npy;
using io::write_npy;

// Checkpoints.
using io::GgufFile;
using io::SafetensorsCheckpoint;
using io::SafetensorsFile;
using io::Tensor;
using io::TensorType;
using io::to_floats;
using io::write_safetensors;

// Models that use it.
using models::Decoder;
using models::GenerateOptions;
using models::Generation;
using models::Generator;
using models::RoFormer;
using models::SamplerOptions;
using text::read_tokenizer;
using text::Tokenizer;

}  // namespace phasor
