#include "l2_redis/shared_redis_table.h"

#include <xxhash.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/macros.h"
#include "l2_redis/command_writer.h"
#include "l2_redis/shared_scripts.h"
#include "l2_redis/write_steps.h"

namespace hps {
namespace {

// Keys of one command. A server does nothing else meanwhile: some tenths of a millisecond.
constexpr size_t kKeysPerFetchMax = 512;
constexpr size_t kKeysPerScriptMax = 256;

// Of the names and values, so that another one shares nothing with this one.
constexpr int kSharedFormat = 2;

uint64_t HashOf(const TableInfo& info, size_t partition_count) {
  const std::string text = absl::StrCat(kSharedFormat, "\n", info.spec.name, "\n", info.import_id,
                                        "\n", info.spec.row_bytes(), "\n",
                                        static_cast<int>(info.spec.dtype), "\n", partition_count);
  return XXH3_64bits(text.data(), text.size());
}

uint64_t NewNonce() {
  std::random_device device;
  return ((uint64_t{device()} << 32) | device()) & ~kLateBit;
}

std::string PackVersions(std::span<const Version> versions) {
  std::string packed;
  AppendVersions(versions, packed);
  return packed;
}

std::string PackNonce() {
  std::string packed;
  AppendNonce(NewNonce(), packed);
  return packed;
}

}  // namespace

// Takes the answer to MGET: one array, with the mark, and a value or nil for each key of the piece.
class SharedRedisTable::FetchPart final : public RedisFetchPart {
 public:
  // Without a generation there are no requests.
  FetchPart(SharedRedisTable& table, const StreamFence::Generation* generation,
            const FetchBatch& batch, RedisPieces& work)
      : table_(table),
        generation_(generation),
        batch_(batch),
        work_(work),
        marks_(work.pieces.size()) {}

  RedisBatch Requests() override { return work_.Batch(this, Unanswered::kNothing); }
  void End() override {
    if (!damaged_.empty()) table_.RemoveDamaged(damaged_);
  }

  bool OnArray(size_t request, size_t count) override {
    return count == work_.pieces[request].count + 1;
  }

  // Replies of several nodes come by turns.
  bool OnValue(size_t request, size_t index, const ReplyValue& value) override {
    if (index == 0) {
      TakeMark(request, value);
      return true;
    }
    if (value.type == ReplyType::kNil || !marks_[request].has_value()) return true;
    const RedisPiece& piece = work_.pieces[request];
    if (value.type != ReplyType::kString || index > piece.count) return false;
    TakeRow(*marks_[request], work_.PositionsOf(piece)[index - 1], value.text);
    return true;
  }

  void OnRefused(size_t, size_t, RedisError) override {}

 private:
  // Of another generation: this node and those that wrote the rows count partitions differently.
  void TakeMark(size_t request, const ReplyValue& value) {
    if (value.type != ReplyType::kString) return;
    std::optional<SharedMark> mark = ParseSharedMark(value.text);
    if (mark.has_value() && mark->generation() == generation_->number() &&
        mark->positions.size() == generation_->partition_count()) {
      marks_[request] = std::move(mark);
    }
  }

  void TakeRow(const SharedMark& mark, size_t i, std::string_view value) {
    const Key key = batch_.keys[i];
    SharedRow row;
    switch (ParseSharedRow(table_.IdentityOf(key), mark.nonce, value, table_.row_bytes_, row)) {
      case SharedRowState::kCurrent:
        break;
      case SharedRowState::kGone:
        return;
      case SharedRowState::kDamaged:
        damaged_.push_back(key);
        return;
    }
    Version complete_to = row.complete_to;
    if (!row.is_late && !mark.positions.empty())
      complete_to = std::max(complete_to, mark.positions[generation_->PartitionOf(key)]);
    if (!generation_->Takes(key, row.version, complete_to)) return;
    if (row.row.empty()) {
      batch_.outcomes[i] = FetchOutcome::kAbsent;
      return;
    }
    std::memcpy(batch_.rows.row(i), row.row.data(), row.row.size());
    if (!batch_.versions.empty()) batch_.versions[i] = row.version;
    batch_.outcomes[i] = FetchOutcome::kHit;
  }

  SharedRedisTable& table_;
  const StreamFence::Generation* const generation_;
  const FetchBatch& batch_;
  RedisPieces& work_;
  std::vector<std::optional<SharedMark>> marks_;  // by request; none: no row counts
  std::vector<Key> damaged_;
};

SharedRedisTable::SharedRedisTable(std::shared_ptr<RedisClient> client, const Options& options,
                                   const SharedTableStart& start)
    : client_(std::move(client)),
      options_(options),
      row_bytes_(start.info.spec.row_bytes()),
      table_hash_(HashOf(start.info, options.partition_count)),
      names_(options.key_prefix, table_hash_ >> (64 - kIncarnationBits), options.partition_count),
      fence_(0),
      stream_(start.info.positions, start.info.update_records_lost == 0, start.unordered_hashes),
      lacking_since_(options.partition_count) {}

std::unique_ptr<RedisFetchPart> SharedRedisTable::BeginFetch(const FetchBatch& batch,
                                                             size_t number) {
  HPS_CHECK(batch.keys.empty() || batch.rows.row_bytes == row_bytes_);
  const StreamFence::Generation* const generation = stream_.current();
  const std::span<const Key> keys = generation == nullptr ? std::span<const Key>() : batch.keys;
  auto& work = ThreadPieces<RedisPieces>(number);
  work.Divide(names_, client_->slots(), keys, kKeysPerFetchMax);
  work.WriteFetches();
  return std::make_unique<FetchPart>(*this, generation, batch, work);
}

// Else a damaged row would stay until it is evicted or changed.
void SharedRedisTable::RemoveDamaged(std::span<const Key> keys) {
  auto& work = ThreadPieces<RedisPieces>();
  client_->PrepareSlots(kNoDeadline);
  work.Divide(names_, client_->slots(), keys, kKeysPerFetchMax);
  work.WriteErasures();
  RedisCountSink sink;
  client_->Execute(work.Batch(&sink, Unanswered::kNothing), kNoDeadline);
}

void SharedRedisTable::AppendRow(Key key, const SharedRow& row, std::string& out) const {
  AppendPartHeader(kSharedHeaderBytes - kSharedNonceBytes + row.row.size(), out);
  AppendSharedRow(IdentityOf(key), row, out);
  out.append(kPartEnd);
}

// A server that does not know the script gets its text.
std::vector<size_t> SharedRedisTable::RunScript(const RedisScript& script, const WriteCall& write,
                                                Deadline deadline, RedisPieces& work,
                                                RedisCountSink& sink) {
  std::vector<size_t> lacking;
  for (const bool with_text : {false, true}) {
    work.WriteRequests([&](size_t request) {
      write({.script = script, .with_text = with_text}, work.pieces[request]);
    });
    client_->Execute(work.Batch(&sink, Unanswered::kNothing), deadline);
    for (size_t request = 0; request < work.requests.size(); ++request)
      if (!work.requests[request].answered) lacking.push_back(work.pieces[request].partition);
    for (const size_t request : sink.TakeNoRoom())
      lacking.push_back(work.pieces[request].partition);
    work.Keep(sink.TakeUnknownScript());
    if (work.pieces.empty()) break;
  }
  return lacking;
}

absl::StatusOr<InsertCounts> SharedRedisTable::Insert(const RowBatch& batch, ApplyEpoch epoch) {
  InsertCounts counts;
  const Deadline deadline = WriteEnd();
  const size_t step = StepKeys(row_bytes_);
  for (size_t end = batch.keys.size(); end > 0; end -= std::min(end, step)) {
    if (RealClock().Now() >= deadline) break;
    InsertStep(Part(batch, end - std::min(end, step), end), epoch, deadline, counts);
  }
  counts.dropped = batch.keys.size() - counts.inserted - counts.held - counts.refused;
  counters_.Note(counts);
  return counts;
}

// The positions are read before the fence is asked. So a row that the fence admits, whose key has
// not changed since `epoch`, is complete up to these positions. The row may be written late,
// because the script compares the positions with the mark.
void SharedRedisTable::InsertStep(const RowBatch& batch, ApplyEpoch epoch, Deadline deadline,
                                  InsertCounts& counts) {
  const StreamFence::Generation* const generation = stream_.current();
  if (generation == nullptr) return;
  const std::vector<Version> positions = generation->Positions();
  std::vector<Key> keys;
  std::vector<SharedRow> rows;
  {
    const Fence::Insertion insertion(fence_, epoch);
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      const Key key = batch.keys[i];
      SharedRow row = {.version = batch.versions.empty() ? 0 : batch.versions[i]};
      if (!positions.empty()) row.complete_to = positions[generation->PartitionOf(key)];
      if (IsAbsent(batch, i)) {
        row.version = row.complete_to - std::min<Version>(row.complete_to, 1);
      } else {
        row.row = {batch.rows.row(i), row_bytes_};
      }
      if (!insertion.Admits(key) || !generation->IsOrdered(key)) {
        ++counts.refused;
        continue;
      }
      keys.push_back(key);
      rows.push_back(row);
    }
  }
  if (keys.empty()) return;
  auto& work = ThreadPieces<RedisPieces>();
  client_->PrepareSlots(deadline);
  work.Divide(names_, client_->slots(), keys, kKeysPerScriptMax);
  const std::string packed = PackVersions(positions);
  const std::string nonce = PackNonce();
  const std::string expiry = absl::StrCat(options_.expire_after_ms);
  const auto write = [&](const RedisScriptCall& call, const RedisPiece& piece) {
    work.AppendScript(call, piece, 4 + size_t{piece.count});
    AppendPart(packed, work.bytes);
    AppendPart(nonce, work.bytes);
    AppendPartHeader(2 * size_t{piece.count}, work.bytes);
    for (const uint32_t i : work.PositionsOf(piece)) {
      const size_t partition = positions.empty() ? 0 : generation->PartitionOf(keys[i]);
      work.bytes += static_cast<char>(partition >> 8);
      work.bytes += static_cast<char>(partition & 0xff);
    }
    work.bytes.append(kPartEnd);
    AppendPart(expiry, work.bytes);
    for (const uint32_t i : work.PositionsOf(piece)) AppendRow(keys[i], rows[i], work.bytes);
  };
  RedisCountSink sink;
  const auto lacking = RunScript(SharedInsertScript(), write, deadline, work, sink);
  counts.inserted += sink.sum();
  if (lacking.empty()) counts.held += keys.size() - sink.sum();
}

absl::StatusOr<uint64_t> SharedRedisTable::Update(const RowBatch& /*batch*/) { return 0; }

absl::StatusOr<uint64_t> SharedRedisTable::Erase(std::span<const Key> /*keys*/) { return 0; }

absl::Status SharedRedisTable::RaiseWatermarks(std::span<const Key> /*keys*/, ApplyEpoch /*epoch*/,
                                               Deadline /*deadline*/) {
  return absl::OkStatus();
}

absl::Status SharedRedisTable::Clear() {
  stream_.ForgetRows();
  return absl::OkStatus();
}

// An insertion under the fence only reads positions, so the wait for it is short.
void SharedRedisTable::BeginChange(std::span<const Key> keys, ApplyEpoch epoch,
                                   std::span<const StreamPosition> positions) {
  const absl::Status raised = fence_.Raise(keys, epoch, kNoDeadline);
  HPS_CHECK(raised.ok());
  stream_.BeginChange(keys, positions);
}

void SharedRedisTable::EndChange(const DurableWrite& write) {
  const std::vector<StreamPosition> before = Positions();
  stream_.EndChange(write.positions, write.records_lost == 0);
  if (!options_.writes_changes) return;
  std::vector<StreamPosition> from;
  for (const StreamPosition& position : write.positions) {
    for (const StreamPosition& known : before) {
      if (known.partition == position.partition && known.generation == position.generation)
        from.push_back(known);
    }
  }
  if (from.size() != write.positions.size()) return;  // a generation begins: there are no rows
  if (!WriteSteps({.write = &write, .from = from}, WriteEnd()).ok()) client_->NoteChangeGivenUp();
}

std::vector<StreamPosition> SharedRedisTable::Positions() const {
  std::vector<StreamPosition> positions;
  const StreamFence::Generation* const generation = stream_.current();
  if (generation == nullptr) return positions;
  for (const Version version : generation->Positions()) {
    positions.push_back({.partition = static_cast<uint32_t>(positions.size()),
                         .generation = static_cast<uint16_t>(version >> 48),
                         .offset = version & ((uint64_t{1} << 48) - 1)});
  }
  return positions;
}

absl::Status SharedRedisTable::WriteChange(const SharedChange& change) {
  return WriteSteps(change, kNoDeadline);
}

// Each step has a time-out of its own. With one time-out for all steps, a change of many steps
// would never be complete, since the caller repeats it from its first step. Only EndChange, which
// repeats nothing, limits all steps together, by `end`.
absl::Status SharedRedisTable::WriteSteps(const SharedChange& change, Deadline end) {
  const StreamFence::Generation* const generation = stream_.current();
  if (generation == nullptr || generation->partition_count() == 0) return absl::OkStatus();
  const auto is_known = [&](const StreamPosition& position) {
    return position.generation == generation->number() &&
           position.partition < generation->partition_count();
  };
  // The change is of an older generation. The mark is of the present generation, and includes it.
  if (!std::ranges::all_of(change.from, is_known) ||
      !std::ranges::all_of(change.write->positions, is_known)) {
    return absl::OkStatus();
  }
  // A partition that lacks a step gets none of the later steps. Its mark would lack the changes of
  // the missing step, so a later step would cost the partition all of its rows. It may get all
  // steps when the caller writes the change again.
  std::vector<bool> lacks(names_.partition_count());
  for (const Step& step : StepsOf(change, *generation)) {
    if (change.ends && change.ends())
      return absl::UnavailableError("the writer of a shared table ends");
    RunStep(step, std::min(end, WriteEnd()), lacks);
  }
  return JudgeWrite(lacks);
}

// `lacks`, by partition of Redis: those that lack the change.
absl::Status SharedRedisTable::JudgeWrite(const std::vector<bool>& lacks) {
  const auto lacking_count = static_cast<size_t>(std::ranges::count(lacks, true));
  const TimePoint now = RealClock().Now();
  bool is_young = false;  // one of them may only have lost a reply
  {
    MutexLock lock(mutex_);
    for (size_t partition = 0; partition < lacks.size(); ++partition) {
      TimePoint& since = lacking_since_[partition];
      if (!lacks[partition] || lacking_count == lacks.size()) {
        since = TimePoint();
        continue;
      }
      if (since == TimePoint()) since = now;
      is_young |= now - since < kRetryFor;
    }
  }
  if (lacking_count == 0) return absl::OkStatus();
  if (lacking_count == lacks.size())
    return absl::UnavailableError("no server of Redis took a change of a shared table");
  if (is_young) {
    return absl::UnavailableError(absl::StrCat(
        "the servers of ", lacking_count, " of ", lacks.size(),
        " partitions in Redis did not take a change of a shared table; it is tried again for ",
        std::chrono::duration_cast<std::chrono::seconds>(kRetryFor).count(),
        " s, then changes go on without them"));
  }
  client_->NoteChangeGivenUp();
  return absl::OkStatus();
}

// Divides a change into scripts of bounded length. Each is whole: of every partition, it has all
// changes between two positions.
std::vector<SharedRedisTable::Step> SharedRedisTable::StepsOf(
    const SharedChange& change, const StreamFence::Generation& generation) const {
  const DurableWrite& write = *change.write;
  const bool is_delete = write.upserts.keys.empty();
  const std::span<const Key> keys = is_delete ? write.deletes : write.upserts.keys;
  const std::span<const Version> versions =
      is_delete ? write.delete_versions : write.upserts.versions;
  HPS_CHECK(versions.size() == keys.size());
  std::vector<Version> from(generation.partition_count());  // of the next step
  std::vector<Version> end(generation.partition_count());   // of the last one
  for (const StreamPosition& position : change.from)
    from[position.partition] = VersionAt(position.generation, position.offset);
  for (const StreamPosition& position : write.positions)
    end[position.partition] = VersionAt(position.generation, position.offset);
  const size_t keys_max = kKeysPerScriptMax * names_.partition_count();
  std::vector<Step> steps;
  Step step = {.from = from, .to = from};
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t partition = generation.PartitionOf(keys[i]);
    const bool in_order = versions[i] >= from[partition] && versions[i] < end[partition];
    if (step.keys.size() >= keys_max && i > 0 && versions[i] != versions[i - 1]) {
      from = step.to;
      steps.push_back(std::exchange(step, Step{.from = from, .to = from}));
    }
    SharedRow row = {.version = versions[i], .complete_to = versions[i] + 1};
    if (!in_order) {
      row = {.version = std::numeric_limits<Version>::max()};  // a wrong partition: removed
    } else {
      step.to[partition] = std::max(step.to[partition], versions[i] + 1);
    }
    if (!is_delete && in_order) row.row = {write.upserts.rows.row(i), row_bytes_};
    step.keys.push_back(keys[i]);
    step.rows.push_back(row);
  }
  step.to = end;
  steps.push_back(std::move(step));
  return steps;
}

// `lacks`, by partition of Redis: partitions to leave out. Adds those in which the step was not
// run.
void SharedRedisTable::RunStep(const Step& step, Deadline deadline, std::vector<bool>& lacks) {
  const StreamFence::Generation* const generation = stream_.current();
  if (generation == nullptr || generation->partition_count() != step.to.size()) return;
  // A new mark needs positions of all partitions of the stream, also of those without changes.
  std::vector<Version> to = generation->Positions();
  for (size_t partition = 0; partition < to.size(); ++partition)
    if (step.to[partition] != 0) to[partition] = step.to[partition];
  const std::string packed_from = PackVersions(step.from);
  const std::string packed_to = PackVersions(to);
  const std::string nonce = PackNonce();
  auto& work = ThreadPieces<RedisPieces>();
  client_->PrepareSlots(deadline);
  work.Divide(names_, client_->slots(), step.keys, step.keys.size(), /*with_empty=*/true);
  std::vector<size_t> kept;
  for (size_t piece = 0; piece < work.pieces.size(); ++piece)
    if (!lacks[work.pieces[piece].partition]) kept.push_back(piece);
  work.Keep(kept);
  const auto write = [&](const RedisScriptCall& call, const RedisPiece& piece) {
    work.AppendScript(call, piece, 3 + size_t{piece.count});
    AppendPart(packed_from, work.bytes);
    AppendPart(packed_to, work.bytes);
    AppendPart(nonce, work.bytes);
    for (const uint32_t i : work.PositionsOf(piece))
      AppendRow(step.keys[i], step.rows[i], work.bytes);
  };
  RedisCountSink sink;
  const auto lacking = RunScript(SharedChangeScript(), write, deadline, work, sink);
  counters_.NoteUpdates(sink.sum());
  for (const size_t partition : lacking) lacks[partition] = true;
}

}  // namespace hps
