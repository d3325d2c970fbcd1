// Random lookups over random levels, with faults, changes and evictions in between, against a
// plain map: every row, status and count is checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "l2_memory/memory_tier.h"
#include "query/test_query_world.h"
#include "testing/host_device_cache/host_cache.h"
#include "testing/trials.h"
#include "types/row_convert.h"

namespace hps {
namespace {

constexpr size_t kTables = 3;
constexpr std::array<uint32_t, kTables> kDims = {4, 9, 33};
constexpr Key kKeySpace = 400;  // of which about two thirds are present
constexpr size_t kCallsPerWorld = 120;
constexpr size_t kWorlds = 64;

// One random configuration and the truth about it.
class RandomWorld {
 public:
  explicit RandomWorld(uint64_t seed) : random_(seed) {
    has_l2_ = Chance(0.8);
    l2_blocks_ = has_l2_ && Chance(0.3);
    has_second_ = has_l2_ && Chance(0.5);
    has_l1_ = Chance(0.4);
    faults_ = Chance(0.5);
    as_float32_ = Chance(0.3);
    if (has_l1_) {
      l1_ = *MakeHostCache({.device = -1, .bytes_max = uint64_t{4} << 20});
      const World::Options options{.tuning = Chance(0.7) ? kTinyPieces : StagedFetchTuning()};
      world_ = std::make_unique<World>(seed, std::vector<DeviceCache*>{l1_.get()}, options);
    } else {
      world_ = std::make_unique<World>(seed);
    }
    std::vector<const WorldTable*> served;
    for (size_t t = 0; t < kTables; ++t) {
      MakeTable(t);
      served.push_back(&tables_.back());
    }
    world_->Publish(served);
    SessionOptions options;
    if (as_float32_) options.output_dtype = Dtype::kFloat32;
    session_ = world_->NewSession(options);
  }
  ~RandomWorld() {
    session_.reset();
    world_.reset();  // before the faults that its levels borrow
  }

  size_t keys_checked() const { return keys_checked_; }
  const LookupCounts& sum() const { return sum_; }

  void Step() {
    if (Chance(0.3)) Change();
    Call();
    for (size_t i = random_() % 8; i > 0 && world_->executor().queued_count() > 0; --i)
      world_->executor().RunOne();
  }

  // What the counters say in the end must be what the calls said.
  void CheckCounters() {
    LookupCounts counted;
    for (const TableStatistics& table : world_->statistics().tables) {
      for (size_t i = 0; i < kKeyStatusCount; ++i) counted.by_status[i] += table.keys.by_status[i];
    }
    EXPECT_EQ(counted.by_status, sum_.by_status);
  }

 private:
  bool Chance(double chance) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < chance;
  }
  uint64_t StampOf(size_t table) const { return 100 + table; }
  size_t RowBytes(size_t table) const { return tables_[table].served->row_bytes(); }

  void MakeTable(size_t t) {
    WorldTableOptions options{.name = "m/t" + std::to_string(t),
                              .stamp = StampOf(t),
                              .dim = kDims[t],
                              .dtype = t == 1 ? Dtype::kBfloat16 : Dtype::kFloat32,
                              .has_l2 = has_l2_,
                              .l2_blocks = l2_blocks_,
                              .has_second = has_second_};
    options.default_row.assign(kDims[t] * ElementBytes(options.dtype), std::byte{0x11});
    for (Key key = 0; key < kKeySpace; ++key) {
      if (!Chance(0.66)) continue;
      options.keys.push_back(key);
      truth_[t][key] = 0;
    }
    const TableSpec spec{.name = options.name, .dim = options.dim, .dtype = options.dtype};
    std::unique_ptr<LossyTable> l2;
    if (has_l2_) {
      // Room for about half of the keys, so that they are evicted and come again.
      l2 = *l2_tier_->OpenTable(spec, 1, MemoryTierBytesFor(kKeySpace / 2, spec.row_bytes(), {}));
    }
    tables_.push_back(MakeWorldTable(options, &world_->executor(), std::move(l2)));
    WorldTable& table = tables_.back();
    if (faults_) {
      table.l3_faults->PlanBySeed(random_(), std::array{TierOperation::kFetch}, {.fail = 0.05});
      for (TierFaults* faults : {table.l2_faults.get(), table.second_faults.get()})
        faults->PlanBySeed(random_(), std::array{TierOperation::kFetch},
                           {.fail = 0.05, .drop = 0.1});
    }
    if (has_l1_ && Chance(0.8)) {
      const uint64_t bytes = l1_->TableBytes(spec.row_bytes(), kKeySpace / 3);
      table.served->AttachL1(0, *l1_->OpenTable(spec.row_bytes(), bytes));
    }
  }

  struct Asked {
    uint32_t table;
    std::vector<Key> keys;
    std::vector<std::byte> rows;
    std::vector<KeyStatus> statuses;
    size_t stride_bytes;
  };

  static void Expect(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

  // What an applier does with one batch of upserts and one of deletes.
  void Change() {
    const size_t t = random_() % kTables;
    WorldTable& table = tables_[t];
    std::vector<Key> changed(1 + random_() % 20);
    for (Key& key : changed) key = static_cast<Key>(random_() % kKeySpace);
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    const bool deletes = Chance(0.2);
    StampedQuery rows(StampOf(t), changed, ++version_, RowBytes(t));
    ApplyEpochs& epochs = table.served->epochs();
    DeviceCacheTable* l1 = table.served->l1(0);
    const ApplyEpoch epoch = epochs.Begin();
    for (LossyTable* part : {table.second, table.l2})
      if (part != nullptr) Expect(part->RaiseWatermarks(changed, epoch, kNoDeadline));
    if (l1 != nullptr) Expect(l1->RaiseWatermarks(changed, epoch, kNoDeadline));
    if (deletes) {
      Expect(table.l3->Write({.upserts = {}, .deletes = changed}));
      for (LossyTable* part : {table.second, table.l2})
        if (part != nullptr) Expect(part->Erase(changed).status());
      if (l1 != nullptr) Expect(l1->Erase(changed, kNoDeadline));
      for (Key key : changed) truth_[t].erase(key);
    } else {
      Expect(table.l3->Write({.upserts = rows.batch()}));
      for (LossyTable* part : {table.second, table.l2})
        if (part != nullptr) Expect(part->Update(rows.batch()).status());
      if (l1 != nullptr) Expect(l1->Update(rows.batch(), kNoDeadline));
      for (Key key : changed) truth_[t][key] = version_;
    }
    epochs.Publish(epoch);
    table.served->l1_health(0).NoteApplied(epoch);
  }

  void Call() {
    std::deque<Asked> asked;
    for (size_t count = random_() % (kTables + 2); count > 0; --count) {  // some tables twice
      const auto t = static_cast<uint32_t>(random_() % kTables);
      Asked query{.table = t, .keys = std::vector<Key>(random_() % 140)};
      for (Key& key : query.keys) key = static_cast<Key>(random_() % (kKeySpace + 40)) - 20;
      query.stride_bytes = session_->output_row_bytes({t}) + 4 * (random_() % 3);
      query.rows.assign(query.keys.size() * query.stride_bytes, std::byte{0xcc});
      query.statuses.assign(query.keys.size(), KeyStatus{0xcc});
      asked.push_back(std::move(query));
    }
    std::vector<HostTableQuery> host_queries;
    std::vector<DeviceTableQuery> device_queries;  // the host cache's device memory is the host's
    for (Asked& query : asked) {
      host_queries.push_back({.table = {query.table},
                              .keys = query.keys,
                              .rows = query.rows,
                              .row_stride_bytes = query.stride_bytes,
                              .status = query.statuses});
      device_queries.push_back({.table = {query.table},
                                .keys = {query.keys.data(), query.keys.size()},
                                .rows = {query.rows.data(), query.rows.size()},
                                .row_stride_bytes = query.stride_bytes,
                                .status = {query.statuses.data(), query.statuses.size()}});
    }
    if (has_l1_ && !as_float32_ && Chance(0.5)) {
      LookUp(DeviceLookupRequest{.queries = device_queries}, asked);
    } else {
      LookUp(HostLookupRequest{.queries = host_queries}, asked);
    }
  }

  template <MemorySpace kSpace>
  void LookUp(LookupRequest<kSpace> request, const std::deque<Asked>& asked) {
    const bool hurried = Chance(0.1);
    if (hurried) request.timeout = Duration(Chance(0.5) ? 0 : 1000);
    world_->executor().Hold(hurried);
    threshold_ = std::array{1.0, 1.0, 0.0, 0.5, 0.9}[random_() % 5];
    request.hit_rate_threshold = threshold_;
    LookupCounts counts;
    const absl::Status status = session_->Lookup(request, &counts);
    world_->executor().Hold(false);
    ASSERT_TRUE(status.ok()) << status;
    LookupCounts expected;
    may_degrade_ = hurried || faults_ || threshold_ < 1.0;
    for (const Asked& query : asked) {
      for (size_t i = 0; i < query.keys.size(); ++i) {
        ++expected[query.statuses[i]];
        ++sum_[query.statuses[i]];
        Check(query.table, query.keys[i], query.statuses[i],
              std::span(query.rows)
                  .subspan(i * query.stride_bytes, session_->output_row_bytes({query.table})));
      }
      keys_checked_ += query.keys.size();
    }
    ASSERT_EQ(counts.by_status, expected.by_status);
  }

  void Check(size_t t, Key key, KeyStatus status, std::span<const std::byte> row) {
    const auto found = truth_[t].find(key);
    std::vector<std::byte> native = {tables_[t].served->default_row().begin(),
                                     tables_[t].served->default_row().end()};
    switch (status) {
      case KeyStatus::kHitL1:
        ASSERT_TRUE(has_l1_);
        break;
      case KeyStatus::kHitL2:
        ASSERT_TRUE(has_l2_);
        break;
      case KeyStatus::kHitL3:
        break;
      case KeyStatus::kAbsent:
        ASSERT_TRUE(found == truth_[t].end()) << "key " << key << " is there";
        break;
      case KeyStatus::kDefaultPending:
        ASSERT_LT(threshold_, 1.0);
        break;
      case KeyStatus::kDefaultDegraded:
        ASSERT_TRUE(may_degrade_) << "table " << t << ", key " << key;
        break;
      default:
        FAIL() << "status " << static_cast<int>(status);
    }
    const bool hit =
        status == KeyStatus::kHitL1 || status == KeyStatus::kHitL2 || status == KeyStatus::kHitL3;
    if (hit) {
      ASSERT_TRUE(found != truth_[t].end()) << "key " << key << " does not exist";
      native = Stamped(StampOf(t), key, found->second, RowBytes(t));
    }
    if (as_float32_) {
      std::vector<std::byte> converted(kDims[t] * sizeof(float));
      ConvertToFloat32(tables_[t].served->spec().dtype, native.data(), kDims[t], converted.data());
      native = converted;
    }
    ASSERT_TRUE(std::ranges::equal(row, native))
        << "table " << t << ", key " << key << ", " << std::string(KeyStatusName(status));
  }

  std::mt19937_64 random_;
  bool has_l1_ = false;
  bool has_l2_ = false;
  bool l2_blocks_ = false;
  bool has_second_ = false;
  bool faults_ = false;
  bool as_float32_ = false;
  const std::unique_ptr<LossyTier> l2_tier_ = MakeMemoryTier({.huge_pages = false});
  std::unique_ptr<DeviceCache> l1_;
  std::deque<WorldTable> tables_;
  std::array<std::map<Key, Version>, kTables> truth_;
  Version version_ = 0;
  std::unique_ptr<World> world_;
  std::unique_ptr<LookupSession> session_;
  // Of the last call.
  bool may_degrade_ = false;
  double threshold_ = 1.0;
  size_t keys_checked_ = 0;
  LookupCounts sum_;
};

TEST(RandomLookupTest, AgreesWithAPlainMap) {
  const uint64_t seed = TestSeed(20260731);
  size_t keys_checked = 0;
  LookupCounts sum;
  for (uint64_t i = 0; i < kWorlds; ++i) {
    SCOPED_TRACE("world " + std::to_string(i));
    RandomWorld world(seed + i);
    for (size_t step = 0; step < kCallsPerWorld && !testing::Test::HasFatalFailure(); ++step)
      world.Step();
    world.CheckCounters();
    if (testing::Test::HasFailure()) return;
    keys_checked += world.keys_checked();
    for (size_t s = 0; s < kKeyStatusCount; ++s) sum.by_status[s] += world.sum().by_status[s];
  }
  EXPECT_GE(keys_checked, 1'000'000);
  for (size_t s = 0; s < kKeyStatusCount; ++s) {
    EXPECT_GT(sum.by_status[s], keys_checked / 1000)
        << std::string(kKeyStatusNames[s]) << " was hardly tried";
  }
}

}  // namespace
}  // namespace hps
