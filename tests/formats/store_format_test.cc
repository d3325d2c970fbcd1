// A store that was written by earlier code, as it was: a change of the format that forgets to raise
// its version fails here. Another one has another version, and is refused.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/record_codec.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/test_store.h"
#include "l3_rocksdb/verify/verify.h"
#include "tests/formats/format_store.h"

namespace hps {
namespace {

class StoreFormatTest : public testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/store"; }

  void Unpack(uint32_t version) {
    const std::string archive = std::string(HPS_SOURCE_DIRECTORY) + "/tests/formats/store_format_" +
                                std::to_string(version) + ".tar.gz";
    ASSERT_TRUE(std::filesystem::exists(archive))
        << archive << ": make_format_store.cc says how it is made";
    const std::string command = "tar -xzf '" + archive + "' -C '" + directory_.path() + "'";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  absl::Status Check(OpenMode mode, bool has_staged) const {
    const auto store = OpenRocksStore(FormatStoreOptions(path(), mode));
    return store.ok() ? CheckFormatStore(**store, has_staged) : store.status();
  }
  // As a reader finds it, as a writer does, and as it is then left.
  void ExpectReadable() {
    EXPECT_TRUE(Check(OpenMode::kReadOnly, false).ok()) << Check(OpenMode::kReadOnly, false);
    const auto before =
        VerifyRocksStore(FormatStoreOptions(path(), OpenMode::kReadWrite), false, {});
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_EQ(before->damage_count, 0u);
    const absl::Status opened = Check(OpenMode::kReadWrite, true);
    EXPECT_TRUE(opened.ok()) << opened;
    EXPECT_TRUE(Check(OpenMode::kReadOnly, true).ok()) << Check(OpenMode::kReadOnly, true);
    const auto after =
        VerifyRocksStore(FormatStoreOptions(path(), OpenMode::kReadWrite), false, {});
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_EQ(after->damage_count, 0u);
  }

  // Name, bytes and time of the last write of each file and folder.
  std::map<std::string, std::pair<std::string, std::filesystem::file_time_type>> Files() const {
    std::map<std::string, std::pair<std::string, std::filesystem::file_time_type>> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
      std::stringstream bytes;
      if (entry.is_regular_file()) bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      files[entry.path()] = {bytes.str(), entry.last_write_time()};
    }
    return files;
  }

  // Also of a snapshot, which lacks the lock file, and beside what a killed writer has left.
  void ExpectRefused(uint32_t version) {
    std::ofstream(path() + "/OPTIONS-000005.dbtmp") << "half of";
    for (const bool has_lock : {true, false}) {
      if (!has_lock) std::filesystem::remove(path() + "/hps.lock");
      const auto before = Files();
      const auto expect_refused = [&](const std::string& what, const absl::Status& status) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << what << ": " << status;
        EXPECT_EQ(status.message(),
                  absl::StrCat("store '", path(), "': its format version is ", version,
                               ", and this hps reads version ", kStoreFormatVersion,
                               " only: import its tables again, into a new store"))
            << what;
        EXPECT_TRUE(Files() == before) << what;
      };
      for (const OpenMode mode : {OpenMode::kReadOnly, OpenMode::kReadWrite, OpenMode::kCreate})
        expect_refused("opening", OpenRocksStore(FormatStoreOptions(path(), mode)).status());
      const RocksStoreOptions options = FormatStoreOptions(path(), OpenMode::kReadWrite);
      for (const bool repair : {false, true})
        expect_refused("verify", VerifyRocksStore(options, repair, {}).status());
      const TableSpec spec = {.name = "m/new", .dim = 4};
      expect_refused("an import", StageImport(options, {&spec, 1}).status());
    }
  }
  // Writes the next format version, to the log only.
  void RaiseFormat() const {
    RawDatabase raw(path());
    RecordWriter record;
    record.Add(kStoreFormatVersion + 1);
    const std::string covered = "F" + record.text();  // key and payload
    record.Add(uint64_t{XXH3_64bits(covered.data(), covered.size())});
    EXPECT_TRUE(raw.db().Put({}, "F", record.text()).ok());
  }

  TestDirectory directory_;
};

TEST_F(StoreFormatTest, AStoreOfThisFormatIsRead) {
  ASSERT_NO_FATAL_FAILURE(Unpack(kStoreFormatVersion));
  ExpectReadable();
}

TEST_F(StoreFormatTest, AStoreOfAnOlderFormatIsRefusedAndStaysAsItIs) {
  ASSERT_NO_FATAL_FAILURE(Unpack(kStoreFormatVersion - 1));
  ExpectRefused(kStoreFormatVersion - 1);
}

TEST_F(StoreFormatTest, AStoreOfANewerFormatIsRefusedAndStaysAsItIs) {
  const absl::Status made = MakeFormatStore(path());
  ASSERT_TRUE(made.ok()) << made;
  RaiseFormat();
  ExpectRefused(kStoreFormatVersion + 1);
}

// The check itself: of a store that is made now, it accepts this, and it misses a row.
TEST_F(StoreFormatTest, TheCheckKnowsTheStoreThatIsMadeNow) {
  const absl::Status made = MakeFormatStore(path());
  ASSERT_TRUE(made.ok()) << made;
  ExpectReadable();
  {
    const auto store = OpenRocksStore(FormatStoreOptions(path(), OpenMode::kReadWrite));
    ASSERT_TRUE(store.ok()) << store.status();
    const auto table = (*store)->OpenTable("m/brain");
    const std::vector<Key> deleted = {-1};
    ASSERT_TRUE((*table)->Write({{}, deleted, {}}).ok());
  }
  EXPECT_FALSE(Check(OpenMode::kReadOnly, true).ok());
}

}  // namespace
}  // namespace hps
