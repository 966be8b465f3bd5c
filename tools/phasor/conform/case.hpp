// A golden case: its description, its arrays, and the comparison with what was expected. The format
// is that of golden/README.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/core/view.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/npy.hpp"

namespace phasor::tools {

// The description of a case, in its folder.
inline constexpr std::string_view kCaseFile = "case.json";

struct CaseArray {
  io::NpyArray data;              // bf16 if the case stores its bits as uint16
  std::vector<std::string> dims;  // the name of each axis; empty if the case does not name them
  std::string of;                 // truth: the output it is the exact value of
  double atol = 0.0, rtol = 0.0;
};

struct CaseScalar {
  double value = 0.0, rtol = 0.0;
};

struct Case {
  std::filesystem::path directory;
  std::string name, group, kind;
  io::Json json;
  std::map<std::string, CaseArray> inputs, outputs, truth;
  std::map<std::string, CaseScalar> scalars;

  // throws   Error when the case has no such input
  [[nodiscard]] const CaseArray& input(const std::string& name) const;
};

// The description alone. `name` and `group` come from the folders when case.json cannot be read.
[[nodiscard]] Case name_case(const std::filesystem::path& directory);
// Reads case.json into a case that name_case made.
//
// throws   Error: missing, not JSON, not format 1, no kind
void read_description(Case& golden);
// Reads every array the description lists.
//
// throws   Error naming the file: missing, damaged, or not of the dtype and shape in case.json
void read_arrays(Case& golden);

// A member of a JSON object.
//
// throws   Error naming the member when it is missing or of the wrong type
template <class T>
[[nodiscard]] T member(const io::Json& object, const char* key, std::string_view where) {
  const auto found = object.find(key);
  if (found == object.end()) {
    refuse(message(where, ": missing key \"", key, "\""));
  }
  try {
    return found->get<T>();
  } catch (const Error&) {
    refuse(message(where, ": '", key, "' has the wrong type, got ",
                   found->dump({.keys = io::JsonStyle::Keys::sorted}).substr(0, 80)));
  }
}
// None when the member is missing or null.
template <class T>
[[nodiscard]] std::optional<T> optional_member(const io::Json& object, const char* key,
                                               std::string_view where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return member<T>(object, key, where);
}

// The same for a member of case.json.
template <class T>
[[nodiscard]] T member(const Case& golden, const char* key) {
  return member<T>(golden.json, key, kCaseFile);
}
template <class T>
[[nodiscard]] std::optional<T> optional_member(const Case& golden, const char* key) {
  return optional_member<T>(golden.json, key, kCaseFile);
}

// The case needs something that this machine does not have: neither a failure nor a pass.
class CaseUnsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What was computed, with the name of each axis where it is known.
struct Computed {
  std::vector<double> values;
  std::vector<std::int64_t> shape;
  std::vector<std::string> dims;
  // Empty, or not 0 for values that a case says to leave out of the comparison, such as the rows of
  // a query that sees no key, which are undefined in the reference.
  std::vector<std::uint8_t> left_out = {};
};
[[nodiscard]] Computed computed_from(const CaseArray& array);

// The axes of a tensor of heads, found by their names: batch, seq or patch, head, dim. Missing axes
// have length 1; dim must be the last.
//
// throws   Error(unsupported) naming the unknown axis
[[nodiscard]] core::HeadsView heads_of(CaseArray& array, std::string_view name);
[[nodiscard]] bool is_token_axis(std::string_view dim) noexcept;

// Collects the comparisons of one case: |got - expected| <= atol + rtol |expected|, element by
// element.
class Comparison {
 public:
  explicit Comparison(const Case& golden) : golden_(golden) {}

  // Compares with outputs[name] and with every truth that is `of` it or called name_f64; the case must have
  // one of them.
  void result(const std::string& name, const Computed& got);
  // Compares with the output or truth of that name.
  void entry(const std::string& name, const Computed& got);
  void scalar(const std::string& name, double got);
  // Compares with a number that the caller read from the case.
  void number(const std::string& name, double got, double expected, double rtol);
  // An output, truth or scalar that was never compared is a failure.
  void finish();

  [[nodiscard]] bool failed() const noexcept { return !failure_.empty(); }
  // What differed first and worst, one line.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  [[nodiscard]] double max_error() const noexcept { return max_error_; }
  // The bound at the element whose error is the largest part of its bound.
  [[nodiscard]] double tolerance() const noexcept { return tolerance_; }

 private:
  void compare(const std::string& name, const CaseArray& expected, const Computed& got);
  // Whether the element is within its bound.
  bool see(double got, double expected, double bound);
  void fail(std::string text);

  const Case& golden_;
  std::set<std::string> compared_;
  std::string failure_;
  double max_error_ = 0.0, tolerance_ = 0.0, worst_ratio_ = -1.0;
};

}  // namespace phasor::tools
