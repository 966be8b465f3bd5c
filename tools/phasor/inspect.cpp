// phasor inspect: metadata and tensors of safetensors and GGUF files, arrays of .npy, .npz and .pt.
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "hub_cache.hpp"
#include "output.hpp"
#include "phasor/core/error.hpp"
#include "phasor/core/internal/message_text.hpp"
#include "phasor/core/internal/visible_text.hpp"
#include "phasor/io/internal/array_file.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/tensors.hpp"
#include "text_lines.hpp"

namespace phasor::tools {
namespace {

// Files may hold any byte; JSON may not.
constexpr io::JsonStyle kStyle{.bad_utf8 = io::JsonStyle::BadUtf8::replace};

struct InspectFlags {
  std::string model, filter;
  bool full = false, json = false;
};

struct Entry {
  std::string name, type, file;  // file: the shard, empty for GGUF
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
};

struct Contents {
  std::string format;  // "gguf 3", "safetensors", "npy", "npz", "torch"
  std::vector<std::pair<std::string, io::Json>> metadata;
  std::vector<Entry> tensors;
  std::vector<Entry> unsupported;  // types that phasor does not read; bytes unknown
};

Contents contents_of_gguf(const io::GgufFile& file) {
  Contents contents;
  contents.format = fmt::format("gguf {}", file.version());
  for (const auto& [key, value] : file.metadata()) {
    contents.metadata.emplace_back(
        key, std::visit([](const auto& held) { return io::Json(held); }, value));
  }
  for (const io::Tensor& tensor : file.tensors()) {
    contents.tensors.push_back(
        {tensor.name, std::string(io::name_of(tensor.type)), "", tensor.shape, tensor.byte_size()});
  }
  for (const io::SkippedTensor& tensor : file.skipped())
    contents.unsupported.push_back({tensor.name, tensor.type, "", tensor.shape, 0});
  return contents;
}

Contents contents_of_safetensors(const io::SafetensorsCheckpoint& checkpoint) {
  Contents contents;
  contents.format = "safetensors";
  for (const io::SafetensorsCheckpoint::Shard& shard : checkpoint.shards()) {
    for (const auto& [key, value] : shard.file.metadata()) {
      const std::pair<std::string, io::Json> entry(key, value);
      // Shards often repeat the same metadata.
      if (std::find(contents.metadata.begin(), contents.metadata.end(), entry) ==
          contents.metadata.end()) {
        contents.metadata.push_back(entry);
      }
    }
    for (const io::Tensor& tensor : shard.file.tensors()) {
      contents.tensors.push_back({tensor.name, std::string(io::name_of(tensor.type)), shard.name,
                                  tensor.shape, tensor.byte_size()});
    }
  }
  return contents;
}

Contents contents_of_arrays(const io::ArrayFile& file) {
  Contents contents;
  contents.format = io::name_of(file.format());
  for (const io::ArrayEntry& entry : file.entries()) {
    std::vector<Entry>& list = entry.problem ? contents.unsupported : contents.tensors;
    list.push_back({entry.name, entry.type, "", entry.shape, entry.bytes});
  }
  return contents;
}

// Keeps the metadata and tensors whose names match.
//
// throws   Error(invalid_argument) when none does, with the closest name
void apply_filter(const std::string& filter, Contents& contents) {
  if (filter.empty()) return;
  std::vector<std::string> names;
  const auto mismatches = [&](const std::string& name) {
    names.push_back(name);
    return ::fnmatch(filter.c_str(), name.c_str(), 0) != 0;
  };
  std::erase_if(contents.metadata, [&](const auto& entry) { return mismatches(entry.first); });
  for (std::vector<Entry>* list : {&contents.tensors, &contents.unsupported})
    std::erase_if(*list, [&](const Entry& entry) { return mismatches(entry.name); });
  if (!contents.metadata.empty() || !contents.tensors.empty() || !contents.unsupported.empty())
    return;
  const std::vector<std::string_view> known(names.begin(), names.end());
  refuse(message("--filter '", filter, "' matches no tensor and no metadata",
                 core::did_you_mean(filter, known)));
}

// Long arrays and texts are cut, unless --full: a vocabulary has 100 000 entries.
enum class LongValues : std::uint8_t { cut, print };
std::string value_text(const io::Json& value, LongValues values) {
  constexpr std::size_t kShown = 4, kWidth = 76;
  if (values == LongValues::print) return value.dump(kStyle);
  std::string text;
  if (value.is_array() && value.size() > kShown) {
    io::Json first = io::Json::array();
    for (std::size_t i = 0; i < kShown; ++i) first.push_back(value[i]);
    text = first.dump(kStyle);
    text.back() = ',';
    text += fmt::format(" ... {} in all]", value.size());
  } else {
    text = value.dump(kStyle);
  }
  if (text.size() <= kWidth) return text;
  std::size_t end = kWidth;
  while ((static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;  // whole characters
  return text.substr(0, end) + "...";
}

std::string shown_name(const Entry& entry) { return entry.name.empty() ? "(no name)" : entry.name; }

void print_entries(const std::vector<Entry>& entries) {
  std::size_t name_width = 0, type_width = 6, shape_width = 0;
  for (const Entry& entry : entries) {
    name_width = std::max(name_width, shown_name(entry).size());
    type_width = std::max(type_width, entry.type.size());
    shape_width = std::max(shape_width, core::shape_text(entry.shape).size());
  }
  for (const Entry& entry : entries) {
    print_out("  {:<{}}  {:<{}}  {:<{}}  {:>11}\n", core::visible_text(shown_name(entry)),
              name_width, entry.type, type_width, core::shape_text(entry.shape), shape_width,
              entry.bytes == 0 ? "" : size_text(static_cast<double>(entry.bytes)));
  }
}

void print_text(const Contents& contents, std::size_t bytes, LongValues values) {
  const std::size_t count = contents.tensors.size() + contents.unsupported.size();
  print_out("{}, {} tensor{}, {}\n", contents.format, count, count == 1 ? "" : "s",
            size_text(static_cast<double>(bytes)));
  if (!contents.metadata.empty()) print_out("\nmetadata\n");
  for (const auto& [key, value] : contents.metadata)
    print_out("  {:<40}  {}\n", core::visible_text(key),
              core::visible_text(value_text(value, values)));
  if (!contents.tensors.empty()) print_out("\ntensors\n");
  print_entries(contents.tensors);
  if (!contents.unsupported.empty()) print_out("\ntensors of types that phasor cannot read\n");
  print_entries(contents.unsupported);
}

io::Json json_of(const std::vector<Entry>& entries) {
  io::Json list = io::Json::array();
  for (const Entry& entry : entries) {
    io::Json row = {{"name", entry.name}, {"type", entry.type}, {"shape", entry.shape}};
    if (entry.bytes != 0) row["bytes"] = entry.bytes;
    if (!entry.file.empty()) row["file"] = entry.file;
    list.push_back(std::move(row));
  }
  return list;
}

// A checkpoint may be a folder; its safetensors files have metadata, which arrays have not.
Contents contents_of(const std::filesystem::path& path) {
  if (io::looks_like_gguf(path)) return contents_of_gguf(io::GgufFile::open(path).value_or_throw());
  std::error_code ignored;
  if (path.extension() != ".safetensors" && std::filesystem::is_regular_file(path, ignored))
    return contents_of_arrays(io::ArrayFile::open(path).value_or_throw());
  return contents_of_safetensors(io::SafetensorsCheckpoint::open(path).value_or_throw());
}

int run_inspect(const InspectFlags& flags) {
  Contents contents = contents_of(flags.model);
  apply_filter(flags.filter, contents);
  std::size_t bytes = 0;
  for (const Entry& entry : contents.tensors) bytes += entry.bytes;
  if (!flags.json) {
    print_text(contents, bytes, flags.full ? LongValues::print : LongValues::cut);
    return exit_code::done;
  }
  io::Json metadata = io::Json::object();
  for (const auto& [key, value] : contents.metadata) metadata[key] = value;
  const io::Json page = {{"format", contents.format},
                         {"bytes", bytes},
                         {"metadata", std::move(metadata)},
                         {"tensors", json_of(contents.tensors)},
                         {"unsupported", json_of(contents.unsupported)}};
  print_out("{}\n", page.dump(kStyle));
  return exit_code::done;
}

}  // namespace

void add_inspect(CommandLine& line) {
  auto flags = std::make_shared<InspectFlags>();
  Verb& verb =
      line.verb("inspect", "list the tensors of GGUF, safetensors, .npy, .npz and .pt files");
  verb.argument("model", &flags->model,
                "a GGUF, .safetensors, .npy, .npz or .pt file, or a folder of safetensors")
      .value("FILE|DIR")
      .read_by(model_path)
      .required();
  verb.flag("--filter", &flags->filter,
            "only tensors and metadata whose names match (* any text, ? one character)")
      .free_text();
  verb.flag("--full", &flags->full, "print metadata in full; long values are cut otherwise");
  verb.flag("--json", &flags->json, "print everything as one JSON object, metadata in full");
  verb.footer =
      R"(Prints the format, all metadata (long values are cut), and name, type, shape and size of
every tensor. Shapes are outermost first, as in NumPy. Reads only the headers; runs no code
of a .pt file.

JSON     {format, bytes, metadata, tensors [{name, type, shape, bytes, file}], unsupported}

Example  phasor inspect model.gguf
         phasor inspect model.gguf --filter 'blk.0.*')";
  verb.action = [flags] { return run_inspect(*flags); };
}

}  // namespace phasor::tools
