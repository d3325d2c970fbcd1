#include "l3_rocksdb/snapshot.h"

#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "l3_rocksdb/test_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "testing/await.h"

namespace hps {
namespace {

constexpr uint64_t kKeys = 50;
constexpr uint32_t kDim = 8;

// A disk whose hard links and free space the test decides on.
class LinkEnv final : public rocksdb::EnvWrapper {
 public:
  LinkEnv() : rocksdb::EnvWrapper(rocksdb::Env::Default()) {}
  const char* Name() const override { return "LinkEnv"; }
  rocksdb::Status LinkFile(const std::string& from, const std::string& to) override {
    const rocksdb::Status status = on_link ? on_link() : rocksdb::Status::OK();
    return status.ok() ? target()->LinkFile(from, to) : status;
  }
  rocksdb::Status GetFreeSpace(const std::string&, uint64_t* bytes) override {
    *bytes = is_full ? 0 : uint64_t{1} << 40;
    return rocksdb::Status::OK();
  }
  std::function<rocksdb::Status()> on_link;
  std::atomic<bool> is_full{false};
};

class SnapshotTest : public testing::Test {
 protected:
  SnapshotTest() {
    options_ = TestOptions(directory_.Path("store"));
    options_.env = &env_;
    store_ = Open(options_);
    const std::vector<TableSpec> specs = {{.name = "m/t", .dim = kDim}};
    auto import = store_->BeginImport(specs);
    EXPECT_TRUE(import.ok()) << import.status();
    std::vector<Key> keys;
    for (Key key = 0; key < static_cast<Key>(kKeys); ++key) keys.push_back(key);
    StampedRows rows(0, kDim * 4, keys);
    EXPECT_TRUE((*import)->Add(0, 0, rows.keys(), rows.rows()).ok());
    EXPECT_TRUE((*import)->Commit().ok());
    table_ = *store_->OpenTable("m/t");
  }

  static std::unique_ptr<DurableStore> Open(const RocksStoreOptions& options) {
    auto store = OpenRocksStore(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  // Change number n, from 1, sets key n % kKeys.
  void Change(uint64_t n) {
    StampedRows rows(0, kDim * 4, {static_cast<Key>(n % kKeys)}, VersionAt(kDirectGeneration, n));
    const StreamPosition position = {.generation = kDirectGeneration, .offset = n + 1};
    ASSERT_TRUE(table_->Write({.upserts = rows.batch(), .positions = {&position, 1}}).ok());
  }

  // Copies the snapshot, opens the copy, and checks that it has the changes before its position and
  // no others. Returns their number.
  uint64_t CheckCopy(const std::string& name) {
    const std::string copy = directory_.Path("copy-" + name);
    std::filesystem::copy(directory_.Path("store/snapshots/" + name), copy,
                          std::filesystem::copy_options::recursive);
    const RocksStoreOptions options = TestOptions(copy);
    const auto report = VerifyRocksStore(options, false, {});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->damage_count, 0u) << report->damage[0].what;
    const auto store = Open(options);
    const auto table = *store->OpenTable("m/t");
    const std::vector<StreamPosition> positions = *table->Positions();
    const uint64_t changes = positions.empty() ? 0 : positions[0].offset - 1;
    std::vector<Key> keys;
    for (uint64_t key = 0; key < kKeys; ++key) keys.push_back(static_cast<Key>(key));
    const FetchedRows found(*table, keys);
    for (uint64_t key = 0; key < kKeys; ++key) {
      const uint64_t last = changes >= key ? changes - (changes - key) % kKeys : 0;
      EXPECT_EQ(found.outcomes[key], FetchOutcome::kHit);
      EXPECT_EQ(found.versions[key], last) << "key " << key << " after " << changes << " changes";
    }
    return changes;
  }
  absl::StatusCode Code(const std::string& name) { return store_->Snapshot(name).status().code(); }
  bool HasSnapshot(const std::string& name) const {
    return directory_.Has("store/snapshots/" + name);
  }

  const TestDirectory directory_;
  LinkEnv env_;
  RocksStoreOptions options_;
  std::unique_ptr<DurableStore> store_;
  std::unique_ptr<DurableTable> table_;
};

TEST_F(SnapshotTest, ACopyHasEveryEarlierChange) {
  for (uint64_t n = 1; n <= 120; ++n) Change(n);
  const auto bytes = store_->Snapshot("a-1_b.c");
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GT(*bytes, 1000u);
  Change(121);
  EXPECT_EQ(CheckCopy("a-1_b.c"), 120u);
}

TEST_F(SnapshotTest, ACopyKnowsWhichKeysHaveNoOrder) {
  const std::vector<uint16_t> hashes = {5, 500};
  ASSERT_TRUE(table_->Write({.unordered_hashes = hashes}).ok());
  ASSERT_TRUE(store_->Snapshot("s").ok());
  const auto copy = Open(TestOptions(directory_.Path("store/snapshots/s")));
  EXPECT_EQ((*copy->OpenTable("m/t"))->UnorderedHashes(), hashes);
}

TEST_F(SnapshotTest, WhileChangesAreAppliedACopyHasAPrefixOfThem) {
  std::atomic<uint64_t> done{0};
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    for (uint64_t n = 1; !ended; ++n) {
      Change(n);
      done = n;
    }
  });
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = done;
    EXPECT_TRUE(AwaitCondition([&] { return done >= before + 100; }));
    const uint64_t begun = done;
    const auto bytes = store_->Snapshot("s" + std::to_string(i));
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_GE(CheckCopy("s" + std::to_string(i)), begun);
  }
  ended = true;
  writer.join();
}

TEST_F(SnapshotTest, StaysAsItIsWhileTheStoreGoesOn) {
  Change(1);
  ASSERT_TRUE(store_->Snapshot("s").ok());
  for (uint64_t n = 2; n <= 200; ++n) Change(n);
  table_ = nullptr;
  ASSERT_TRUE(store_->Drop("m/t").ok());
  store_ = nullptr;
  store_ = Open(options_);
  EXPECT_EQ(CheckCopy("s"), 1u);
  EXPECT_TRUE(VerifyRocksStore(options_, false, {}).status().code() ==
              absl::StatusCode::kUnavailable);  // the store is open
  store_ = nullptr;
  const auto report = VerifyRocksStore(options_, false, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->damage_count, 0u);
}

TEST_F(SnapshotTest, RefusesOtherNames) {
  for (const char* name : {"", ".", "..", ".s", "a/b", "a b", "../x", "\n"})
    EXPECT_EQ(Code(name), absl::StatusCode::kInvalidArgument) << name;
  EXPECT_EQ(Code(std::string(65, 'x')), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Code(std::string(64, 'x')), absl::StatusCode::kOk);
  EXPECT_EQ(Code(std::string(64, 'x')), absl::StatusCode::kAlreadyExists);
}

TEST_F(SnapshotTest, OneIsMadeAtATime) {
  absl::StatusCode second = absl::StatusCode::kOk;
  env_.on_link = [&] {
    std::thread([&] { second = Code("second"); }).join();
    return rocksdb::Status::OK();
  };
  EXPECT_EQ(Code("first"), absl::StatusCode::kOk);
  EXPECT_EQ(second, absl::StatusCode::kFailedPrecondition);
  env_.on_link = nullptr;
  EXPECT_EQ(Code("second"), absl::StatusCode::kOk);
}

TEST_F(SnapshotTest, AFailureLeavesNothing) {
  for (const auto& [error, code] :
       {std::pair(rocksdb::Status::IOError("broken"), absl::StatusCode::kUnavailable),
        std::pair(rocksdb::Status::NoSpace(), absl::StatusCode::kResourceExhausted)}) {
    env_.on_link = [&error = error] { return error; };
    EXPECT_EQ(Code("s"), code);
    EXPECT_TRUE(std::filesystem::is_empty(directory_.Path("store/snapshots")));
  }
  env_.on_link = nullptr;
  options_.config.free_bytes_min = 1;
  table_ = nullptr;
  store_ = nullptr;
  store_ = Open(options_);
  env_.is_full = true;
  EXPECT_EQ(Code("s"), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.Path("store/snapshots")));
  env_.is_full = false;
  EXPECT_EQ(Code("s"), absl::StatusCode::kOk);
}

TEST_F(SnapshotTest, FilesAreCopiedWhereThereAreNoHardLinks) {
  Change(1);
  for (const auto& [name, error] :
       {std::pair("fuse", rocksdb::Status::NotSupported("Links not supported by FS")),
        std::pair("fat", rocksdb::Status::IOError("linking", "Operation not permitted"))}) {
    env_.on_link = [&error = error] { return error; };
    EXPECT_EQ(Code(name), absl::StatusCode::kOk);
    env_.on_link = nullptr;
    EXPECT_EQ(CheckCopy(name), 1u);
  }
}

TEST_F(SnapshotTest, AReadOnlyStoreMakesNone) {
  options_.mode = OpenMode::kReadOnly;
  EXPECT_EQ(Open(options_)->Snapshot("s").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SnapshotTest, WhatAKilledWriterLeftIsRemoved) {
  directory_.Write("store/snapshots/.s.tmp/000001.sst", "x");
  ASSERT_TRUE(store_->Snapshot("t").ok());
  EXPECT_FALSE(HasSnapshot(".s.tmp"));
  directory_.Write("store/snapshots/.s.tmp/000001.sst", "x");
  table_ = nullptr;
  store_ = nullptr;
  store_ = Open(options_);
  EXPECT_FALSE(HasSnapshot(".s.tmp"));
  EXPECT_TRUE(HasSnapshot("t"));
}

}  // namespace
}  // namespace hps
