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
// Answers that TakeAnswers has not taken yet. Beyond this number the oldest are dropped.
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
  ends_.erase(topic);
}

void TopicWatcher::FollowEnds(const std::string& topic) {
  MutexLock lock(mutex_);
  ends_.try_emplace(topic);
}

std::vector<uint64_t> TopicWatcher::ends(const std::string& topic) const {
  MutexLock lock(mutex_);
  const auto found = ends_.find(topic);
  return found == ends_.end() ? std::vector<uint64_t>() : found->second;
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
      // If some questions were not answered, new questions wait as long as those: for kRetryEvery.
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
      // A partition without a leader is asked for again, with the tracker's next question.
      all_answered &= answer.ok() && (question.number == 0 || found->second.without_leader.empty());
      if (!answer.ok()) continue;
      view = *std::move(answer);
    }
    MutexLock lock(mutex_);
    if (stopping_) return true;
    // A question about a missing topic stays open until the topic exists.
    const auto asked = questions_.find(topic);
    if (view.exists && asked != questions_.end() && asked->second.number == question.number) {
      asked->second.number = 0;
    }
    if (answers_.size() >= kAnswersMax) answers_.erase(answers_.begin());
    answers_.emplace_back(topic, std::move(view));
  }
  AskEnds(*topics);
  return all_answered;
}

void TopicWatcher::AskEnds(const std::map<std::string, KafkaTopic>& topics) {
  std::vector<std::string> followed;
  {
    MutexLock lock(mutex_);
    for (const auto& [topic, ends] : ends_) followed.push_back(topic);
  }
  for (const std::string& topic : followed) {
    const auto found = topics.find(topic);
    if (found == topics.end()) continue;
    const std::vector<uint32_t> partitions = found->second.with_leader();
    const auto answer = client_.AskOffsets(topic, partitions, KafkaClient::kHigh, kAskTimeout);
    MutexLock lock(mutex_);
    if (stopping_) return;
    const auto ends = ends_.find(topic);
    if (!answer.ok() || ends == ends_.end()) continue;
    ends->second.resize(found->second.partition_count);
    for (size_t i = 0; i < partitions.size(); ++i) ends->second[partitions[i]] = (*answer)[i];
  }
}

absl::StatusOr<TopicView> TopicWatcher::View(const std::string& topic, const KafkaTopic& known,
                                             const Question& question) {
  if (known.partition_count == 0) return absl::UnavailableError("the topic has no leader");
  TopicView view{
      .exists = true, .partition_count = known.partition_count, .question = question.number};
  if (question.number == 0) return view;
  const std::vector<uint32_t> partitions = known.with_leader();
  HPS_ASSIGN_OR_RETURN(const auto lows,
                       client_.AskOffsets(topic, partitions, KafkaClient::kLow, kAskTimeout));
  std::vector<uint64_t> starts = lows;
  if (question.start.kind == UpdateStart::Kind::kTime) {
    HPS_ASSIGN_OR_RETURN(
        starts, client_.AskOffsets(topic, partitions, std::max<int64_t>(question.start.time_ms, 0),
                                   kAskTimeout));
  }
  // Last, so that no other offset is beyond it.
  HPS_ASSIGN_OR_RETURN(const auto highs,
                       client_.AskOffsets(topic, partitions, KafkaClient::kHigh, kAskTimeout));
  view.ranges.assign(known.partition_count, {.is_known = false});
  for (size_t i = 0; i < partitions.size(); ++i) {
    view.ranges[partitions[i]] = {.low = std::min(lows[i], highs[i]),
                                  .high = highs[i],
                                  .start = std::min(starts[i], highs[i])};
  }
  return view;
}

}  // namespace hps
