#include "update/stream_reader.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "base/unix_time.h"

namespace hps {
namespace {

constexpr auto kPollMax = std::chrono::milliseconds(100);
constexpr auto kPublishEvery = std::chrono::milliseconds(200);
constexpr auto kProblemWait = std::chrono::seconds(1);
// Longest wait of one change for the lease of its table, so that other tables go on.
constexpr auto kApplyWaitMax = std::chrono::milliseconds(200);
constexpr auto kRetryWaitMin = std::chrono::milliseconds(50);
constexpr auto kRetryWaitMax = std::chrono::seconds(2);
// Longest wait for the stream's answer to Committed: the reading thread does nothing else
// meanwhile.
constexpr auto kCommittedWaitMax = std::chrono::seconds(2);

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// The positions of the newest generation. A topic that was made again with fewer partitions leaves
// positions of older generations.
std::vector<StreamPosition> NewestPositions(const std::vector<StreamPosition>& positions) {
  uint16_t newest = 0;
  for (const StreamPosition& position : positions) newest = std::max(newest, position.generation);
  std::vector<StreamPosition> kept;
  for (const StreamPosition& position : positions) {
    if (position.generation == newest) kept.push_back(position);
  }
  return kept;
}

bool TakesDirectChanges(const TableInfo& info) {
  return std::any_of(
      info.positions.begin(), info.positions.end(),
      [](const StreamPosition& position) { return position.generation == kDirectGeneration; });
}

void LogEvent(const UpdateEvent& event) {
  const std::string line =
      absl::StrCat("update stream of table '", event.table,
                   "': ", std::string(UpdateEventName(event.kind)), ": ", event.message);
  const bool is_usual =
      event.kind == UpdateEvent::Kind::kStarted || event.kind == UpdateEvent::Kind::kTopicAppeared;
  is_usual ? LogInfo(line) : LogWarning(line);
}

}  // namespace

StreamReader::StreamReader(std::unique_ptr<UpdateSource> source,
                           std::unique_ptr<ParkedMessages> parked, const Options& options)
    : options_(options), parked_(std::move(parked)), source_(std::move(source)) {
  MutexLock lock(mutex_);
  statistics_.enabled = true;
  statistics_.recovering = true;
}

absl::StatusOr<std::unique_ptr<StreamReader>> StreamReader::Start(
    std::unique_ptr<UpdateSource> source, std::unique_ptr<ParkedMessages> parked,
    const Options& options) {
  std::unique_ptr<StreamReader> reader(
      new StreamReader(std::move(source), std::move(parked), options));
  HPS_ASSIGN_OR_RETURN(reader->thread_, WorkerPool::Create({.name = "hps-stream", .queue_max = 1}));
  HPS_RETURN_IF_ERROR(reader->thread_->Post(&reader->task_));
  return reader;
}

StreamReader::~StreamReader() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.reset();
  tables_.clear();  // their records end before their source
}

void StreamReader::AwaitReady() {
  MutexLock lock(mutex_);
  while (statistics_.recovering && waits_) changed_.Wait(mutex_);
}

void StreamReader::StopWaiting() {
  MutexLock lock(mutex_);
  waits_ = false;
  changed_.NotifyAll();
}

StreamStatistics StreamReader::Statistics() const {
  StreamStatistics statistics;
  {
    MutexLock lock(mutex_);
    statistics = statistics_;
  }
  const auto counts = parked_->counts();
  for (size_t i = 0; i < counts.size(); ++i) {
    statistics.parked.emplace_back(ParkReasonName(static_cast<ParkReason>(i)), counts[i]);
  }
  return statistics;
}

// False: the reader ends.
bool StreamReader::Step() {
  if (IsEnding()) return false;
  const TimePoint now = RealClock().Now();
  if (now >= next_look_) {
    next_look_ = now + options_.look_every;
    FindTables();
  }
  FollowRecovery();
  absl::StatusOr<UpdateBatch> batch = source_->Poll(std::min(next_look_, now + kPollMax));
  problem_ = batch.ok() ? "" : std::string(batch.status().message());
  if (batch.ok()) {
    Distribute(*std::move(batch));
  } else {
    WaitFor(kProblemWait);
  }
  ApplyAll();
  if (RealClock().Now() >= next_publish_) Publish();
  return true;
}

void StreamReader::WaitFor(Duration wait) {
  const Deadline end = DeadlineAfter(RealClock(), wait);
  MutexLock lock(mutex_);
  while (!ending_ && changed_.WaitUntil(mutex_, end)) continue;
}

bool StreamReader::Matches(const std::string& table) const {
  return std::any_of(
      options_.tables.begin(), options_.tables.end(),
      [&](const std::string& pattern) { return fnmatch(pattern.c_str(), table.c_str(), 0) == 0; });
}

// Follows the store: tables come, go, and are imported again.
void StreamReader::FindTables() {
  const absl::StatusOr<std::vector<TableInfo>> found = options_.store->Tables();
  if (!found.ok()) return;  // the next look tries again
  std::set<std::string> names;
  for (const TableInfo& info : *found) {
    const std::string& name = info.spec.name;
    names.insert(name);
    const auto known = tables_.find(name);
    if (known != tables_.end() && known->second.table->incarnation() == info.incarnation) continue;
    if (known != tables_.end()) Forget(name);
    if (Matches(name)) Subscribe(info);
  }
  std::vector<std::string> gone;
  for (const auto& [name, entry] : tables_) {
    if (!names.contains(name)) gone.push_back(name);
  }
  for (const std::string& name : gone) Forget(name);
}

void StreamReader::Subscribe(const TableInfo& info) {
  const std::string& name = info.spec.name;
  const auto refused = refused_.find(name);
  if (refused != refused_.end() && refused->second == info.incarnation) return;
  if (TakesDirectChanges(info)) {
    refused_[name] = info.incarnation;
    LogWarning(absl::StrCat("table '", name,
                            "' takes direct changes since its last import: its "
                            "update stream is not read until it is imported again"));
    return;
  }
  const absl::StatusOr<TableApplier*> applier = options_.updates->ApplierOf(name);
  if (!applier.ok()) return;  // dropped meanwhile
  TableInfo newest = info;
  newest.positions = NewestPositions(info.positions);
  const absl::Status subscribed = source_->Subscribe(
      {.table = name, .positions = newest.positions, .start = info.update_start});
  if (!subscribed.ok()) {
    LogError(absl::StrCat("the update stream of table '", name,
                          "' cannot be read: ", TextForLog(subscribed)));
    return;
  }
  Entry& entry = tables_[name];
  entry.table = std::make_unique<StreamTable>(newest, **applier, *parked_);
  entry.had_positions = !newest.positions.empty();
  entry.retry_wait = kRetryWaitMin;
}

void StreamReader::Forget(const std::string& name) {
  source_->Unsubscribe(name).IgnoreError();
  tables_.erase(name);
  std::erase_if(targets_, [&](const auto& target) { return target.first.first == name; });
}

void StreamReader::Distribute(UpdateBatch batch) {
  for (UpdateEvent& event : batch.events) {
    LogEvent(event);
    const auto found = tables_.find(event.table);
    if (found != tables_.end()) found->second.table->Add(std::move(event));
  }
  for (UpdateRecord& record : batch.records) {
    const auto found = tables_.find(std::string(record.table));
    if (found != tables_.end()) found->second.table->Add(std::move(record));
  }
}

void StreamReader::ApplyAll() {
  std::vector<std::string> names;  // Apply may forget a table
  for (const auto& [name, entry] : tables_) {
    if (!entry.table->is_idle() && RealClock().Now() >= entry.retry_at) names.push_back(name);
  }
  for (const std::string& name : names) {
    if (IsEnding()) return;
    Apply(tables_.at(name));
  }
}

bool StreamReader::IsEnding() const {
  MutexLock lock(mutex_);
  return ending_;
}

void StreamReader::Apply(Entry& entry) {
  StreamTable& table = *entry.table;
  const std::string name = table.name();
  // A paused table is tried without a wait, so that the others go on.
  const Duration wait = entry.is_paused ? Duration(0) : Duration(kApplyWaitMax);
  const absl::Status status = table.Apply(DeadlineAfter(RealClock(), wait));
  if (recovery_ == Recovery::kDone) CommitHint(table);
  if (absl::IsFailedPrecondition(status) || absl::IsNotFound(status)) {
    LogInfo(absl::StrCat("update stream of table '", name, "': ", TextForLog(status)));
    Forget(name);  // the next look finds out what the table is now
    return;
  }
  if (!status.ok()) return Pause(entry, status);
  if (!entry.is_paused) return;
  entry.is_paused = false;
  entry.retry_wait = kRetryWaitMin;
  source_->Resume(name, UpdateSource::kAllPartitions).IgnoreError();
  LogInfo(absl::StrCat("update stream of table '", name, "': goes on"));
}

// Not called before the end of the recovery, which needs the hints from before the start.
void StreamReader::CommitHint(const StreamTable& table) {
  std::vector<StreamPosition> positions;
  for (const auto& [partition, position] : table.positions()) positions.push_back(position);
  source_->CommitHint(table.name(), NewestPositions(positions)).IgnoreError();
}

void StreamReader::Pause(Entry& entry, const absl::Status& why) {
  entry.why = absl::IsResourceExhausted(why) ? "disk_full" : "unavailable";
  entry.retry_at = RealClock().Now() + entry.retry_wait;
  entry.retry_wait = std::min<Duration>(2 * entry.retry_wait, kRetryWaitMax);
  if (entry.is_paused) return;
  entry.is_paused = true;
  source_->Pause(entry.table->name(), UpdateSource::kAllPartitions).IgnoreError();
  LogWarning(absl::StrCat("update stream of table '", entry.table->name(),
                          "': paused, will be tried again: ", TextForLog(why)));
}

void StreamReader::FollowRecovery() {
  if (recovery_ == Recovery::kDone) return;
  if (recovery_ == Recovery::kAsking) AskHowFar();
  if (recovery_ == Recovery::kCatchingUp) {
    std::erase_if(targets_, [&](const auto& target) {
      const auto& [where, offset] = target;
      const auto& positions = tables_.at(where.first).table->positions();
      const auto position = positions.find(where.second);
      return position != positions.end() && position->second.offset >= offset;
    });
    if (targets_.empty()) return EndRecovery();
  }
  if (RealClock().Now() < started_at_ + options_.ready_wait_max) return;
  unverified_ = absl::StrCat("the update stream did not answer or was not caught up with within ",
                             Seconds(options_.ready_wait_max), " s");
  EndRecovery();
}

// Finds the offsets that the stream was told before the start and that lie beyond the positions in
// level 3: level 3 has lost the changes between.
void StreamReader::AskHowFar() {
  targets_.clear();
  unverified_.clear();
  for (const auto& [name, entry] : tables_) {
    if (!entry.had_positions) continue;  // nothing was applied since its import
    const absl::StatusOr<bool> verifies = AskHowFarOf(name, *entry.table);
    if (!verifies.ok() && !IsMissing(name)) return;  // asked again in the next step
    if (verifies.value_or(false)) continue;
    unverified_ = absl::StrCat("the brokers have no offsets of this node for table '", name, "'");
  }
  recovery_ = Recovery::kCatchingUp;
  uint64_t records = 0;
  for (const auto& [where, offset] : targets_)
    records += offset - tables_.at(where.first).table->positions().at(where.second).offset;
  if (records == 0) return;
  LogWarning(absl::StrCat("the store had lost its last changes: ", records,
                          " records of the update stream are applied again"));
  MutexLock lock(mutex_);
  statistics_.recovery_records = records;
}

// False: the stream was told nothing of the table.
absl::StatusOr<bool> StreamReader::AskHowFarOf(const std::string& name, const StreamTable& table) {
  HPS_ASSIGN_OR_RETURN(const std::vector<StreamPosition> committed,
                       source_->Committed(name, DeadlineAfter(RealClock(), kCommittedWaitMax)));
  for (const StreamPosition& hint : committed) {
    const auto position = table.positions().find(hint.partition);
    if (position == table.positions().end() || position->second.generation != hint.generation ||
        position->second.offset >= hint.offset) {
      continue;
    }
    targets_[{name, hint.partition}] = hint.offset;
  }
  return !committed.empty();
}

// Whether the stream has said that the table has no topic.
bool StreamReader::IsMissing(const std::string& name) const {
  const std::vector<std::string> missing = source_->Statistics().missing_topics;
  return std::find(missing.begin(), missing.end(), name) != missing.end();
}

void StreamReader::EndRecovery() {
  recovery_ = Recovery::kDone;
  targets_.clear();
  for (const auto& [name, entry] : tables_) CommitHint(*entry.table);
  if (!unverified_.empty()) {
    LogWarning(
        absl::StrCat(unverified_, ": the last changes before the start may be missing for now"));
  }
  MutexLock lock(mutex_);
  statistics_.recovering = false;
  statistics_.recovery_unverified = !unverified_.empty();
  statistics_.recovery_seconds = Seconds(RealClock().Now() - started_at_);
  changed_.NotifyAll();
}

// Makes what the reading thread knows visible to Statistics.
void StreamReader::Publish() {
  next_publish_ = RealClock().Now() + kPublishEvery;
  const UpdateSourceStatistics source = source_->Statistics();
  const auto now_ms = static_cast<double>(UnixMicroseconds()) * 1e-3;
  MutexLock lock(mutex_);
  StreamStatistics& to = statistics_;
  to.problem = !problem_.empty() ? problem_ : std::string(source.health.message());
  to.records = source.records;
  to.bytes = source.bytes;
  to.missing_topics = source.missing_topics;
  to.partitions.clear();
  for (const PartitionProgress& progress : source.partitions) {
    const auto found = tables_.find(progress.table);
    if (found == tables_.end()) continue;
    const StreamTable& table = *found->second.table;
    const auto position = table.positions().find(progress.position.partition);
    StreamPartitionStatistics& partition = to.partitions.emplace_back();
    partition.table = progress.table;
    partition.partition = progress.position.partition;
    partition.position =
        position == table.positions().end() ? progress.position.offset : position->second.offset;
    partition.lag_records = progress.end - std::min(progress.end, partition.position);
    const int64_t applied_ms = table.applied_time_ms(partition.partition);
    if (partition.lag_records > 0 && applied_ms > 0)
      partition.lag_seconds = std::max(0.0, now_ms - static_cast<double>(applied_ms)) * 1e-3;
  }
  to.records_lost = 0;
  to.stale_tables.clear();
  to.paused.clear();
  for (const auto& [name, entry] : tables_) {
    to.records_lost += entry.table->records_lost();
    if (entry.table->records_lost() > 0) to.stale_tables.push_back(name);
    if (entry.is_paused) to.paused.emplace_back(name, entry.why);
  }
}

}  // namespace hps
