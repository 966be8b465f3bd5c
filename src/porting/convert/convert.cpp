#include "phasor/porting/convert.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <span>
#include <system_error>
#include <vector>

#include "phasor/config/config.hpp"
#include "phasor/config/internal/layout_sidecar.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/tensors.hpp"
#include "porting/convert/checkpoint_names.hpp"
#include "porting/convert/copy.hpp"
#include "porting/convert/folder.hpp"
#include "porting/convert/permute.hpp"
#include "porting/convert/proof.hpp"

namespace phasor::porting {
namespace {

namespace fs = std::filesystem;
using core::PairLayout;

constexpr std::string_view kConfig = "config.json";

[[nodiscard]] AttentionTensors attention_of(const config::ModelConfig& config,
                                            const io::SafetensorsCheckpoint& checkpoint,
                                            const fs::path& folder) {
  Result<AttentionTensors> found =
      find_attention(config, tensors_of(checkpoint), UnknownModel::refuse);
  if (!found) {
    refuse(found.error().code(), message(io::shown(folder), ": ", found.error().what()));
  }
  return std::move(found).value();
}

void or_throw(const Result<Done>& result) {
  if (!result) throw Error(result.error());
}

[[nodiscard]] std::string_view layout_text(const std::optional<PairLayout>& layout) {
  return layout ? core::name_of(*layout) : "unknown";
}

// The common layout of the layers that rotate; none when the config does not determine it.
[[nodiscard]] std::optional<PairLayout> layout_of(const config::ModelConfig& config,
                                                  const fs::path& folder) {
  std::optional<PairLayout> layout;
  for (const config::LayerGroup& group : config.groups) {
    if (!group.rope) continue;
    if (layout && layout != group.rope->layout) {
      refuse(ErrorCode::unsupported,
             message(io::shown(folder), ": all layers must have the same layout, got ",
                     layout_text(layout), " and ", layout_text(group.rope->layout)));
    }
    layout = group.rope->layout;
  }
  return layout;
}

struct Layouts {
  std::optional<PairLayout> own;  // of the family
  PairLayout current = PairLayout::half;
};

[[nodiscard]] Layouts read_layouts(const ConvertOptions& options, const config::ModelConfig& plain,
                                   const AttentionTensors& tensors) {
  const std::string where = io::shown(options.source);
  Layouts layouts;
  layouts.own = tensors.layout_of_names ? tensors.layout_of_names : layout_of(plain, where);
  const std::optional<config::LayoutSidecar> sidecar =
      config::read_layout_sidecar(options.source).value_or_throw();
  const std::optional<PairLayout> known = sidecar ? sidecar->layout : layouts.own;
  if (known && options.from && *known != *options.from) {
    refuse(ErrorCode::invalid_argument, message(where, ": the weights are ", core::name_of(*known),
                                                ", got --from ", core::name_of(*options.from)));
  }
  const std::optional<PairLayout> current = known ? known : options.from;
  if (!current) {
    refuse(ErrorCode::invalid_argument,
           message(where, ": the config does not determine the layout; set --from"));
  }
  if (*current == PairLayout::interleaved_to_half ||
      options.to == PairLayout::interleaved_to_half) {
    refuse(ErrorCode::unsupported,
           message(where, ": the layouts must be half and interleaved, got interleaved_to_half"));
  }
  if (*current == options.to) {
    refuse(ErrorCode::invalid_argument,
           message(where, ": the weights are already ", core::name_of(options.to)));
  }
  layouts.current = *current;
  return layouts;
}

[[nodiscard]] config::ModelConfig plain_config(const fs::path& folder) {
  const fs::path file = folder / kConfig;
  const std::string text = io::read_text(file).value_or_throw();
  return config::parse_config(text, io::shown(file)).value_or_throw();
}

// The tensors to permute, by the file that holds them.
[[nodiscard]] std::map<std::string, std::vector<PlacedTensor>> place_moves(
    const io::SafetensorsCheckpoint& checkpoint, const AttentionTensors& tensors, PairLayout from,
    PairLayout to) {
  std::map<std::string, std::vector<PlacedTensor>> placed;
  for (const AttentionLayer& layer : tensors.layers) {
    for (TensorMove& move : moves_of(layer, from, to)) {
      for (const auto& shard : checkpoint.shards()) {
        if (shard.file.find(move.tensor->name) != move.tensor) continue;
        placed[shard.name].push_back(
            {move.tensor->offset, move.tensor->byte_size(), std::move(move.permuted)});
        break;
      }
    }
  }
  for (auto& [name, moved] : placed) {
    std::sort(moved.begin(), moved.end(),
              [](const PlacedTensor& a, const PlacedTensor& b) { return a.offset < b.offset; });
  }
  return placed;
}

// Each safetensors file must be one that the checkpoint has opened, and still the same.
void check_shards(const io::SafetensorsCheckpoint& checkpoint, const std::vector<SourceFile>& files,
                  const fs::path& folder) {
  for (const SourceFile& file : files) {
    if (!file.name.ends_with(".safetensors")) continue;
    const auto& shards = checkpoint.shards();
    const auto shard = std::find_if(shards.begin(), shards.end(), [&](const auto& candidate) {
      return candidate.name == file.name;
    });
    if (shard == shards.end()) {
      refuse(ErrorCode::unsupported,
             message(io::shown(folder / file.name),
                     ": this safetensors file is not part of the checkpoint and would not be "
                     "converted; move it to another folder"));
    }
    const std::vector<io::Tensor>& tensors = shard->file.tensors();
    if (!tensors.empty() && tensors.front().file->state != file.state) {
      refuse(ErrorCode::io,
             message(io::shown(folder / file.name), ": the file changed while it was read"));
    }
  }
}

// A file with its final name was completed by an earlier run.
[[nodiscard]] bool is_finished(const CopyJob& job) {
  std::error_code missing;
  return fs::file_size(job.destination, missing) == job.state.size && !missing;
}

void check_disk_space(const fs::path& folder, std::uint64_t needed) {
  struct statvfs room {};
  if (::statvfs(folder.c_str(), &room) != 0) return;
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (free < needed) {
    refuse(ErrorCode::io, message(io::shown(folder), ": not enough disk space: ", needed,
                                  " bytes are required, ", free, " are free"));
  }
}

[[nodiscard]] io::Json proof_json(const ScoreProof& proof) {
  return {{"layers", proof.layers},
          {"scores", proof.scores},
          {"largest_score", proof.largest_score},
          {"largest_difference", proof.largest_difference}};
}

void write_sidecar(const fs::path& path, const ConvertResult& result,
                   ConvertOptions::Finish finish) {
  io::Json text;
  text["format"] = 1;
  text["layout"] = core::name_of(result.to);
  text["converted_from"] = core::name_of(result.from);
  text["model_type"] = result.model_type;
  text["tensors"] = result.tensors;
  text["proof"] = proof_json(result.proof);
  const std::string bytes = text.dump(2) + "\n";
  if (finish == ConvertOptions::Finish::written) {
    or_throw(put_text(path, bytes));
    return;
  }
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(bytes))};
  or_throw(io::replace_file(path, pieces));
}

class Conversion {
 public:
  explicit Conversion(const ConvertOptions& options)
      : options_(options),
        // Also fails for a source that is an unfinished conversion.
        config_(config::read_config(options.source).value_or_throw()),
        checkpoint_(io::SafetensorsCheckpoint::open(options.source).value_or_throw()),
        tensors_(attention_of(config_, checkpoint_, options.source)),
        layouts_(read_layouts(options, plain_config(options.source), tensors_)),
        files_(list_source(options.source).value_or_throw()) {
    check_shards(checkpoint_, files_, options.source);
  }

  [[nodiscard]] ConvertResult run() {
    const Destination destination =
        open_destination(options_.destination,
                         make_journal(options_.source, layouts_.current, options_.to, files_))
            .value_or_throw();
    ConvertResult result;
    result.model_type = config_.model_type;
    result.from = layouts_.current;
    result.to = options_.to;
    result.layers = static_cast<std::int64_t>(tensors_.layers.size());
    try {
      copy_all(result);
      prove(result);
    } catch (const Error&) {
      refuse_changed_source();
      throw;
    }
    refuse_changed_source();
    if (layouts_.own != options_.to) {
      result.sidecar = destination.folder / config::kLayoutSidecar;
      write_sidecar(*result.sidecar, result, options_.finish);
    }
    const fs::path journal = destination.folder / config::kConvertJournal;
    if (options_.before_finish) options_.before_finish(result);
    ::unlink(journal.c_str());  // nothing from here on needs memory
    return result;
  }

 private:
  [[nodiscard]] std::vector<CopyJob> jobs() const {
    std::map<std::string, std::vector<PlacedTensor>> placed =
        place_moves(checkpoint_, tensors_, layouts_.current, options_.to);
    std::vector<CopyJob> jobs;
    for (const SourceFile& file : files_) {
      jobs.push_back({options_.source / file.name, options_.destination / file.name,
                      partial_of(options_.destination, file.name), file.state,
                      std::move(placed[file.name]), options_.finish});
    }
    return jobs;
  }

  void copy_all(ConvertResult& result) const {
    const std::vector<CopyJob> jobs = this->jobs();
    ConvertProgress progress;
    for (const CopyJob& job : jobs) {
      result.tensors += static_cast<std::int64_t>(job.moved.size());
      progress.all += job.state.size;
      progress.resumed += is_finished(job) ? job.state.size : resume_point(job);
    }
    check_disk_space(options_.destination, progress.all - progress.resumed);
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      progress.file = files_[i].name;
      const auto report = [&](std::uint64_t bytes) {
        progress.bytes = before + bytes;
        if (options_.progress) options_.progress(progress);
      };
      if (!is_finished(jobs[i])) or_throw(copy_permuted(jobs[i], report));
      before += jobs[i].state.size;
    }
    result.files = static_cast<std::int64_t>(jobs.size());
    result.bytes = progress.all;
    result.resumed = progress.resumed;
  }

  void prove(ConvertResult& result) const {
    const io::SafetensorsCheckpoint converted =
        io::SafetensorsCheckpoint::open(options_.destination).value_or_throw();
    const AttentionTensors tensors = attention_of(config_, converted, options_.destination);
    result.proof =
        prove_scores({tensors_, layouts_.current}, {tensors, options_.to}, options_.seed);
    if (!(result.proof.largest_difference <= kConvertScoreTolerance)) {
      refuse(ErrorCode::internal,
             message(io::shown(options_.destination), ": attention scores must agree within ",
                     kConvertScoreTolerance, " of the largest, got a difference of ",
                     result.proof.largest_difference, "; do not use this folder"));
    }
  }

  // A copy of files from before and after a change is of no use, and cannot be resumed.
  void refuse_changed_source() const {
    const Result<std::vector<SourceFile>> now = list_source(options_.source);
    if (now && *now == files_) return;
    remove_results(options_.destination, files_);
    std::string what = now ? "files were added or removed" : now.error().what();
    for (std::size_t i = 0; now && i < std::min(now->size(), files_.size()); ++i) {
      if ((*now)[i].name != files_[i].name) break;
      if ((*now)[i] == files_[i]) continue;
      what = message((*now)[i].name, " was written to or replaced");
      break;
    }
    refuse(ErrorCode::io,
           message(io::shown(options_.source), ": the source changed during the conversion (", what,
                   "); the destination was removed, convert again"));
  }

  const ConvertOptions& options_;
  config::ModelConfig config_;
  io::SafetensorsCheckpoint checkpoint_;
  AttentionTensors tensors_;
  Layouts layouts_;
  std::vector<SourceFile> files_;
};

}  // namespace

Result<ConvertResult> convert_checkpoint(const ConvertOptions& given) {
  ConvertOptions options = given;
  options.source = io::as_folder(given.source);
  options.destination = io::as_folder(given.destination);
  std::error_code error;
  if (!fs::is_directory(options.source, error)) {
    return Error(
        ErrorCode::io,
        message(
            io::shown(options.source),
            ": not a folder; the source must be a folder with config.json and safetensors files"));
  }
  try {
    return Conversion(options).run();
  } catch (const Error& refusal) {
    return refusal;
  } catch (const fs::filesystem_error& problem) {
    return io::system_error(io::shown(problem.path1()), "follow", problem.code().value());
  }
}

std::string convert_json(const ConvertResult& result) {
  io::Json text;
  text["model_type"] = result.model_type;
  text["from"] = core::name_of(result.from);
  text["to"] = core::name_of(result.to);
  text["layers"] = result.layers;
  text["tensors"] = result.tensors;
  text["files"] = result.files;
  text["bytes"] = result.bytes;
  text["resumed_bytes"] = result.resumed;
  text["sidecar"] = result.sidecar ? io::Json(result.sidecar->string()) : io::Json(nullptr);
  text["proof"] = proof_json(result.proof);
  return text.dump({.bad_utf8 = io::JsonStyle::BadUtf8::replace});
}

}  // namespace phasor::porting
