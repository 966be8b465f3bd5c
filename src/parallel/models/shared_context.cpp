#include <algorithm>

#include "phasor/parallel/models.hpp"

namespace phasor::parallel {
namespace {

constexpr int kQuestionTag = 701, kAnswerTag = 702, kGatherTag = 703;

}  // namespace

void SharedContext::gather(std::span<const std::byte> mine, std::span<const std::int64_t> sizes,
                           int to, std::span<std::byte> all) {
  const int self = rank(), count = ranks();
  const bool receives = to == kEveryRank || to == self;
  std::vector<Transfer> under_way;
  std::size_t at = 0;
  for (int other = 0; other < count; ++other) {
    const auto size = static_cast<std::size_t>(sizes[static_cast<std::size_t>(other)]);
    const std::span<std::byte> place = receives ? all.subspan(at, size) : std::span<std::byte>();
    at += size;
    if (other == self) {
      if (receives) std::copy(mine.begin(), mine.end(), place.begin());
      continue;
    }
    const bool sends = to == kEveryRank || to == other;
    under_way.push_back(all_.exchange(sends ? mine : std::span<const std::byte>(), other, place,
                                      other, kGatherTag));
  }
  for (Transfer& transfer : under_way) transfer.wait("results of a shared context");
}

void SharedContext::ask(std::span<const float> question, std::span<const Sizes> sizes,
                        const Answer& answer, std::span<float> answers) {
  const int self = rank(), count = ranks();
  const Sizes& own = sizes[static_cast<std::size_t>(self)];
  struct Place {
    std::span<float> question, answer;  // of another rank
  };
  std::vector<Place> places(static_cast<std::size_t>(count));
  std::size_t questions = 0, given = 0;
  for (const Sizes& size : sizes) {
    questions += static_cast<std::size_t>(size.question);
    given += static_cast<std::size_t>(size.answer);
  }
  questions_.resize(questions);
  given_.resize(given);
  questions = given = 0;
  std::vector<Transfer> asked(places.size()), answered(places.size()), replies(places.size());
  for (int other = 0; other < count; ++other) {
    const auto at = static_cast<std::size_t>(other);
    places[at] = {
        std::span(questions_).subspan(questions, static_cast<std::size_t>(sizes[at].question)),
        std::span(given_).subspan(given, static_cast<std::size_t>(sizes[at].answer))};
    questions += static_cast<std::size_t>(sizes[at].question);
    given += static_cast<std::size_t>(sizes[at].answer);
    if (other == self) continue;
    asked[at] = all_.exchange(std::as_bytes(question), other,
                              std::as_writable_bytes(places[at].question), other, kQuestionTag);
    const auto size = static_cast<std::size_t>(own.answer);
    replies[at] = all_.exchange({}, other, std::as_writable_bytes(answers.subspan(at * size, size)),
                                other, kAnswerTag);
  }
  // Its own question first: the others' arrive meanwhile, and their answers leave while the next is computed.
  if (own.question > 0) {
    const auto size = static_cast<std::size_t>(own.answer);
    answer(self, question, answers.subspan(static_cast<std::size_t>(self) * size, size));
  }
  for (int step = 1; step < count; ++step) {
    const int other = (self + step) % count;
    const auto at = static_cast<std::size_t>(other);
    asked[at].wait("queries of a shared context");
    if (sizes[at].question == 0) continue;
    answer(other, places[at].question, places[at].answer);
    answered[at] = all_.exchange(std::as_bytes(places[at].answer), other, {}, other, kAnswerTag);
  }
  for (Transfer& transfer : replies) transfer.wait("attention of a shared context");
  for (Transfer& transfer : answered) transfer.wait("attention of a shared context");
}

}  // namespace phasor::parallel
