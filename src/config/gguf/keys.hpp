// Reads the GGUF metadata of one architecture by name and type; every key that was read counts as
// known.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/core/error.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::config {

// Longer contexts than this are refused: sums of lengths stay far from overflow.
inline constexpr std::int64_t kMaxLength = std::int64_t{1} << 40;

// Names leave the architecture out: "rope.freq_base" is {arch}.rope.freq_base. Absent keys read as
// nullopt; errors are thrown as Error(invalid_argument).
class GgufKeys {
 public:
  // `file` must outlive the keys.
  GgufKeys(const io::GgufFile& file, std::string_view architecture);

  [[nodiscard]] const io::GgufFile& file() const noexcept { return file_; }
  [[nodiscard]] std::string path_of(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view name, const std::string& what) const;
  [[noreturn]] void refuse_missing(std::string_view name, const std::string& what) const;
  // `; did you mean "llama.rope.freq_base"?`, of the keys that were read, or "".
  [[nodiscard]] std::string suggest(std::string_view path) const;

  [[nodiscard]] bool has(std::string_view name) const;
  void mark_understood(std::string_view name);

  [[nodiscard]] std::optional<double> number(std::string_view name);
  [[nodiscard]] std::optional<bool> flag(std::string_view name);
  [[nodiscard]] std::optional<std::string> text(std::string_view name);
  // From 1 to `most`.
  [[nodiscard]] std::optional<std::int64_t> count(std::string_view name, std::int64_t most);
  // An array of integers or bools (true is 1), or a single one as an array of itself.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(std::string_view name);

  // Keys of this architecture that were not read, by their full names.
  [[nodiscard]] std::vector<std::string> not_understood() const;

 private:
  const io::GgufFile& file_;
  std::string prefix_;
  std::set<std::string, std::less<>> understood_;
};

}  // namespace phasor::config
