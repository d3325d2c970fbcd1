#include "l3_rocksdb/rocks_store.h"

#include <gtest/gtest.h>

#include "l3_rocksdb/test_store.h"
#include "tier/durable_contract.h"

namespace hps {
namespace {

std::unique_ptr<DurableHarness> MakeHarness() { return std::make_unique<RocksHarness>(); }

INSTANTIATE_TEST_SUITE_P(Rocks, DurableContractTest, testing::Values(&MakeHarness));

}  // namespace
}  // namespace hps
