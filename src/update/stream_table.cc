#include "update/stream_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"

namespace hps {
namespace {

// Of the message's keys that belong into other partitions than its own.
void AddUnordered(const UpdateMessage& message, uint32_t partition, uint32_t partition_count,
                  std::vector<uint16_t>& hashes) {
  for (size_t i = 0; i < message.count; ++i) {
    if (UpdatePartition(message.key(i), partition_count) != partition)
      hashes.push_back(UnorderedHash(message.key(i)));
  }
}

}  // namespace

StreamTable::StreamTable(const TableInfo& info, TableApplier& applier, ParkedMessages& parked)
    : info_(info), applier_(applier), parked_(parked), records_lost_(info.update_records_lost) {
  for (const StreamPosition& position : info.positions) positions_[position.partition] = position;
}

absl::Status StreamTable::Apply(Deadline deadline) {
  while (!is_idle()) {
    if (!write_.has_value()) Build();
    std::vector<StreamPosition> positions;
    HPS_RETURN_IF_ERROR(applier_.ApplyStream(ChangeOf(*write_, positions), deadline));
    for (const StreamPosition& position : positions) positions_[position.partition] = position;
    for (const auto& [partition, time_ms] : write_->times_ms) times_ms_[partition] = time_ms;
    records_lost_ += write_->records_lost;
    write_.reset();
  }
  return absl::OkStatus();
}

int64_t StreamTable::applied_time_ms(uint32_t partition) const {
  const auto found = times_ms_.find(partition);
  return found == times_ms_.end() ? 0 : found->second;
}

// An event is a write of its own, as are deletions: within a write, upserts and deletions of a key
// have no order.
void StreamTable::Build() {
  StreamWrite& write = write_.emplace();
  while (!waiting_.empty()) {
    if (auto* const event = std::get_if<UpdateEvent>(&waiting_.front())) {
      if (!write.positions.empty()) return;
      for (const StreamPosition& position : event->positions)
        write.positions[position.partition] = position;
      write.records_lost = event->records_lost;
      waiting_.pop_front();
      return;
    }
    if (!AddRecord(std::get<UpdateRecord>(waiting_.front()), write)) return;
    waiting_.pop_front();
  }
}

// 0: it is not known where keys belong, or nobody shares the table's rows.
uint32_t StreamTable::PartitionsToCompare(const UpdateRecord& record) const {
  if (info_.import_id.empty()) return 0;
  return static_cast<uint32_t>(std::ranges::count_if(positions_, [&](const auto& position) {
    return position.second.generation == record.position.generation;
  }));
}

// False: the record does not fit into this write.
bool StreamTable::AddRecord(const UpdateRecord& record, StreamWrite& write) {
  absl::StatusOr<UpdateMessage> message = DecodeUpdate(record.payload, info_.spec);
  const uint32_t partition_count = PartitionsToCompare(record);
  absl::Status placed;
  if (message.ok() && partition_count > 0)
    placed = CheckPartition(*message, record.position.partition, partition_count);
  const bool has_misplaced_keys = !placed.ok() && MayMisplaceKeys(record, partition_count);
  const bool is_of_others =
      !write.positions.empty() &&
      (write.positions.size() > 1 || write.positions.begin()->first != record.position.partition);
  if (is_of_others && (has_misplaced_keys || write.has_misplaced_keys)) return false;
  if (!placed.ok() && !has_misplaced_keys) message = placed;
  if (message.ok() && message->count > 0) {
    const Version version = VersionAt(record.position.generation, record.position.offset);
    if (!AppendMessage(*message, info_.spec, version, write)) return false;
    write.publish_times_us.push_back(message->publish_time_us);
    write.has_misplaced_keys |= has_misplaced_keys;
    if (has_misplaced_keys)
      AddUnordered(*message, record.position.partition, partition_count, write.unordered_hashes);
  }
  if (!message.ok()) Park(record, message.status());
  StreamPosition next = record.position;
  ++next.offset;
  write.positions[next.partition] = next;
  write.times_ms[next.partition] = record.time_ms;
  return true;
}

void StreamTable::Park(const UpdateRecord& record, const absl::Status& why) {
  const absl::Status parked =
      parked_.Add({.table = name(),
                   .topic = UpdateTopic(name()),
                   .position = record.position,
                   .reason = ParkReasonOf(why).value_or(ParkReason::kUnknownFormat),
                   .detail = std::string(why.message()),
                   .time_ms = record.time_ms,
                   .payload = {record.payload.begin(), record.payload.end()}});
  if (parked.ok()) return;
  LogWarning(absl::StrCat("table '", name(), "': a message that cannot be applied (", why.message(),
                          ") was not kept either: ", TextForLog(parked)));
}

TableApplier::StreamChange StreamTable::ChangeOf(StreamWrite& write,
                                                 std::vector<StreamPosition>& positions) const {
  for (const auto& [partition, position] : write.positions) positions.push_back(position);
  TableApplier::StreamChange change;
  change.incarnation = info_.incarnation;
  change.publish_times_us = write.publish_times_us;
  change.write = DurableWriteOf(write, info_.spec, positions);
  return change;
}

}  // namespace hps
