// Reading a store while another process writes to it, and ends, and comes back.
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

namespace hps {
namespace {

constexpr uint64_t kStamp = 3;
constexpr size_t kRowBytes = 32;

// Calls back before a file is opened for reading, and counts.
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
  // All rows and the stream position in one batch, so that they can only be seen together.
  static void Write(DurableStore& store, const std::string& name, Key count, Version version) {
    auto table = store.OpenTable(name);
    ASSERT_TRUE(table.ok()) << table.status();
    StampedRows rows(kStamp, kRowBytes, Keys(count), version);
    const std::vector<StreamPosition> positions = {{0, 1, version}};
    ASSERT_TRUE((*table)->Write({rows.batch(), {}, positions}).ok());
  }
  // A hundred rows, changed since their import: the changes are in the log yet.
  void WriteAndClose() {
    const auto writer = Open(OpenMode::kCreate);
    Import(*writer, {"m/a"}, 100);
    Write(*writer, "m/a", 100, 5);
  }
  // All table files of each table become one, of the lowest level.
  void Compact(const std::vector<std::string>& names) {
    const auto database = Database::Open(TestOptions(path()));
    ASSERT_TRUE(database.ok()) << database.status();
    for (const std::string& name : names) {
      const auto pin = (*database)->PinTable(name);
      ASSERT_TRUE(pin.ok()) << pin.status();
      rocksdb::CompactRangeOptions options;
      options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
      const rocksdb::Status compacted =
          (*database)->db().CompactRange(options, pin->family().handle, nullptr, nullptr);
      ASSERT_TRUE(compacted.ok()) << compacted.ToString();
    }
  }
  // The one version that all rows of the table and its position have.
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

  // Files of the store that this process has open though they have no name any more.
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

// Would catch a reader that calls a file damaged which its writer has replaced, and then ended.
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

// Would catch a reader that keeps the size that a table file had while its writer wrote it.
TEST_F(ReaderTest, AFileThatWasBeingWrittenHasItsSizeOfTheEnd) {
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
  // The newest is opened first: when the next one is, its size is known.
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

// The writer is in the middle of a change whenever one looks.
TEST_F(ReaderTest, AStoreThatNeverStandsStillIsUnavailable) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a"}, 50);
  watched_->before_open = [&](const std::string& file) {
    if (!file.ends_with("CURRENT")) return;
    writer = nullptr;
    writer = Open(OpenMode::kReadWrite);  // with a new MANIFEST
  };
  const auto taken = ReaderFileSystem::Take(
      watched_, path(), nullptr, DeadlineAfter(RealClock(), std::chrono::milliseconds(1)));
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable) << taken.status();
}

// Would catch a reader that gives a store up because one round took long, as it does on a busy
// machine.
TEST_F(ReaderTest, AStoreThatStandsStillAfterSomeRoundsIsTakenHoweverLongTheyTook) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a"}, 50);
  int changes = 5;
  watched_->before_open = [&](const std::string& file) {
    if (!file.ends_with("CURRENT") || changes == 0) return;
    --changes;
    writer = nullptr;
    writer = Open(OpenMode::kReadWrite);  // with a new MANIFEST
  };
  const auto taken = ReaderFileSystem::Take(watched_, path(), nullptr, RealClock().Now());
  EXPECT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(changes, 0);
}

// A batch is in one log, its rows leave it for a table file, and its position stays there: a reader
// that took files of different moments would see one without the other.
TEST_F(ReaderTest, EveryOpenBesideAWriterSeesWholeBatches) {
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
  const Deadline patience = DeadlineAfter(RealClock(), std::chrono::minutes(1));
  for (int i = 0; i < 60 || (newest == 0 && RealClock().Now() < patience); ++i) {
    const auto reader = Open(OpenMode::kReadOnly);
    if (reader == nullptr) break;
    const Version version = ExpectWhole(*reader, "m/a", kRows);
    EXPECT_GE(version, newest);
    newest = version;
  }
  stop = true;
  writer_thread.join();
  EXPECT_GT(newest, 0u);
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

// Files beyond what may stay open are opened when they are needed, and may be gone by then.
TEST_F(ReaderTest, ARemovedFileThatWasNotHeldIsNoDamage) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<std::string> names;
  for (int i = 0; i < 120; ++i) names.push_back("m/t" + std::to_string(i));
  {
    const auto writer = Open(OpenMode::kCreate);
    for (size_t first = 0; first < names.size(); first += 15) {
      const auto begin = names.begin() + static_cast<std::ptrdiff_t>(first);
      Import(*writer, {begin, begin + 15}, 100);
    }
  }
  rlimit few = before;
  few.rlim_cur = 150;
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
  ASSERT_TRUE(*reader->Refresh());
  EXPECT_TRUE(reader->Tables()->empty());
}

TEST_F(ReaderTest, ARefreshOfWhatDidNotChangeOpensNothing) {
  auto writer = Open(OpenMode::kCreate);
  Import(*writer, {"m/a"}, 100);
  writer = nullptr;  // it removes what it needs no more when it gets round to it
  const auto reader = Open(OpenMode::kReadOnly, env_.get());
  const uint64_t opened = watched_->opened;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(*reader->Refresh());
  EXPECT_EQ(watched_->opened, opened);
  Import(*(writer = Open(OpenMode::kReadWrite)), {"m/b"}, 100);
  EXPECT_TRUE(*reader->Refresh());
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
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_FALSE(a->IsCurrent());
  EXPECT_TRUE(b->IsCurrent());
  EXPECT_EQ(ExpectWhole(*a, 100), 0u);
  EXPECT_EQ(ExpectWhole(*reader, "m/a", 100), 5u);
  // b's object is of the first state, and what it shows is replaced in the third.
  Write(*writer, "m/a", 100, 6);
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_TRUE(b->IsCurrent());
  Write(*writer, "m/b", 100, 7);
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_FALSE(b->IsCurrent());
  EXPECT_EQ(ExpectWhole(*reader, "m/b", 100), 7u);
  EXPECT_EQ(ExpectWhole(*reader, "m/a", 100), 6u);
}

// Would catch a table that keeps the whole state it was opened in, with its memory and its files,
// through all reloads in which others change: one state for each table in the end.
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
    writer = Open(OpenMode::kReadWrite);  // removes the log that the state before had
    ASSERT_TRUE(*reader->Refresh());
    for (size_t table = 0; table < kTables; ++table) {
      EXPECT_EQ(tables[table]->IsCurrent(), table != i);
      EXPECT_EQ(ExpectWhole(*tables[table], 100), table < i ? table + 1 : 0);
    }
    tables[i] = *reader->OpenTable(names[i]);
    // A log and a MANIFEST for each state, and what the compactions of now have replaced.
    EXPECT_LE(RemovedFilesHeld(), 8u) << "after " << i + 1 << " reloads";
  }
}

// Would catch a reader that tells newer rows by their sequence numbers: a compaction into the
// lowest level sets them to zero, and takes away what was deleted.
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
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_FALSE(a->IsCurrent());
  EXPECT_FALSE(b->IsCurrent());
  EXPECT_EQ(ExpectWhole(*a, 100), 5u);
  EXPECT_EQ(ExpectWhole(*b, 100), 5u);
  EXPECT_EQ(ExpectWhole(*reader, "m/a", 100), 6u);
  EXPECT_EQ(FetchedRows(**reader->OpenTable("m/b"), {1}).counts->absent, 1u);
}

// Would catch a reader that keeps the files that a compaction has replaced, for as long as no row
// changes.
TEST_F(ReaderTest, ACompactionAloneChangesNoRowAndLeavesNoOldFile) {
  WriteAndClose();
  const auto reader = Open(OpenMode::kReadOnly);
  const auto a = *reader->OpenTable("m/a");
  Compact({"m/a"});
  EXPECT_GT(RemovedFilesHeld(), 0u);
  EXPECT_FALSE(*reader->Refresh());
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
  EXPECT_TRUE(*reader->Refresh());
  EXPECT_FALSE(a->IsCurrent());
  EXPECT_FALSE(b->IsCurrent());
  EXPECT_TRUE(c->IsCurrent());
  ExpectWhole(*a, 100);
  ExpectWhole(*b, 100);
}

// The log leaves for a table file: every row is what it was.
TEST_F(ReaderTest, ARefreshAfterAFlushKeepsTheTables) {
  WriteAndClose();
  const auto reader = Open(OpenMode::kReadOnly);
  const auto a = *reader->OpenTable("m/a");
  auto writer = Open(OpenMode::kReadWrite);  // recovery flushes
  EXPECT_FALSE(*reader->Refresh());
  EXPECT_TRUE(a->IsCurrent());
  EXPECT_EQ(ExpectWhole(*reader, "m/a", 100), 5u);
  writer = nullptr;
  EXPECT_EQ(ExpectWhole(*a, 100), 5u);
}

// Another store in the same place has files of the same names.
TEST_F(ReaderTest, ARefreshAfterTheStoreWasMadeAnewMixesNothing) {
  Import(*Open(OpenMode::kCreate), {"m/a"}, 100);
  const auto reader = Open(OpenMode::kReadOnly);
  std::filesystem::remove_all(path());
  Import(*Open(OpenMode::kCreate), {"m/a"}, 70);
  EXPECT_TRUE(*reader->Refresh());
  const auto a = *reader->OpenTable("m/a");
  ExpectWhole(*a, 70);
  EXPECT_EQ(FetchedRows(*a, {71}).counts->absent, 1u);
}

}  // namespace
}  // namespace hps
