#include "lab/run/run_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <vector>

#include "phasor/config/internal/json_reader.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/folder.hpp"
#include "phasor/io/tensors.hpp"
#include "phasor/lab/internal/checkpoint.hpp"
#include "phasor/lab/internal/run.hpp"

namespace phasor::lab {
namespace {

namespace fs = std::filesystem;
using io::Json;

constexpr std::string_view kCheckpoints = "checkpoints";
constexpr std::string_view kStep = "step-";
constexpr std::string_view kState = "state.json";
constexpr std::string_view kOptimiser = "optimiser.safetensors";
constexpr std::size_t kKept = 2;

void create_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    refuse(ErrorCode::io, message("cannot create ", folder.string(), ": ", failed.message()));
  }
}

// A folder that holds files only. What cannot be removed stays: the next call tries again.
void remove_folder(const fs::path& folder) {
  const auto names = io::names_in(folder);
  std::error_code ignored;
  if (names) {
    for (const std::string& name : *names) fs::remove(folder / name, ignored);
  }
  fs::remove(folder, ignored);
}

// "step-00000500": names sort by step.
[[nodiscard]] std::string checkpoint_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, digits.size() < 8 ? 8 - digits.size() : 0, '0');
  return std::string(kStep) + digits;
}

[[nodiscard]] std::vector<fs::path> folders_of(const fs::path& folder) {
  std::vector<fs::path> list;
  const fs::path all = folder / kCheckpoints;
  std::error_code ignored;
  if (!fs::is_directory(all, ignored)) return list;
  for (const std::string& name : io::names_in(all).value_or_throw()) {
    if (name.starts_with(kStep)) list.push_back(all / name);
  }
  return list;
}

[[nodiscard]] bool is_complete(const fs::path& checkpoint) {
  std::error_code ignored;
  return fs::exists(checkpoint / kState, ignored);
}

[[nodiscard]] Json json_of(const RunState& state) {
  Json json = Json::object();
  json["step"] = state.trainer.step;
  json["tokens"] = state.trainer.tokens;
  json["running_loss"] = state.trainer.running_loss;
  json["log_rows"] = state.log_rows;
  json["pending_loss"] = state.pending.plain_sum;
  json["pending_labels"] = state.pending.labels;
  json["gradient_norm"] = state.gradient_norm;
  json["seconds"] = state.seconds;
  return json;
}

[[nodiscard]] RunState read_state(const fs::path& path) {
  try {
    const Json json = io::parse_object(io::read_text(path).value_or_throw());
    const config::ObjectReader reader(json);
    RunState state;
    state.trainer.step = reader.required_integer("step");
    state.trainer.tokens = reader.required_integer("tokens");
    state.trainer.running_loss = reader.number("running_loss").value_or(0.0);
    state.log_rows = reader.required_integer("log_rows");
    state.pending.plain_sum = reader.number("pending_loss").value_or(0.0);
    state.pending.labels = reader.required_integer("pending_labels");
    state.gradient_norm = reader.number("gradient_norm").value_or(0.0);
    state.seconds = reader.number("seconds").value_or(0.0);
    reader.refuse_rest(
        "step, tokens, running_loss, log_rows, pending_loss, pending_labels, gradient_norm, "
        "seconds");
    return state;
  } catch (const Error& error) {
    throw io::in_file(path.string(), error);
  }
}

[[nodiscard]] std::vector<float> read_moments(const io::SafetensorsFile& file,
                                              std::string_view name, const fs::path& path) {
  const io::Tensor* const tensor = file.find(name);
  if (tensor == nullptr) refuse(message(path.string(), ": tensor ", name, " is missing"));
  std::vector<float> moments(static_cast<std::size_t>(tensor->size()));
  io::to_floats(*tensor, 0, moments);
  return moments;
}

[[nodiscard]] io::Tensor moments_tensor(std::string_view name, std::span<const float> moments) {
  io::Tensor tensor;
  tensor.name = name;
  tensor.shape = {static_cast<std::int64_t>(moments.size())};
  tensor.bytes = std::as_bytes(moments);
  return tensor;
}

void write_file(const fs::path& path, std::string_view text) {
  const std::span<const std::byte> piece = std::as_bytes(std::span(text));
  static_cast<void>(io::replace_file(path, std::span(&piece, 1)).value_or_throw());
}

}  // namespace

RunFolder::RunFolder(const fs::path& folder) : folder_(io::as_folder(folder)) {
  create_folder(folder_);
}

std::optional<io::Descriptor> RunFolder::try_lock() const {
  io::Descriptor opened(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number() < 0) throw io::system_error(io::shown(folder_), "open", errno);
  if (::flock(opened.number(), LOCK_EX | LOCK_NB) == 0) return opened;
  if (errno != EWOULDBLOCK) throw io::system_error(io::shown(folder_), "lock", errno);
  return std::nullopt;
}

io::Descriptor RunFolder::lock() const {
  if (auto locked = try_lock()) return std::move(*locked);
  refuse(ErrorCode::io,
         message(io::shown(folder_), ": another process is training in this folder"));
}

fs::path RunFolder::file(std::string_view name) const { return folder_ / name; }

bool RunFolder::has(std::string_view name) const {
  std::error_code ignored;
  return fs::exists(file(name), ignored);
}

void RunFolder::write(std::string_view name, std::string_view text) const {
  write_file(file(name), text);
}

void RunFolder::keep_document(std::string_view name, const Json& document) const {
  if (!has(name)) return write(name, document.dump(2) + "\n");
  const Json before = io::parse_object(io::read_text(file(name)).value_or_throw());
  // As it would be read back, so that numbers compare as they are written.
  const std::string difference = difference_of(before, io::parse_object(document.dump()));
  if (difference.empty()) return;
  refuse(message(file(name).string(), " is of a run with other settings: ", difference,
                 "; use another folder, or the settings of before"));
}

std::vector<fs::path> RunFolder::checkpoints() const {
  std::vector<fs::path> list = folders_of(folder_);
  std::erase_if(list, [](const fs::path& checkpoint) { return !is_complete(checkpoint); });
  return list;
}

void RunFolder::save_checkpoint(const RunState& state, const Network<float>& network,
                                const OptimiserMoments& moments,
                                std::span<const text::TokenizerFile> tokenizer) const {
  const fs::path checkpoint = folder_ / kCheckpoints / checkpoint_name(state.trainer.step);
  if (is_complete(checkpoint)) return;
  try {
    static_cast<void>(lab::save_checkpoint(network, tokenizer, checkpoint).value_or_throw());
    const std::vector<io::Tensor> tensors = {moments_tensor("first_moments", moments.first),
                                             moments_tensor("second_moments", moments.second)};
    static_cast<void>(io::write_safetensors(checkpoint / kOptimiser, tensors).value_or_throw());
    write_file(checkpoint / kState, json_of(state).dump(2) + "\n");
  } catch (...) {
    remove_folder(checkpoint);
    throw;
  }
  const std::vector<fs::path> all = checkpoints();
  for (std::size_t i = 0; i + kKept < all.size(); ++i) remove_folder(all[i]);
}

std::optional<RunState> RunFolder::resume(Network<float>& network,
                                          OptimiserMoments& moments) const {
  for (const fs::path& checkpoint : folders_of(folder_)) {
    if (!is_complete(checkpoint)) remove_folder(checkpoint);
  }
  const std::vector<fs::path> all = checkpoints();
  if (all.empty()) return std::nullopt;
  const fs::path& newest = all.back();
  const RunState state = read_state(newest / kState);
  static_cast<void>(read_parameters(newest, network).value_or_throw());
  const fs::path path = newest / kOptimiser;
  const io::SafetensorsFile file = io::SafetensorsFile::open(path).value_or_throw();
  moments.first = moments.first_memory = read_moments(file, "first_moments", path);
  moments.second = moments.second_memory = read_moments(file, "second_moments", path);
  return state;
}

void RunFolder::remove_checkpoints() const {
  for (const fs::path& checkpoint : folders_of(folder_)) remove_folder(checkpoint);
  std::error_code ignored;
  fs::remove(folder_ / kCheckpoints, ignored);
}

fs::path newest_checkpoint(const fs::path& folder) {
  std::vector<fs::path> all = folders_of(io::as_folder(folder));
  std::erase_if(all, [](const fs::path& checkpoint) { return !is_complete(checkpoint); });
  return all.empty() ? fs::path() : all.back();
}

}  // namespace phasor::lab
