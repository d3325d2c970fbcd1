#include "l1_gpu/test_row_check.h"

#include <gtest/gtest.h>

#include <vector>

#include "gpu/test_gpu.h"
#include "l1_gpu/test_gpu_cache_memory.h"
#include "testing/fakes/stamped_row.h"

namespace hps {
namespace {

class RowCheckTest : public GpuTest {
 protected:
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    std::byte* memory = memory_.Allocate(values.size() * sizeof(T));
    memory_.CopyIn(memory, std::as_bytes(std::span(values)));
    return static_cast<T*>(static_cast<void*>(memory));
  }
  RowCheckResult Check(RowCheckArgs args) {
    std::vector<RowCheckResult> result(1);
    args.result = Upload(result);
    EXPECT_EQ(LaunchRowCheck(args, nullptr), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    memory_.CopyOut(std::as_writable_bytes(std::span(result)),
                    static_cast<const std::byte*>(static_cast<const void*>(args.result)));
    return result.front();
  }

 private:
  GpuCacheMemory memory_;
};

// Other tests rely on this check: it accepts every correct row and finds one flipped bit anywhere
// in a row.
TEST_F(RowCheckTest, TakesRightRowsAndFindsAnyWrongByte) {
  for (size_t row_bytes : {1, 3, 7, 8, 9, 16, 33, 128, 1000}) {
    const size_t count = row_bytes + 1;
    const size_t stride_bytes = row_bytes + 5;
    std::vector<Key> keys(count);
    std::vector<std::byte> rows(count * stride_bytes);
    for (size_t i = 0; i < count; ++i) {
      keys[i] = static_cast<Key>(i) - 3;
      StampedRow::Write(7, keys[i], 40 + i, {rows.data() + i * stride_bytes, row_bytes});
    }
    std::vector<Version> versions(count);
    for (size_t i = 0; i < count; ++i) versions[i] = 40 + i;
    RowCheckArgs args = {.table = 7,
                         .keys = Upload(keys),
                         .key_count = count,
                         .rows = Upload(rows),
                         .row_bytes = row_bytes,
                         .row_stride_bytes = stride_bytes,
                         .status = Upload(std::vector<KeyStatus>(count, KeyStatus::kHitL1)),
                         .expected = Upload(versions)};
    RowCheckResult result = Check(args);
    EXPECT_EQ(result.hits, count);
    EXPECT_EQ(result.foreign, 0u) << row_bytes;
    // Row i is wrong in byte i; the last row is right.
    for (size_t i = 0; i < row_bytes; ++i) rows[i * stride_bytes + i] ^= std::byte{0x10};
    args.rows = Upload(rows);
    EXPECT_EQ(Check(args).foreign, row_bytes);
    args.status = Upload(std::vector<KeyStatus>(count, KeyStatus::kAbsent));
    EXPECT_EQ(Check(args).hits, 0u);
  }
}

TEST_F(RowCheckTest, FindsVersionsThatGoBack) {
  const std::vector<Key> keys = {0, 1, 2};
  const auto rows_of = [&](const std::vector<Version>& versions) {
    std::vector<std::byte> rows(keys.size() * 16);
    for (size_t i = 0; i < keys.size(); ++i)
      StampedRow::Write(1, keys[i], versions[i], {rows.data() + i * 16, 16});
    return rows;
  };
  RowCheckArgs args = {.table = 1,
                       .keys = Upload(keys),
                       .key_count = 3,
                       .row_bytes = 16,
                       .row_stride_bytes = 16,
                       .status = Upload(std::vector<KeyStatus>(3, KeyStatus::kHitL1)),
                       .seen = Upload(std::vector<Version>(3, 0))};
  args.rows = Upload(rows_of({5, 6, 7}));
  EXPECT_EQ(Check(args).back, 0u);
  args.rows = Upload(rows_of({4, 6, 8}));
  RowCheckResult result = Check(args);
  EXPECT_EQ(result.back, 1u);
  EXPECT_EQ(result.foreign, 0u);
  args.rows = Upload(rows_of({5, 6, 7}));
  EXPECT_EQ(Check(args).back, 1u);
}

}  // namespace
}  // namespace hps
