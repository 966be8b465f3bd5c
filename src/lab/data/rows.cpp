// .jsonl files: labelled texts and sentence pairs.
#include <algorithm>
#include <initializer_list>

#include "phasor/io/internal/content_hash.hpp"
#include "phasor/io/internal/file.hpp"
#include "phasor/io/internal/json.hpp"
#include "phasor/io/internal/posix_file.hpp"
#include "phasor/lab/internal/corpus.hpp"
#include "phasor/text/internal/utf8.hpp"

namespace phasor::lab {
namespace {

using io::Json;

std::string text_of(const Json& row, const char* key) {
  const Json& value = row[key];
  if (!value.is_string()) refuse(message(key, " must be a string, got ", io::shown(value)));
  if (value.text().find_first_not_of(" \t\r\n") == std::string::npos)
    refuse(message(key, " must not be empty, got ", io::shown(value)));
  return value.text();
}

void check_keys(const Json& row, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    if (!row.contains(key)) refuse(message("missing key \"", key, "\""));
  for (const io::JsonMember& member : row.items()) {
    if (std::find(keys.begin(), keys.end(), member.key) == keys.end())
      refuse(message("unknown key \"", io::one_line(member.key), "\""));
  }
}

// Calls read() with each line; its errors with file and line in front.
template <class Read>
Result<Done> read_lines(std::string_view lines, std::string_view name, const Read& read) {
  std::size_t line = 0;
  try {
    text::unicode::require_utf8(lines, name);
  } catch (const Error& error) {
    return error;
  }
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    ++line;
    try {
      read(io::parse_object(lines.substr(begin, end - begin)));
    } catch (const Error& error) {
      return Error(error.code(), message(name, ": line ", line, ": ", error.what()));
    }
    begin = end + 1;
  }
  if (line == 0) return Error(ErrorCode::invalid_argument, message(name, ": the file is empty"));
  return Done{};
}

std::string hash_of(std::string_view text) {
  io::ContentHash hash;
  hash.add(text);
  return hash.text();
}

template <class Set>
Result<Set> read_file(const std::filesystem::path& path,
                      Result<Set> (*parse)(std::string_view, std::string_view)) {
  const Result<std::string> text = io::read_text(path, std::size_t{1} << 30);
  if (!text) return text.error();
  return parse(*text, io::shown(path));
}

}  // namespace

Result<LabelledSet> parse_labelled(std::string_view lines, std::string_view name) {
  LabelledSet set;
  const Result<Done> done = read_lines(lines, name, [&](const Json& row) {
    check_keys(row, {"text", "label"});
    const Json& label = row["label"];
    if (!label.is_number_integer() || label.get<double>() < 0 || label.get<double>() >= kMaxLabels)
      refuse(message("label must be an integer from 0 to ", kMaxLabels - 1, ", got ",
                     io::shown(label)));
    set.rows.push_back({text_of(row, "text"), label.get<std::int32_t>()});
    set.labels = std::max(set.labels, set.rows.back().label + 1);
  });
  if (!done) return done.error();
  set.hash = hash_of(lines);
  return set;
}

Result<PairSet> parse_pairs(std::string_view lines, std::string_view name) {
  PairSet set;
  const Result<Done> done = read_lines(lines, name, [&](const Json& row) {
    check_keys(row, {"source", "target"});
    set.rows.push_back({text_of(row, "source"), text_of(row, "target")});
  });
  if (!done) return done.error();
  set.hash = hash_of(lines);
  return set;
}

Result<LabelledSet> read_labelled(const std::filesystem::path& path) {
  return read_file<LabelledSet>(path, parse_labelled);
}

Result<PairSet> read_pairs(const std::filesystem::path& path) {
  return read_file<PairSet>(path, parse_pairs);
}

}  // namespace phasor::lab
