// Assembles the messages of a call from the DATA frames of its stream.
//
// A message has a prefix of five bytes: the compressed flag and the length. Memory is taken for the
// bytes that have arrived, not for the announced length, and never for a message that is too long.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/net/buffer_pool.h"

namespace hps::server {

inline constexpr size_t kMessagePrefixBytes = 5;

class MessageReader {
 public:
  struct Message {
    bool is_compressed = false;
    std::span<const std::byte> bytes;  // until Pop
  };
  enum class Step : uint8_t { kNeedsMore, kMessage };

  // Adds received bytes. Errors: BufferPool::Acquire's.
  absl::Status Add(std::span<const std::byte> bytes, BufferPool& pool);

  // Returns the first message and keeps it. Errors: OUT_OF_RANGE (longer than `bytes_max`; reported
  // when its prefix has arrived), INVALID_ARGUMENT (invalid prefix), BufferPool::Acquire's.
  absl::StatusOr<Step> Front(uint64_t bytes_max, BufferPool& pool, Message* message);

  // Drops the message that Front returned, if it has not been dropped.
  void Pop();

  // Whether bytes have arrived behind the message that Front returned, or any if there is none.
  bool has_more() const { return end_ - begin_ > front_bytes_ || later_end_ > 0; }
  // Pool memory in use, in bytes.
  uint64_t lent_bytes() const { return memory_.bytes().size() + later_.bytes().size(); }

  void Clear();

 private:
  static absl::Status Append(std::span<const std::byte> bytes, size_t wanted, BufferPool& pool,
                             BufferPool::Lease* memory, size_t* end);
  absl::Status MakeFront(BufferPool& pool);
  size_t Wanted(size_t bytes) const;

  BufferPool::Lease memory_;
  size_t begin_ = 0;  // in memory_: the prefix of the first message
  size_t end_ = 0;
  size_t front_bytes_ = 0;  // of the message that Front returned, with its prefix; 0: none
  // Bytes that arrive while the first message is in use, because it must not move.
  BufferPool::Lease later_;
  size_t later_end_ = 0;
};

}  // namespace hps::server
