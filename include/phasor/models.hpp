// Models, tokenizers and the files they are stored in, and attention.hpp.
#pragma once

#include "phasor/attention.hpp"
#include "phasor/io/npy.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/models/decoder.hpp"
#include "phasor/models/generate.hpp"
#include "phasor/models/roformer.hpp"
#include "phasor/models/t5.hpp"
#include "phasor/text/tokenizer.hpp"

namespace phasor {

// Arrays.
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

// Models and text generation.
using models::Decoder;
using models::GenerateOptions;
using models::Generation;
using models::Generator;
using models::RoFormer;
using models::SamplerOptions;
using models::T5Model;
using text::read_tokenizer;
using text::Tokenizer;

}  // namespace phasor
