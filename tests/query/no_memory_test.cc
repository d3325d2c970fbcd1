// A failed allocation ends the lookup in which it happens, with RESOURCE_EXHAUSTED, and nothing
// else: each allocation of a first call through a device cache fails once; nothing is left behind
// that a model switch would free, and the session answers the next call. This program replaces
// operator new.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "query/test_query_world.h"
#include "testing/host_device_cache/host_cache.h"
#include "testing/memory/failing_new.h"

namespace hps {
namespace {

// More allocations than any call of these tests makes.
constexpr int64_t kAllocationsMax = 1000;

std::vector<Key> Range(size_t count) {
  std::vector<Key> keys(count);
  std::iota(keys.begin(), keys.end(), 0);
  return keys;
}

class QueryNoMemoryTest : public testing::Test {
 protected:
  struct Tables {
    WorldTable a;
    WorldTable b;
  };

  void AttachL1(const WorldTable& table) {
    const size_t row_bytes = table.served->row_bytes();
    table.served->AttachL1(0, *cache_->OpenTable(row_bytes, cache_->TableBytes(row_bytes, 100)));
  }
  Tables MakeTables(uint64_t stamp) {
    Tables tables = {MakeWorldTable({.stamp = stamp, .incarnation = stamp, .keys = keys_}, nullptr),
                     MakeWorldTable({.name = "m/b",
                                     .stamp = stamp + 1,
                                     .incarnation = stamp,
                                     .dtype = Dtype::kFloat16,
                                     .keys = keys_},
                                    nullptr)};
    AttachL1(tables.a);
    AttachL1(tables.b);
    return tables;
  }

  // Looks all keys of both tables up, with allocation `number` failing (0 = none), where the rows
  // of table a are in `stamp`'s version. False when there were not as many allocations.
  template <typename Request, typename Query>
  bool AskAll(LookupSession& session, int64_t number, uint64_t stamp, bool may_refuse) {
    const std::vector<Key> keys = keys_;
    std::vector<std::byte> rows_a(keys.size() * 32), rows_b(keys.size() * 32);
    std::vector<KeyStatus> statuses(keys.size());
    Query a, b;
    a.keys = {keys.data(), keys.size()};
    a.rows = {rows_a.data(), rows_a.size()};
    a.status = {statuses.data(), statuses.size()};
    b = a;
    b.table = {1};
    b.rows = {rows_b.data(), rows_b.size()};
    b.status = {};
    const std::array<Query, 2> queries = {a, b};
    Request request;
    request.queries = queries;
    LookupCounts counts;
    FailAllocation(number);
    may_fail_here = true;
    const absl::Status status = session.Lookup(request, &counts);
    may_fail_here = false;
    const bool failed = number > 0 && AllocationFailed();
    FailAllocation(0);
    if (!status.ok()) {
      EXPECT_TRUE(may_refuse && failed) << status;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      return failed;
    }
    EXPECT_EQ(counts.total(), 2 * keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (failed && statuses[i] == KeyStatus::kDefaultDegraded) continue;  // L3's was the one
      EXPECT_TRUE(StampedRow::Matches(stamp, keys[i], 0, std::span(rows_a).subspan(i * 32, 32)));
    }
    return failed;
  }

  // A call with an allocation that fails, a switch of the model, and another call.
  template <typename Request, typename Query>
  bool AskSwitchAndAsk(int64_t number) {
    Tables old = MakeTables(1);
    const Tables fresh = MakeTables(3);
    World world(0, {cache_.get()}, {.tuning = kTinyPieces});
    world.Publish({&old.a, &old.b});
    Ask(*world.NewSession(), Range(20));  // into L2
    world.executor().RunAll();
    const auto session = world.NewSession({.device = 0, .output_dtype = Dtype::kFloat32});
    const bool failed = AskAll<Request, Query>(*session, number, 1, /*may_refuse=*/true);
    world.Publish({&fresh.a, &fresh.b});
    old.a.served.reset();
    old.b.served.reset();
    world.executor().RunAll();
    EXPECT_TRUE(old.a.l3_log->destroyed && old.b.l3_log->destroyed);
    AskAll<Request, Query>(*session, 0, 3, false);
    return failed;
  }

  template <typename Request, typename Query>
  void Sweep() {
    int64_t number = 1;
    while (AskSwitchAndAsk<Request, Query>(number)) ASSERT_LT(++number, kAllocationsMax);
    EXPECT_GT(number, 1) << "a first call allocates";
  }

  const std::vector<Key> keys_ = Range(60);
  // All rows of misses need memory of the session's.
  const std::unique_ptr<DeviceCache> cache_ = *MakeHostCache(
      {.device = 0, .bytes_max = uint64_t{16} << 20, .calls_max = 1, .call_staging_bytes = 0});
};

TEST_F(QueryNoMemoryTest, EachAllocationOfACallMayFail) {
  Sweep<HostLookupRequest, HostTableQuery>();
}

TEST_F(QueryNoMemoryTest, EachAllocationOfACallOnTheDeviceMayFail) {
  Sweep<DeviceLookupRequest, DeviceTableQuery>();
}

}  // namespace
}  // namespace hps
