#include "lab/train/ranks.hpp"

#include <algorithm>
#include <optional>

#include "phasor/lab/internal/experiment.hpp"

namespace phasor::lab {
namespace {

struct Outcome {
  std::int64_t failed = 0, length = 0;  // length: of the message
  ErrorCode code = ErrorCode::internal;
};

void append_number(std::string& text, std::int64_t number) {
  text += bytes_of(std::span<const std::int64_t>(&number, 1));
}

[[nodiscard]] std::int64_t take_number(std::string_view& text) {
  const std::int64_t number = values_of<std::int64_t>(text.substr(0, sizeof number)).front();
  text.remove_prefix(sizeof number);
  return number;
}

}  // namespace

void Ranks::on_first(const std::function<void()>& work) const {
  if (exchange_ == nullptr) return work();
  Outcome outcome;
  std::string text;
  if (rank() == 0) {
    try {
      work();
    } catch (const Error& error) {
      text = error.what();
      outcome = {1, static_cast<std::int64_t>(text.size()), error.code()};
    }
  }
  share(outcome);
  if (outcome.failed == 0) return;
  text.resize(static_cast<std::size_t>(outcome.length));
  exchange_->broadcast(std::as_writable_bytes(std::span(text)));
  throw SharedError(outcome.code, text);
}

bool Ranks::any_requested(const core::Cancellation* cancellation) const {
  const auto mine = static_cast<std::uint8_t>(cancellation != nullptr && cancellation->requested());
  if (exchange_ == nullptr) return mine != 0;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(size()));
  exchange_->gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return std::any_of(all.begin(), all.end(), [](std::uint8_t one) { return one != 0; });
}

std::vector<std::string> Ranks::divided(
    std::int64_t count, const std::function<std::string(std::int64_t)>& part) const {
  std::vector<std::string> parts(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  // A message: 0 and the parts, each after its length; or 1, the code and the text of an error.
  std::string mine;
  append_number(mine, 0);
  try {
    for (std::int64_t index = rank(); index < count; index += size()) {
      std::string result = part(index);
      if (exchange_ == nullptr) {
        parts[static_cast<std::size_t>(index)] = std::move(result);
        continue;
      }
      append_number(mine, static_cast<std::int64_t>(result.size()));
      mine += result;
    }
  } catch (const Error& error) {
    if (exchange_ == nullptr) throw;
    mine.clear();
    append_number(mine, 1);
    append_number(mine, static_cast<std::int64_t>(error.code()));
    mine += error.what();
  }
  if (exchange_ == nullptr) return parts;
  const std::vector<std::string> all = exchange_->gather(mine);
  for (std::size_t from = 0; from < all.size(); ++from) {
    std::string_view rest = all[from];
    if (take_number(rest) != 0) {
      const auto code = static_cast<ErrorCode>(take_number(rest));
      throw SharedError(code, std::string(rest));
    }
    for (std::size_t index = from; index < parts.size(); index += all.size()) {
      const auto length = static_cast<std::size_t>(take_number(rest));
      parts[index] = rest.substr(0, length);
      rest.remove_prefix(length);
    }
  }
  return parts;
}

void Ranks::agree(std::string_view what, const io::Json& document) const {
  if (exchange_ == nullptr) return;
  const std::vector<std::string> all = exchange_->gather(document.dump());
  for (std::size_t other = 1; other < all.size(); ++other) {
    const std::string difference =
        difference_of(io::parse_object(all.front()), io::parse_object(all[other]));
    if (difference.empty()) continue;
    throw SharedError(ErrorCode::invalid_argument,
                      message("ranks must agree on ", what, ": from rank 0 to rank ", other,
                              " it changes: ", difference));
  }
}

}  // namespace phasor::lab
