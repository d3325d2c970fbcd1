// Sessions on several threads while the model switches, rows change, and promotions run: what a
// call sees is one switch of the whole model, whole rows, and never goes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/executor.h"
#include "l2_memory/memory_tier.h"
#include "query/test_query_world.h"
#include "testing/host_device_cache/host_cache.h"

namespace hps {
namespace {

constexpr size_t kTables = 2;
constexpr Key kKeys = 300;
constexpr uint32_t kDim = 12;
constexpr size_t kRowBytes = kDim * sizeof(float);

// The levels of the test: none above level 2, a device, or one that reads level 2 by itself; and
// whether level 2 has a second part, which can block.
enum class Above { kNone, kDevice, kReadingDevice };
struct Levels {
  Above above = Above::kNone;
  bool has_second_part = false;
};

// Pins at once.
class ReadyPinner final : public HostMemoryPinner {
 public:
  void Pin(PinnedRegion& region) override { region.readable = true; }
  bool Unpin(PinnedRegion&) override { return true; }
};

class ConcurrentLookupTest : public testing::TestWithParam<Levels> {
 protected:
  ConcurrentLookupTest() {
    second_faults_.set_can_block(true);
    if (GetParam().above != Above::kNone)
      l1_ = *MakeHostCache({.device = -1, .bytes_max = uint64_t{16} << 20});
    fetch_ = *WorkerPool::Create({.name = "fetch", .thread_count = 2});
    promote_ = *WorkerPool::Create({.name = "promote"});
    SessionFactory::Options options;
    options.fetch_executor = fetch_.get();
    options.promote_executor = promote_.get();
    options.timeout = std::chrono::minutes(1);  // nothing degrades because a machine is busy
    if (l1_ != nullptr) options.caches = {l1_.get()};
    factory_ = *SessionFactory::Create(options);
    model_ = std::make_unique<LiveModel>("m", factory_->epoch_domain(), *promote_);
    Switch();
  }
  ~ConcurrentLookupTest() override {
    fetch_.reset();
    promote_.reset();
  }

  static uint64_t StampOf(uint64_t generation, size_t table) { return generation * 10 + table; }

  // A new incarnation of every table, all rows of version 0.
  void Switch() {
    const uint64_t generation = generation_ + 1;
    std::vector<std::shared_ptr<LiveTable>> tables;
    for (size_t t = 0; t < kTables; ++t) {
      const TableSpec spec{.name = "m/t" + std::to_string(t), .dim = kDim};
      auto l3 = std::make_unique<PlainDurableTable>(spec, generation * kTables + t);
      std::vector<Key> keys(kKeys);
      for (Key key = 0; key < kKeys; ++key) keys[static_cast<size_t>(key)] = key;
      StampedQuery rows(StampOf(generation, t), keys, 0, kRowBytes);
      ASSERT_TRUE(l3->Write({.upserts = rows.batch()}).ok());
      LiveTable::Parts parts;
      parts.l3 = std::move(l3);
      parts.l2.push_back(
          {.table = *tier_->OpenTable(spec, 1, MemoryTierBytesFor(kKeys / 2, kRowBytes, {}))});
      if (GetParam().has_second_part) {
        parts.l2.push_back(
            {.table = WithFaults(*tier_->OpenTable(spec, 1, SecondBytes()), &second_faults_)});
      }
      tables.push_back(std::make_shared<LiveTable>(std::move(parts)));
      if (l1_ == nullptr) continue;
      // Without room for another incarnation the table is served without L1 for a while.
      auto l1 = l1_->OpenTable(kRowBytes, l1_->TableBytes(kRowBytes, kKeys / 3));
      if (l1.ok()) tables.back()->AttachL1(0, *std::move(l1));
    }
    served_ = tables;
    // Readers may see the new tables from here on, but not those after them.
    generation_ = generation;
    ASSERT_TRUE(model_->Publish(std::move(tables)).ok());
    published_ = generation;
  }

  // It loses rows, too.
  static uint64_t SecondBytes() { return MemoryTierBytesFor(kKeys * 3 / 4, kRowBytes, {}); }

  static void Expect(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

  // One batch of changes, as an applier does it.
  void Change(size_t t, std::mt19937_64& random) {
    std::vector<Key> keys;
    const auto first = static_cast<Key>(random() % kKeys);
    for (Key i = 0; i < 16; ++i) keys.push_back((first + i * 7) % kKeys);
    StampedQuery rows(StampOf(generation_, t), keys, ++version_, kRowBytes);
    LiveTable& table = *served_[t];
    DeviceCacheTable* l1 = table.l1(0);
    const ApplyEpoch epoch = table.epochs().Begin();
    for (const L2Part& part : table.l2())
      ASSERT_TRUE(part.table().RaiseWatermarks(keys, epoch, kNoDeadline).ok());
    if (l1 != nullptr) Expect(l1->RaiseWatermarks(keys, epoch, kNoDeadline));
    ASSERT_TRUE(table.l3().Write({.upserts = rows.batch()}).ok());
    for (size_t i = table.l2().size(); i > 0; --i)
      ASSERT_TRUE(table.l2()[i - 1].table().Update(rows.batch()).ok());
    if (l1 != nullptr) Expect(l1->Update(rows.batch(), kNoDeadline));
    table.epochs().Publish(epoch);
    table.l1_health(0).NoteApplied(epoch);
  }

  void Read(uint64_t seed) {
    auto made = factory_->NewSession(*model_, {});
    ASSERT_TRUE(made.ok()) << made.status();
    LookupSession& session = **made;
    std::mt19937_64 random(seed);
    uint64_t last_generation = 0;
    std::array<std::map<Key, Version>, kTables> seen;
    // However late the writer comes to its first turn.
    for (size_t call = 0; (call < kCalls || published_ == 1) && !HasFatalFailure(); ++call) {
      std::array<std::vector<Key>, kTables> keys;
      std::array<std::vector<std::byte>, kTables> rows;
      std::vector<HostTableQuery> queries;
      for (uint32_t t = 0; t < kTables; ++t) {
        keys[t].resize(40);
        for (Key& key : keys[t]) key = static_cast<Key>(random() % kKeys);
        rows[t].resize(keys[t].size() * kRowBytes);
        queries.push_back({.table = {t}, .keys = keys[t], .rows = rows[t]});
      }
      const uint64_t oldest = published_;
      LookupCounts counts;
      const absl::Status status = session.Lookup({.queries = queries}, &counts);
      const uint64_t newest = generation_;
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(counts[KeyStatus::kDefaultDegraded] + counts[KeyStatus::kAbsent], 0);
      const std::optional<uint64_t> generation =
          GenerationOf(keys[0][0], std::span(rows[0]).first(kRowBytes), oldest, newest);
      ASSERT_TRUE(generation.has_value()) << "torn, foreign, or of a switch long past";
      ASSERT_GE(*generation, last_generation);
      if (*generation > last_generation) seen = {};
      last_generation = *generation;
      // Positions of one call have no order among themselves: duplicates of a key may be answered
      // by different levels, and so differ while the row changes.
      std::array<std::map<Key, Version>, kTables> seen_before = seen;
      for (size_t t = 0; t < kTables; ++t) {
        for (size_t i = 0; i < keys[t].size(); ++i) {
          const std::optional<Version> version =
              StampedRow::VersionOf(StampOf(*generation, t), keys[t][i],
                                    std::span(rows[t]).subspan(i * kRowBytes, kRowBytes));
          ASSERT_TRUE(version.has_value()) << "torn, foreign, or of another switch";
          ASSERT_GE(*version, seen_before[t][keys[t][i]]) << "went back";
          seen[t][keys[t][i]] = std::max(*version, seen[t][keys[t][i]]);
        }
      }
    }
  }

  static std::optional<uint64_t> GenerationOf(Key key, std::span<const std::byte> row,
                                              uint64_t oldest, uint64_t newest) {
    for (uint64_t g = oldest; g <= newest; ++g) {
      if (StampedRow::VersionOf(StampOf(g, 0), key, row).has_value()) return g;
    }
    return std::nullopt;
  }

  static constexpr size_t kCalls = 1500;

  ReadyPinner pinner_;
  TierFaults second_faults_;
  const std::unique_ptr<LossyTier> tier_ =
      MakeMemoryTier({.huge_pages = false,
                      .pinner = GetParam().above == Above::kReadingDevice ? &pinner_ : nullptr});
  std::unique_ptr<DeviceCache> l1_;
  std::unique_ptr<SessionFactory> factory_;
  std::unique_ptr<LiveModel> model_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
  std::vector<std::shared_ptr<LiveTable>> served_;  // the writer's
  std::atomic<uint64_t> generation_{0};
  std::atomic<uint64_t> published_{0};
  Version version_ = 0;
};

TEST_P(ConcurrentLookupTest, OneSwitchWholeRowsAndNeverBack) {
  std::atomic<size_t> reading = 3;
  std::vector<std::thread> readers;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    readers.emplace_back([&, seed] {
      Read(seed);
      --reading;
    });
  }
  std::mt19937_64 random(99);
  size_t changes = 0;
  while (reading > 0) {
    if (++changes % 64 == 0) {
      Switch();
    } else {
      Change(changes % kTables, random);
    }
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(generation_, 1);
  served_.clear();
  ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
  fetch_.reset();
  // Whoever left last may have found the executor's queue full.
  EXPECT_TRUE(model_->AwaitReclaimed(DeadlineAfter(RealClock(), std::chrono::minutes(1))));
  promote_.reset();  // runs what is queued
  EXPECT_EQ(model_->retired_count(), 0) << "all old switches have been freed";
}

INSTANTIATE_TEST_SUITE_P(Levels, ConcurrentLookupTest,
                         testing::Values(Levels{Above::kNone}, Levels{Above::kDevice},
                                         Levels{Above::kReadingDevice}, Levels{Above::kNone, true},
                                         Levels{Above::kDevice, true},
                                         Levels{Above::kReadingDevice, true}),
                         [](const auto& levels) {
                           const Above above = levels.param.above;
                           const std::string name = above == Above::kNone     ? "L2"
                                                    : above == Above::kDevice ? "L1L2"
                                                                              : "L1ReadsL2";
                           return name + (levels.param.has_second_part ? "OfTwoPartsL3" : "L3");
                         });

}  // namespace
}  // namespace hps
