// Models by the name that they have on the Hugging Face hub, from the local cache of its downloads.
#pragma once

#include <filesystem>
#include <string>

namespace phasor::tools {

// Where downloads are: HF_HUB_CACHE, else hub in HF_HOME, else huggingface/hub in XDG_CACHE_HOME or in
// ~/.cache.
[[nodiscard]] std::filesystem::path hub_folder();

// The path of a model. A path that exists stays as it is. Otherwise
//
//   org/name        the newest download (refs/main); its only GGUF file if it has no config.json
//   org/name@REV    the download of a branch, tag or commit
//   org/name/FILE   a file of it
//   name            as org/name, if it is in the cache
//
// Everything else stays as it is: whoever opens it reports what is wrong.
//
// throws   Error(io): org/name is not in the cache, with the folder that was looked at and the command
//          that downloads it; Error(invalid_argument): several GGUF files
[[nodiscard]] std::string model_path(const std::string& given);

// "org/name" of a path in the cache; empty for other paths.
[[nodiscard]] std::string hub_name_of(const std::filesystem::path& path);

}  // namespace phasor::tools
