#include "l2_redis/shared_redis_table.h"

#include <xxhash.h>

#include <algorithm>
#include <deque>
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
            const FetchBatch& batch, Work& work)
      : table_(table),
        generation_(generation),
        batch_(batch),
        work_(work),
        marks_(work.pieces.size()) {}

  RedisBatch Requests() override {
    return {.bytes = work_.bytes,
            .requests = work_.requests,
            .sink = this,
            .unanswered = Unanswered::kNothing};
  }
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
    const Piece& piece = work_.pieces[request];
    if (value.type != ReplyType::kString || index > piece.count) return false;
    TakeRow(*marks_[request], work_.groups.positions[piece.first + index - 1], value.text);
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
  Work& work_;
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

SharedRedisTable::Work& SharedRedisTable::ThreadWork(size_t part) {
  thread_local std::deque<Work> works;
  while (works.size() <= part) works.emplace_back();
  return works[part];
}

// The caller has called PrepareSlots. `with_empty`: a piece also for a partition that has no keys.
void SharedRedisTable::BeginWork(std::span<const Key> keys, size_t keys_max, bool with_empty,
                                 Work& work) const {
  work.groups.Group(names_, keys, /*reversed=*/true);
  work.pieces.clear();
  work.requests.clear();
  work.lacking.clear();
  work.bytes.clear();
  for (size_t partition = 0; partition < names_.partition_count(); ++partition) {
    uint32_t first = work.groups.begins[partition];
    const uint32_t end = work.groups.begins[partition + 1];
    const uint16_t slot = names_.slot(partition);
    bool is_due = with_empty || first < end;
    for (uint32_t count = 0; is_due; first += count, is_due = first < end) {
      count = static_cast<uint32_t>(std::min<size_t>(end - first, keys_max));
      work.pieces.push_back({.partition = partition, .first = first, .count = count});
      work.requests.push_back({.slot = slot, .epoch = client_->slots().Epoch(slot)});
    }
  }
}

std::unique_ptr<RedisFetchPart> SharedRedisTable::BeginFetch(const FetchBatch& batch,
                                                             size_t number) {
  HPS_CHECK(batch.keys.empty() || batch.rows.row_bytes == row_bytes_);
  const StreamFence::Generation* const generation = stream_.current();
  const std::span<const Key> keys = generation == nullptr ? std::span<const Key>() : batch.keys;
  Work& work = ThreadWork(number);
  work.deadline = kNoDeadline;
  BeginWork(keys, kKeysPerFetchMax, /*with_empty=*/false, work);
  for (size_t request = 0; request < work.requests.size(); ++request) {
    const Piece& piece = work.pieces[request];
    work.requests[request].begin = work.bytes.size();
    AppendCommandHeader(piece.count + 2, work.bytes);
    AppendPart("MGET", work.bytes);
    names_.AppendChangeName(piece.partition, 0, work.bytes);
    for (const uint32_t i : PositionsOf(piece, work))
      names_.AppendName(piece.partition, 0, keys[i], work.bytes);
    work.requests[request].end = work.bytes.size();
  }
  return std::make_unique<FetchPart>(*this, generation, batch, work);
}

// Else a damaged row would stay until it is evicted or changed.
void SharedRedisTable::RemoveDamaged(std::span<const Key> keys) {
  Work& work = ThreadWork();
  work.deadline = kNoDeadline;
  client_->PrepareSlots(work.deadline);
  BeginWork(keys, kKeysPerFetchMax, /*with_empty=*/false, work);
  for (size_t request = 0; request < work.requests.size(); ++request) {
    const Piece& piece = work.pieces[request];
    work.requests[request].begin = work.bytes.size();
    AppendCommandHeader(piece.count + 1, work.bytes);
    AppendPart("DEL", work.bytes);
    for (const uint32_t i : PositionsOf(piece, work))
      names_.AppendName(piece.partition, 0, keys[i], work.bytes);
    work.requests[request].end = work.bytes.size();
  }
  RedisCountSink sink;
  client_->Execute({.bytes = work.bytes,
                    .requests = work.requests,
                    .sink = &sink,
                    .unanswered = Unanswered::kNothing},
                   work.deadline);
}

void SharedRedisTable::AppendRow(Key key, const SharedRow& row, std::string& out) const {
  AppendPartHeader(kSharedHeaderBytes - kSharedNonceBytes + row.row.size(), out);
  AppendSharedRow(IdentityOf(key), row, out);
  out.append(kPartEnd);
}

// The command up to its first argument.
void SharedRedisTable::AppendScript(const ScriptCall& call, const Piece& piece,
                                    size_t argument_count, std::span<const Key> keys,
                                    Work& work) const {
  AppendCommandHeader(4 + size_t{piece.count} + argument_count, work.bytes);
  AppendPart(call.with_text ? "EVAL" : "EVALSHA", work.bytes);
  AppendPart(call.with_text ? call.script.text : call.script.sha1, work.bytes);
  AppendPart(absl::StrCat(piece.count + 1), work.bytes);
  names_.AppendChangeName(piece.partition, 0, work.bytes);
  for (const uint32_t i : PositionsOf(piece, work))
    names_.AppendName(piece.partition, 0, keys[i], work.bytes);
}

// `kept` are numbers of pieces, ascending.
void SharedRedisTable::KeepPieces(std::span<const size_t> kept, Work& work) {
  for (size_t to = 0; to < kept.size(); ++to) {
    work.pieces[to] = work.pieces[kept[to]];
    const RedisRequest asked = work.requests[kept[to]];
    work.requests[to] = {.slot = asked.slot, .epoch = asked.epoch};
  }
  work.pieces.resize(kept.size());
  work.requests.resize(kept.size());
}

// A server that does not know the script gets its text.
void SharedRedisTable::RunScript(const RedisScript& script, const WriteRequest& write, Work& work,
                                 RedisCountSink& sink) {
  for (const bool with_text : {false, true}) {
    for (size_t request = 0; request < work.requests.size(); ++request) {
      work.requests[request].begin = work.bytes.size();
      write({.script = script, .with_text = with_text}, request, work);
      work.requests[request].end = work.bytes.size();
    }
    client_->Execute({.bytes = work.bytes,
                      .requests = work.requests,
                      .sink = &sink,
                      .unanswered = Unanswered::kNothing},
                     work.deadline);
    for (size_t request = 0; request < work.requests.size(); ++request) {
      if (!work.requests[request].answered) work.lacking.push_back(work.pieces[request].partition);
    }
    for (const size_t request : sink.TakeNoRoom())
      work.lacking.push_back(work.pieces[request].partition);
    const std::vector<size_t> again = sink.TakeUnknownScript();
    KeepPieces(again, work);
    work.bytes.clear();
    if (again.empty()) break;
  }
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
  Work& work = ThreadWork();
  work.deadline = deadline;
  client_->PrepareSlots(deadline);
  BeginWork(keys, kKeysPerScriptMax, /*with_empty=*/false, work);
  const std::string packed = PackVersions(positions);
  const std::string nonce = PackNonce();
  const std::string expiry = absl::StrCat(options_.expire_after_ms);
  const auto write = [&](const ScriptCall& call, size_t request, Work& to) {
    const Piece& piece = to.pieces[request];
    AppendScript(call, piece, 4 + size_t{piece.count}, keys, to);
    AppendPart(packed, to.bytes);
    AppendPart(nonce, to.bytes);
    AppendPartHeader(2 * size_t{piece.count}, to.bytes);
    for (const uint32_t i : PositionsOf(piece, to)) {
      const size_t partition = positions.empty() ? 0 : generation->PartitionOf(keys[i]);
      to.bytes += static_cast<char>(partition >> 8);
      to.bytes += static_cast<char>(partition & 0xff);
    }
    to.bytes.append(kPartEnd);
    AppendPart(expiry, to.bytes);
    for (const uint32_t i : PositionsOf(piece, to)) AppendRow(keys[i], rows[i], to.bytes);
  };
  RedisCountSink sink;
  RunScript(SharedInsertScript(), write, work, sink);
  counts.inserted += sink.sum();
  if (work.lacking.empty()) counts.held += keys.size() - sink.sum();
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
  Work& work = ThreadWork();
  work.deadline = deadline;
  client_->PrepareSlots(deadline);
  BeginWork(step.keys, std::numeric_limits<uint32_t>::max(), /*with_empty=*/true, work);
  std::vector<size_t> kept;
  for (size_t piece = 0; piece < work.pieces.size(); ++piece)
    if (!lacks[work.pieces[piece].partition]) kept.push_back(piece);
  KeepPieces(kept, work);
  const auto write = [&](const ScriptCall& call, size_t request, Work& into) {
    const Piece& piece = into.pieces[request];
    AppendScript(call, piece, 3 + size_t{piece.count}, step.keys, into);
    AppendPart(packed_from, into.bytes);
    AppendPart(packed_to, into.bytes);
    AppendPart(nonce, into.bytes);
    for (const uint32_t i : PositionsOf(piece, into))
      AppendRow(step.keys[i], step.rows[i], into.bytes);
  };
  RedisCountSink sink;
  RunScript(SharedChangeScript(), write, work, sink);
  counters_.NoteUpdates(sink.sum());
  for (const size_t partition : work.lacking) lacks[partition] = true;
}

}  // namespace hps
