#include "update/kafka/topic_watcher.h"

#include <algorithm>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

// Bounds how long the end of the process waits for brokers that are away.
constexpr auto kAskTimeout = std::chrono::seconds(3);
// After an answer that leaves a question open: a broker that has no leader needs a moment.
constexpr auto kRetryEvery = std::chrono::milliseconds(100);
// Answers that nobody takes: the newest count.
constexpr size_t kAnswersMax = 100'000;

}  // namespace

absl::StatusOr<std::unique_ptr<TopicWatcher>> TopicWatcher::Start(KafkaClient& client,
                                                                  Duration look_every) {
  std::unique_ptr<TopicWatcher> watcher(new TopicWatcher(client, look_every));
  try {
    watcher->thread_ = std::thread([self = watcher.get()] { self->Run(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the thread that looks for topics can't be started: ", error.what()));
  }
  return watcher;
}

TopicWatcher::~TopicWatcher() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void TopicWatcher::Watch(const std::string& topic, const Question& question) {
  MutexLock lock(mutex_);
  questions_[topic] = question;
  is_asked_ = true;
  changed_.NotifyAll();
}

void TopicWatcher::Forget(const std::string& topic) {
  MutexLock lock(mutex_);
  questions_.erase(topic);
}

std::vector<std::pair<std::string, TopicView>> TopicWatcher::TakeAnswers() {
  MutexLock lock(mutex_);
  return std::exchange(answers_, {});
}

absl::Status TopicWatcher::health() const {
  MutexLock lock(mutex_);
  return health_;
}

void TopicWatcher::Run() {
  bool all_answered = true;
  while (true) {
    std::map<std::string, Question> questions;
    {
      MutexLock lock(mutex_);
      const TimePoint next = RealClock().Now() + (all_answered ? look_every_ : kRetryEvery);
      // New questions wait as well while others are tried again.
      while (!stopping_ && !(is_asked_ && all_answered) && RealClock().Now() < next) {
        changed_.WaitUntil(mutex_, next);
      }
      if (stopping_) return;
      is_asked_ = false;
      questions = questions_;
    }
    all_answered = questions.empty() || Look(questions);
  }
}

// Whether everything was answered.
bool TopicWatcher::Look(const std::map<std::string, Question>& questions) {
  const auto topics = client_.AskTopics(kAskTimeout);
  {
    MutexLock lock(mutex_);
    health_ = topics.status();
    if (stopping_) return true;
  }
  if (!topics.ok()) return false;
  bool all_answered = true;
  for (const auto& [topic, question] : questions) {
    const auto found = topics->find(topic);
    TopicView view;
    if (found != topics->end()) {
      absl::StatusOr<TopicView> answer = View(topic, found->second, question);
      if (!answer.ok()) {
        all_answered = false;
        continue;
      }
      view = *std::move(answer);
    }
    MutexLock lock(mutex_);
    if (stopping_) return true;
    // A missing topic's question stays open until there is one.
    const auto asked = questions_.find(topic);
    if (view.exists && asked != questions_.end() && asked->second.number == question.number) {
      asked->second.number = 0;
    }
    if (answers_.size() >= kAnswersMax) answers_.erase(answers_.begin());
    answers_.emplace_back(topic, std::move(view));
  }
  return all_answered;
}

absl::StatusOr<TopicView> TopicWatcher::View(const std::string& topic, uint32_t partition_count,
                                             const Question& question) {
  if (partition_count == 0) return absl::UnavailableError("the topic has no leader");
  TopicView view{.exists = true, .partition_count = partition_count, .question = question.number};
  if (question.number == 0) return view;
  HPS_ASSIGN_OR_RETURN(const auto lows,
                       client_.AskOffsets(topic, partition_count, KafkaClient::kLow, kAskTimeout));
  std::vector<uint64_t> starts = lows;
  if (question.start.kind == UpdateStart::Kind::kTime) {
    HPS_ASSIGN_OR_RETURN(
        starts, client_.AskOffsets(topic, partition_count,
                                   std::max<int64_t>(question.start.time_ms, 0), kAskTimeout));
  }
  // Last, so that no other offset is beyond it.
  HPS_ASSIGN_OR_RETURN(const auto highs,
                       client_.AskOffsets(topic, partition_count, KafkaClient::kHigh, kAskTimeout));
  for (uint32_t i = 0; i < partition_count; ++i) {
    view.ranges.push_back({.low = std::min(lows[i], highs[i]),
                           .high = highs[i],
                           .start = std::min(starts[i], highs[i])});
  }
  return view;
}

}  // namespace hps
