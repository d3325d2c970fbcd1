// The messages of a call, put together from the pieces in which HTTP/2 brings them.
//
// A message is five bytes, whether it is compressed and how long it is, and its own. Memory is
// taken for what has come, not for what is announced, and never for a message that is too long.
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

  // Takes what has come. Errors: BufferPool::Acquire's.
  absl::Status Add(std::span<const std::byte> bytes, BufferPool& pool);

  // The message at the front; it stays there. Errors: OUT_OF_RANGE (longer than `bytes_max`, known
  // as soon as its prefix is there), INVALID_ARGUMENT (no message), BufferPool::Acquire's.
  absl::StatusOr<Step> Front(uint64_t bytes_max, BufferPool& pool, Message* message);

  // Drops the message that Front gave, if it has not been dropped.
  void Pop();

  // Whether something has come behind the front message, or, without one, at all.
  bool has_more() const { return end_ - begin_ > front_bytes_ || later_end_ > 0; }
  // Of memory that it holds.
  uint64_t lent_bytes() const { return memory_.bytes().size() + later_.bytes().size(); }

  void Clear();

 private:
  static absl::Status Append(std::span<const std::byte> bytes, size_t wanted, BufferPool& pool,
                             BufferPool::Lease* memory, size_t* end);
  absl::Status MakeFront(BufferPool& pool);
  size_t Wanted(size_t bytes) const;

  BufferPool::Lease memory_;
  size_t begin_ = 0;  // in memory_: of the front message's prefix
  size_t end_ = 0;
  size_t front_bytes_ = 0;  // with its prefix; 0: Front has given none
  // While a message at the front is in use it does not move: what comes then is kept here.
  BufferPool::Lease later_;
  size_t later_end_ = 0;
};

}  // namespace hps::server
