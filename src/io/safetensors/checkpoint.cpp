#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "io/safetensors/header.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/io/tensors.hpp"

namespace phasor::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
// Four times the largest known index, of about 90 000 tensors.
constexpr std::size_t kMaxIndex = std::size_t{32} << 20;

// Tensor to shard, both as the index spells them.
using WeightMap = std::map<std::string, std::string>;
using Shards = std::vector<SafetensorsCheckpoint::Shard>;

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\") == std::string::npos && name.find('\0') == std::string::npos;
}

Result<WeightMap> read_index(const fs::path& path) {
  const std::string where = shown(path);
  const Result<std::string> text = read_text(path, kMaxIndex);
  if (!text) return text.error();
  Json index;
  try {
    index = parse_object(*text);
  } catch (const Error& error) {
    return file_error(where, error.what());
  }
  for (const JsonMember* const entry : index.sorted_items()) {
    if (entry->key != "weight_map" && entry->key != "metadata") {
      return file_error(where, message("unknown key ", in_quotes(entry->key),
                                       "; the keys are weight_map and metadata"));
    }
  }
  if (const auto metadata = index.find("metadata"); metadata != index.end()) {
    if (!metadata->is_object() && !metadata->is_null())
      return file_error(where, message("metadata must be an object, got ", shown(*metadata)));
  }
  const auto found = index.find("weight_map");
  if (found == index.end()) return file_error(where, "missing key 'weight_map'");
  if (!found->is_object())
    return file_error(where,
                      message("weight_map must be an object of file names, got ", shown(*found)));
  WeightMap shards;
  for (const JsonMember* const entry : found->sorted_items()) {
    const auto& [tensor, shard] = *entry;
    if (!shard.is_string() || !is_plain_file_name(shard.text())) {
      return file_error(where, message("weight_map: tensor ", quoted_name(tensor),
                                       " must name a file in the same folder, got ", shown(shard)));
    }
    shards.emplace(tensor, shard.text());
  }
  if (shards.empty()) return file_error(where, "weight_map is empty");
  return shards;
}

// The only .safetensors file of a folder that has none of the usual names.
Result<fs::path> only_file(const fs::path& folder) {
  Result<std::vector<std::string>> listed = names_in(folder);
  if (!listed) return listed.error();
  std::vector<std::string> names = std::move(listed).value();
  std::erase_if(
      names, [](const std::string& name) { return fs::path(name).extension() != ".safetensors"; });
  if (names.size() == 1) return folder / names.front();
  if (names.empty())
    return file_error(shown(folder), message("no ", kSingleName, " and no ", kIndexName));
  return file_error(
      shown(folder),
      message(names.size(), " .safetensors files (", in_quotes(names[0]), ", ", in_quotes(names[1]),
              names.size() > 2 ? ", ..." : "", "), but no ", kIndexName, " that names them"));
}

// Checks that every tensor is in the shard that the index names, and in no other.
std::optional<Error> disagreement(const WeightMap& index, const Shards& shards,
                                  const std::string& where) {
  for (const SafetensorsCheckpoint::Shard& shard : shards) {
    for (const Tensor& tensor : shard.file.tensors()) {
      const auto placed = index.find(tensor.name);
      const std::string_view expected =
          placed == index.end() ? "" : std::string_view(placed->second);
      if (expected == shard.name) continue;
      return file_error(where,
                        message("tensor ", quoted_name(tensor.name), " of ", in_quotes(shard.name),
                                expected.empty() ? std::string(" is missing from the index")
                                                 : " must be in " + in_quotes(expected)));
    }
  }
  for (const auto& [tensor, name] : index) {
    const auto shard = std::lower_bound(
        shards.begin(), shards.end(), name,
        [](const SafetensorsCheckpoint::Shard& s, const std::string& n) { return s.name < n; });
    if (shard->file.find(tensor) == nullptr) {
      return file_error(
          where, message("tensor ", quoted_name(tensor), " is missing from ", in_quotes(name)));
    }
  }
  return std::nullopt;
}

// In the order of their names.
Result<Shards> open_indexed(const fs::path& folder) {
  const Result<WeightMap> index = read_index(folder / kIndexName);
  if (!index) return index.error();
  std::set<std::string> names;
  for (const auto& [tensor, shard] : *index) names.insert(shard);
  Shards shards;
  for (const std::string& name : names) {
    Result<SafetensorsFile> file = SafetensorsFile::open(folder / name);
    if (!file) return file.error();
    shards.push_back({name, std::move(file).value()});
  }
  if (auto error = disagreement(*index, shards, shown(folder / kIndexName))) return *error;
  return shards;
}

Result<Shards> open_single(const fs::path& path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.error();
  Shards shards;
  shards.push_back({path.filename().string(), std::move(file).value()});
  return shards;
}

// True for a broken link too, so that opening it reports the error.
bool exists_or_links(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

Result<Shards> open_folder(const fs::path& folder) {
  if (exists_or_links(folder / kIndexName)) return open_indexed(folder);
  if (exists_or_links(folder / kSingleName)) return open_single(folder / kSingleName);
  const Result<fs::path> only = only_file(folder);
  if (!only) return only.error();
  return open_single(*only);
}

}  // namespace

Result<SafetensorsCheckpoint> SafetensorsCheckpoint::open(const fs::path& given) {
  const fs::path path = as_folder(given);
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  Result<Shards> shards = is_folder ? open_folder(path) : open_single(path);
  if (!shards) return shards.error();
  SafetensorsCheckpoint checkpoint;
  checkpoint.folder_ = is_folder                ? path
                       : path.has_parent_path() ? path.parent_path()
                                                : fs::path(".");
  checkpoint.shards_ = std::move(shards).value();
  return checkpoint;
}

Result<SafetensorsCheckpoint> SafetensorsCheckpoint::parse(std::span<const std::byte> bytes,
                                                           std::string_view name) {
  Result<SafetensorsFile> file = SafetensorsFile::parse(bytes, name);
  if (!file) return file.error();
  SafetensorsCheckpoint checkpoint;
  checkpoint.shards_.push_back({std::string(name), std::move(file).value()});
  return checkpoint;
}

const Tensor* SafetensorsCheckpoint::find(std::string_view name) const noexcept {
  for (const Shard& shard : shards_) {
    if (const Tensor* const tensor = shard.file.find(name)) return tensor;
  }
  return nullptr;
}

}  // namespace phasor::io
