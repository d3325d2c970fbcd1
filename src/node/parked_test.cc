#include "hps/parked.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "hps/store.h"
#include "l3_rocksdb/rocks_store.h"
#include "node/test_store_files.h"
#include "node/tier_factory.h"
#include "testing/await.h"
#include "testing/unprivileged.h"
#include "update/parked_messages.h"

namespace hps {
namespace {

constexpr float kImported = 1;
constexpr float kGone = -1;

class ParkedTest : public StoreFilesTest {
 protected:
  ParkedTest() : StoreFilesTest(uint64_t{64} << 20) {
    ImportRequest request = Files("m/t", 10, kImported);
    request.default_value = kGone;
    Import(request);
  }

  // A message that sets the keys to `value`, or deletes them.
  static std::vector<std::byte> Payload(const std::vector<Key>& keys, float value,
                                        uint32_t dim = kTestDim, bool is_delete = false) {
    const TableSpec spec = {.name = "m/t", .dim = dim};
    const UpdateKind kind = is_delete ? UpdateKind::kDelete : UpdateKind::kUpsert;
    const std::vector<float> rows(is_delete ? 0 : keys.size() * dim, value);
    std::vector<std::byte> payload(EncodedUpdateBytes(spec, kind, keys.size()));
    EncodeUpdate(spec, {.kind = kind, .keys = keys, .rows = std::as_bytes(std::span(rows))},
                 payload);
    return payload;
  }
  void Park(uint64_t offset, std::vector<std::byte> payload, const std::string& table = "m/t",
            int64_t time_ms = 0) {
    const auto parked = ParkedMessages::Open(config_.store.path, 1 << 20);
    ASSERT_TRUE(parked.ok()) << parked.status();
    ASSERT_TRUE((*parked)
                    ->Add({.table = table,
                           .topic = "hps_et.m.t",
                           .position = {.partition = 0, .generation = 1, .offset = offset},
                           .reason = ParkReason::kWrongShape,
                           .detail = "as it was",
                           .time_ms = time_ms,
                           .payload = std::move(payload)})
                    .ok());
  }
  // Writes a row as the stream would.
  void WriteAt(uint64_t offset, Key key, float value) {
    const auto store = OpenDurableStore(config_.store, OpenMode::kReadWrite, StoreRole::kCommand);
    ASSERT_TRUE(store.ok()) << store.status();
    std::vector<float> row(kTestDim, value);
    const Version version = VersionAt(1, offset);
    const StreamPosition position = {.generation = 1, .offset = offset + 1};
    ASSERT_TRUE(
        (*(*store)->OpenTable("m/t"))
            ->Write({.upserts = {.keys = {&key, 1},
                                 .rows = {std::as_writable_bytes(std::span(row)).data(), 1,
                                          sizeof(float) * kTestDim, sizeof(float) * kTestDim},
                                 .versions = {&version, 1}},
                     .positions = {&position, 1}})
            .ok());
  }
  // Deletes a row as the stream would.
  void DeleteAt(uint64_t offset, Key key) {
    const auto store = OpenDurableStore(config_.store, OpenMode::kReadWrite, StoreRole::kCommand);
    ASSERT_TRUE(store.ok()) << store.status();
    const Version version = VersionAt(1, offset);
    ASSERT_TRUE((*(*store)->OpenTable("m/t"))
                    ->Write({.deletes = {&key, 1}, .delete_versions = {&version, 1}})
                    .ok());
  }
  // The first element of each key's row.
  std::vector<float> Values(const std::vector<Key>& keys) {
    const auto store = Store::Open(config_, OpenMode::kReadOnly);
    EXPECT_TRUE(store.ok()) << store.status();
    const auto session = *(*store)->NewSession("m", {});
    std::vector<float> rows(keys.size() * kTestDim);
    const HostTableQuery query = {.table = *session->FindTable("m/t"),
                                  .keys = keys,
                                  .rows = std::as_writable_bytes(std::span(rows)),
                                  .status = {}};
    LookupCounts counts;
    EXPECT_TRUE(
        session
            ->Lookup(HostLookupRequest{.queries = {&query, 1}, .timeout = std::chrono::minutes(1)},
                     &counts)
            .ok());
    std::vector<float> firsts;
    for (size_t i = 0; i < keys.size(); ++i) firsts.push_back(rows[i * kTestDim]);
    return firsts;
  }
};

TEST_F(ParkedTest, AreListedAlsoBesideAServer) {
  EXPECT_EQ(ListParkedMessages(config_)->size(), 0u);
  Park(7, Payload({1}, 2), "m/t", 5);
  const auto server = Store::Open(config_, OpenMode::kServe);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto listed = ListParkedMessages(config_);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 1u);
  const ParkedMessageInfo& message = listed->front();
  EXPECT_EQ(message.table, "m/t");
  EXPECT_EQ(message.topic, "hps_et.m.t");
  EXPECT_EQ(message.position.offset, 7u);
  EXPECT_EQ(message.reason, "wrong_shape");
  EXPECT_EQ(message.detail, "as it was");
  EXPECT_EQ(message.time_ms, 5);
  EXPECT_EQ(message.payload_bytes, Payload({1}, 2).size());
  EXPECT_EQ(ReplayParkedMessages(config_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ParkedTest, AReplayAppliesAtTheMessagesPosition) {
  WriteAt(20, 1, 5);
  WriteAt(5, 2, 6);
  Park(10, Payload({1, 2, 3, 100, 3}, 9));
  Park(11, Payload({1, 4}, 0, kTestDim, true));
  const auto report = ReplayParkedMessages(config_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->messages, 2u);
  EXPECT_EQ(report->rows, 4u);  // 2, 3, 100 and the delete of 4
  EXPECT_TRUE(report->parked.empty());
  EXPECT_EQ(Values({0, 1, 2, 3, 4, 100}), (std::vector<float>{kImported, 5, 9, 9, kGone, 9}));
  EXPECT_EQ(ListParkedMessages(config_)->size(), 0u);
}

// Catches: an old row that comes back although the stream deleted it later.
TEST_F(ParkedTest, AReplayKeepsLaterDeletions) {
  DeleteAt(20, 1);
  DeleteAt(20, 100);
  DeleteAt(5, 2);
  WriteAt(30, 3, 7);
  Park(10, Payload({1, 2, 3, 100, 101}, 9));
  Park(11, Payload({1, 3, 101}, 0, kTestDim, true));
  Park(12, Payload({1, 101}, 8));
  Park(10, Payload({101}, 9));  // delivered again
  const auto report = ReplayParkedMessages(config_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->messages, 4u);
  EXPECT_EQ(report->rows, 4u);        // 2, and 101 three times
  EXPECT_EQ(report->superseded, 7u);  // 1 three times, 3 twice, 100, and 101 at last
  EXPECT_EQ(report->undecided, 0u);
  EXPECT_EQ(Values({1, 2, 3, 100, 101}), (std::vector<float>{kGone, 9, 7, kGone, 8}));
}

// A merge of changes removes the records of deletions.
TEST_F(ParkedTest, AfterAMergeKeysWithoutARowAreLeftOut) {
  DeleteAt(20, 1);
  WriteAt(21, 2, 5);
  RocksStoreOptions options;
  options.config = config_.store;
  options.config.merge_share = 0.01;
  options.merge_keys_min = 1;
  options.mode = OpenMode::kReadWrite;
  options.role = OwnerRole::kServer;
  {
    const auto store = OpenRocksStore(options);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(AwaitCondition([&] { return (*store)->Statistics().merges > 0; }));
  }
  const auto parked = [this] { return ListParkedMessages(config_)->size(); };
  Park(10, Payload({1, 2, 3, 100}, 9));
  Park(11, Payload({3, 100}, 0, kTestDim, true));
  auto report = ReplayParkedMessages(config_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->messages, 0u);
  EXPECT_EQ(report->rows, 2u);  // 3 is set and deleted
  EXPECT_EQ(report->superseded, 1u);
  EXPECT_EQ(report->undecided, 3u);  // 1, and 100 of both
  ASSERT_EQ(report->parked.size(), 2u);
  EXPECT_EQ(report->parked[0].detail.rfind("2 of its keys have no row", 0), 0u)
      << report->parked[0].detail;
  EXPECT_EQ(Values({1, 2, 3, 100}), (std::vector<float>{kGone, 5, kGone, kGone}));
  EXPECT_EQ(parked(), 2u);

  report = ReplayParkedMessages(config_, {.apply_undecided = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->messages, 2u);
  EXPECT_EQ(report->undecided, 0u);
  EXPECT_EQ(Values({1, 2, 3, 100}), (std::vector<float>{9, 5, kGone, kGone}));
  EXPECT_EQ(parked(), 0u);
}

// Nodes that share rows must have the same rows.
TEST_F(ParkedTest, OfTablesWithAnImportIdNothingIsReplayed) {
  ImportRequest request = Files("m/t", 10, kImported);
  request.import_id = "v1";
  request.update_start = UpdateStart{.kind = UpdateStart::Kind::kBeginning};
  Import(request);
  Park(1, Payload({1}, 9));
  const auto report = ReplayParkedMessages(config_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->messages, 0u);
  ASSERT_EQ(report->parked.size(), 1u);
  EXPECT_NE(report->parked[0].detail.find("import id"), std::string::npos);
  EXPECT_EQ(Values({1}), std::vector<float>{kImported});
}

TEST_F(ParkedTest, WhatIsStillWrongStaysParked) {
  Park(1, Payload({1}, 9, kTestDim + 1));
  Park(2, Payload({2}, 9));
  Park(3, Payload({3}, 9), "m/other");
  Park(4, {});
  std::vector<std::byte> damaged = Payload({4}, 9);
  damaged.back() ^= std::byte{1};
  Park(5, damaged);
  const auto report = ReplayParkedMessages(config_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->messages, 1u);
  EXPECT_EQ(Values({1, 2, 3, 4}), (std::vector<float>{kImported, 9, kImported, kImported}));
  const auto left = *ListParkedMessages(config_);
  ASSERT_EQ(left.size(), 4u);
  EXPECT_EQ(left[0].reason, "wrong_shape");
  EXPECT_NE(left[0].detail.find("4 x float32"), std::string::npos) << left[0].detail;
  EXPECT_NE(left[1].detail.find("m/other"), std::string::npos) << left[1].detail;
  EXPECT_EQ(left[2].detail, "as it was");
  EXPECT_EQ(left[3].reason, "checksum");
  EXPECT_EQ(left[3].payload_bytes, damaged.size());
}

TEST_F(ParkedTest, AMessageFromBeforeTheImportStaysParked) {
  ImportRequest request = Files("m/t", 10, kImported);
  request.update_start = UpdateStart{.kind = UpdateStart::Kind::kTime, .time_ms = 1000};
  Import(request);
  Park(1, Payload({1}, 9), "m/t", 999);
  Park(2, Payload({2}, 9), "m/t", 1000);
  const auto report = ReplayParkedMessages(config_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->messages, 1u);
  ASSERT_EQ(report->parked.size(), 1u);
  EXPECT_NE(report->parked[0].detail.find("supersedes"), std::string::npos);
  EXPECT_EQ(Values({1, 2}), (std::vector<float>{kImported, 9}));
}

// Catches: a table that reads its stream from the end, and gets changes from before its import.
TEST_F(ParkedTest, AnImportAtTheEndOfTheStreamSupersedesOlderMessages) {
  ImportRequest request = Files("m/t", 10, kImported);
  request.update_start = UpdateStart{.kind = UpdateStart::Kind::kEnd};
  const auto milliseconds_now = [] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const int64_t before = milliseconds_now() - 1;
  Import(request);
  Park(1, Payload({1}, 9), "m/t", before);
  Park(2, Payload({2}, 9), "m/t", milliseconds_now());
  const auto report = ReplayParkedMessages(config_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->messages, 1u);
  ASSERT_EQ(report->parked.size(), 1u);
  EXPECT_EQ(report->parked[0].position.offset, 1u);
  EXPECT_EQ(Values({1, 2}), (std::vector<float>{kImported, 9}));
}

TEST_F(ParkedTest, ATableOfDirectChangesKeepsItsRows) {
  Park(1, Payload({1}, 9));
  auto store = Store::Open(config_, OpenMode::kMaintain);
  ASSERT_TRUE(store.ok()) << store.status();
  const Key key = 1;
  ASSERT_TRUE(
      (*store)
          ->Apply({.table = "m/t", .keys = {&key, 1}, .is_delete = true}, std::chrono::minutes(1))
          .ok());
  *store = nullptr;
  const auto report = ReplayParkedMessages(config_);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->parked.size(), 1u);
  EXPECT_NE(report->parked[0].detail.find("direct changes"), std::string::npos);
  EXPECT_EQ(Values({1}), (std::vector<float>{kGone}));
}

TEST_F(ParkedTest, ErrorsAreReported) {
  Config nowhere = config_;
  nowhere.store.path = directory_ + "/nowhere";
  EXPECT_EQ(ListParkedMessages(nowhere).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReplayParkedMessages(nowhere).status().code(), absl::StatusCode::kNotFound);
  Park(1, Payload({1}, 9));
  {
    const Unprivileged unprivileged;
    EXPECT_EQ(ListParkedMessages(config_).status().code(), absl::StatusCode::kPermissionDenied);
  }
  std::filesystem::resize_file(config_.store.path + "/parked/messages", 0);
  WriteVector(config_.store.path + "/parked/messages", std::vector<char>(100, 'x'));
  EXPECT_EQ(ListParkedMessages(config_).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace hps
