// The kinds of golden cases that can be computed.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "conform/case.hpp"

namespace phasor::tools {

// Computes what a case asks for and compares. An Error thrown is a failure of the case.
using Kind = std::function<void(const Case& golden, Comparison& comparison)>;
using Kinds = std::map<std::string, Kind>;

// One function per file of kinds.
void add_frequency_kinds(Kinds& kinds);
void add_rope_kinds(Kinds& kinds);
void add_onnx_kinds(Kinds& kinds);
void add_attention_kinds(Kinds& kinds);
void add_encoding_kinds(Kinds& kinds);
void add_score_kinds(Kinds& kinds);
void add_backward_kinds(Kinds& kinds);
void add_linear_kinds(Kinds& kinds);
void add_onnx_attention_kinds(Kinds& kinds);
void add_diagnose_kinds(Kinds& kinds);
void add_roformer_kinds(Kinds& kinds);
void add_t5_kinds(Kinds& kinds);
void add_model_kinds(Kinds& kinds);
void add_real_model_kinds(Kinds& kinds);

}  // namespace phasor::tools
