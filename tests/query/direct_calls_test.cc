// Calls of a device cache whose device reads missing rows from level 2's memory by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "testing/await.h"
#include "tests/query/test_direct_world.h"

namespace hps {
namespace {

constexpr uint64_t kTable = 3;
constexpr size_t kRows = 20'000;

// One query, with memory of its own.
class Query {
 public:
  Query(CacheMemory& memory, std::vector<Key> keys, size_t row_bytes)
      : memory_(memory), keys_(std::move(keys)), row_bytes_(row_bytes) {
    device_keys_ = memory.Allocate(keys_.size() * sizeof(Key) + 1);
    rows_ = memory.Allocate(keys_.size() * row_bytes + 1);
    status_ = memory.Allocate(keys_.size() + 1);
    memory.CopyIn(device_keys_, std::as_bytes(std::span(keys_)));
    memory.CopyIn(status_, std::vector<std::byte>(keys_.size(), std::byte{0xcc}));
  }
  ~Query() {
    for (std::byte* buffer : {device_keys_, rows_, status_}) memory_.Free(buffer);
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  DeviceCacheQuery Request(const DirectRows* direct, const DeviceCacheTable* table) const {
    return {.table = table,
            .space = memory_.space(),
            .keys = static_cast<const Key*>(static_cast<const void*>(device_keys_)),
            .key_count = keys_.size(),
            .rows = rows_,
            .row_bytes = row_bytes_,
            .row_stride_bytes = row_bytes_,
            .status = static_cast<KeyStatus*>(static_cast<void*>(status_)),
            .direct = direct};
  }
  void TakeAnswers() {
    rows_on_host_.resize(keys_.size() * row_bytes_);
    statuses_.resize(keys_.size());
    memory_.CopyOut(rows_on_host_, rows_);
    memory_.CopyOut(std::as_writable_bytes(std::span(statuses_)), status_);
  }

  const std::vector<Key>& keys() const { return keys_; }
  KeyStatus status(size_t i) const { return statuses_[i]; }
  std::span<const std::byte> row(size_t i) const {
    return std::span(rows_on_host_).subspan(i * row_bytes_, row_bytes_);
  }
  bool Holds(size_t i, KeyStatus status, Version version) const {
    return statuses_[i] == status && StampedRow::Matches(kTable, keys_[i], version, row(i));
  }

 private:
  CacheMemory& memory_;
  const std::vector<Key> keys_;
  const size_t row_bytes_;
  std::byte* device_keys_ = nullptr;
  std::byte* rows_ = nullptr;
  std::byte* status_ = nullptr;
  std::vector<std::byte> rows_on_host_;
  std::vector<KeyStatus> statuses_;
};

// Reads of level 2 that last until Misses has returned.
class Reads {
 public:
  explicit Reads(LossyTable& table)
      : table_(*dynamic_cast<DirectReadable*>(&table)), reads_(*table_.BeginDirectReads()) {}
  ~Reads() { table_.EndDirectReads(reads_); }
  Reads(const Reads&) = delete;
  Reads& operator=(const Reads&) = delete;
  const DirectRows* rows() const { return &table_.direct_rows(); }

 private:
  DirectReadable& table_;
  const size_t reads_;
};

class DirectCallsTest : public DirectWorldTest {
 protected:
  static std::vector<Key> SomeKeys(size_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Key> keys(count);
    for (Key& key : keys) key = static_cast<Key>(random() % kRows);
    for (size_t i = 5; i < count; i += 5) keys[i] = keys[i - 3];
    return keys;
  }

  // Answers all misses of the query with rows of this version.
  static void FinishAll(DeviceCall& call, std::span<const Key> misses, size_t number,
                        size_t row_bytes, Version version) {
    std::vector<KeyStatus> statuses(misses.size(), KeyStatus::kHitL3);
    StampedQuery rows(kTable, {misses.begin(), misses.end()}, version, row_bytes);
    const DeviceRowPiece piece{
        .query = number, .first = 0, .statuses = statuses, .rows = rows.batch().rows};
    ASSERT_EQ(call.Finish({&piece, 1}), absl::OkStatus());
  }
};

TEST_F(DirectCallsTest, TheDeviceAnswersMissesThatLevel2Holds) {
  PlainCacheMemory host(MemorySpace::kHost);
  for (const size_t row_bytes : {48, 64, 128, 256, 512}) {
    const auto level2 = OpenLevel2(kTable, row_bytes, kRows, kRows);
    auto level1 = *cache_->OpenTable(row_bytes, cache_->TableBytes(row_bytes, kRows));
    std::vector<Key> even;
    for (Key key = 0; key < 2000; key += 2) even.push_back(key);
    ASSERT_TRUE(level1->InsertIfAbsent(StampedQuery(kTable, even, 1, row_bytes).batch(), 0).ok());
    ASSERT_EQ(level1->Flush(kNoDeadline), absl::OkStatus());
    for (const size_t count : {0, 1, 31, 32, 33, 513, 1000, 9000}) {
      for (CacheMemory* const memory : {static_cast<CacheMemory*>(&host), memory_}) {
        for (const DeviceCacheTable* const table :
             {static_cast<DeviceCacheTable*>(nullptr), level1.get()}) {
          SCOPED_TRACE(testing::Message() << row_bytes << " bytes, " << count << " keys");
          std::vector<Key> keys = SomeKeys(count, count);
          // Few misses: of a large call most keys are held.
          if (table != nullptr || count > 1000) {
            for (size_t i = 0; i < count; ++i)
              if (i % 9 != 0) keys[i] = even[static_cast<size_t>(keys[i]) % even.size()];
          }
          Query query(*memory, keys, row_bytes);
          const Reads reads(*level2);
          const DeviceCallLease call = *cache_->AcquireCall(count);
          const DeviceCacheQuery request = query.Request(reads.rows(), table);
          ASSERT_EQ(call->Begin({&request, 1}, Stream()), absl::OkStatus());
          const DeviceMisses misses = *call->Misses(kNoDeadline);
          ASSERT_EQ(misses.direct.size(), 1u);
          if (table == nullptr && count > 2000) {  // too many
            if (misses.direct[0] == 0) FinishAll(*call, misses.keys[0], 0, row_bytes, 1);
          } else {
            ASSERT_EQ(misses.direct[0], 1);
          }
          ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
          query.TakeAnswers();
          const KeyStatus of_misses = misses.direct[0] != 0 ? KeyStatus::kHitL2 : KeyStatus::kHitL3;
          size_t missed = 0;
          for (size_t i = 0; i < count; ++i) {
            const bool held = table != nullptr && keys[i] % 2 == 0 && keys[i] < 2000;
            missed += held ? 0 : 1;
            ASSERT_TRUE(query.Holds(i, held ? KeyStatus::kHitL1 : of_misses, 1)) << i;
          }
          EXPECT_EQ(call->counts(0)[of_misses], missed);
          EXPECT_EQ(call->counts(0)[KeyStatus::kHitL1], count - missed);
          EXPECT_EQ(misses.positions[0], missed);
        }
      }
    }
  }
}

TEST_F(DirectCallsTest, AQueryThatLevel2LacksAKeyOfIsLeftToTheHost) {
  constexpr size_t kRowBytes = 128;
  const auto level2 = OpenLevel2(kTable, kRowBytes, kRows, kRows);
  std::vector<Key> lacking = SomeKeys(300, 1);
  lacking[77] = lacking[150] = -5;
  Query first(*memory_, lacking, kRowBytes);
  Query second(*memory_, SomeKeys(300, 2), kRowBytes);
  const Reads reads(*level2);
  const DeviceCallLease call = *cache_->AcquireCall(600);
  const DeviceCacheQuery requests[] = {first.Request(reads.rows(), nullptr),
                                       second.Request(reads.rows(), nullptr)};
  ASSERT_EQ(call->Begin(requests, Stream()), absl::OkStatus());
  const DeviceMisses misses = *call->Misses(kNoDeadline);
  ASSERT_EQ(std::vector<uint8_t>(misses.direct.begin(), misses.direct.end()),
            (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(call->Wait(kNoDeadline).code(), absl::StatusCode::kFailedPrecondition);
  FinishAll(*call, misses.keys[0], 0, kRowBytes, 9);
  ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
  first.TakeAnswers();
  second.TakeAnswers();
  for (size_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(first.Holds(i, KeyStatus::kHitL3, 9)) << i;
    ASSERT_TRUE(second.Holds(i, KeyStatus::kHitL2, 1)) << i;
  }
  EXPECT_EQ(call->counts(0)[KeyStatus::kHitL3], 300u);
  EXPECT_EQ(call->counts(0).total(), 300u);
  EXPECT_EQ(call->counts(1)[KeyStatus::kHitL2], 300u);
  EXPECT_EQ(call->counts(1).total(), 300u);
}

// As where a change has begun: the caller does not believe what the device has read.
TEST_F(DirectCallsTest, PiecesReplaceTheDevicesAnswers) {
  constexpr size_t kRowBytes = 512;
  const auto level2 = OpenLevel2(kTable, kRowBytes, kRows, kRows);
  Query plain(*memory_, SomeKeys(300, 1), kRowBytes);
  Query direct(*memory_, SomeKeys(300, 2), kRowBytes);
  const Reads reads(*level2);
  const DeviceCallLease call = *cache_->AcquireCall(600);
  const DeviceCacheQuery requests[] = {plain.Request(nullptr, nullptr),
                                       direct.Request(reads.rows(), nullptr)};
  ASSERT_EQ(call->Begin(requests, Stream()), absl::OkStatus());
  const DeviceMisses misses = *call->Misses(kNoDeadline);
  ASSERT_EQ(std::vector<uint8_t>(misses.direct.begin(), misses.direct.end()),
            (std::vector<uint8_t>{0, 1}));
  FinishAll(*call, misses.keys[0], 0, kRowBytes, 5);
  FinishAll(*call, misses.keys[1], 1, kRowBytes, 6);
  ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
  plain.TakeAnswers();
  direct.TakeAnswers();
  for (size_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(plain.Holds(i, KeyStatus::kHitL3, 5)) << i;
    ASSERT_TRUE(direct.Holds(i, KeyStatus::kHitL3, 6)) << i;
  }
  for (const size_t q : {0, 1}) {
    EXPECT_EQ(call->counts(q)[KeyStatus::kHitL3], 300u);
    EXPECT_EQ(call->counts(q).total(), 300u);
  }
}

// Widths without a kernel of their own, several widths, more tables than a launch carries: a device
// says what it has answered.
TEST_F(DirectCallsTest, RowsOfAnyKindAreRight) {
  struct Case {
    std::vector<size_t> row_bytes;
    bool is_read = true;
  };
  for (const Case& c : {Case{{64}}, Case{{16}}, Case{{1040}}, Case{{128, 512}}, Case{{2048, 64}},
                        Case{{128, 48, 64}}, Case{std::vector<size_t>(40, 128), false}}) {
    SCOPED_TRACE(testing::Message() << c.row_bytes.size() << " x " << c.row_bytes[0]);
    std::map<size_t, std::unique_ptr<LossyTable>> tables;
    for (const size_t row_bytes : c.row_bytes) {
      if (!tables.contains(row_bytes))
        tables.emplace(row_bytes, OpenLevel2(kTable, row_bytes, kRows, kRows));
    }
    std::vector<std::unique_ptr<Query>> queries;
    std::vector<std::unique_ptr<Reads>> reads;
    std::vector<DeviceCacheQuery> requests;
    for (const size_t row_bytes : c.row_bytes) {
      queries.push_back(std::make_unique<Query>(*memory_, SomeKeys(40, queries.size()), row_bytes));
      reads.push_back(std::make_unique<Reads>(*tables.at(row_bytes)));
      requests.push_back(queries.back()->Request(reads.back()->rows(), nullptr));
    }
    const DeviceCallLease call = *cache_->AcquireCall(40 * queries.size());
    ASSERT_EQ(call->Begin(requests, Stream()), absl::OkStatus());
    const DeviceMisses misses = *call->Misses(kNoDeadline);
    std::vector<uint8_t> direct(misses.direct.begin(), misses.direct.end());
    direct.resize(queries.size());
    for (size_t q = 0; q < queries.size(); ++q) ASSERT_TRUE(direct[q] == 1 || !c.is_read) << q;
    for (size_t q = 0; q < queries.size(); ++q)
      if (direct[q] == 0) FinishAll(*call, misses.keys[q], q, c.row_bytes[q], 7);
    ASSERT_EQ(call->Wait(kNoDeadline), absl::OkStatus());
    for (size_t q = 0; q < queries.size(); ++q) {
      queries[q]->TakeAnswers();
      for (size_t i = 0; i < 40; ++i) {
        ASSERT_TRUE(direct[q] != 0 ? queries[q]->Holds(i, KeyStatus::kHitL2, 1)
                                   : queries[q]->Holds(i, KeyStatus::kHitL3, 7))
            << q << " " << i;
      }
    }
  }
}

// A level 2 in which everything changes: rows are updated, erased, inserted again, evicted, and
// from time to time all of them are removed.
class ChangingLevel2 {
 public:
  ChangingLevel2(LossyTable& table, size_t row_bytes)
      : table_(table), row_bytes_(row_bytes), shown_(kRows) {
    for (auto& version : shown_) version.store(1);
    threads_.emplace_back([this] { Change(); });
    threads_.emplace_back([this] { Evict(); });
  }
  ~ChangingLevel2() {
    stopped_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  // The version of the key's last update that has ended: no later read may find an older one.
  Version Shown(Key key) const { return shown_[static_cast<size_t>(key)].load(); }

 private:
  void Change() {
    std::mt19937_64 random(5);
    for (uint64_t round = 1; !stopped_; ++round) {
      const std::vector<Key> keys =
          KeysFrom(static_cast<Key>(random() % (kRows - 500)), 1 + random() % 500);
      if (round % 10 == 0) {
        EXPECT_TRUE(table_.Erase(keys).ok());
      } else if (round % 3000 == 0) {
        EXPECT_TRUE(table_.Clear().ok());
      } else {
        StampedQuery rows(kTable, keys, ++version_, row_bytes_);
        EXPECT_TRUE(table_.Update(rows.batch()).ok());
        for (const Key key : keys) shown_[static_cast<size_t>(key)].store(version_);
        // What was erased or evicted comes back with the same row.
        EXPECT_TRUE(table_.Insert(rows.batch(), 0).ok());
      }
    }
  }

  // Other keys push rows out.
  void Evict() {
    for (Key next = kRows; !stopped_; next += 16) {
      StampedQuery rows(kTable, KeysFrom(next, 16), 1, row_bytes_);
      EXPECT_TRUE(table_.Insert(rows.batch(), 0).ok());
      std::this_thread::yield();
    }
  }

  LossyTable& table_;
  const size_t row_bytes_;
  Version version_ = 1;
  std::vector<std::atomic<Version>> shown_;  // [kRows]
  std::atomic<bool> stopped_{false};
  std::vector<std::thread> threads_;
};

// Catches: a torn row, a row of another key, and a row that is older than an update that had ended.
TEST_F(DirectCallsTest, RowsAreWholeAndCurrentWhileLevel2Changes) {
  for (const size_t row_bytes : {512, 128}) {
    const auto level2 = OpenLevel2(kTable, row_bytes, kRows + kRows / 8, kRows);
    const ChangingLevel2 changing(*level2, row_bytes);
    std::mt19937_64 random(row_bytes);
    uint64_t checked = 0;
    const TimePoint end = RealClock().Now() + kWaitMax;
    for (uint64_t calls = 0; checked < RowsToRead() && !HasFatalFailure(); ++calls) {
      ASSERT_TRUE(RealClock().Now() < end ? testing::AssertionSuccess() : MissedWait(kWaitMax))
          << checked << " rows of " << calls << " calls";
      // Runs of keys, as they are changed, and single ones.
      std::vector<Key> keys = SomeKeys(256, calls);
      const auto run = KeysFrom(static_cast<Key>(random() % (kRows - 256)), 256);
      if (calls % 2 == 0) keys = run;
      Query query(*memory_, keys, row_bytes);
      std::vector<Version> shown;
      for (const Key key : keys) shown.push_back(changing.Shown(key));
      const DeviceCallLease call = *cache_->AcquireCall(keys.size());
      {
        const Reads reads(*level2);
        const DeviceCacheQuery request = query.Request(reads.rows(), nullptr);
        ASSERT_EQ(call->Begin({&request, 1}, Stream()), absl::OkStatus());
        ASSERT_TRUE(call->Misses(kNoDeadline).ok());
      }
      query.TakeAnswers();
      for (size_t i = 0; i < keys.size(); ++i) {
        if (query.status(i) != KeyStatus::kHitL2) continue;
        const std::optional<Version> version = StampedRow::VersionOf(kTable, keys[i], query.row(i));
        ASSERT_TRUE(version.has_value()) << "torn, or another key's: " << keys[i];
        ASSERT_GE(*version, shown[i]) << "old: " << keys[i];
        ++checked;
      }
    }
  }
}

}  // namespace
}  // namespace hps
