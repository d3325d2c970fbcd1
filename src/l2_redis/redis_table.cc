#include "l2_redis/redis_table.h"

#include <algorithm>
#include <charconv>
#include <deque>
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

// Keeps the pieces with these numbers, in ascending order.
template <typename Work>
void KeepPieces(std::span<const size_t> numbers, Work& work) {
  for (size_t kept = 0; kept < numbers.size(); ++kept) {
    work.pieces[kept] = work.pieces[numbers[kept]];
    work.requests[kept] = work.requests[numbers[kept]];
  }
  work.pieces.resize(numbers.size());
  work.requests.resize(numbers.size());
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
    return {.bytes = work_.bytes,
            .requests = work_.requests,
            .sink = this,
            .unanswered = Unanswered::kNothing,
            .reads_replicas = table_.ReadsReplicas()};
  }
  void End() override {}

  bool OnArray(size_t request, size_t count) override {
    return count == work_.pieces[request].count + 1;
  }

  // Replies of several nodes come by turns.
  bool OnValue(size_t request, size_t index, const ReplyValue& value) override {
    const Piece& piece = work_.pieces[request];
    if (index == 0) {
      TakeChange(request, value);
      return true;
    }
    if (value.type == ReplyType::kNil || lacks_a_change_[request]) return true;
    if (value.type != ReplyType::kString || index > piece.count) return false;
    const size_t i = work_.groups.positions[piece.first + index - 1];
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
    const Piece& piece = work_.pieces[request];
    const std::optional<uint64_t> change = ParseChange(value);
    lacks_a_change_[request] = !change.has_value() || *change < piece.seen;
    if (lacks_a_change_[request] && work_.requests[request].to_replica) {
      table_.masters_until_.store(RealClock().Now() + kReplicaRest, std::memory_order_relaxed);
    } else if (lacks_a_change_[request]) {
      table_.changes_.NoteLoss(piece.partition, piece.losses);
    } else if (*change > piece.seen) {
      table_.NoteChange(piece, *change);
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

RedisTable::Work& RedisTable::ThreadWork(size_t part) {
  thread_local std::deque<Work> works;
  while (works.size() <= part) works.emplace_back();
  return works[part];
}

// Each of the three counts only grows, so that no sum comes twice. The caller reads `epoch` before
// this function reads the others: a request whose epoch has ended meanwhile is not sent.
uint64_t RedisTable::EndsOf(size_t partition, uint64_t epoch) const {
  return epoch + changes_.Losses(partition) + clears_.load(std::memory_order_seq_cst);
}

uint64_t RedisTable::GenerationOf(uint64_t ends) const {
  return HashKey(static_cast<Key>(ends), nonce_);
}

void RedisTable::NoteChange(const Piece& piece, uint64_t number) {
  changes_.Note(piece.partition, piece.ends, number, [&] {
    return EndsOf(piece.partition, client_->slots().Epoch(names_.slot(piece.partition)));
  });
}

RowIdentity RedisTable::IdentityOf(const Piece& piece, Key key) const {
  return {.incarnation = options_.incarnation, .generation = piece.generation, .key = key};
}

bool RedisTable::ReadsReplicas() const {
  return options_.reads_replicas &&
         RealClock().Now() >= masters_until_.load(std::memory_order_relaxed);
}

// The slots must be prepared.
void RedisTable::BeginWork(std::span<const Key> keys, size_t keys_max, bool reversed,
                           Work& work) const {
  work.groups.Group(names_, keys, reversed);
  work.pieces.clear();
  work.requests.clear();
  work.bytes.clear();
  for (size_t partition = 0; partition < names_.partition_count(); ++partition) {
    const uint32_t end = work.groups.begins[partition + 1];
    uint32_t first = work.groups.begins[partition];
    if (first == end) continue;
    const uint16_t slot = names_.slot(partition);
    const uint64_t epoch = client_->slots().Epoch(slot);
    const uint64_t losses = changes_.Losses(partition);
    const uint64_t ends = EndsOf(partition, epoch);
    for (uint32_t count = 0; first < end; first += count) {
      count = std::min<uint32_t>(end - first, static_cast<uint32_t>(keys_max));
      work.pieces.push_back({.partition = partition,
                             .first = first,
                             .count = count,
                             .generation = GenerationOf(ends),
                             .ends = ends,
                             .losses = losses,
                             .seen = changes_.Seen(partition, ends)});
      work.requests.push_back({.slot = slot, .epoch = epoch});
    }
  }
}

void RedisTable::WriteFetches(std::span<const Key> keys, Work& work) const {
  for (size_t request = 0; request < work.requests.size(); ++request) {
    const Piece& piece = work.pieces[request];
    work.requests[request].begin = work.bytes.size();
    AppendCommandHeader(piece.count + 2, work.bytes);
    AppendPart("MGET", work.bytes);
    names_.AppendChangeName(piece.partition, piece.generation, work.bytes);
    for (const uint32_t i : std::span(work.groups.positions).subspan(piece.first, piece.count))
      names_.AppendName(piece.partition, piece.generation, keys[i], work.bytes);
    work.requests[request].end = work.bytes.size();
  }
}

void RedisTable::WriteErasures(std::span<const Key> keys, Work& work) const {
  for (size_t request = 0; request < work.requests.size(); ++request) {
    const Piece& piece = work.pieces[request];
    work.requests[request].begin = work.bytes.size();
    AppendCommandHeader(piece.count + 1, work.bytes);
    AppendPart("DEL", work.bytes);
    for (const uint32_t i : std::span(work.groups.positions).subspan(piece.first, piece.count))
      names_.AppendName(piece.partition, piece.generation, keys[i], work.bytes);
    work.requests[request].end = work.bytes.size();
  }
}

std::unique_ptr<RedisFetchPart> RedisTable::BeginFetch(const FetchBatch& batch, size_t number) {
  HPS_CHECK(batch.keys.empty() || batch.rows.row_bytes == options_.row_bytes);
  Work& work = ThreadWork(number);
  BeginWork(batch.keys, kKeysPerFetchMax, /*reversed=*/false, work);
  WriteFetches(batch.keys, work);
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
    Work& work = ThreadWork();
    const Fence::Insertion insertion(fence_, epoch);
    BeginWork(part.keys, kKeysPerFetchMax, /*reversed=*/true, work);
    WriteInserts(part, insertion, work, counts);
    InsertSink sink(counts);
    client_->Execute({.bytes = work.bytes,
                      .requests = work.requests,
                      .sink = &sink,
                      .unanswered = Unanswered::kRunsLate},
                     deadline);
  }
  counts.dropped = batch.keys.size() - counts.inserted - counts.held - counts.refused;
  counters_.Note(counts);
  return counts;
}

void RedisTable::WriteInserts(const RowBatch& batch, const Fence::Insertion& insertion, Work& work,
                              InsertCounts& counts) const {
  const std::string expiry = absl::StrCat(options_.expire_after_ms);
  for (size_t request = 0; request < work.requests.size(); ++request) {
    const Piece& piece = work.pieces[request];
    work.requests[request].begin = work.bytes.size();
    work.requests[request].reply_count = 0;
    for (const uint32_t i : std::span(work.groups.positions).subspan(piece.first, piece.count)) {
      if (!insertion.Admits(batch.keys[i])) {
        ++counts.refused;
        continue;
      }
      ++work.requests[request].reply_count;
      AppendCommandHeader(options_.expire_after_ms == 0 ? 4 : 6, work.bytes);
      AppendPart("SET", work.bytes);
      names_.AppendName(piece.partition, piece.generation, batch.keys[i], work.bytes);
      AppendValue(batch, i, piece, work.bytes);
      AppendPart("NX", work.bytes);
      if (options_.expire_after_ms == 0) continue;
      AppendPart("PX", work.bytes);
      AppendPart(expiry, work.bytes);
    }
    work.requests[request].end = work.bytes.size();
  }
  std::erase_if(work.requests,
                [](const RedisRequest& request) { return request.reply_count == 0; });
}

void RedisTable::AppendValue(const RowBatch& batch, size_t i, const Piece& piece,
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
  Work& work = ThreadWork();
  client_->PrepareSlots(deadline);
  std::vector<Key> no_room;
  std::vector<size_t> unknown_script;
  for (const bool with_text : {false, true}) {
    BeginWork(batch.keys, kKeysPerUpdateMax, /*reversed=*/true, work);
    if (with_text) KeepPieces(unknown_script, work);
    WriteUpdates(batch, with_text, work);
    RedisCountSink sink;
    client_->Execute({.bytes = work.bytes, .requests = work.requests, .sink = &sink}, deadline);
    replaced += sink.sum();
    for (size_t request = 0; request < work.requests.size(); ++request) {
      const Piece& piece = work.pieces[request];
      if (work.requests[request].answered && sink.IsMade(request)) NoteChange(piece, piece.change);
    }
    // A server has lost a change: the rows of its partition get other names, so this change need
    // not be made there.
    for (const size_t request : sink.lost_changes())
      changes_.NoteLoss(work.pieces[request].partition, work.pieces[request].losses);
    for (const size_t request : sink.no_room()) {
      const Piece& piece = work.pieces[request];
      for (const uint32_t i : std::span(work.groups.positions).subspan(piece.first, piece.count))
        no_room.push_back(batch.keys[i]);
    }
    unknown_script = sink.TakeUnknownScript();
    if (unknown_script.empty()) break;
  }
  if (!no_room.empty()) EraseWithoutRoom(no_room, deadline);
  return replaced;
}

void RedisTable::WriteUpdates(const RowBatch& batch, bool with_text, Work& work) {
  const RedisScript& script = RedisUpdateScript();
  for (size_t request = 0; request < work.requests.size(); ++request) {
    Piece& piece = work.pieces[request];
    piece.change = changes_.Next(piece.partition);
    const auto positions = std::span(work.groups.positions).subspan(piece.first, piece.count);
    work.requests[request].begin = work.bytes.size();
    AppendCommandHeader(6 + 2 * size_t{piece.count}, work.bytes);
    AppendPart(with_text ? "EVAL" : "EVALSHA", work.bytes);
    AppendPart(with_text ? script.text : script.sha1, work.bytes);
    AppendPart(absl::StrCat(piece.count + 1), work.bytes);
    names_.AppendChangeName(piece.partition, piece.generation, work.bytes);
    for (const uint32_t i : positions)
      names_.AppendName(piece.partition, piece.generation, batch.keys[i], work.bytes);
    AppendPart(ChangeText(piece.seen), work.bytes);
    AppendPart(ChangeText(piece.change), work.bytes);
    for (const uint32_t i : positions) AppendValue(batch, i, piece, work.bytes);
    work.requests[request].end = work.bytes.size();
  }
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
  Work& work = ThreadWork();
  BeginWork(keys, kKeysPerFetchMax, /*reversed=*/false, work);
  WriteErasures(keys, work);
  RedisCountSink sink;
  client_->Execute({.bytes = work.bytes, .requests = work.requests, .sink = &sink}, deadline);
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
