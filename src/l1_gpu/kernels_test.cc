#include "l1_gpu/kernels.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "l1_gpu/call_buffers.h"
#include "l1_gpu/test_gpu.h"

namespace hps {
namespace {

class KernelsTest : public GpuTest {
 protected:
  static constexpr size_t kKeys = 8;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    auto buffers = CallBuffers::Create({.keys_max = kKeys, .staging_bytes = 0});
    ASSERT_TRUE(buffers.ok()) << buffers.status();
    buffers_ = *std::move(buffers);
    rows_ = *MakeDeviceBuffer("rows", kKeys);
    std::vector<Key> keys(kKeys);
    for (size_t i = 0; i < kKeys; ++i) keys[i] = static_cast<Key>(i);
    ASSERT_EQ(
        cudaMemcpy(buffers_->device_keys, keys.data(), kKeys * sizeof(Key), cudaMemcpyHostToDevice),
        cudaSuccess);
  }

  // `key_count` keys of a table that is not cached.
  QueryView Missing(uint32_t key_count) const {
    QueryView view;
    view.table.row_bytes = 1;
    view.keys = buffers_->device_keys;
    view.rows = rows_.data();
    view.row_stride_bytes = 1;
    view.key_count = key_count;
    return view;
  }

  cudaError_t Query(std::span<const QueryView> queries, uint32_t generation) {
    const cudaStream_t stream = buffers_->stream.get();
    const cudaError_t launched = LaunchQuery(queries, buffers_->misses, generation, stream);
    return launched != cudaSuccess ? launched : cudaStreamSynchronize(stream);
  }

  // How many misses of the only query were listed.
  size_t ListedCount(uint32_t generation) const {
    size_t count = 0;
    while (count < kKeys && buffers_->misses.records[count].generation == generation) ++count;
    return count;
  }

  std::unique_ptr<CallBuffers> buffers_;
  DeviceBuffer rows_;
};

// Would catch a launch of no blocks, which the runtime refuses, and one that used up a generation:
// the next query would list its misses behind those of the one before.
TEST_F(KernelsTest, AQueryOfNothingIsNoLaunch) {
  EXPECT_EQ(Query({}, 1), cudaSuccess);
  const QueryView query = Missing(5);
  ASSERT_EQ(Query({&query, 1}, 1), cudaSuccess);
  EXPECT_EQ(ListedCount(1), 5u);
  EXPECT_EQ(Query({}, 2), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  const QueryView less = Missing(3);
  ASSERT_EQ(Query({&less, 1}, 2), cudaSuccess);
  EXPECT_EQ(ListedCount(2), 3u);
}

// Would catch a launch of no blocks, and counters that it left to the next one.
TEST_F(KernelsTest, QueriesWithoutKeysAreALaunch) {
  const QueryView query = Missing(5);
  uint32_t generation = 0;
  ASSERT_EQ(Query({&query, 1}, ++generation), cudaSuccess);
  for (const size_t count : {1, 2, 32, 33}) {
    const std::vector<QueryView> empty(count, Missing(0));
    ASSERT_EQ(Query(empty, ++generation), cudaSuccess) << count << " queries";
    EXPECT_EQ(ListedCount(generation), 0u);
  }
  ASSERT_EQ(Query({&query, 1}, ++generation), cudaSuccess);
  EXPECT_EQ(ListedCount(generation), 5u);
}

}  // namespace
}  // namespace hps
