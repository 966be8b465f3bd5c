// What each file of the module adds to it.
#pragma once

#include <nanobind/nanobind.h>

namespace phasor::python {

void add_build_info(nanobind::module_& module);  // build_info.cpp
void add_spec(nanobind::module_& module);        // spec.cpp
void add_rotate(nanobind::module_& module);      // rotate.cpp
void add_encoding(nanobind::module_& module);    // encoding.cpp
void add_attention(nanobind::module_& module);   // attention.cpp
void add_linear(nanobind::module_& module);      // linear.cpp
void add_cache(nanobind::module_& module);       // cache.cpp
void add_layout(nanobind::module_& module);      // layout.cpp
void add_porting(nanobind::module_& module);     // porting.cpp
void add_model(nanobind::module_& module);       // model.cpp

}  // namespace phasor::python
