#include "update/shared_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "tier/shared_table.h"

namespace hps {
namespace {

// Records are collected so long: a write costs a command for each part of the table in Redis.
constexpr auto kWriteEvery = std::chrono::milliseconds(20);
constexpr auto kSharedProblemWait = std::chrono::milliseconds(500);
constexpr size_t kSharedPollRecordsMax = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<SharedWriter>> SharedWriter::Start(const Options& options) {
  std::unique_ptr<SharedWriter> writer(new SharedWriter(options));
  HPS_ASSIGN_OR_RETURN(writer->thread_, WorkerPool::Create({.name = "hps-shared", .queue_max = 1}));
  HPS_RETURN_IF_ERROR(writer->thread_->Post(&writer->task_));
  return writer;
}

SharedWriter::~SharedWriter() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.reset();
  waiting_.clear();
}

bool SharedWriter::Step() {
  if (RealClock().Now() >= next_look_) {
    FollowTables();
    next_look_ = RealClock().Now() + options_.look_every;
  }
  if (group_ == nullptr) return WaitFor(options_.look_every);
  absl::Status status;
  const Deadline end = DeadlineAfter(RealClock(), kWriteEvery);
  // A node that can't write for long is expelled from the group, and others take over.
  while (status.ok() && waiting_bytes_ < options_.memory_bytes_max && RealClock().Now() < end) {
    absl::StatusOr<std::vector<UpdateRecord>> records = group_->Poll(kSharedPollRecordsMax, end);
    status = records.status();
    if (records.ok()) Take(*std::move(records));
  }
  status.Update(WriteAll());
  if (!status.ok() && !is_failing_) {
    LogWarning(
        absl::StrCat("changes are not written into the shared level 2 now: ", TextForLog(status)));
  }
  is_failing_ = !status.ok();
  return WaitFor(status.ok() && waiting_bytes_ == 0 ? Duration(0)
                 : status.ok()                      ? Duration(kWriteEvery)
                                                    : Duration(kSharedProblemWait));
}

bool SharedWriter::WaitFor(Duration wait) {
  const Deadline end = DeadlineAfter(RealClock(), wait);
  MutexLock lock(mutex_);
  while (!ending_ && RealClock().Now() < end && changed_.WaitUntil(mutex_, end)) continue;
  return !ending_;
}

SharedWriter::Tables SharedWriter::SharedTables() const {
  Tables tables;
  for (LiveModel* const model : options_.registry->models()) {
    for (const std::shared_ptr<LiveTable>& table : model->Tables()) {
      if (table->shared() == nullptr) continue;
      const std::vector<StreamPosition> positions = table->shared()->Positions();
      if (positions.empty()) continue;  // its stream has not begun, or it shares nothing
      tables[table->spec().name] = {.incarnation = table->incarnation(),
                                    .generation = positions.front().generation};
    }
  }
  return tables;
}

// In a new generation an offset is of another record. What the client has fetched ahead is of the
// old one, so the group is joined anew.
void SharedWriter::FollowTables() {
  Tables tables = SharedTables();
  if (tables == tables_ && (group_ != nullptr || tables.empty())) return;
  waiting_.clear();
  waiting_bytes_ = 0;
  group_ = nullptr;
  tables_ = std::move(tables);
  if (tables_.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, state] : tables_) names.push_back(name);
  absl::StatusOr<std::unique_ptr<SharedGroup>> joined = options_.join(std::move(names));
  if (joined.ok()) {
    group_ = *std::move(joined);
  } else {
    LogError(absl::StrCat("the shared group can't be joined: ", TextForLog(joined.status())));
  }
}

// A partition that comes back from another owner begins again.
void SharedWriter::Take(std::vector<UpdateRecord> records) {
  for (UpdateRecord& record : records) {
    std::deque<UpdateRecord>& waiting =
        waiting_[{std::string(record.table), record.position.partition}];
    if (!waiting.empty() && record.position.offset <= waiting.back().position.offset) {
      for (const UpdateRecord& old : waiting) waiting_bytes_ -= old.payload.size();
      waiting.clear();
    }
    waiting_bytes_ += record.payload.size();
    waiting.push_back(std::move(record));
  }
}

absl::Status SharedWriter::WriteAll() {
  absl::Status status;
  for (auto& [place, records] : waiting_) {
    while (status.ok() && !records.empty()) {
      const size_t before = records.size();
      status.Update(WritePartition(place, records));
      if (records.size() == before) break;
    }
  }
  return status;
}

// Writes the first records, as many as make one change. Those that level 3 lacks stay.
absl::Status SharedWriter::WritePartition(const Place& place, std::deque<UpdateRecord>& records) {
  const std::shared_ptr<LiveTable> live = options_.registry->FindTable(place.first);
  const TableState& state = tables_.at(place.first);
  if (live == nullptr || live->shared() == nullptr || live->incarnation() != state.incarnation)
    return absl::OkStatus();  // the next look finds out
  const std::vector<StreamPosition> applied = live->shared()->Positions();
  if (place.second >= applied.size() || applied[place.second].generation != state.generation)
    return absl::OkStatus();
  StreamWrite write;
  const size_t count = Gather(place, records, live->spec(), applied[place.second], write);
  if (count == 0) return absl::OkStatus();
  StreamPosition from = applied[place.second];
  from.offset = records.front().position.offset;
  StreamPosition behind = from;
  behind.offset = from.offset + count;
  const DurableWrite change = DurableWriteOf(write, live->spec(), {&behind, 1});
  HPS_RETURN_IF_ERROR(live->shared()->WriteChange({.write = &change, .from = {&from, 1}}));
  group_->Commit(place.first, {&behind, 1});
  for (size_t i = 0; i < count; ++i) {
    waiting_bytes_ -= records.front().payload.size();
    records.pop_front();
  }
  return absl::OkStatus();
}

// The number of records that are gathered: neighbours without a hole between them. A message that
// can't be applied changes nothing; the node's own subscription sets it aside.
size_t SharedWriter::Gather(const Place& place, const std::deque<UpdateRecord>& records,
                            const TableSpec& spec, const StreamPosition& applied,
                            StreamWrite& write) const {
  const uint16_t generation = tables_.at(place.first).generation;
  const uint64_t first = records.front().position.offset;
  size_t count = 0;
  for (const UpdateRecord& record : records) {
    const uint64_t offset = record.position.offset;
    if (offset != first + count || offset >= applied.offset) break;
    const absl::StatusOr<UpdateMessage> message = DecodeUpdate(record.payload, spec);
    if (message.ok() && message->count > 0 &&
        !AppendMessage(*message, spec, VersionAt(generation, offset), write)) {
      break;
    }
    ++count;
  }
  return count;
}

}  // namespace hps
