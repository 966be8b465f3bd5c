// The work of `phasor eval`: its cells, one after the other, kept in a CSV file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval_cells.hpp"
#include "model_options.hpp"
#include "phasor/encodings/rope.hpp"
#include "phasor/models/decoder.hpp"
#include "progress.hpp"

namespace phasor::tools {

// The flags of the verb.
struct EvalFlags {
  ModelOptions model;
  std::string text, ids, longrope, csv;
  std::vector<std::int64_t> contexts, offsets = {0};
  std::vector<std::string> scalings, angles = {"exact"};
  std::vector<EvalLine> lines;  // of the table, from the lists
  std::int64_t stride = 0, max_tokens = 0;
  bool json = false;
};

// What the contexts are compared with.
struct Training {
  std::int64_t length = 0;  // 0: not known
  std::string source;
  encodings::RopeScaling own = encodings::DefaultScaling{};  // of the layers that rotate
};

// The text as token ids, with keys of both.
struct EvalText {
  std::vector<std::int64_t> ids;
  std::string text_key, ids_key;
};

class Evaluation {
 public:
  // model_key  empty without a CSV file
  Evaluation(const EvalFlags& flags, models::Decoder& decoder, EvalText text,
             std::string model_key);

  // Every cell; the CSV file is whole after each of them. Returns the signal that stopped it, after
  // the finished windows were kept; 0: it ended.
  [[nodiscard]] int run();
  // What a stopped run has kept, and the command that continues.
  [[nodiscard]] std::string how_to_continue() const;

  [[nodiscard]] const Training& training() const { return training_; }
  // Those that were asked for; the CSV file may hold more.
  [[nodiscard]] std::vector<EvalCell> cells() const;
  [[nodiscard]] const std::string& model_name() const { return model_name_; }
  [[nodiscard]] std::size_t tokens() const { return ids_.size(); }

 private:
  struct Cell {
    EvalId id;
    double factor = 1.0;
    std::optional<encodings::RopeScaling> scaling;
    encodings::RopeScaling essence;
  };

  // Checks all names, lengths and positions before the first cell runs.
  void plan();
  // That a window of the cell has a sequence, with a cache of one token.
  void check_positions(const Cell& cell) const;
  // Of the numbers that the scaling puts into the config; a config's own are in the model's key.
  [[nodiscard]] std::string scaling_key(const std::optional<encodings::RopeScaling>& scaling) const;
  void compute(const Cell& cell);
  [[nodiscard]] models::Perplexity score(const Cell& cell);
  // The part of the cell that runs is the last one.
  void begin_part(const Cell& cell);
  [[nodiscard]] const EvalCell* find(const EvalId& id) const;
  [[nodiscard]] const EvalCell* same_numbers(const Cell& cell) const;
  void resume();
  void save() const;
  [[nodiscard]] std::string parts_path() const { return flags_.csv + ".partial"; }
  // Writes the file of finished windows, or removes it without them.
  void keep() const;

  const EvalFlags& flags_;
  models::Decoder& decoder_;
  std::vector<std::int64_t> ids_;
  EvalKeys keys_;
  Training training_;
  std::optional<encodings::LongRopeScaling> longrope_;
  std::string model_name_;
  std::vector<Cell> plan_;
  std::vector<EvalCell> cells_;
  std::vector<EvalPart> parts_;
  const Cell* running_ = nullptr;
  Progress progress_;
};

}  // namespace phasor::tools
