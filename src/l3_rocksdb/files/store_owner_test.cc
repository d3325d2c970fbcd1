#include "l3_rocksdb/files/store_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/logging.h"
#include "base/public_message.h"
#include "l3_rocksdb/files/owner_lock.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uid_t kServer = 64101;
constexpr uid_t kAdmin = 64102;
constexpr gid_t kGroup = 64103;

// This process, with the rights of another user until the end of the scope.
class As {
 public:
  As(uid_t user, gid_t group) {
    EXPECT_EQ(setegid(group), 0);
    EXPECT_EQ(seteuid(user), 0);
  }
  ~As() {
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(setegid(0), 0);
  }
};

class StoreOwnerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
    SetLogLevel(LogLevel::kOff);
    // The other users must be able to come here.
    for (std::filesystem::path path = directory_.path(); path != "/"; path = path.parent_path())
      std::filesystem::permissions(path, std::filesystem::perms(0011),
                                   std::filesystem::perm_options::add);
    std::filesystem::create_directory(store_);
    SetOwner(store_, kServer, kServer, 0755);
  }
  void TearDown() override { SetLogLevel(LogLevel::kWarning); }

  static void SetOwner(const std::string& path, uid_t user, gid_t group, mode_t mode) {
    ASSERT_EQ(chown(path.c_str(), user, group), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  static struct stat StatOf(const std::string& path) {
    struct stat found {};
    EXPECT_EQ(lstat(path.c_str(), &found), 0) << path;
    return found;
  }
  // A folder with a file, as this process makes them.
  void MakeFolder(mode_t mask = 022) {
    const mode_t before = umask(mask);
    std::filesystem::create_directory(folder_);
    std::ofstream(folder_ + "/rows") << "rows";
    umask(before);
  }
  absl::Status Give() const { return GiveToStoreOwner(store_, folder_, GiveFiles::kWithFiles); }
  absl::Status MayTake() const { return CheckMayTake(folder_, "the staged import 'staging/x'"); }

  TestDirectory directory_;
  const std::string store_ = directory_.path() + "/store";
  const std::string folder_ = store_ + "/x";
};

TEST_F(StoreOwnerTest, RootGivesItsFilesToTheStoresOwner) {
  for (const mode_t mask : {022, 077, 0777}) {
    SCOPED_TRACE(mask);
    MakeFolder(mask);
    {
      const As server(kServer, kServer);
      EXPECT_EQ(MayTake().code(), absl::StatusCode::kFailedPrecondition);
    }
    ASSERT_TRUE(Give().ok()) << Give();
    EXPECT_EQ(StatOf(folder_).st_uid, kServer);
    EXPECT_EQ(StatOf(folder_ + "/rows").st_uid, kServer);
    EXPECT_EQ(StatOf(folder_ + "/rows").st_gid, kServer);
    const As server(kServer, kServer);
    EXPECT_TRUE(MayTake().ok()) << MayTake();
    EXPECT_EQ(std::filesystem::remove_all(folder_), 2u);
  }
}

TEST_F(StoreOwnerTest, AStoreThatIsSharedIsSharedByItsFiles) {
  SetOwner(store_, kServer, kGroup, 0770);
  {
    const As admin(kAdmin, kGroup);
    MakeFolder(077);
    ASSERT_TRUE(Give().ok()) << Give();
  }
  EXPECT_EQ(StatOf(folder_).st_mode & 0777, 0770u);
  EXPECT_EQ(StatOf(folder_ + "/rows").st_mode & 0777, 0660u);
  {
    const As server(kServer, kGroup);
    EXPECT_TRUE(MayTake().ok()) << MayTake();
  }
  std::filesystem::remove_all(folder_);

  SetOwner(store_, kServer, kGroup, 0777);
  {
    const As admin(kAdmin, kAdmin);
    MakeFolder(077);
    ASSERT_TRUE(Give().ok()) << Give();
  }
  EXPECT_EQ(StatOf(folder_ + "/rows").st_mode & 0777, 0666u);
  const As server(kServer, kServer);
  EXPECT_TRUE(MayTake().ok()) << MayTake();
}

// Catches: a lock file that only the first user of a shared store may lock.
TEST_F(StoreOwnerTest, EachUserOfASharedStoreMayLockIt) {
  SetOwner(store_, kServer, kGroup, 0775);
  for (const uid_t user : {kServer, kAdmin}) {
    const As other(user, kGroup);
    const auto taken = OwnerLock::Take(store_, OwnerRole::kCommand, RealClock().Now());
    EXPECT_TRUE(taken.ok()) << taken.status();
  }
}

TEST_F(StoreOwnerTest, FilesThatTheStoresOwnerCouldNotTakeAreRefused) {
  MakeFolder();
  SetOwner(folder_, kAdmin, kAdmin, 0755);
  const As admin(kAdmin, kAdmin);
  const absl::Status given = Give();
  EXPECT_EQ(given.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(given.message()), HasSubstr("belongs to user 64101"));
  EXPECT_THAT(std::string(given.message()), HasSubstr("of user 64102"));
}

// A file outside the store keeps its owner, whatever the store's owner puts in its place.
TEST_F(StoreOwnerTest, NoFileOutsideTheStoreIsGiven) {
  const std::string outside = directory_.path() + "/outside";
  std::ofstream(outside) << "not the store's";
  MakeFolder();
  std::filesystem::create_hard_link(outside, folder_ + "/link");
  EXPECT_EQ(Give().code(), absl::StatusCode::kFailedPrecondition);
  std::filesystem::remove(folder_ + "/link");
  std::filesystem::create_symlink(outside, folder_ + "/link");
  EXPECT_FALSE(Give().ok());
  EXPECT_EQ(StatOf(outside).st_uid, 0u);
  EXPECT_EQ(StatOf(outside).st_nlink, 1u);
}

TEST_F(StoreOwnerTest, WhatMayNotBeTakenIsNamedWithoutItsPath) {
  MakeFolder();
  const auto refused = [this] {
    const As server(kServer, kServer);
    const absl::Status told = MayTake();
    EXPECT_EQ(told.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(IsPublic(told));
    EXPECT_THAT(std::string(told.message()), HasSubstr("the staged import 'staging/x' belongs to"));
    EXPECT_THAT(std::string(told.message()), HasSubstr("user 64101 may not"));
    EXPECT_THAT(std::string(told.message()), Not(HasSubstr(directory_.path())));
    return std::string(told.message());
  };
  EXPECT_THAT(refused(), HasSubstr("user 'root', and user 64101 may not remove it"));
  SetOwner(folder_, 0, 0, 0700);
  EXPECT_THAT(refused(), HasSubstr("may not read it"));
  SetOwner(folder_, kServer, kServer, 0700);
  SetOwner(folder_ + "/rows", 0, 0, 0600);
  EXPECT_THAT(refused(), HasSubstr("may not read it"));
  SetOwner(folder_ + "/rows", 0, 0, 0644);
  SetOwner(store_, 0, 0, 0755);
  EXPECT_THAT(refused(), HasSubstr("may not remove it"));
}

}  // namespace
}  // namespace hps
