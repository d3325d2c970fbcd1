// Stores that were written by earlier code, as it was: a change of the format that forgets to read
// them, or to raise its version, fails here. (That a newer format is refused: store_errors_test.)
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/salvage/verify.h"
#include "l3_rocksdb/test_store.h"
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
    return store.ok() ? CheckFormatStore(**store, has_staged, has_networks_) : store.status();
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

  TestDirectory directory_;
  bool has_networks_ = true;
};

TEST_F(StoreFormatTest, EveryFormatThatWasIsRead) {
  for (uint32_t version = 1; version <= kStoreFormatVersion; ++version) {
    SCOPED_TRACE(version);
    ASSERT_NO_FATAL_FAILURE(Unpack(version));
    has_networks_ = version > kFirstFormatVersion;
    ExpectReadable();
    std::filesystem::remove_all(path());
  }
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
