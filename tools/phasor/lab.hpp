// phasor lab: flags of its actions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phasor/lab/internal/experiment.hpp"
#include "phasor/lab/internal/speed.hpp"

namespace phasor::tools {

struct LabFlags {
  std::string action;
  std::vector<std::string> names;  // an experiment, folders or texts, by action
  std::string out, size, data, kind = "bpe";
  std::vector<std::uint64_t> seeds;
  std::vector<std::int64_t> seed_list;
  std::vector<std::string> variants, assignments;
  int threads = 0, jobs = 1;
  std::int64_t vocabulary = 4096;
  std::optional<std::int64_t> min_frequency, min_character_frequency;
  bool lowercase = false;
  lab::SpeedSettings speed;
  bool json = false;
};

// A built-in experiment, or the one of a JSON file.
//
// throws   Error: neither, with the built-in name that was perhaps meant; a file that is not an experiment
[[nodiscard]] lab::Experiment experiment_named(const std::string& name);

int lab_run(const LabFlags& flags);
int lab_report(const LabFlags& flags);
int lab_speed(const LabFlags& flags);

}  // namespace phasor::tools
