#include "l2_redis/hugectr_table.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"
#include "l2_redis/command_writer.h"
#include "l2_redis/hugectr_names.h"
#include "l2_redis/slots.h"

namespace hps {
namespace {

// Keys of one command. A server does nothing else meanwhile.
constexpr uint32_t kKeysPerHmgetMax = 512;

absl::Status ReadOnlyError() {
  return absl::FailedPreconditionError(
      "level 2 has the rows of HugeCTR HPS (l2.redis.hugectr_import_id), which are never changed");
}

}  // namespace

// Takes the answer to HMGET: one array, with a value or nil for each key of the piece.
class HugectrTable::FetchPart final : public RedisFetchPart {
 public:
  FetchPart(const HugectrTable& table, const FetchBatch& batch, Work& work)
      : table_(table), batch_(batch), work_(work) {}

  RedisBatch Requests() override {
    return {.bytes = work_.bytes,
            .requests = work_.requests,
            .sink = this,
            .unanswered = Unanswered::kNothing,
            .reads_replicas = table_.options_.reads_replicas};
  }
  void End() override {}

  bool OnArray(size_t request, size_t count) override {
    return count == work_.pieces[request].count;
  }

  bool OnValue(size_t request, size_t index, const ReplyValue& value) override {
    const Piece& piece = work_.pieces[request];
    if (value.type == ReplyType::kNil) return true;
    if (value.type != ReplyType::kString || index >= piece.count) return false;
    if (value.text.size() != table_.options_.row_bytes) return true;
    const size_t i = work_.groups.positions[piece.first + index];
    std::memcpy(batch_.rows.row(i), value.text.data(), value.text.size());
    if (!batch_.versions.empty()) batch_.versions[i] = 0;
    batch_.outcomes[i] = FetchOutcome::kHit;
    return true;
  }

  void OnRefused(size_t, size_t, RedisError) override {}

 private:
  const HugectrTable& table_;
  const FetchBatch& batch_;
  Work& work_;
};

HugectrTable::HugectrTable(std::shared_ptr<RedisClient> client, const Options& options)
    : client_(std::move(client)), options_(options) {
  for (uint32_t partition = 0; partition < options.partition_count; ++partition) {
    std::string name = HugectrHashName(options.table, partition);
    const uint16_t slot = RedisSlotOf(name);
    partitions_.push_back({.name = std::move(name), .slot = slot});
  }
}

HugectrTable::Work& HugectrTable::ThreadWork(size_t part) {
  thread_local std::deque<Work> works;
  while (works.size() <= part) works.emplace_back();
  return works[part];
}

std::unique_ptr<RedisFetchPart> HugectrTable::BeginFetch(const FetchBatch& batch, size_t number) {
  HPS_CHECK(batch.keys.empty() || batch.rows.row_bytes == options_.row_bytes);
  Work& work = ThreadWork(number);
  work.groups.GroupBy(partitions_.size(), batch.keys, /*reversed=*/false,
                      [this](Key key) { return HugectrPartition(key, options_.partition_count); });
  WriteFetches(batch.keys, work);
  return std::make_unique<FetchPart>(*this, batch, work);
}

void HugectrTable::WriteFetches(std::span<const Key> keys, Work& work) const {
  work.pieces.clear();
  work.requests.clear();
  work.bytes.clear();
  for (size_t p = 0; p < partitions_.size(); ++p) {
    const Partition& partition = partitions_[p];
    const uint32_t end = work.groups.begins[p + 1];
    uint32_t count = 0;
    for (uint32_t first = work.groups.begins[p]; first < end; first += count) {
      count = std::min(end - first, kKeysPerHmgetMax);
      RedisRequest request = {.slot = partition.slot,
                              .epoch = client_->slots().Epoch(partition.slot),
                              .begin = work.bytes.size()};
      AppendCommandHeader(count + 2, work.bytes);
      AppendPart("HMGET", work.bytes);
      AppendPart(partition.name, work.bytes);
      for (const uint32_t i : std::span(work.groups.positions).subspan(first, count)) {
        char field[sizeof(Key)];
        StoreLittleEndian(field, keys[i]);
        AppendPart({field, sizeof(field)}, work.bytes);
      }
      request.end = work.bytes.size();
      work.pieces.push_back({.first = first, .count = count});
      work.requests.push_back(request);
    }
  }
}

absl::StatusOr<InsertCounts> HugectrTable::Insert(const RowBatch& /*batch*/, ApplyEpoch /*epoch*/) {
  return InsertCounts();
}

absl::StatusOr<uint64_t> HugectrTable::Update(const RowBatch& /*batch*/) { return ReadOnlyError(); }

absl::StatusOr<uint64_t> HugectrTable::Erase(std::span<const Key> /*keys*/) {
  return ReadOnlyError();
}

absl::Status HugectrTable::RaiseWatermarks(std::span<const Key> /*keys*/, ApplyEpoch /*epoch*/,
                                           Deadline /*deadline*/) {
  return ReadOnlyError();
}

absl::Status HugectrTable::Clear() { return ReadOnlyError(); }

}  // namespace hps
