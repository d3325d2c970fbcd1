#include "l3_rocksdb/files/space_reserve.h"

#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <filesystem>

#include "l3_rocksdb/test_disk.h"
#include "l3_rocksdb/test_store.h"

namespace hps {
namespace {

class SpaceReserveTest : public testing::Test {
 protected:
  SpaceReserveTest() { disk_->fails_only = "hps.reserve"; }
  std::string path() const { return directory_.path() + "/hps.reserve"; }
  uint64_t Kept() const {
    return std::filesystem::exists(path()) ? std::filesystem::file_size(path()) : 0;
  }

  const TestDirectory directory_;
  const std::shared_ptr<TestDisk> disk_ = std::make_shared<TestDisk>();
  const std::unique_ptr<rocksdb::Env> env_ = rocksdb::NewCompositeEnv(disk_);
};

TEST_F(SpaceReserveTest, ExistsExceptWhileItIsLent) {
  const SpaceGuard guard(env_.get(), directory_.path(), 0);
  SpaceReserve reserve(env_.get(), directory_.path(), guard);
  reserve.Ensure();
  EXPECT_EQ(Kept(), kSpaceReserveBytes);
  {
    SpaceReserve::Loan first = reserve.Lend();
    EXPECT_EQ(Kept(), 0u);
    {
      const SpaceReserve::Loan second = reserve.Lend();
      reserve.Ensure();
      EXPECT_EQ(Kept(), 0u);
    }
    SpaceReserve::Loan moved = std::move(first);
    EXPECT_EQ(Kept(), 0u);
  }
  EXPECT_EQ(Kept(), kSpaceReserveBytes);
}

TEST_F(SpaceReserveTest, ATruncatedFileIsRewritten) {
  const SpaceGuard guard(env_.get(), directory_.path(), 0);
  SpaceReserve reserve(env_.get(), directory_.path(), guard);
  reserve.Ensure();
  std::filesystem::resize_file(path(), 10);
  reserve.Ensure();
  EXPECT_EQ(Kept(), kSpaceReserveBytes);
}

TEST_F(SpaceReserveTest, TakesNoSpaceOfAFullDisk) {
  const SpaceGuard guard(env_.get(), directory_.path(), UINT64_MAX);
  SpaceReserve reserve(env_.get(), directory_.path(), guard);
  reserve.Ensure();
  EXPECT_EQ(Kept(), 0u);
}

TEST_F(SpaceReserveTest, APartlyWrittenFileIsRemoved) {
  const SpaceGuard guard(env_.get(), directory_.path(), 0);
  SpaceReserve reserve(env_.get(), directory_.path(), guard);
  disk_->fails_appends = true;
  reserve.Ensure();
  EXPECT_FALSE(std::filesystem::exists(path()));
  disk_->fails_appends = false;
  disk_->fails_syncs = true;
  reserve.Ensure();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

}  // namespace
}  // namespace hps
