#include "l1_gpu/kernels/kernels.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "gpu/test_gpu.h"
#include "l1_gpu/call_buffers.h"
#include "l1_gpu/test_write_sequence.h"

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
        cudaMemcpy(buffers_->keys.device, keys.data(), kKeys * sizeof(Key), cudaMemcpyHostToDevice),
        cudaSuccess);
  }

  // `key_count` keys of a table that is not cached.
  QueryView Missing(uint32_t key_count) const {
    QueryView view;
    view.table.row_bytes = 1;
    view.keys = buffers_->keys.device;
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

  // The number of misses listed for the only query.
  size_t ListedCount(uint32_t generation) const {
    size_t count = 0;
    Key key = 0;
    while (count < kKeys && ReadMissRecord(buffers_->misses.records[count], generation, &key))
      ++count;
    return count;
  }

  std::unique_ptr<CallBuffers> buffers_;
  DeviceBuffer rows_;
};

// Catches a launch without blocks, which the runtime refuses, and one that uses up a generation:
// the next query would list its misses behind those of the previous one.
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

// Catches a launch without blocks, and counters that it leaves to the next one.
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

class WriteSequenceTest : public GpuTest {
 protected:
  using Words = std::vector<WriteSequence::Words>;  // [WriteSequence::kCopies]

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    write_sequence_ = *MakeDeviceBuffer("a write sequence", sizeof(WriteSequence));
    within_ = *MakeDeviceBuffer("the write sequence from within",
                                WriteSequence::kCopies * sizeof(Words::value_type));
    ASSERT_EQ(cudaMemset(write_sequence_.data(), 0, write_sequence_.bytes()), cudaSuccess);
  }

  // The words of all copies while the block was writing.
  Words Visit(const WriteSequenceVisit& visit) {
    EXPECT_EQ(cudaMemset(within_.data(), 0xff, within_.bytes()), cudaSuccess);
    EXPECT_EQ(LaunchWriteSequenceVisit(visit, write_sequence_.at<WriteSequence>(0),
                                       within_.at<WriteSequence::Words>(0), cudaStreamLegacy),
              cudaSuccess);
    return CopyOf(within_.at<WriteSequence::Words>(0));
  }
  Words Now() const { return CopyOf(write_sequence_.at<WriteSequence>(0)->copies); }

  DeviceBuffer write_sequence_;
  DeviceBuffer within_;

 private:
  static Words CopyOf(const WriteSequence::Words* copies) {
    Words words(WriteSequence::kCopies);
    EXPECT_EQ(cudaMemcpy(words.data(), copies, words.size() * sizeof(WriteSequence::Words),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return words;
  }
};

// Readers look at any one copy. Catches a block that updates only as many copies as it has threads,
// and one with more threads than copies that writes behind the last copy.
TEST_F(WriteSequenceTest, ABlockOfAnySizeIsAnnouncedInAllCopies) {
  constexpr int kKeysShift = 20;  // as WriteSequence::Words says
  unsigned long long slab_keys = 0, row_keys = 0;
  for (const uint32_t threads : {1, 8, 15, 16, 17, 256}) {
    const WriteSequenceVisit visit = {
        .threads = threads, .slab_keys = threads + 2, .row_keys = threads + 1};
    const Words within = Visit(visit);
    const Words after = Now();
    for (uint32_t copy = 0; copy < WriteSequence::kCopies; ++copy) {
      SCOPED_TRACE(testing::Message() << threads << " threads, copy " << copy);
      EXPECT_EQ(within[copy].slabs, (slab_keys << kKeysShift) + 1);
      EXPECT_EQ(within[copy].rows, (row_keys << kKeysShift) + 1);
      EXPECT_EQ(after[copy].slabs, (slab_keys + visit.slab_keys) << kKeysShift);
      EXPECT_EQ(after[copy].rows, (row_keys + visit.row_keys) << kKeysShift);
    }
    slab_keys += visit.slab_keys;
    row_keys += visit.row_keys;
  }
  uint32_t first_lock = 1;
  ASSERT_EQ(cudaMemcpy(&first_lock, write_sequence_.at<WriteSequence>(0)->row_locks,
                       sizeof(first_lock), cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(first_lock, 0u) << "what lies behind the copies";
}

}  // namespace
}  // namespace hps
