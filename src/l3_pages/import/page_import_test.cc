// What an import does by itself; what a store does with it: durable_contract, page_store_test.
#include "l3_pages/import/page_import.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "testing/fakes/stamped_rows.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

constexpr uint64_t kStamp = 6;
constexpr size_t kRowBytes = 32;

// Keeps what it is given.
class KeepingTarget final : public ImportTarget {
 public:
  KeepingTarget(std::string directory, StagedImport& committed)
      : directory_(std::move(directory)), committed_(committed) {}

  const std::string& directory() const override { return directory_; }
  absl::Status CheckRoomFor(uint64_t bytes) const override {
    if (bytes <= room_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError("no room");
  }
  absl::Status CheckImportId(std::span<const TableSpec> specs, const std::string&) override {
    return specs.size() == 2 ? absl::OkStatus() : absl::InternalError("wrong tables");
  }
  absl::Status WriteNetwork(std::string_view onnx) override {
    network = std::string(onnx);
    return absl::OkStatus();
  }
  absl::StatusOr<BulkImport::Result> Commit(StagedImport import) override {
    committed_ = std::move(import);
    return BulkImport::Result{};
  }

  uint64_t room_bytes = 1 << 20;
  std::string network;

 private:
  const std::string directory_;
  StagedImport& committed_;
};

class PageImportTest : public testing::Test {
 protected:
  PageImportTest() {
    auto target = std::make_unique<KeepingTarget>(directory_.path(), committed_);
    target_ = target.get();
    const std::vector<TableSpec> specs = {{.name = "m/a", .dim = kRowBytes / 4},
                                          {.name = "m/b", .dim = kRowBytes / 4}};
    import_ = std::make_unique<PageImport>(std::move(target), specs);
  }
  absl::Status Add(size_t table, uint32_t part, std::vector<Key> keys) {
    StampedRows rows(kStamp, kRowBytes, std::move(keys));
    return import_->Add(table, part, rows.keys(), rows.rows());
  }

  const TestDirectory directory_;
  StagedImport committed_;
  KeepingTarget* target_ = nullptr;
  std::unique_ptr<PageImport> import_;
};

TEST_F(PageImportTest, EachPartIsAPageFile) {
  ASSERT_TRUE(Add(0, 1, {10, 20}).ok());
  ASSERT_TRUE(Add(0, 0, {-5}).ok());
  ASSERT_TRUE(Add(0, 1, {30}).ok());
  ASSERT_TRUE(import_->FinishPart(0, 1).ok());
  ASSERT_TRUE(import_->SetImportId("v1").ok());
  ASSERT_TRUE(import_->SetNetwork("m", {.onnx = "bytes", .digest = "d"}).ok());
  EXPECT_EQ(target_->network, "bytes");
  ASSERT_TRUE(import_->Commit().ok());
  ASSERT_EQ(committed_.tables.size(), 2u);
  const StagedTable& table = committed_.tables[0];
  EXPECT_EQ(table.row_count, 4u);
  ASSERT_EQ(table.files.size(), 2u);
  EXPECT_EQ(table.files[0].name, "t0-p0.rows");
  EXPECT_EQ(table.files[1].record.row_count, 3u);
  EXPECT_EQ(table.files[1].record.first_key, 10);
  EXPECT_EQ(table.files[1].record.last_key, 30);
  for (const StagedPageFile& file : table.files)
    EXPECT_TRUE(CheckStagedPages(committed_, table, file).ok()) << file.name;
  EXPECT_TRUE(committed_.tables[1].files.empty());
  EXPECT_NE(committed_.tables[1].incarnation, table.incarnation);
  EXPECT_EQ(committed_.import_id, "v1");
  EXPECT_EQ(committed_.network->digest, "d");
}

TEST_F(PageImportTest, PartsOutOfOrderAreRefused) {
  ASSERT_TRUE(Add(0, 0, {10, 20}).ok());
  ASSERT_TRUE(Add(0, 1, {20, 30}).ok());
  const absl::Status refused = import_->Commit().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "table 'm/a': part 1 begins with key 20, the previous part ends with 20");
}

// Catches: an import that switches without the rows of the call that failed.
TEST_F(PageImportTest, AFailedCallPreventsTheSwitch) {
  ASSERT_TRUE(Add(0, 0, {10}).ok());
  target_->room_bytes = 0;
  EXPECT_EQ(Add(0, 0, {20}).code(), absl::StatusCode::kResourceExhausted);
  target_->room_bytes = 1 << 20;
  EXPECT_EQ(import_->Commit().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(committed_.tables.empty());
}

TEST_F(PageImportTest, UnfinishedFilesGoWithIt) {
  ASSERT_TRUE(Add(0, 0, {10}).ok());
  ASSERT_FALSE(std::filesystem::is_empty(directory_.path()));
  import_.reset();
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace hps
