#include "query/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "query/test_query_world.h"

namespace hps {
namespace {

using testing::Each;
using testing::HasSubstr;

// Every error goes through a real session, so that "nothing is written" is seen.
class RequestCheckTest : public testing::Test {
 protected:
  RequestCheckTest() : table_(MakeWorldTable({.keys = {1, 2, 3}}, nullptr)) {
    world_.Publish({&table_});
    session_ = world_.NewSession({.keys_max = 4});
  }

  void ExpectRefused(const HostTableQuery& query, absl::StatusCode code, const std::string& text,
                     HostLookupRequest request = {}) {
    const std::vector<HostTableQuery> queries = {
        {.table = {0}, .keys = {keys_.data(), 1}, .rows = good_rows_, .status = {&good_status_, 1}},
        query};
    request.queries = queries;
    LookupCounts counts;
    counts[KeyStatus::kHitL1] = 77;
    const absl::Status status = session_->Lookup(request, &counts);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_THAT(good_rows_, Each(std::byte{0xcc})) << "the query before the bad one was written";
    EXPECT_EQ(good_status_, KeyStatus{0xcc});
    EXPECT_EQ(counts[KeyStatus::kHitL1], 77);
    EXPECT_EQ(table_.l2_log->fetches, 0);
  }

  WorldTable table_;
  World world_;
  std::unique_ptr<LookupSession> session_;
  std::vector<Key> keys_ = {1, 2, 3};
  std::vector<std::byte> good_rows_ = std::vector<std::byte>(32, std::byte{0xcc});
  KeyStatus good_status_{0xcc};
  std::vector<std::byte> rows_ = std::vector<std::byte>(96);
  std::vector<KeyStatus> statuses_ = std::vector<KeyStatus>(3);
};

TEST_F(RequestCheckTest, UnknownTable) {
  ExpectRefused({.table = {1}, .keys = keys_, .rows = rows_}, absl::StatusCode::kInvalidArgument,
                "names table 1, but the session has 1 tables");
}

TEST_F(RequestCheckTest, TooFewRowBytes) {
  ExpectRefused({.keys = keys_, .rows = {rows_.data(), 95}}, absl::StatusCode::kInvalidArgument,
                "room for 95 bytes");
  ExpectRefused({.keys = keys_, .rows = rows_, .row_stride_bytes = 33},
                absl::StatusCode::kInvalidArgument, "every 33 bytes");
}

TEST_F(RequestCheckTest, ALastRowMayEndTheBuffer) {
  std::vector<std::byte> rows(2 * 40 + 32);
  const HostTableQuery query{.keys = keys_, .rows = rows, .row_stride_bytes = 40};
  EXPECT_TRUE(session_->Lookup({.queries = {&query, 1}}, nullptr).ok());
}

TEST_F(RequestCheckTest, StrideBelowTheRow) {
  ExpectRefused({.keys = keys_, .rows = rows_, .row_stride_bytes = 31},
                absl::StatusCode::kInvalidArgument, "but a row has 32");
}

// Would catch a product that wraps to a small number.
TEST_F(RequestCheckTest, AStrideThatWrapsIsRefused) {
  const size_t huge = std::numeric_limits<size_t>::max() / 2 + 1;  // times two keys is 0
  ExpectRefused({.keys = keys_, .rows = rows_, .row_stride_bytes = huge},
                absl::StatusCode::kInvalidArgument, "do not fit");
  ExpectRefused({.keys = {keys_.data(), 2},
                 .rows = rows_,
                 .row_stride_bytes = std::numeric_limits<size_t>::max()},
                absl::StatusCode::kInvalidArgument, "do not fit");
}

TEST_F(RequestCheckTest, StatusesThatDoNotMatchTheKeys) {
  ExpectRefused({.keys = keys_, .rows = rows_, .status = {statuses_.data(), 2}},
                absl::StatusCode::kInvalidArgument, "room for 2 statuses, but 3 keys");
}

TEST_F(RequestCheckTest, NullBuffers) {
  const Key* const no_keys = nullptr;
  std::byte* const no_rows = nullptr;
  KeyStatus* const no_status = nullptr;
  ExpectRefused({.keys = {no_keys, 3}, .rows = rows_}, absl::StatusCode::kInvalidArgument, "null");
  ExpectRefused({.keys = keys_, .rows = {no_rows, 96}}, absl::StatusCode::kInvalidArgument, "null");
  ExpectRefused({.keys = keys_, .rows = rows_, .status = {no_status, 3}},
                absl::StatusCode::kInvalidArgument, "null");
}

TEST_F(RequestCheckTest, KeysWithoutEnd) {
  std::vector<std::byte> rows(128);
  ExpectRefused({.keys = {keys_.data(), std::numeric_limits<size_t>::max()}, .rows = rows},
                absl::StatusCode::kInvalidArgument, "do not fit");
}

TEST_F(RequestCheckTest, MoreKeysThanTheSessionHasScratchFor) {
  std::vector<Key> keys;
  for (size_t i = 0; i < 11; ++i) keys.push_back(i % 2 == 0 ? Key{1} : static_cast<Key>(i));
  std::vector<std::byte> rows(keys.size() * 32);
  std::vector<KeyStatus> statuses(keys.size());
  const std::vector<HostTableQuery> queries = {
      {.keys = keys, .rows = rows, .status = statuses},
      {.keys = {keys_.data(), 1}, .rows = good_rows_, .status = {&good_status_, 1}}};
  LookupCounts counts;
  ASSERT_TRUE(session_->Lookup({.queries = queries}, &counts).ok());
  EXPECT_EQ(counts.total(), keys.size() + 1);
  EXPECT_EQ(counts[KeyStatus::kHitL2] + counts[KeyStatus::kHitL3], 9u);
  EXPECT_EQ(counts[KeyStatus::kAbsent], 3u);
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool is_held = keys[i] <= 3;
    EXPECT_EQ(statuses[i] == KeyStatus::kAbsent, !is_held) << i;
    if (keys[i] == 1) {
      EXPECT_EQ(std::memcmp(&rows[i * 32], good_rows_.data(), 32), 0) << i;
    }
  }
}

TEST_F(RequestCheckTest, Thresholds) {
  for (double threshold : {-0.01, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    ExpectRefused({.keys = {keys_.data(), 1}, .rows = rows_}, absl::StatusCode::kInvalidArgument,
                  "threshold", {.hit_rate_threshold = threshold});
  }
}

TEST_F(RequestCheckTest, TooManyQueries) {
  const std::vector<HostTableQuery> queries(kTablesPerCallMax + 1);
  const absl::Status status = session_->Lookup({.queries = queries}, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST_F(RequestCheckTest, NoQueriesAndNoKeysAreLegal) {
  LookupCounts counts;
  EXPECT_TRUE(session_->Lookup(HostLookupRequest{}, &counts).ok());
  const HostTableQuery query{};
  EXPECT_TRUE(session_->Lookup({.queries = {&query, 1}}, &counts).ok());
  EXPECT_EQ(counts.total(), 0);
}

TEST_F(RequestCheckTest, DeviceQueriesNeedADevice) {
  EXPECT_EQ(session_->Lookup(DeviceLookupRequest{}, nullptr).code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(RequestCheckTest, SessionOptions) {
  const auto code = [&](const SessionOptions& options) {
    return world_.factory().NewSession(world_.model(), options).status().code();
  };
  EXPECT_EQ(code({.keys_max = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.keys_max = kKeysPerCallMax + 1}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.output_dtype = Dtype::kFloat16}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.device = 3}), absl::StatusCode::kUnavailable);
  LiveModel empty("empty", world_.factory().epoch_domain(), world_.executor());
  EXPECT_EQ(world_.factory().NewSession(empty, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session_->FindTable("m/b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(session_->FindTable("m/aa").status().message()), HasSubstr("'m/a'"));
}

}  // namespace
}  // namespace hps
