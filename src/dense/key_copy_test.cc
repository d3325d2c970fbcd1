#include "dense/key_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace hps {
namespace {

constexpr size_t kAloneKeys = KeyCopy::kAloneBytesMax / sizeof(Key);

// A batch of pieces of these sizes. Their memory is not aligned, as that of a request is not.
class Batch {
 public:
  explicit Batch(const std::vector<size_t>& sizes, Key first = 0) {
    size_t count = 0;
    for (const size_t size : sizes) count += size;
    for (size_t i = 0; i < count; ++i) expected_.push_back(first + static_cast<Key>(i * i));
    memory_.resize(count * sizeof(Key) + 1);
    if (count > 0) std::memcpy(memory_.data() + 1, expected_.data(), count * sizeof(Key));
    const std::byte* next = memory_.data() + 1;
    for (const size_t size : sizes) {
      pieces_.push_back({.keys = next, .key_count = size});
      next += size * sizeof(Key);
    }
    copied_.resize(count, -1);
  }

  // Copies it, and expects that every key is there when it is sent, in order.
  void Check(KeyCopy& copy) {
    std::fill(copied_.begin(), copied_.end(), -1);
    const std::span<std::byte> to = std::as_writable_bytes(std::span(copied_));
    size_t sent = 0;
    const absl::Status status = copy.Run(pieces_, to, [&](std::span<const std::byte> part) {
      EXPECT_EQ(part.data(), to.data() + sent);
      EXPECT_EQ(std::memcmp(part.data(), memory_.data() + 1 + sent, part.size()), 0);
      sent += part.size();
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(sent, to.size());
    EXPECT_EQ(copied_, expected_);
  }

  std::span<const KeyPiece> pieces() const { return pieces_; }
  std::span<std::byte> to() { return std::as_writable_bytes(std::span(copied_)); }

 private:
  std::vector<Key> expected_;
  std::vector<std::byte> memory_;
  std::vector<KeyPiece> pieces_;
  std::vector<Key> copied_;
};

TEST(KeyCopyTest, CopiesPiecesOfAllSizes) {
  KeyCopy copy;
  for (const std::vector<size_t>& sizes : std::vector<std::vector<size_t>>{
           {},
           {0},
           {1},
           {0, 31, 0, 32, 33, 0},
           {kAloneKeys},
           {kAloneKeys + 1},
           {0, kAloneKeys / 4, kAloneKeys / 4 - 1, 1, 0, kAloneKeys, 7},
           std::vector<size_t>(3000, 101),
           {3},
           {5 * kAloneKeys}}) {
    Batch(sizes).Check(copy);
  }
}

// Catches: a helper that still copies a batch when the next one begins.
TEST(KeyCopyTest, ThreadsShareTheHelpers) {
  std::vector<std::thread> threads;
  for (Key i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      KeyCopy copy;
      Batch large({2 * kAloneKeys + 17, 5, kAloneKeys}, i);
      Batch small({9}, i);
      for (int run = 0; run < 20; ++run) {
        large.Check(copy);
        small.Check(copy);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(KeyCopyTest, SendsNothingAfterAnError) {
  KeyCopy copy;
  for (const size_t keys : {size_t{100}, 4 * kAloneKeys}) {
    Batch batch({keys});
    int sends = 0;
    const absl::Status status =
        copy.Run(batch.pieces(), batch.to(), [&](std::span<const std::byte>) {
          ++sends;
          return absl::InternalError("the device is lost");
        });
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(sends, 1);
    batch.Check(copy);
  }
}

}  // namespace
}  // namespace hps
