#include "update/shared_writer.h"

#include <algorithm>
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
constexpr auto kSharedPublishEvery = std::chrono::milliseconds(200);
constexpr size_t kSharedPollRecordsMax = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<SharedWriter>> SharedWriter::Start(const Options& options) {
  std::unique_ptr<SharedWriter> writer(new SharedWriter(options));
  HPS_RETURN_IF_ERROR(
      writer->thread_.Start("hps-shared", [&owner = *writer] { return owner.Step(); }));
  return writer;
}

SharedGroupStatistics SharedWriter::Statistics() const {
  MutexLock lock(mutex_);
  return statistics_;
}

size_t SharedWriter::Waiting::bytes() const {
  size_t sum = 0;
  for (const UpdateRecord& record : records) sum += record.payload.size();
  return sum;
}

Duration SharedWriter::Step() {
  if (RealClock().Now() >= next_look_) {
    FollowTables();
    next_look_ = RealClock().Now() + options_.look_every;
  }
  if (RealClock().Now() >= next_publish_) Publish();
  if (group_ == nullptr) return options_.look_every;
  absl::Status status;
  const Deadline end = DeadlineAfter(RealClock(), kWriteEvery);
  // A node that can't write for long is expelled from the group, and others take over.
  while (status.ok() && waiting_bytes_ < options_.memory_bytes_max && RealClock().Now() < end) {
    progress_at_ = RealClock().Now();
    absl::StatusOr<std::vector<UpdateRecord>> records = group_->Poll(kSharedPollRecordsMax, end);
    status = records.status();
    if (records.ok()) Take(*std::move(records));
  }
  status.Update(WriteAll());
  if (status.ok()) LeaveStandingTable();
  if (!status.ok() && !is_failing_) {
    LogWarning(
        absl::StrCat("changes are not written into the shared level 2 now: ", TextForLog(status)));
  }
  is_failing_ = !status.ok();
  if (!status.ok()) return kSharedProblemWait;
  return waiting_bytes_ == 0 ? Duration(0) : Duration(kWriteEvery);
}

// Whether this node can write the table again: level 3 has applied one of the records that waited,
// or its offsets mean other records now. It is not enough that level 3 moves: it may be far behind
// what the group has committed.
bool SharedWriter::GoesOn(const LeftTable& left, const TableState& state,
                          std::span<const StreamPosition> applied) {
  return state != left.state || std::ranges::any_of(applied, [&](const StreamPosition& position) {
           const auto waits = left.waits_from.find(position.partition);
           return waits != left.waits_from.end() && position.offset > waits->second;
         });
}

SharedWriter::Tables SharedWriter::SharedTables() const {
  Tables tables;
  for (LiveModel* const model : options_.registry->models()) {
    for (const std::shared_ptr<LiveTable>& table : model->Tables()) {
      if (table->shared() == nullptr) continue;
      const std::vector<StreamPosition> positions = table->shared()->Positions();
      if (positions.empty()) continue;  // its stream has not begun, or it shares nothing
      const std::string& name = table->spec().name;
      const TableState state = {.incarnation = table->incarnation(),
                                .generation = positions.front().generation};
      const auto left = left_.find(name);
      if (left != left_.end() && !GoesOn(left->second, state, positions)) continue;
      tables[name] = state;
    }
  }
  return tables;
}

// In a new generation an offset means another record. The records that the client has fetched ahead
// are of the old generation, so the group is joined anew.
void SharedWriter::FollowTables() {
  Tables tables = SharedTables();
  std::erase_if(left_, [&](const auto& left) {
    return tables.contains(left.first) || options_.registry->FindTable(left.first) == nullptr;
  });
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

// If the offsets go back, the partition has come back from another owner: the records that waited
// are dropped, and it begins again.
void SharedWriter::Take(std::vector<UpdateRecord> records) {
  for (UpdateRecord& record : records) {
    Waiting& waiting = waiting_[{std::string(record.table), record.position.partition}];
    if (record.position.offset < waiting.next) {
      waiting_bytes_ -= waiting.bytes();
      waiting.records.clear();
    }
    waiting.next = record.position.offset + 1;
    waiting_bytes_ += record.payload.size();
    waiting.records.push_back(std::move(record));
  }
}

// A partition that can't be written does not hold up the others.
absl::Status SharedWriter::WriteAll() {
  absl::Status status;
  for (auto& [place, waiting] : waiting_) {
    while (!waiting.records.empty() && !thread_.is_ending()) {
      const size_t before = waiting.records.size();
      const absl::Status written = WritePartition(place, waiting.records);
      status.Update(written);
      if (waiting.records.size() == before) break;
    }
  }
  return status;
}

// The positions of level 3. Empty if the live table has another incarnation or generation than the
// records that were read, or shares nothing.
std::vector<StreamPosition> SharedWriter::Applied(const std::string& table) const {
  const std::shared_ptr<LiveTable> live = options_.registry->FindTable(table);
  const auto state = tables_.find(table);
  if (state == tables_.end() || live == nullptr || live->shared() == nullptr) return {};
  std::vector<StreamPosition> applied = live->shared()->Positions();
  if (applied.empty()) return {};
  const TableState now = {.incarnation = live->incarnation(), .generation = applied[0].generation};
  if (now != state->second) return {};  // the next look finds out
  return applied;
}

// Writes the first records, as many as make one change. Those that level 3 lacks stay.
absl::Status SharedWriter::WritePartition(const Place& place, std::deque<UpdateRecord>& records) {
  const std::vector<StreamPosition> applied = Applied(place.first);
  const std::shared_ptr<LiveTable> live = options_.registry->FindTable(place.first);
  if (place.second >= applied.size() || live == nullptr || live->shared() == nullptr)
    return absl::OkStatus();
  StreamWrite write;
  const size_t count = Gather(records, live->spec(), applied, write);
  if (count == 0) return absl::OkStatus();
  StreamPosition from = applied[place.second];
  from.offset = records.front().position.offset;
  StreamPosition behind = from;
  behind.offset = from.offset + count;
  const DurableWrite change = DurableWriteOf(write, live->spec(), {&behind, 1});
  HPS_RETURN_IF_ERROR(live->shared()->WriteChange(
      {.write = &change, .from = {&from, 1}, .ends = [this] { return thread_.is_ending(); }}));
  group_->Commit(place.first, {&behind, 1});
  progress_at_ = RealClock().Now();
  for (size_t i = 0; i < count; ++i) {
    waiting_bytes_ -= records.front().payload.size();
    records.pop_front();
  }
  return absl::OkStatus();
}

// The number of records that are gathered: neighbours without a hole between them. A message that
// can't be applied changes nothing; the node's own subscription sets it aside. The rows of keys
// that belong into other partitions are removed (SharedTable::WriteChange).
size_t SharedWriter::Gather(const std::deque<UpdateRecord>& records, const TableSpec& spec,
                            std::span<const StreamPosition> applied, StreamWrite& write) const {
  const StreamPosition first = records.front().position;
  const StreamPosition& end = applied[first.partition];
  const auto partition_count = static_cast<uint32_t>(applied.size());
  size_t count = 0;
  for (const UpdateRecord& record : records) {
    const uint64_t offset = record.position.offset;
    if (offset != first.offset + count || offset >= end.offset) break;
    const absl::StatusOr<UpdateMessage> message = DecodeUpdate(record.payload, spec);
    const bool is_applied = message.ok() && message->count > 0 &&
                            (MayMisplaceKeys(record, partition_count) ||
                             CheckPartition(*message, first.partition, partition_count).ok());
    if (is_applied && !AppendMessage(*message, spec, VersionAt(end.generation, offset), write))
      break;
    ++count;
  }
  return count;
}

// If the memory is full and nothing has been written for `stands_after`, leaves the table whose
// waiting records take the most memory to other nodes.
void SharedWriter::LeaveStandingTable() {
  if (waiting_bytes_ < options_.memory_bytes_max) return;
  if (RealClock().Now() < progress_at_ + options_.stands_after) return;
  std::map<std::string, size_t> bytes;
  for (const auto& [place, waiting] : waiting_) {
    if (!waiting.records.empty()) bytes[place.first] += waiting.bytes();
  }
  const auto most = std::ranges::max_element(
      bytes, [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == bytes.end()) return;
  if (Applied(most->first).empty()) return;  // the next look finds out
  LogWarning(absl::StrCat("table '", most->first, "': ", most->second,
                          " bytes of its changes wait for level 3 of this node, which applies "
                          "none: other nodes of the shared group write them until it goes on"));
  LeftTable& left = left_[most->first];
  left = {.state = tables_.at(most->first)};
  for (const auto& [place, waiting] : waiting_) {
    if (place.first == most->first && !waiting.records.empty())
      left.waits_from[place.second] = waiting.records.front().position.offset;
  }
  next_look_ = RealClock().Now();
}

// Drops the records of partitions that other nodes own now. The owners write these records; they
// read them from the committed offset on.
void SharedWriter::ForgetOthers(const std::vector<Place>& owned) {
  std::erase_if(waiting_, [&](const auto& waiting) {
    if (std::ranges::binary_search(owned, waiting.first)) return false;
    waiting_bytes_ -= waiting.second.bytes();
    return true;
  });
}

// How many records of a partition level 3 has and the shared level lacks. Unknown until a record
// has come, because this node does not know before what the group has committed.
std::optional<uint64_t> SharedWriter::LagOf(const Place& place) const {
  const auto waiting = waiting_.find(place);
  if (waiting == waiting_.end()) return std::nullopt;
  const auto& [records, next] = waiting->second;
  const std::vector<StreamPosition> applied = Applied(place.first);
  const uint64_t written = records.empty() ? next : records.front().position.offset;
  if (place.second >= applied.size()) return 0;
  return applied[place.second].offset - std::min(applied[place.second].offset, written);
}

// Makes what the thread knows visible to Statistics.
void SharedWriter::Publish() {
  next_publish_ = RealClock().Now() + kSharedPublishEvery;
  std::vector<Place> owned;
  if (group_ != nullptr) owned = group_->Owned();
  ForgetOthers(owned);
  std::vector<SharedPartitionStatistics> partitions;
  for (const Place& place : owned) {
    partitions.push_back(
        {.table = place.first, .partition = place.second, .lag_records = LagOf(place)});
  }
  MutexLock lock(mutex_);
  for (const Place& place : owned)
    statistics_.takeovers += std::ranges::binary_search(counted_, place) ? 0 : 1;
  if (!owned.empty() || group_ == nullptr) counted_ = std::move(owned);
  statistics_.partitions = std::move(partitions);
  statistics_.left_tables.clear();
  for (const auto& [table, left] : left_) statistics_.left_tables.push_back(table);
}

}  // namespace hps
