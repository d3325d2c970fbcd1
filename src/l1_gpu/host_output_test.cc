#include "l1_gpu/host_output.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/limits.h"
#include "gpu/test_gpu.h"
#include "testing/fakes/stamped_row.h"

namespace hps {
namespace {

class HostOutputTest : public GpuTest {
 protected:
  static constexpr std::byte kPoison{0xa5};
  struct Wanted {
    size_t row_bytes;
    size_t key_count;
    size_t padding_bytes;
    bool wants_status;
  };

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    auto buffers = CallBuffers::Create({.keys_max = 20'000, .staging_bytes = 0});
    ASSERT_TRUE(buffers.ok()) << buffers.status();
    buffers_ = *std::move(buffers);
    output_ = std::make_unique<HostOutput>(*buffers_);
  }

  void Begin(const std::vector<Wanted>& wanted) {
    wanted_ = wanted;
    rows_.clear();
    statuses_.clear();
    queries_.clear();
    for (const Wanted& query : wanted_) {
      const size_t stride_bytes = query.row_bytes + query.padding_bytes;
      rows_.emplace_back(query.key_count * stride_bytes, kPoison);
      statuses_.emplace_back(query.key_count, KeyStatus::kAbsent);
      queries_.push_back({.key_count = query.key_count,
                          .rows = rows_.back().data(),
                          .row_bytes = query.row_bytes,
                          .row_stride_bytes = stride_bytes,
                          .status = query.wants_status ? statuses_.back().data() : nullptr});
    }
    ASSERT_EQ(output_->Begin(queries_, buffers_->stream.get()), absl::OkStatus());
    ASSERT_EQ(cudaStreamSynchronize(buffers_->stream.get()), cudaSuccess);
    // The rows as the kernels would write them: row i of query q is the stamped row of key i.
    std::vector<KeyStatus> statuses;
    for (size_t q = 0; q < wanted_.size(); ++q) {
      std::vector<std::byte> rows(wanted_[q].key_count * wanted_[q].row_bytes);
      for (size_t i = 0; i < wanted_[q].key_count; ++i) {
        StampedRow::Write(q, static_cast<Key>(i), 1,
                          {rows.data() + i * wanted_[q].row_bytes, wanted_[q].row_bytes});
        statuses.push_back(StatusOf(q, i));
      }
      if (rows.empty()) continue;
      ASSERT_EQ(cudaMemcpy(buffers_->output.device.data() + output_->begin_bytes(q), rows.data(),
                           rows.size(), cudaMemcpyHostToDevice),
                cudaSuccess);
    }
    if (!statuses.empty()) {
      ASSERT_EQ(cudaMemcpy(buffers_->statuses.device, statuses.data(), statuses.size(),
                           cudaMemcpyHostToDevice),
                cudaSuccess);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  static KeyStatus StatusOf(size_t query, size_t i) {
    return (query + i) % 3 == 0 ? KeyStatus::kHitL1 : KeyStatus::kHitL3;
  }

  void Check() {
    for (size_t q = 0; q < wanted_.size(); ++q) {
      const size_t stride_bytes = wanted_[q].row_bytes + wanted_[q].padding_bytes;
      for (size_t i = 0; i < wanted_[q].key_count; ++i) {
        const std::byte* row = rows_[q].data() + i * stride_bytes;
        ASSERT_TRUE(StampedRow::Matches(q, static_cast<Key>(i), 1, {row, wanted_[q].row_bytes}))
            << q << " " << i;
        for (size_t b = wanted_[q].row_bytes; b < stride_bytes; ++b) ASSERT_EQ(row[b], kPoison);
        ASSERT_EQ(statuses_[q][i], wanted_[q].wants_status ? StatusOf(q, i) : KeyStatus::kAbsent);
      }
    }
  }

  std::unique_ptr<CallBuffers> buffers_;
  std::unique_ptr<HostOutput> output_;
  std::vector<Wanted> wanted_;
  std::vector<std::vector<std::byte>> rows_;
  std::vector<std::vector<KeyStatus>> statuses_;
  std::vector<DeviceCacheQuery> queries_;
};

// Chunks end within rows of both kinds, with and without gaps.
TEST_F(HostOutputTest, CopiesRowsThatAreCutByChunks) {
  Begin({{7, 3, 0, true},
         {1000, 5000, 0, true},
         {16384, 300, 5, false},
         {3, 0, 0, true},
         {999, 4001, 3, true}});
  ASSERT_EQ(output_->Copy(false, kNoDeadline), absl::OkStatus());
  Check();
}

TEST_F(HostOutputTest, FetchesFewRowsAhead) {
  Begin({{64, 100, 1, true}, {8, 10, 0, false}});
  ASSERT_EQ(output_->FetchAhead(), absl::OkStatus());
  ASSERT_NE(output_->fetched_ahead(), nullptr);
  ASSERT_EQ(WaitFor(output_->fetched_ahead(), kNoDeadline, "rows"), absl::OkStatus());
  ASSERT_EQ(output_->Copy(true, RealClock().Now()), absl::OkStatus());
  Check();
  Begin({{16384, 300, 0, true}});
  ASSERT_EQ(output_->FetchAhead(), absl::OkStatus());
  EXPECT_EQ(output_->fetched_ahead(), nullptr);
  Begin({{16, 0, 0, true}});
  ASSERT_EQ(output_->FetchAhead(), absl::OkStatus());
  EXPECT_EQ(output_->fetched_ahead(), nullptr);
  EXPECT_EQ(output_->Copy(false, kNoDeadline), absl::OkStatus());
}

TEST_F(HostOutputTest, StopsAtTheDeadlineOnADeviceThatHangs) {
  Begin({{16384, 1000, 0, true}});
  const StreamHold hold(buffers_->stream.get());
  EXPECT_EQ(output_->Copy(false, TimePoint::min()).code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace hps
