#include "l2_redis/redis_table.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/macros.h"
#include "l2_redis/command_writer.h"
#include "l2_redis/write_steps.h"

namespace hps {
namespace {

// Keys of one command. A server does nothing else meanwhile: some tenths of a millisecond.
constexpr size_t kKeysPerFetchMax = 512;
constexpr size_t kKeysPerUpdateMax = 128;
// How long the masters are read after a replica was seen to lag.
constexpr Duration kReplicaRest = std::chrono::milliseconds(100);

// The first of KEYS is the name of the change's number; the others are names of rows. ARGV has the
// last number that was seen, the new number, and the rows' new values. A server whose number is
// lower than the one that was seen has lost changes: the script returns -1. A value without a row
// removes an older row. A name that has no value gets none, and a value that is not a row is
// replaced. The number is written first: a server without room refuses it, and so runs nothing of
// the script.
constexpr std::string_view kUpdateScript = R"(
local function read(...)
  local held = redis.pcall(...)
  if type(held) ~= 'table' then return held end
  if string.sub(held.err, 1, 9) ~= 'WRONGTYPE' then error(held.err) end
end
local number = read('GET', KEYS[1]) or '00000000000000'
local seen = table.remove(ARGV, 1)
if number < seen then
  return -1
end
if number < ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
end
local replaced = 0
for i = 2, #KEYS do
  local held = read('GETRANGE', KEYS[i], 0, 12)
  if held ~= '' then
    local older = not held or #held < 13
    if not older then
      local held_high, held_low = struct.unpack('>I4I4', held)
      local high, low = struct.unpack('>I4I4', ARGV[i])
      older = held_high < high or (held_high == high and held_low < low)
    end
    if older then
      if #ARGV[i] == 12 then
        redis.call('DEL', KEYS[i])
      else
        redis.call('SET', KEYS[i], ARGV[i], 'KEEPTTL')
      end
      replaced = replaced + 1
    end
  end
end
return replaced
)";
static_assert(kRowValueHeaderBytes == 12, "the script knows it");

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Decimal digits, so that texts compare as numbers do.
constexpr size_t kChangeDigits = 14;

std::string ChangeText(uint64_t number) {
  return absl::StrFormat("%0*d", static_cast<int>(kChangeDigits), number);
}

// The text of a change's number; nil is none yet.
std::optional<uint64_t> ParseChange(const ReplyValue& value) {
  if (value.type == ReplyType::kNil) return 0;
  if (value.type != ReplyType::kString || value.text.size() != kChangeDigits) return std::nullopt;
  uint64_t number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto parsed = std::from_chars(value.text.data(), end, number);
  return parsed.ptr == end ? std::optional(number) : std::nullopt;
}

}  // namespace

const RedisScript& RedisUpdateScript() {
  static const RedisScript script = MakeRedisScript(kUpdateScript);
  return script;
}

// Takes the answer to MGET: one array, with the number of the last change, and a value or nil for
// each key of the piece.
class RedisTable::FetchPart final : public RedisFetchPart {
 public:
  FetchPart(RedisTable& table, const FetchBatch& batch, Work& work)
      : table_(table), batch_(batch), work_(work), lacks_a_change_(work.pieces.size()) {}

  RedisBatch Requests() override {
    RedisBatch batch = work_.Batch(this, Unanswered::kNothing);
    batch.reads_replicas = table_.ReadsReplicas();
    return batch;
  }
  void End() override {}

  bool OnArray(size_t request, size_t count) override {
    return count == work_.pieces[request].count + 1;
  }

  // Replies of several nodes come by turns.
  bool OnValue(size_t request, size_t index, const ReplyValue& value) override {
    const RedisPiece& piece = work_.pieces[request];
    if (index == 0) {
      TakeChange(request, value);
      return true;
    }
    if (value.type == ReplyType::kNil || lacks_a_change_[request]) return true;
    if (value.type != ReplyType::kString || index > piece.count) return false;
    const size_t i = work_.PositionsOf(piece)[index - 1];
    const RowValue row = ParseRowValue(table_.IdentityOf(piece, batch_.keys[i]), value.text,
                                       table_.options_.row_bytes);
    if (!row.valid) {
      // What is held under this name is not the table's: the slot's rows get other names.
      EndEpoch(request);
      return true;
    }
    if (row.row.empty()) {
      batch_.outcomes[i] = FetchOutcome::kAbsent;
      return true;
    }
    std::memcpy(batch_.rows.row(i), row.row.data(), row.row.size());
    if (!batch_.versions.empty()) batch_.versions[i] = row.version;
    batch_.outcomes[i] = FetchOutcome::kHit;
    return true;
  }

  void OnRefused(size_t, size_t, RedisError) override {}

 private:
  // A server whose number is lower than one that was seen has lost changes, or lags behind its
  // master: none of its rows count.
  void TakeChange(size_t request, const ReplyValue& value) {
    const size_t partition = work_.pieces[request].partition;
    const Changes& known = work_.changes[request];
    const std::optional<uint64_t> change = ParseChange(value);
    lacks_a_change_[request] = !change.has_value() || *change < known.seen;
    if (lacks_a_change_[request] && work_.requests[request].to_replica) {
      table_.masters_until_.store(RealClock().Now() + kReplicaRest, std::memory_order_relaxed);
    } else if (lacks_a_change_[request]) {
      table_.changes_.NoteLoss(partition, known.losses);
    } else if (*change > known.seen) {
      table_.NoteChange(partition, known.ends, *change);
    }
  }
  void EndEpoch(size_t request) {
    const RedisRequest& asked = work_.requests[request];
    table_.client_->slots().EndEpoch(asked.slot, asked.epoch);
  }

  RedisTable& table_;
  const FetchBatch& batch_;
  Work& work_;
  std::vector<bool> lacks_a_change_;  // by request
};

// Takes the answers to SET ... NX: "OK", or nil where the key is held.
class RedisTable::InsertSink final : public RequestSink {
 public:
  explicit InsertSink(InsertCounts& counts) : counts_(counts) {}

  bool OnArray(size_t, size_t) override { return false; }
  bool OnValue(size_t, size_t, const ReplyValue& value) override {
    const bool is_nil = value.type == ReplyType::kNil;
    ++(is_nil ? counts_.held : counts_.inserted);
    return is_nil || value.type == ReplyType::kStatus;
  }
  void OnRefused(size_t, size_t, RedisError) override {}

 private:
  InsertCounts& counts_;
};

RedisTable::RedisTable(std::shared_ptr<RedisClient> client, const Options& options)
    : client_(std::move(client)),
      options_(options),
      names_(options.key_prefix, options.incarnation, options.partition_count),
      fence_(0),
      nonce_(RandomNumber()),
      changes_(options.partition_count) {}

// Each of the three counts only grows, so that no sum comes twice. The caller reads `epoch` before
// this function reads the others: a request whose epoch has ended meanwhile is not sent.
uint64_t RedisTable::EndsOf(size_t partition, uint64_t epoch) const {
  return epoch + changes_.Losses(partition) + clears_.load(std::memory_order_seq_cst);
}

uint64_t RedisTable::GenerationOf(uint64_t ends) const {
  return HashKey(static_cast<Key>(ends), nonce_);
}

void RedisTable::NoteChange(size_t partition, uint64_t ends, uint64_t number) {
  changes_.Note(partition, ends, number,
                [&] { return EndsOf(partition, client_->slots().Epoch(names_.slot(partition))); });
}

RowIdentity RedisTable::IdentityOf(const RedisPiece& piece, Key key) const {
  return {.incarnation = options_.incarnation, .generation = piece.generation, .key = key};
}

bool RedisTable::ReadsReplicas() const {
  return options_.reads_replicas &&
         RealClock().Now() >= masters_until_.load(std::memory_order_relaxed);
}

// The slots must be prepared.
void RedisTable::BeginWork(std::span<const Key> keys, size_t keys_max, Work& work) const {
  work.Divide(names_, client_->slots(), keys, keys_max);
  NameRows(work);
}

void RedisTable::NameRows(Work& work) const {
  work.changes.clear();
  for (size_t i = 0; i < work.pieces.size(); ++i) {
    RedisPiece& piece = work.pieces[i];
    const uint64_t losses = changes_.Losses(piece.partition);
    const uint64_t ends = EndsOf(piece.partition, work.requests[i].epoch);
    piece.generation = GenerationOf(ends);
    work.changes.push_back(
        {.ends = ends, .losses = losses, .seen = changes_.Seen(piece.partition, ends)});
  }
}

std::unique_ptr<RedisFetchPart> RedisTable::BeginFetch(const FetchBatch& batch, size_t number) {
  HPS_CHECK(batch.keys.empty() || batch.rows.row_bytes == options_.row_bytes);
  Work& work = ThreadPieces<Work>(number);
  BeginWork(batch.keys, kKeysPerFetchMax, work);
  work.WriteFetches();
  return std::make_unique<FetchPart>(*this, batch, work);
}

absl::StatusOr<InsertCounts> RedisTable::Insert(const RowBatch& batch, ApplyEpoch epoch) {
  InsertCounts counts;
  const Deadline deadline = WriteEnd();
  const size_t step = StepKeys(options_.row_bytes);
  for (size_t end = batch.keys.size(); end > 0; end -= std::min(end, step)) {
    if (RealClock().Now() >= deadline) break;
    client_->PrepareSlots(deadline);
    const RowBatch part = Part(batch, end - std::min(end, step), end);
    Work& work = ThreadPieces<Work>();
    const Fence::Insertion insertion(fence_, epoch);
    BeginWork(part.keys, kKeysPerFetchMax, work);
    WriteInserts(part, insertion, work, counts);
    InsertSink sink(counts);
    client_->Execute(work.Batch(&sink, Unanswered::kRunsLate), deadline);
  }
  counts.dropped = batch.keys.size() - counts.inserted - counts.held - counts.refused;
  counters_.Note(counts);
  return counts;
}

void RedisTable::WriteInserts(const RowBatch& batch, const Fence::Insertion& insertion, Work& work,
                              InsertCounts& counts) const {
  const std::string expiry = absl::StrCat(options_.expire_after_ms);
  work.WriteRequests([&](size_t request) {
    const RedisPiece& piece = work.pieces[request];
    size_t& reply_count = work.requests[request].reply_count;
    reply_count = 0;
    for (const uint32_t i : work.PositionsOf(piece)) {
      if (!insertion.Admits(batch.keys[i])) {
        ++counts.refused;
        continue;
      }
      ++reply_count;
      AppendCommandHeader(options_.expire_after_ms == 0 ? 4 : 6, work.bytes);
      AppendPart("SET", work.bytes);
      names_.AppendName(piece.partition, piece.generation, batch.keys[i], work.bytes);
      AppendValue(batch, i, piece, work.bytes);
      AppendPart("NX", work.bytes);
      if (options_.expire_after_ms == 0) continue;
      AppendPart("PX", work.bytes);
      AppendPart(expiry, work.bytes);
    }
  });
  std::erase_if(work.requests,
                [](const RedisRequest& request) { return request.reply_count == 0; });
}

void RedisTable::AppendValue(const RowBatch& batch, size_t i, const RedisPiece& piece,
                             std::string& out) const {
  const std::span<const std::byte> row =
      IsAbsent(batch, i) ? std::span<const std::byte>()
                         : std::span<const std::byte>(batch.rows.row(i), options_.row_bytes);
  AppendPartHeader(kRowValueHeaderBytes + row.size(), out);
  const Version version = batch.versions.empty() ? 0 : batch.versions[i];
  AppendRowValue(IdentityOf(piece, batch.keys[i]), version, row, out);
  out.append(kPartEnd);
}

absl::StatusOr<uint64_t> RedisTable::Update(const RowBatch& batch) {
  uint64_t replaced = 0;
  const Deadline deadline = WriteEnd();
  const size_t step = StepKeys(options_.row_bytes);
  for (size_t end = batch.keys.size(); end > 0; end -= std::min(end, step)) {
    HPS_ASSIGN_OR_RETURN(const uint64_t count,
                         UpdateStep(Part(batch, end - std::min(end, step), end), deadline));
    replaced += count;
  }
  counters_.NoteUpdates(replaced);
  return replaced;
}

// For rows that can't be changed in time: gives other names to the rows of their partitions.
void RedisTable::ForgetRows(std::span<const Key> keys) {
  std::vector<bool> forgotten(names_.partition_count());
  for (const Key key : keys) forgotten[names_.PartitionOf(key)] = true;
  for (size_t partition = 0; partition < forgotten.size(); ++partition) {
    if (forgotten[partition]) changes_.NoteLoss(partition, changes_.Losses(partition));
  }
}

// If a server does not know the script, it gets the script's text. If a server has no room for the
// change's number or for new values, the rows are removed from it.
absl::StatusOr<uint64_t> RedisTable::UpdateStep(const RowBatch& batch, Deadline deadline) {
  uint64_t replaced = 0;
  if (RealClock().Now() >= deadline) {
    ForgetRows(batch.keys);
    return replaced;
  }
  Work& work = ThreadPieces<Work>();
  client_->PrepareSlots(deadline);
  std::vector<Key> no_room;
  std::vector<size_t> unknown_script;
  for (const bool with_text : {false, true}) {
    work.Divide(names_, client_->slots(), batch.keys, kKeysPerUpdateMax);
    if (with_text) work.Keep(unknown_script);
    NameRows(work);
    WriteUpdates(batch, with_text, work);
    RedisCountSink sink;
    client_->Execute(work.Batch(&sink), deadline);
    replaced += sink.sum();
    for (size_t request = 0; request < work.requests.size(); ++request) {
      if (!work.requests[request].answered || !sink.IsMade(request)) continue;
      const Changes& changes = work.changes[request];
      NoteChange(work.pieces[request].partition, changes.ends, changes.made);
    }
    // A server has lost a change: the rows of its partition get other names, so this change need
    // not be made there.
    for (const size_t request : sink.lost_changes())
      changes_.NoteLoss(work.pieces[request].partition, work.changes[request].losses);
    for (const size_t request : sink.no_room()) {
      for (const uint32_t i : work.PositionsOf(work.pieces[request]))
        no_room.push_back(batch.keys[i]);
    }
    unknown_script = sink.TakeUnknownScript();
    if (unknown_script.empty()) break;
  }
  if (!no_room.empty()) EraseWithoutRoom(no_room, deadline);
  return replaced;
}

void RedisTable::WriteUpdates(const RowBatch& batch, bool with_text, Work& work) {
  work.WriteRequests([&](size_t request) {
    const RedisPiece& piece = work.pieces[request];
    Changes& changes = work.changes[request];
    changes.made = changes_.Next(piece.partition);
    work.AppendScript({.script = RedisUpdateScript(), .with_text = with_text}, piece,
                      2 + size_t{piece.count});
    AppendPart(ChangeText(changes.seen), work.bytes);
    AppendPart(ChangeText(changes.made), work.bytes);
    for (const uint32_t i : work.PositionsOf(piece)) AppendValue(batch, i, piece, work.bytes);
  });
}

// An update to rows that are absent, and newer than any.
absl::StatusOr<uint64_t> RedisTable::Erase(std::span<const Key> keys) {
  uint64_t erased = 0;
  const Deadline deadline = WriteEnd();
  const std::vector<uint8_t> absent(std::min(kInsertKeysMax, keys.size()), 1);
  const std::vector<Version> versions(absent.size(), std::numeric_limits<Version>::max());
  for (size_t begin = 0; begin < keys.size(); begin += kInsertKeysMax) {
    const size_t count = std::min(kInsertKeysMax, keys.size() - begin);
    const RowBatch batch = {.keys = keys.subspan(begin, count),
                            .versions = std::span(versions).first(count),
                            .absent = std::span(absent).first(count)};
    HPS_ASSIGN_OR_RETURN(const uint64_t count_erased, UpdateStep(batch, deadline));
    erased += count_erased;
  }
  return erased;
}

// The change's number can't be written, so the slot's rows get other names. The rows of `keys`
// under the old names are removed, which needs no room.
void RedisTable::EraseWithoutRoom(std::span<const Key> keys, Deadline deadline) {
  Work& work = ThreadPieces<Work>();
  BeginWork(keys, kKeysPerFetchMax, work);
  work.WriteErasures();
  RedisCountSink sink;
  client_->Execute(work.Batch(&sink), deadline);
  for (const RedisRequest& request : work.requests)
    client_->slots().EndEpoch(request.slot, request.epoch);
}

absl::Status RedisTable::RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                                         Deadline deadline) {
  return fence_.Raise(keys, epoch, deadline);
}

absl::Status RedisTable::Clear() {
  clears_.fetch_add(1, std::memory_order_seq_cst);
  return absl::OkStatus();
}

}  // namespace hps
