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

// The positions of the newest generation. A topic that was made again with fewer partitions leaves
// positions of older generations.
std::vector<StreamPosition> NewestPositions(std::vector<StreamPosition> positions) {
  uint16_t newest = 0;
  for (const StreamPosition& position : positions) newest = std::max(newest, position.generation);
  std::erase_if(positions, [&](const StreamPosition& p) { return p.generation != newest; });
  return positions;
}

bool TakesDirectChanges(const TableInfo& info) {
  return std::ranges::count(info.positions, kDirectGeneration, &StreamPosition::generation) > 0;
}

bool Matches(const std::string& table, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), table.c_str(), 0) == 0;
  });
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

absl::StatusOr<std::unique_ptr<StreamReader>> StreamReader::Start(
    std::unique_ptr<UpdateSource> source, std::unique_ptr<ParkedMessages> parked,
    const Options& options) {
  std::unique_ptr<StreamReader> reader(
      new StreamReader(std::move(source), std::move(parked), options));
  HPS_RETURN_IF_ERROR(
      reader->thread_.Start("hps-stream", [&owner = *reader] { return owner.Step(); }));
  return reader;
}

void StreamReader::AwaitReady() {
  MutexLock lock(mutex_);
  while (statistics_.recovering && waits_) ready_.Wait(mutex_);
}

void StreamReader::StopWaiting() {
  MutexLock lock(mutex_);
  waits_ = false;
  ready_.NotifyAll();
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

Duration StreamReader::Step() {
  const TimePoint now = RealClock().Now();
  if (now >= next_look_) {
    next_look_ = now + options_.look_every;
    FindTables();
  }
  FollowRecovery();
  absl::StatusOr<UpdateBatch> batch = source_->Poll(std::min(next_look_, now + kPollMax));
  problem_ = std::string(batch.status().message());
  const Duration wait = batch.ok() ? Duration(0) : Duration(kProblemWait);
  if (batch.ok()) Distribute(*std::move(batch));
  ApplyAll();
  if (RealClock().Now() >= next_publish_) Publish();
  return wait;
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
    if (Matches(name, options_.tables)) Subscribe(info);
  }
  for (auto entry = tables_.begin(); entry != tables_.end();) {
    const std::string name = (entry++)->first;
    if (!names.contains(name)) Forget(name);
  }
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
  if (!newest.positions.empty()) recovery_.Add(*entry.table);
  entry.retry_wait = kRetryWaitMin;
}

void StreamReader::Forget(const std::string& name) {
  source_->Unsubscribe(name).IgnoreError();
  recovery_.Forget(name);
  tables_.erase(name);
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
    if (thread_.is_ending()) return;
    Apply(tables_.at(name));
  }
}

void StreamReader::Apply(Entry& entry) {
  StreamTable& table = *entry.table;
  const std::string name = table.name();
  // A paused table is tried without a wait, so that the others go on.
  const Duration wait = entry.why.empty() ? Duration(kApplyWaitMax) : Duration(0);
  const absl::Status status = table.Apply(DeadlineAfter(RealClock(), wait));
  if (recovery_.is_done()) CommitHint(table);
  if (absl::IsFailedPrecondition(status) || absl::IsNotFound(status)) {
    LogInfo(absl::StrCat("update stream of table '", name, "': ", TextForLog(status)));
    Forget(name);  // the next look finds out what the table is now
    return;
  }
  if (!status.ok()) return Pause(entry, status);
  if (entry.why.empty()) return;
  entry.why.clear();
  entry.retry_wait = kRetryWaitMin;
  source_->SetPaused(name, UpdateSource::kAllPartitions, false).IgnoreError();
  LogInfo(absl::StrCat("update stream of table '", name, "': goes on"));
}

// Not called before the end of the recovery, which needs the hints from before the start.
void StreamReader::CommitHint(const StreamTable& table) {
  std::vector<StreamPosition> positions;
  for (const auto& [partition, position] : table.positions()) positions.push_back(position);
  source_->CommitHint(table.name(), NewestPositions(positions)).IgnoreError();
}

void StreamReader::Pause(Entry& entry, const absl::Status& why) {
  const bool was_paused = !entry.why.empty();
  entry.why = absl::IsResourceExhausted(why) ? "disk_full" : "unavailable";
  entry.retry_at = RealClock().Now() + entry.retry_wait;
  entry.retry_wait = std::min<Duration>(2 * entry.retry_wait, kRetryWaitMax);
  if (was_paused) return;
  source_->SetPaused(entry.table->name(), UpdateSource::kAllPartitions, true).IgnoreError();
  LogWarning(absl::StrCat("update stream of table '", entry.table->name(),
                          "': paused, will be tried again: ", TextForLog(why)));
}

void StreamReader::FollowRecovery() {
  if (recovery_.is_done()) return;
  recovery_.Follow();
  if (recovery_.is_done()) {
    for (const auto& [name, entry] : tables_) CommitHint(*entry.table);
  }
  const StreamRecovery::Result& result = recovery_.result();
  MutexLock lock(mutex_);
  statistics_.recovering = !recovery_.is_done();
  statistics_.recovery_unverified = result.is_unverified;
  statistics_.recovery_seconds = result.seconds;
  statistics_.recovery_records = result.records;
  ready_.NotifyAll();
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
    if (!entry.why.empty()) to.paused.emplace_back(name, entry.why);
  }
}

}  // namespace hps
