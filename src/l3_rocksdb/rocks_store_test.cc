#include "l3_rocksdb/rocks_store.h"

#include <gtest/gtest.h>

#include "l3_rocksdb/test_store.h"
#include "testing/contracts/durable_contract.h"

namespace hps {
namespace {

class RocksHarness final : public DurableHarness {
 public:
  explicit RocksHarness(bool page_files) : page_files_(page_files) {}

  absl::StatusOr<std::unique_ptr<DurableStore>> Open() override {
    return OpenRocksStore(Options());
  }
  absl::StatusOr<std::unique_ptr<DurableStore>> OpenReadOnly() override {
    RocksStoreOptions options = Options();
    options.mode = OpenMode::kReadOnly;
    return OpenRocksStore(options);
  }
  std::string store_path() const { return directory_.path() + "/store"; }

 private:
  RocksStoreOptions Options() const {
    return page_files_ ? PageTestOptions(store_path()) : TestOptions(store_path());
  }

  const bool page_files_;
  TestDirectory directory_;
};

std::unique_ptr<DurableHarness> MakeHarness() { return std::make_unique<RocksHarness>(false); }
std::unique_ptr<DurableHarness> MakePageHarness() { return std::make_unique<RocksHarness>(true); }

INSTANTIATE_TEST_SUITE_P(Rocks, DurableContractTest, testing::Values(&MakeHarness));
INSTANTIATE_TEST_SUITE_P(Pages, DurableContractTest, testing::Values(&MakePageHarness));

}  // namespace
}  // namespace hps
