#include "l3_rocksdb/rocks_store.h"

#include <gtest/gtest.h>

#include "l3_rocksdb/test_store.h"
#include "testing/contracts/durable_contract.h"

namespace hps {
namespace {

class RocksHarness final : public DurableHarness {
 public:
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
  RocksStoreOptions Options() const { return TestOptions(store_path()); }

  TestDirectory directory_;
};

std::unique_ptr<DurableHarness> MakeHarness() { return std::make_unique<RocksHarness>(); }

INSTANTIATE_TEST_SUITE_P(Rocks, DurableContractTest, testing::Values(&MakeHarness));

}  // namespace
}  // namespace hps
