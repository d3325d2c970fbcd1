#include "server/core/server_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/model_counters.h"

namespace hps::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Pair;

TEST(LatencyCounterTest, BucketsHoldTheirUpperBound) {
  LatencyCounter counter;
  counter.Add(Duration(0));
  counter.Add(std::chrono::microseconds(5));
  counter.Add(std::chrono::nanoseconds(5'001));
  counter.Add(std::chrono::seconds(10));
  counter.Add(std::chrono::seconds(11));
  const LatencyHistogram histogram = counter.Snapshot();
  EXPECT_EQ(histogram.count, 5u);
  EXPECT_EQ(histogram.counts.front(), 2u);
  EXPECT_EQ(histogram.counts[1], 1u);
  EXPECT_EQ(histogram.counts[kLatencyBucketSeconds.size() - 1], 1u);
  EXPECT_EQ(histogram.counts.back(), 1u);
  EXPECT_EQ(histogram.sum_ns, 5'000u + 5'001 + 21'000'000'000);
}

TEST(ServerCountersTest, FillsWhatWasCounted) {
  ServerCounters counters;
  counters.CountRequest(Protocol::kHttp);
  counters.CountRequest(Protocol::kGrpc);
  counters.CountRequest(Protocol::kGrpc);
  counters.CountRefused(RefusedReason::kDraining);
  counters.CountBadRequest(BadRequestReason::kSyntax);
  counters.CountDeadlineExceeded(LateStage::kLookup);
  counters.CountAuthFailure();
  counters.NoteCertificate(7, 8);
  counters.AddConnections(Protocol::kGrpc, 5);
  counters.AddConnections(Protocol::kHttp, 3);
  counters.AddConnections(Protocol::kHttp, -1);
  ServerStatistics statistics;
  counters.Fill(&statistics);
  EXPECT_EQ(statistics.http.requests, 1u);
  EXPECT_EQ(statistics.grpc.requests, 2u);
  EXPECT_EQ(statistics.auth_failures, 1u);
  EXPECT_EQ(statistics.certificate_not_before, 7);
  EXPECT_EQ(statistics.certificate_not_after, 8);
  EXPECT_EQ(statistics.http.connections, 2u);
  EXPECT_EQ(statistics.grpc.connections, 5u);
  EXPECT_THAT(statistics.refused, ElementsAre(Pair("capacity", 0), Pair("connections", 0),
                                              Pair("draining", 1), Pair("not_ready", 0)));
  EXPECT_THAT(statistics.bad_requests, Contains(Pair("syntax", 1)));
  EXPECT_THAT(statistics.deadlines_exceeded, ElementsAre(Pair("lookup", 1), Pair("queue", 0)));
}

TEST(ModelCountersTest, BatchesByPowersOfTwo) {
  ModelCounters counters;
  for (const size_t calls : {1, 2, 3, 4, 7, 8, 1'000'000}) counters.CountBatch(calls);
  counters.AddBatchTime(2, std::chrono::microseconds(7));
  counters.AddBatchTime(3, std::chrono::microseconds(1));
  counters.CountCall(true, 10, std::chrono::seconds(1));
  counters.CountCall(false, 5, std::chrono::microseconds(3));
  ModelServerStatistics statistics;
  counters.Fill(&statistics);
  EXPECT_THAT(statistics.batch_sizes,
              ElementsAre(Pair(1, 1), Pair(2, 2), Pair(4, 2), Pair(8, 1), Pair(65536, 1)));
  EXPECT_THAT(statistics.batch_lookup_ns, ElementsAre(0, 8000, 0, 0, 0));
  EXPECT_EQ(statistics.failed_ns, 3000u);
  EXPECT_EQ(statistics.batches, 7u);
  EXPECT_EQ(statistics.requests, 1u);
  EXPECT_EQ(statistics.requests_failed, 1u);
  EXPECT_EQ(statistics.keys, 10u);
  EXPECT_GT(statistics.last_request_unix_ms, 0u);
}

}  // namespace
}  // namespace hps::server
