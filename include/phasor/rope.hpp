// Rotary position embedding: specs, frequencies, tables, rotation, and the configs that describe them.
// #include <phasor/rope.hpp> is enough to rotate queries and keys.
#pragma once

#include "phasor/config/config.hpp"
#include "phasor/core/cancellation.hpp"
#include "phasor/core/cpu.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/rotate.hpp"
#include "phasor/core/view.hpp"
#include "phasor/encodings/rope.hpp"

namespace phasor {

// Specs.
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
using encodings::query_scales;
using encodings::QueryScale;
using encodings::resolve;
using encodings::RopeScaling;
using encodings::RopeSpec;
using encodings::Telechat3YarnScaling;
using encodings::Xpos;
using encodings::YarnScaling;

// Specs from a model's config.json or GGUF file.
using config::LayerGroup;
using config::ModelConfig;
using config::parse_config;
using config::read_config;
using config::select_layer;

// Frequencies, angles and tables.
using core::AngleMode;
using core::cos_sin;
using core::CosSinTable;
using core::Frequencies;
using core::PairLayout;
using core::PositionRange;
using core::Rotary;

// Rotation.
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
using core::positions_counted;
using core::positions_from;
using core::positions_of_shape;
using core::positions_packed;
using core::positions_per_row;
using core::positions_per_token;
using core::Role;
using core::rotate;
using core::rotate_qk;
using core::RotateOptions;
using core::Rotation;

// Stopping a long call.
using core::Cancellation;
using core::CancellationPoll;
using core::CancellationScope;

}  // namespace phasor
