#include "l1_gpu/miss_row_sender.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "base/limits.h"
#include "gpu/test_gpu.h"
#include "testing/fakes/stamped_row.h"

namespace hps {
namespace {

// Sends answers for a query whose keys all missed.
class MissRowSenderTest : public GpuTest {
 protected:
  static constexpr size_t kRowBytes = 24;
  static constexpr size_t kKeys = 5000;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    auto buffers = CallBuffers::Create({.keys_max = kKeys, .staging_bytes = 1000});
    ASSERT_TRUE(buffers.ok()) << buffers.status();
    buffers_ = *std::move(buffers);
    sender_ = std::make_unique<MissRowSender>(*buffers_);
    std::vector<Key> keys(kKeys);
    std::iota(keys.begin(), keys.end(), Key{0});
    ASSERT_EQ(
        cudaMemcpy(buffers_->keys.device, keys.data(), kKeys * sizeof(Key), cudaMemcpyHostToDevice),
        cudaSuccess);
    rows_ = *MakeDeviceBuffer("rows", kKeys * kRowBytes);
    ASSERT_EQ(cudaMemset(rows_.data(), 0xa5, rows_.bytes()), cudaSuccess);
    ASSERT_EQ(cudaMemset(buffers_->statuses.device, 0xee, kKeys), cudaSuccess);
    view_.table.row_bytes = kRowBytes;
    view_.keys = buffers_->keys.device;
    view_.rows = rows_.data();
    view_.row_stride_bytes = kRowBytes;
    view_.status = buffers_->statuses.device;
    view_.key_count = kKeys;
    query_.row_bytes = kRowBytes;
    query_.default_row = default_row_;
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const cudaStream_t stream = buffers_->stream.get();
    ASSERT_EQ(LaunchQuery({&view_, 1}, buffers_->misses, 1, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    sender_->Begin(stream);
  }

  Key MissingKey(size_t unique) const { return buffers_->misses.records[unique].key; }

  absl::Status Add(const DeviceRowPiece& piece) {
    return sender_->Add({.view = &view_, .query = &query_, .duplicate_count = 0, .piece = &piece});
  }

  // Checks the arrived rows: which keys have their row, and which the default row.
  void Fetch() {
    ASSERT_EQ(cudaStreamSynchronize(buffers_->stream.get()), cudaSuccess);
    arrived_.resize(kKeys * kRowBytes);
    statuses_.resize(kKeys);
    ASSERT_EQ(cudaMemcpy(arrived_.data(), rows_.data(), arrived_.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    ASSERT_EQ(
        cudaMemcpy(statuses_.data(), buffers_->statuses.device, kKeys, cudaMemcpyDeviceToHost),
        cudaSuccess);
  }
  std::span<const std::byte> Arrived(Key key) const {
    return {arrived_.data() + static_cast<size_t>(key) * kRowBytes, kRowBytes};
  }
  bool HasRow(Key key) const {
    return statuses_[static_cast<size_t>(key)] == KeyStatus::kHitL3 &&
           StampedRow::Matches(1, key, 1, Arrived(key));
  }
  bool HasDefault(Key key) const {
    return statuses_[static_cast<size_t>(key)] == KeyStatus::kAbsent &&
           std::equal(default_row_.begin(), default_row_.end(), Arrived(key).begin());
  }
  bool Untouched(Key key) const {
    return static_cast<uint8_t>(statuses_[static_cast<size_t>(key)]) == 0xee &&
           Arrived(key)[0] == std::byte{0xa5};
  }

  const std::vector<std::byte> default_row_ = std::vector<std::byte>(kRowBytes, std::byte{9});
  std::unique_ptr<CallBuffers> buffers_;
  std::unique_ptr<MissRowSender> sender_;
  DeviceBuffer rows_;
  QueryView view_;
  DeviceCacheQuery query_;
  std::vector<std::byte> arrived_;
  std::vector<KeyStatus> statuses_;
};

TEST_F(MissRowSenderTest, LeavesUnansweredKeysAloneInShortAndLongGaps) {
  std::vector<KeyStatus> statuses(kKeys, kUnanswered);
  std::vector<std::byte> rows(kKeys * kRowBytes);
  for (size_t i = 0; i < kKeys; ++i) {
    // Dense at first, then with gaps of 9, then of 199.
    const bool answered = i < 1000 ? i % 2 == 0 : i < 2000 ? i % 10 == 0 : i % 200 == 0;
    if (answered) statuses[i] = i % 4 == 0 ? KeyStatus::kHitL3 : KeyStatus::kAbsent;
    StampedRow::Write(1, MissingKey(i), 1, {rows.data() + i * kRowBytes, kRowBytes});
  }
  ASSERT_EQ(Add({.statuses = statuses, .rows = {rows.data(), kKeys, kRowBytes, kRowBytes}}),
            absl::OkStatus());
  EXPECT_FALSE(sender_->sent());
  ASSERT_EQ(sender_->Send(), absl::OkStatus());
  EXPECT_TRUE(sender_->sent());
  Fetch();
  for (size_t i = 0; i < kKeys; ++i) {
    const Key key = MissingKey(i);
    if (statuses[i] == KeyStatus::kHitL3) {
      ASSERT_TRUE(HasRow(key)) << i;
    } else if (statuses[i] == KeyStatus::kAbsent) {
      ASSERT_TRUE(HasDefault(key)) << i;
    } else {
      ASSERT_TRUE(Untouched(key)) << i;
    }
  }
}

// More pieces than one launch takes, of one key each.
TEST_F(MissRowSenderTest, SendsAnyNumberOfPieces) {
  const KeyStatus status = KeyStatus::kHitL3;
  std::byte row[kRowBytes];
  for (size_t i = 0; i < kKeys; ++i) {
    StampedRow::Write(1, MissingKey(i), 1, row);
    ASSERT_EQ(Add({.first = i, .statuses = {&status, 1}, .rows = {row, 1, kRowBytes, kRowBytes}}),
              absl::OkStatus());
  }
  EXPECT_TRUE(sender_->sent());  // kTablesPerCallMax at a time
  ASSERT_EQ(sender_->Send(), absl::OkStatus());
  Fetch();
  for (Key key = 0; key < Key{kKeys}; ++key) ASSERT_TRUE(HasRow(key)) << key;
}

// Catches a wait for a half that exceeds the call's deadline: the stream is blocked, so that no
// half becomes free.
TEST_F(MissRowSenderTest, WaitsForAHalfAtMostUntilTheDeadline) {
  const cudaStream_t stream = buffers_->stream.get();
  std::atomic<bool> goes_on = false;
  ASSERT_EQ(
      cudaLaunchHostFunc(
          stream, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); }, &goes_on),
      cudaSuccess);
  const std::vector<KeyStatus> statuses(kKeys, KeyStatus::kAbsent);
  const DeviceRowPiece piece = {.statuses = statuses};
  sender_->set_deadline(TimePoint::min());
  for (int half = 0; half < 2; ++half) {
    EXPECT_EQ(Add(piece), absl::OkStatus());
    EXPECT_EQ(sender_->Send(), absl::OkStatus());
  }
  EXPECT_EQ(Add(piece).code(), absl::StatusCode::kDeadlineExceeded);
  goes_on = true;
  goes_on.notify_all();
  sender_->set_deadline(kNoDeadline);
  EXPECT_EQ(Add(piece), absl::OkStatus());
  EXPECT_EQ(sender_->Send(), absl::OkStatus());
  Fetch();
  for (Key key = 0; key < Key{kKeys}; ++key) ASSERT_TRUE(HasDefault(key)) << key;
}

TEST_F(MissRowSenderTest, NothingIsSentForNothing) {
  const std::vector<KeyStatus> statuses(100, kUnanswered);
  ASSERT_EQ(Add({.statuses = statuses}), absl::OkStatus());
  ASSERT_EQ(Add({}), absl::OkStatus());
  ASSERT_EQ(sender_->Send(), absl::OkStatus());
  EXPECT_FALSE(sender_->sent());
}

}  // namespace
}  // namespace hps
