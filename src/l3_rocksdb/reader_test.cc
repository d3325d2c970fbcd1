// Reads a store while another process writes to it, ends, and starts again.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <numeric>
#include <thread>

#include "base/clock.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/files/reader_file_system.h"
#include "l3_rocksdb/test_store.h"
#include "testing/await.h"

namespace hps {
namespace {

constexpr uint64_t kStamp = 3;
constexpr size_t kRowBytes = 32;

// Calls a function before a file is opened for reading, and counts the files.
class WatchedFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  WatchedFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "WatchedFileSystem"; }
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override {
    ++opened;
    if (before_open) before_open(path);
    return target()->NewRandomAccessFile(path, options, file, debug);
  }
  std::function<void(const std::string& path)> before_open;
  std::atomic<uint64_t> opened{0};
};

std::vector<Key> Keys(Key count) {
  std::vector<Key> keys(static_cast<size_t>(count));
  std::iota(keys.begin(), keys.end(), Key{0});
  return keys;
}

class ReaderTest : public testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/store"; }
  std::unique_ptr<DurableStore> Open(OpenMode mode, rocksdb::Env* env = nullptr) {
    RocksStoreOptions options = TestOptions(path());
    options.config.write_buffer_bytes = 64 << 10;
    options.mode = mode;
    options.env = env;
    auto store = OpenRocksStore(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static void Import(DurableStore& store, const std::vector<std::string>& names, Key count) {
    std::vector<TableSpec> specs;
    for (const std::string& name : names)
      specs.push_back({.name = name, .dim = kRowBytes / 4, .default_row = {}});
    auto import = store.BeginImport(specs);
    ASSERT_TRUE(import.ok()) << import.status();
    StampedRows rows(kStamp, kRowBytes, Keys(count));
    for (size_t table = 0; table < names.size(); ++table)
      ASSERT_TRUE((*import)->Add(table, 0, rows.keys(), rows.rows()).ok());
    const auto committed = (*import)->Commit();
    ASSERT_TRUE(committed.ok()) << committed.status();
  }
  // Writes all rows and the stream position in one batch, so readers see all of it or nothing.
  static void Write(DurableStore& store, const std::string& name, Key count, Version version) {
    auto table = store.OpenTable(name);
    ASSERT_TRUE(table.ok()) << table.status();
    StampedRows rows(kStamp, kRowBytes, Keys(count), version);
    const std::vector<StreamPosition> positions = {{0, 1, version}};
    ASSERT_TRUE((*table)->Write({rows.batch(), {}, positions}).ok());
  }
  // A hundred rows, changed after the import. The changes are in the WAL only.
  void WriteAndClose() {
    const auto writer = Open(OpenMode::kCreate);
    Import(*writer, {"m/a"}, 100);
    Write(*writer, "m/a", 100, 5);
  }
  // Compacts each table to one file on the lowest level.
  void Compact(const std::vector<std::string>& names) {
    const auto database = Database::Open(TestOptions(path()));
    ASSERT_TRUE(database.ok()) << database.status();
    for (const std::string& name : names) {
      const auto pin = (*database)->catalog().PinTable(name);
      ASSERT_TRUE(pin.ok()) << pin.status();
      rocksdb::CompactRangeOptions options;
      options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
      const rocksdb::Status compacted =
          (*database)->db().CompactRange(options, pin->family().handle, nullptr, nullptr);
      ASSERT_TRUE(compacted.ok()) << compacted.ToString();
    }
  }
  // The common version of all rows of the table and its position.
  static Version ExpectWhole(DurableStore& store, const std::string& name, Key count) {
    auto table = store.OpenTable(name);
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? ExpectWhole(**table, count) : 0;
  }
  static Version ExpectWhole(DurableTable& table, Key count) {
    const FetchedRows rows(table, Keys(count));
    EXPECT_TRUE(rows.counts.ok()) << rows.counts.status();
    if (!rows.counts.ok()) return 0;
    EXPECT_EQ(rows.counts->hits, static_cast<size_t>(count));
    const auto positions = table.Positions();
    EXPECT_TRUE(positions.ok()) << positions.status();
    const Version version = !positions.ok() || positions->empty() ? 0 : positions->at(0).offset;
    for (size_t i = 0; i < rows.keys.size(); ++i) {
      EXPECT_EQ(rows.versions[i], version) << "key " << i;
      EXPECT_TRUE(StampedRow::Matches(kStamp, rows.keys[i], rows.versions[i], rows.row(i)));
    }
    return version;
  }

  // The store's files that this process has open although they are deleted.
  size_t RemovedFilesHeld() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
      count += target.starts_with(path()) && target.ends_with(" (deleted)") ? 1 : 0;
    }
    return count;
  }

  TestDirectory directory_;
  const std::shared_ptr<WatchedFileSystem> watched_ = std::make_shared<WatchedFileSystem>();
  const std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(watched_);
};

// Catches: a reader that reports damage because the writer replaced a file and ended.
TEST_F(ReaderTest, AWriterThatReplacesTheFilesAndEndsIsNoDamage) {
  {
    const auto writer = Open(OpenMode::kCreate);
    Import(*writer, {"m/a", "m/b"}, 500);
  }
  int rounds = 3;
  watched_->before_open = [&](const std::string& file) {
    if (!file.ends_with(".sst") || rounds == 0) return;
    --rounds;
    const auto writer = Open(OpenMode::kReadWrite);
    Import(*writer, {"m/a"}, 500);
    if (rounds == 0) {
      EXPECT_TRUE(writer->Drop("m/b").ok());
    }
  };
  const auto reader = Open(OpenMode::kReadOnly, env_.get());
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(rounds, 0);
  EXPECT_EQ(reader->Tables()->size(), 1u);
  ExpectWhole(*reader, "m/a", 500);
}

// Catches: a reader that keeps the size that a table file had while the writer wrote it.
TEST_F(ReaderTest, AFileThatWasBeingWrittenHasItsFinalSize) {
  {
    const auto writer = Open(OpenMode::kCreate);
    Import(*writer, {"m/a", "m/b"}, 500);
  }
  std::string newest;
  for (const auto& entry : std::filesystem::directory_iterator(path())) {
    if (entry.path().extension() == ".sst") newest = std::max(newest, entry.path().string());
  }
  const std::string whole = path() + "/whole";
  std::filesystem::copy_file(newest, whole);
  std::filesystem::resize_file(newest, 0);
  bool is_written = false;
  // The newest file is opened first. When the next one is opened, the size of the first is known.
  watched_->before_open = [&](const std::string& file) {
    if (is_written || !file.ends_with(".sst") || file == newest) return;
    is_written = true;
    std::filesystem::copy_file(whole, newest, std::filesystem::copy_options::overwrite_existing);
    Import(*Open(OpenMode::kReadWrite), {"m/c"}, 10);
  };
  const auto reader = Open(OpenMode::kReadOnly, env_.get());
  ASSERT_NE(reader, nullptr);
  EXPECT_TRUE(is_written);
  ExpectWhole(*reader, "m/a", 500);
  ExpectWhole(*reader, "m/b", 500);
}

TEST_F(ReaderTest, AFileThatIsMissingForGoodIsDataLoss) {
  {
    const auto writer = Open(OpenMode::kCreate);
    Import(*writer, {"m/a"}, 500);
  }
  for (const auto& entry : std::filesystem::directory_iterator(path())) {
    if (entry.path().extension() == ".sst") std::filesystem::remove(entry.path());
  }
  RocksStoreOptions options = TestOptions(path());
  options.mode = OpenMode::kReadOnly;
  EXPECT_EQ(OpenRocksStore(options).status().code(), absl::StatusCode::kDataLoss);
}

// The writer changes the store whenever the reader checks.
TEST_F(ReaderTest, AStoreThatChangesConstantlyIsUnavailable) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a"}, 50);
  watched_->before_open = [&](const std::string& file) {
    if (!file.ends_with("CURRENT")) return;
    writer = nullptr;
    writer = Open(OpenMode::kReadWrite);  // creates another MANIFEST
  };
  const auto taken = ReaderFileSystem::Take(
      watched_, path(), nullptr, DeadlineAfter(RealClock(), std::chrono::milliseconds(1)));
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable) << taken.status();
}

// Catches: a reader that gives up because one round took longer than its deadline, as on a busy
// machine.
TEST_F(ReaderTest, AStoreThatStopsChangingIsOpenedAfterAnyTime) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a"}, 50);
  int changes = 5;
  watched_->before_open = [&](const std::string& file) {
    if (!file.ends_with("CURRENT") || changes == 0) return;
    --changes;
    writer = nullptr;
    writer = Open(OpenMode::kReadWrite);  // creates another MANIFEST
  };
  const auto taken = ReaderFileSystem::Take(watched_, path(), nullptr, RealClock().Now());
  EXPECT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(changes, 0);
}

// A flush moves the rows of a batch from the WAL to a table file, while its position stays in the
// WAL. A reader with files of different times would see one without the other.
TEST_F(ReaderTest, EveryOpenDuringWritesSeesWholeBatches) {
  constexpr Key kRows = 300;
  {
    const auto writer = Open(OpenMode::kCreate);
    Import(*writer, {"m/a"}, kRows);
  }
  std::atomic<bool> stop = false;
  std::thread writer_thread([&] {
    auto writer = Open(OpenMode::kReadWrite);
    for (Version version = 1; !stop; ++version) {
      Write(*writer, "m/a", kRows, version);
      if (version % 16 == 0) Import(*writer, {"m/other"}, 10);
      if (version % 40 != 0) continue;
      writer = nullptr;
      writer = Open(OpenMode::kReadWrite);
    }
  });
  Version newest = 0;
  const auto look = [&] {
    const auto reader = Open(OpenMode::kReadOnly);
    if (reader == nullptr) return;
    const Version version = ExpectWhole(*reader, "m/a", kRows);
    EXPECT_GE(version, newest);
    newest = version;
  };
  for (int i = 0; i < 60 && !HasFailure(); ++i) look();
  EXPECT_TRUE(AwaitCondition([&] {
    if (newest == 0) look();
    return HasFailure() || newest > 0;
  }));
  stop = true;
  writer_thread.join();
}

TEST_F(ReaderTest, KeepsWhatTheWriterRemoves) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a"}, 20'000);
  const auto reader = Open(OpenMode::kReadOnly);
  Write(*writer, "m/a", 10, 7);
  Import(*writer, {"m/a"}, 5);
  ASSERT_TRUE(writer->Drop("m/a").ok());
  writer = nullptr;
  ExpectWhole(*reader, "m/a", 20'000);
}

// Files above the limit of open files are opened when needed, and may be deleted by then.
TEST_F(ReaderTest, ARemovedFileThatWasNotHeldIsNoDamage) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<std::string> names;
  for (int i = 0; i < 72; ++i) names.push_back("m/t" + std::to_string(i));
  {
    const auto writer = Open(OpenMode::kCreate);
    for (size_t first = 0; first < names.size(); first += 12) {
      const auto begin = names.begin() + static_cast<std::ptrdiff_t>(first);
      Import(*writer, {begin, begin + 12}, 0);
    }
    for (const std::string& name : names) Write(*writer, name, 100, 1);
  }
  ASSERT_NE(Open(OpenMode::kReadWrite), nullptr);  // which writes the log to table files
  rlimit few = before;
  few.rlim_cur = 128;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto reader = Open(OpenMode::kReadOnly);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  {
    const auto writer = Open(OpenMode::kReadWrite);
    for (const std::string& name : names) EXPECT_TRUE(writer->Drop(name).ok());
  }
  size_t read = 0;
  size_t unavailable = 0;
  for (const std::string& name : names) {
    const auto table = reader->OpenTable(name);
    ASSERT_TRUE(table.ok()) << table.status();
    const FetchedRows rows(**table, Keys(100));
    if (rows.counts.ok()) {
      EXPECT_EQ(rows.counts->hits, 100u);
      ++read;
    } else {
      EXPECT_EQ(rows.counts.status().code(), absl::StatusCode::kUnavailable);
      ++unavailable;
    }
  }
  EXPECT_GT(read, 0u);
  EXPECT_GT(unavailable, 0u);
  ASSERT_TRUE(reader->Refresh()->changed);
  EXPECT_TRUE(reader->Tables()->empty());
}

TEST_F(ReaderTest, ARefreshWithoutChangesOpensNothing) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a"}, 100);
  writer = nullptr;  // the writer deletes obsolete files at some time
  const auto reader = Open(OpenMode::kReadOnly, env_.get());
  const uint64_t opened = watched_->opened;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(reader->Refresh()->changed);
  EXPECT_EQ(watched_->opened, opened);
  Import(*(writer = Open(OpenMode::kReadWrite)), {"m/b"}, 100);
  EXPECT_TRUE(reader->Refresh()->changed);
  EXPECT_GT(watched_->opened, opened);
}

TEST_F(ReaderTest, ARefreshBringsTheRowsThatWereWrittenSince) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a", "m/b"}, 100);
  const auto reader = Open(OpenMode::kReadOnly);
  const auto a = *reader->OpenTable("m/a");
  const auto b = *reader->OpenTable("m/b");
  EXPECT_TRUE(a->IsCurrent());
  Write(*writer, "m/a", 100, 5);
  EXPECT_TRUE(reader->Refresh()->changed);
  EXPECT_FALSE(a->IsCurrent());
  EXPECT_TRUE(b->IsCurrent());
  EXPECT_EQ(ExpectWhole(*a, 100), 0u);
  EXPECT_EQ(ExpectWhole(*reader, "m/a", 100), 5u);
  // The object of b was opened in the first state. Its rows are replaced in the third.
  Write(*writer, "m/a", 100, 6);
  EXPECT_TRUE(reader->Refresh()->changed);
  EXPECT_TRUE(b->IsCurrent());
  Write(*writer, "m/b", 100, 7);
  EXPECT_TRUE(reader->Refresh()->changed);
  EXPECT_FALSE(b->IsCurrent());
  EXPECT_EQ(ExpectWhole(*reader, "m/b", 100), 7u);
  EXPECT_EQ(ExpectWhole(*reader, "m/a", 100), 6u);
}

// Catches: a table that keeps the state in which it was opened, with its memory and files, while
// other tables change. At the end there would be one state per table.
TEST_F(ReaderTest, ATableThatDoesNotChangeKeepsNoOldState) {
  constexpr size_t kTables = 12;
  std::vector<std::string> names;
  for (size_t i = 0; i < kTables; ++i) names.push_back("m/t" + std::to_string(i));
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, names, 100);
  const auto reader = Open(OpenMode::kReadOnly);
  std::vector<std::unique_ptr<DurableTable>> tables;
  for (const std::string& name : names) tables.push_back(*reader->OpenTable(name));
  for (size_t i = 0; i < kTables; ++i) {
    Write(*writer, names[i], 100, i + 1);
    writer = nullptr;
    writer = Open(OpenMode::kReadWrite);  // deletes the WAL file of the previous state
    ASSERT_TRUE(reader->Refresh()->changed);
    for (size_t table = 0; table < kTables; ++table) {
      EXPECT_EQ(tables[table]->IsCurrent(), table != i);
      EXPECT_EQ(ExpectWhole(*tables[table], 100), table < i ? table + 1 : 0);
    }
    tables[i] = *reader->OpenTable(names[i]);
    // One WAL file and one MANIFEST per state, and the files replaced by current compactions.
    EXPECT_LE(RemovedFilesHeld(), 8u) << "after " << i + 1 << " reloads";
  }
}

// Catches: a reader that detects newer rows by sequence numbers. A compaction into the lowest level
// sets them to zero and removes deleted keys.
TEST_F(ReaderTest, ARefreshBringsTheRowsThatWereCompactedSince) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a", "m/b"}, 100);
  Write(*writer, "m/a", 100, 5);
  Write(*writer, "m/b", 100, 5);
  const auto reader = Open(OpenMode::kReadOnly);
  const auto a = *reader->OpenTable("m/a");
  const auto b = *reader->OpenTable("m/b");
  Write(*writer, "m/a", 100, 6);
  ASSERT_TRUE((*writer->OpenTable("m/b"))->Write({{}, Keys(100), {}}).ok());
  writer = nullptr;
  Compact({"m/a", "m/b"});
  EXPECT_TRUE(reader->Refresh()->changed);
  EXPECT_FALSE(a->IsCurrent());
  EXPECT_FALSE(b->IsCurrent());
  EXPECT_EQ(ExpectWhole(*a, 100), 5u);
  EXPECT_EQ(ExpectWhole(*b, 100), 5u);
  EXPECT_EQ(ExpectWhole(*reader, "m/a", 100), 6u);
  EXPECT_EQ(FetchedRows(**reader->OpenTable("m/b"), {1}).counts->absent, 1u);
}

// Catches: a reader that keeps files replaced by a compaction until a row changes.
TEST_F(ReaderTest, ACompactionAloneChangesNoRowAndLeavesNoOldFile) {
  WriteAndClose();
  const auto reader = Open(OpenMode::kReadOnly);
  const auto a = *reader->OpenTable("m/a");
  Compact({"m/a"});
  EXPECT_GT(RemovedFilesHeld(), 0u);
  EXPECT_FALSE(reader->Refresh()->changed);
  EXPECT_TRUE(a->IsCurrent());
  EXPECT_EQ(ExpectWhole(*a, 100), 5u);
  EXPECT_EQ(RemovedFilesHeld(), 0u);
}

TEST_F(ReaderTest, ATableThatWasReplacedOrDroppedIsNotCurrentOnceARefreshHasSeenIt) {
  const auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a", "m/b", "m/c"}, 100);
  const auto reader = Open(OpenMode::kReadOnly);
  const auto a = *reader->OpenTable("m/a");
  const auto b = *reader->OpenTable("m/b");
  const auto c = *reader->OpenTable("m/c");
  Import(*writer, {"m/a"}, 50);
  ASSERT_TRUE(writer->Drop("m/b").ok());
  EXPECT_TRUE(reader->Refresh()->changed);
  EXPECT_FALSE(a->IsCurrent());
  EXPECT_FALSE(b->IsCurrent());
  EXPECT_TRUE(c->IsCurrent());
  ExpectWhole(*a, 100);
  ExpectWhole(*b, 100);
}

// The rows move from the WAL to a table file; every row stays the same.
TEST_F(ReaderTest, ARefreshAfterAFlushKeepsTheTables) {
  WriteAndClose();
  const auto reader = Open(OpenMode::kReadOnly);
  const auto a = *reader->OpenTable("m/a");
  auto writer = Open(OpenMode::kReadWrite);  // recovery flushes
  EXPECT_FALSE(reader->Refresh()->changed);
  EXPECT_TRUE(a->IsCurrent());
  EXPECT_EQ(ExpectWhole(*reader, "m/a", 100), 5u);
  writer = nullptr;
  EXPECT_EQ(ExpectWhole(*a, 100), 5u);
}

// Another store at the same path has files of the same names.
TEST_F(ReaderTest, ARefreshAfterTheStoreWasRecreatedMixesNothing) {
  Import(*Open(OpenMode::kCreate), {"m/a"}, 100);
  const auto reader = Open(OpenMode::kReadOnly);
  std::filesystem::remove_all(path());
  Import(*Open(OpenMode::kCreate), {"m/a"}, 70);
  EXPECT_TRUE(reader->Refresh()->changed);
  const auto a = *reader->OpenTable("m/a");
  ExpectWhole(*a, 70);
  EXPECT_EQ(FetchedRows(*a, {71}).counts->absent, 1u);
}

}  // namespace
}  // namespace hps
