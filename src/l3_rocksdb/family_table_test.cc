// Column families live as long as the catalog names them or a pin holds them.
#include "l3_rocksdb/family_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "l3_rocksdb/database.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

constexpr FamilyId kId{.incarnation = 0x123456789a};

TEST(FamilyNameTest, NamesAreReadBack) {
  EXPECT_EQ(FamilyName(kId), "rows-000123456789a");
  EXPECT_EQ(FamilyName({kId.incarnation, 3}), "rows-000123456789a-3");
  EXPECT_EQ(NetworkFamilyName(kId.incarnation), "network-000123456789a");
  for (const uint64_t first_file : {0, 1, 12})
    EXPECT_EQ(IncarnationOf(FamilyName({kId.incarnation, first_file})), kId.incarnation);
  for (const char* name : {"", "default", "rows-", "rows-123456789a", "rows-000123456789A",
                           "rows-000123456789a-", "network-000123456789a"})
    EXPECT_EQ(IncarnationOf(name), std::nullopt) << name;
}

class FamilyTableTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Database::Open(TestOptions(directory_.path()));
    ASSERT_TRUE(opened.ok()) << opened.status();
    database_ = *std::move(opened);
  }
  FamilyTable& families() { return database_->families(); }
  void Add(const FamilyId& id) {
    TableRecord table{.incarnation = id.incarnation};
    table.first_file = id.first_file;
    MutexLock lock(database_->change_mutex());
    const auto handles = database_->files().Create({table});
    ASSERT_TRUE(handles.ok()) << handles.status();
    families().Add(table, handles->front());
  }
  void Retire(std::unique_ptr<Family> family) {
    Catalog::Unneeded unneeded;
    unneeded.push_back(std::move(family));
    database_->files().Retire(std::move(unneeded));
  }
  // In the open RocksDB.
  bool IsOnDisk(const FamilyId& id) const {
    std::vector<std::string> names;
    EXPECT_TRUE(rocksdb::DB::ListColumnFamilies({}, directory_.path(), &names).ok());
    return std::find(names.begin(), names.end(), FamilyName(id)) != names.end();
  }

  const TestDirectory directory_;
  std::shared_ptr<Database> database_;
};

TEST_F(FamilyTableTest, WithoutPinsAReplacedFamilyIsHandedOver) {
  EXPECT_FALSE(families().Pin(kId));
  EXPECT_EQ(families().NoteReplaced(kId), nullptr);
  Add(kId);
  EXPECT_TRUE(families().AnyOf(kId.incarnation));
  EXPECT_FALSE(families().AnyOf(kId.incarnation + 1));
  { const FamilyPin pin = families().Pin(kId); }  // it is current, so it stays
  ASSERT_TRUE(IsOnDisk(kId));
  std::unique_ptr<Family> family = families().NoteReplaced(kId);
  ASSERT_NE(family, nullptr);
  EXPECT_FALSE(family->current);
  EXPECT_FALSE(families().AnyOf(kId.incarnation));
  EXPECT_FALSE(families().Pin(kId));
  Retire(std::move(family));
  EXPECT_FALSE(IsOnDisk(kId));
}

TEST_F(FamilyTableTest, TheLastPinDropsAReplacedFamily) {
  Add(kId);
  FamilyPin first = families().Pin(kId);
  FamilyPin second = first.Share();
  EXPECT_EQ(families().NoteReplaced(kId), nullptr);
  EXPECT_TRUE(families().AnyOf(kId.incarnation));
  first = FamilyPin();
  EXPECT_TRUE(IsOnDisk(kId));
  EXPECT_FALSE(second.family().current);
  second = FamilyPin();
  EXPECT_FALSE(families().AnyOf(kId.incarnation));
  EXPECT_FALSE(IsOnDisk(kId));
}

TEST_F(FamilyTableTest, AMergeHandsOverFromOneFamilyToTheOther) {
  const FamilyId merged{kId.incarnation, 1};
  Add(kId);
  Add(merged);
  FamilyPin from = families().Pin(kId);
  FamilyPin to = families().Pin(merged);
  to.family().current = false;
  from.family().merge.successor = &to.family();
  families().NoteMerged(from.family(), to.family(), to.family().table, nullptr);
  EXPECT_TRUE(to.family().current);
  EXPECT_FALSE(from.family().current);
  EXPECT_EQ(from.family().merge.successor, nullptr);
  from = FamilyPin();
  // The merger drops it, not the reader that left last.
  EXPECT_TRUE(IsOnDisk(kId));
  database_->files().Retire(database_->merge_queue().TakeRetired());
  EXPECT_FALSE(IsOnDisk(kId));
  EXPECT_TRUE(IsOnDisk(merged));
}

TEST_F(FamilyTableTest, AReplacedFamilyEndsItsMerge) {
  const FamilyId merged{kId.incarnation, 1};
  Add(kId);
  Add(merged);
  const FamilyPin from = families().Pin(kId);
  const FamilyPin to = families().Pin(merged);
  from.family().merge.successor = &to.family();
  EXPECT_FALSE(to.family().merge.cancel.IsOpen());
  EXPECT_EQ(families().NoteReplaced(kId), nullptr);
  EXPECT_TRUE(to.family().merge.cancel.IsOpen());
  families().NoteNotMerged(from.family());
  EXPECT_EQ(from.family().merge.successor, nullptr);
}

TEST_F(FamilyTableTest, PinsKeepTheDatabaseOpen) {
  Add(kId);
  std::vector<FamilyPin> pins = families().PinAll();
  ASSERT_EQ(pins.size(), 1u);
  EXPECT_EQ(families().HandlesOf(pins), std::vector{pins[0].family().handle});
  EXPECT_EQ(families().PinAll(FamilyTable::Kind::kNetwork).size(), 1u);  // it has no name
  const std::weak_ptr<Database> open = database_;
  database_.reset();
  EXPECT_FALSE(open.expired());
  pins.clear();
  EXPECT_TRUE(open.expired());
}

}  // namespace
}  // namespace hps
