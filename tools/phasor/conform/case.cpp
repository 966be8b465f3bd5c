#include "conform/case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "phasor/core/internal/message_text.hpp"
#include "phasor/io/internal/file.hpp"

namespace phasor::tools {
namespace {

using json = io::Json;

double tolerance_member(const json& entry, const char* key, const std::string& where) {
  const double value = member<double>(entry, key, where);
  if (!std::isfinite(value) || value < 0.0) {
    refuse(message(where, ": '", key, "' must be finite and not negative, got ", value));
  }
  return value;
}

CaseArray read_array(const std::filesystem::path& directory, const json& entry,
                     const std::string& where) {
  const auto file = member<std::string>(entry, "file", where);
  const auto dtype = member<std::string>(entry, "dtype", where);
  const auto shape = member<std::vector<std::int64_t>>(entry, "shape", where);
  CaseArray array;
  array.data = io::read_npy(directory / file).value_or_throw();
  if (io::name_of(array.data.type) != dtype) {
    refuse(message(where, ": ", file, " must be ", dtype, ", got ", io::name_of(array.data.type)));
  }
  if (array.data.shape != shape) {
    refuse(ErrorCode::shape_mismatch,
           message(where, ": ", file, " must have the shape ", core::shape_text(shape), ", got ",
                   core::shape_text(array.data.shape)));
  }
  if (const auto logical = optional_member<std::string>(entry, "logical_dtype", where)) {
    if (*logical == "bfloat16" && array.data.type == io::NpyType::u16) {
      array.data.type = io::NpyType::bf16;
    } else if (!(*logical == "bool" && array.data.type == io::NpyType::u8)) {
      refuse(ErrorCode::unsupported,
             message(where, ": logical_dtype must be bfloat16 in uint16 or bool in uint8, got ",
                     *logical, " in ", dtype));
    }
  }
  if (const auto dims = optional_member<std::vector<std::string>>(entry, "dims", where)) {
    if (dims->size() != shape.size()) {
      refuse(ErrorCode::shape_mismatch,
             message(where, ": 'dims' must name ", shape.size(), " axes, got ", dims->size()));
    }
    array.dims = *dims;
  }
  array.of = optional_member<std::string>(entry, "of", where).value_or("");
  return array;
}

enum class Section : std::uint8_t { inputs, expected };

std::map<std::string, CaseArray> read_section(const Case& golden, const char* section,
                                              Section kind) {
  std::map<std::string, CaseArray> arrays;
  const auto entries = golden.json.find(section);
  if (entries == golden.json.end() || entries->is_null()) return arrays;
  for (const io::JsonMember* const named : entries->sorted_items()) {
    const auto& [name, entry] = *named;
    const std::string where = std::string(section) + "." + name;
    CaseArray array = read_array(golden.directory, entry, where);
    const bool exact = io::is_integer(array.data.type);
    if (kind == Section::expected && !(exact && !entry.contains("atol"))) {
      array.atol = tolerance_member(entry, "atol", where);
      array.rtol = tolerance_member(entry, "rtol", where);
    }
    arrays.emplace(name, std::move(array));
  }
  return arrays;
}

struct Order {
  std::vector<std::int64_t> shape, strides;
};

// How to read `got` in the order of the expected axes, if both sides name them.
Order order_as(const Computed& got, const std::vector<std::string>& dims) {
  Order plain{got.shape, std::vector<std::int64_t>(got.shape.size(), 1)};
  for (std::size_t axis = got.shape.size(); axis-- > 1;) {
    plain.strides[axis - 1] = plain.strides[axis] * got.shape[axis];
  }
  if (got.dims == dims || got.dims.size() != dims.size()) return plain;
  Order order;
  for (const std::string& dim : dims) {
    const auto found = std::find(got.dims.begin(), got.dims.end(), dim);
    if (found == got.dims.end() || std::count(dims.begin(), dims.end(), dim) != 1) return plain;
    const auto axis = static_cast<std::size_t>(found - got.dims.begin());
    order.shape.push_back(plain.shape[axis]);
    order.strides.push_back(plain.strides[axis]);
  }
  return order;
}

// Steps an index through `shape`, last axis fastest.
void advance(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& shape) {
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (++index[axis] < shape[axis]) return;
    index[axis] = 0;
  }
}

}  // namespace

const CaseArray& Case::input(const std::string& wanted) const {
  const auto found = inputs.find(wanted);
  if (found == inputs.end()) {
    refuse(message("inputs: missing key \"", wanted, "\""));
  }
  return found->second;
}

Case name_case(const std::filesystem::path& directory) {
  Case golden;
  golden.directory = directory;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(directory);
  golden.name = whole.filename().string();
  golden.group = whole.parent_path().filename().string();
  return golden;
}

void read_description(Case& golden) {
  const std::string text = io::read_text(golden.directory / "case.json").value_or_throw();
  try {
    golden.json = io::parse_object(text);
  } catch (const Error& error) {
    throw Error(error.code(), message("case.json is not a JSON object: ", error.what()));
  }
  const auto format = member<std::int64_t>(golden, "format");
  if (format != 1) {
    refuse(ErrorCode::unsupported, message("case.json: 'format' must be 1, got ", format));
  }
  golden.kind = member<std::string>(golden, "kind");
  golden.group = optional_member<std::string>(golden, "group").value_or(golden.group);
}

void read_arrays(Case& golden) {
  golden.inputs = read_section(golden, "inputs", Section::inputs);
  golden.outputs = read_section(golden, "outputs", Section::expected);
  golden.truth = read_section(golden, "truth", Section::expected);
  const auto scalars = golden.json.find("scalars");
  if (scalars != golden.json.end() && !scalars->is_null()) {
    for (const io::JsonMember* const named : scalars->sorted_items()) {
      const auto& [name, entry] = *named;
      const std::string where = "scalars." + name;
      golden.scalars[name] = {member<double>(entry, "value", where),
                              tolerance_member(entry, "rtol", where)};
    }
  }
  if (golden.outputs.empty() && golden.truth.empty() && !golden.json.contains("checked") &&
      !golden.json.contains("cases")) {
    refuse("case.json: no expected values in 'outputs', 'truth', 'checked' or 'cases'");
  }
}

Computed computed_from(const CaseArray& array) {
  return {io::to_doubles(array.data).value_or_throw(), array.data.shape, array.dims, {}};
}

bool is_token_axis(std::string_view dim) noexcept {
  return dim == "seq" || dim == "patch" || dim == "token" || dim == "tokens";
}

core::HeadsView heads_of(CaseArray& array, std::string_view name) {
  if (array.dims.empty() || array.dims.back() != "dim") {
    refuse(ErrorCode::unsupported, fmt::format("{}: 'dims' must end with dim, got [{}]", name,
                                               fmt::join(array.dims, ", ")));
  }
  const std::vector<std::int64_t>& shape = array.data.shape;
  core::HeadsView view;
  view.data = array.data.bytes.data();
  view.dtype = io::dtype_of(array.data, name).value_or_throw();
  view.batch = view.tokens = view.heads = 1;
  view.head_dim = shape.back();
  view.batch_stride = view.token_stride = view.head_stride = array.data.size();
  std::int64_t stride = view.head_dim;
  for (std::size_t axis = shape.size() - 1; axis-- > 0;) {
    const std::string& dim = array.dims[axis];
    const bool repeated = std::count(array.dims.begin(), array.dims.end(), dim) != 1;
    if (dim == "batch" && !repeated) {
      view.batch = shape[axis];
      view.batch_stride = stride;
    } else if (is_token_axis(dim) && !repeated) {
      view.tokens = shape[axis];
      view.token_stride = stride;
    } else if (dim == "head" && !repeated) {
      view.heads = shape[axis];
      view.head_stride = stride;
    } else {
      refuse(ErrorCode::unsupported,
             fmt::format("{}: 'dims' must be of batch, seq or patch, head and dim, got [{}]", name,
                         fmt::join(array.dims, ", ")));
    }
    stride *= shape[axis];
  }
  return view;
}

void Comparison::result(const std::string& name, const Computed& got) {
  bool known = false;
  if (const auto output = golden_.outputs.find(name); output != golden_.outputs.end()) {
    compare(name, output->second, got);
    known = true;
  }
  for (const auto& [truth_name, truth] : golden_.truth) {
    if (truth.of == name || truth_name == name + "_f64") {
      compare(truth_name, truth, got);
      known = true;
    }
  }
  if (!known) {
    refuse(ErrorCode::internal, message("case.json: no output and no truth for '", name, "'"));
  }
}

void Comparison::entry(const std::string& name, const Computed& got) {
  const auto output = golden_.outputs.find(name);
  const auto truth = golden_.truth.find(name);
  if (output != golden_.outputs.end()) compare(name, output->second, got);
  if (truth != golden_.truth.end()) compare(name, truth->second, got);
}

void Comparison::scalar(const std::string& name, double got) {
  const auto found = golden_.scalars.find(name);
  if (found == golden_.scalars.end()) return;
  compared_.insert(name);
  number(name, got, found->second.value, found->second.rtol);
}

void Comparison::number(const std::string& name, double got, double expected, double rtol) {
  const double bound = rtol * std::abs(expected);
  if (!see(got, expected, bound)) {
    fail(fmt::format("{}: got {}, expected {} within {:.3g}", name, got, expected, bound));
  }
}

void Comparison::compare(const std::string& name, const CaseArray& expected, const Computed& got) {
  compared_.insert(name);
  const std::vector<std::int64_t>& shape = expected.data.shape;
  const Order order = order_as(got, expected.dims);
  if (order.shape != shape) {
    fail(fmt::format("{}: computed the shape {}, expected {}", name, core::shape_text(got.shape),
                     core::shape_text(shape)));
    return;
  }
  const std::vector<double> values = io::to_doubles(expected.data).value_or_throw();
  std::vector<std::int64_t> index(shape.size(), 0), worst_index;
  double worst_excess = -1.0, worst_got = 0.0, worst_expected = 0.0, worst_bound = 0.0;
  std::size_t outside = 0;
  for (const double value : values) {
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * order.strides[axis];
    const double computed = got.values[static_cast<std::size_t>(at)];
    const double bound = expected.atol + expected.rtol * std::abs(value);
    const bool left_out = !got.left_out.empty() && got.left_out[static_cast<std::size_t>(at)] != 0;
    if (!left_out && !see(computed, value, bound)) {
      ++outside;
      const double error = std::abs(computed - value);
      const double excess = std::isnan(error) ? HUGE_VAL : error / bound;
      if (worst_index.empty() || excess > worst_excess) {
        worst_excess = excess;
        worst_index = index;
        worst_got = computed;
        worst_expected = value;
        worst_bound = bound;
      }
    }
    advance(index, shape);
  }
  if (outside > 0) {
    fail(fmt::format("{}[{}]: got {:.9g}, expected {:.9g} within {:.3g}; {} of {} values differ",
                     name, fmt::join(worst_index, ", "), worst_got, worst_expected, worst_bound,
                     outside, values.size()));
  }
}

bool Comparison::see(double got, double expected, double bound) {
  if (std::isinf(expected) && got == expected) return true;
  const double error = std::abs(got - expected);
  // A golden value is never NaN, so one on either side is damage; written to be false for NaN.
  const bool within = error <= bound;
  const double seen = std::isnan(error) ? HUGE_VAL : error;
  const double ratio = seen == 0.0 ? 0.0 : bound > 0.0 ? seen / bound : HUGE_VAL;
  if (ratio > worst_ratio_) {
    worst_ratio_ = ratio;
    max_error_ = seen;
    tolerance_ = std::isfinite(bound) ? bound : 0.0;
  }
  return within;
}

void Comparison::finish() {
  const auto demand = [&](const auto& entries, const char* section) {
    for (const auto& [name, entry] : entries) {
      if (!compared_.contains(name)) {
        fail(message(section, ".", name, ": kind ", golden_.kind, " does not compute it"));
      }
    }
  };
  demand(golden_.outputs, "outputs");
  demand(golden_.truth, "truth");
  demand(golden_.scalars, "scalars");
}

void Comparison::fail(std::string text) {
  if (failure_.empty()) failure_ = std::move(text);
}

}  // namespace phasor::tools
