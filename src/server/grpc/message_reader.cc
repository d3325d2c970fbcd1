#include "server/grpc/message_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"

namespace hps::server {
namespace {

constexpr size_t kFirstBytes = size_t{16} << 10;  // first memory of a longer message
constexpr size_t kGrowth = 4;                     // memory per received byte, at most

uint32_t LengthAt(const std::byte* prefix) {
  return __builtin_bswap32(LoadLittleEndian<uint32_t>(prefix + 1));
}

// Memory for the message with this prefix, of which `bytes` have arrived: all of it, but at most
// kGrowth times what has arrived.
size_t RoomFor(const std::byte* prefix, size_t bytes) {
  const size_t whole = kMessagePrefixBytes + LengthAt(prefix);
  return std::max(bytes, std::min(whole, std::max(bytes * kGrowth, kFirstBytes)));
}

}  // namespace

// Before the prefix is complete, the length is unknown: memory for what has arrived.
size_t MessageReader::Wanted(size_t bytes) const {
  const size_t have = end_ - begin_;
  return have < kMessagePrefixBytes ? bytes : RoomFor(memory_.bytes().data() + begin_, bytes);
}

absl::Status MessageReader::Append(std::span<const std::byte> bytes, size_t wanted,
                                   BufferPool& pool, BufferPool::Lease* memory, size_t* end) {
  if (*end + bytes.size() > memory->bytes().size()) {
    HPS_ASSIGN_OR_RETURN(BufferPool::Lease larger, pool.Acquire(wanted, BufferPool::Use::kRequest));
    if (*end > 0) std::memcpy(larger.bytes().data(), memory->bytes().data(), *end);
    *memory = std::move(larger);
  }
  std::memcpy(memory->bytes().data() + *end, bytes.data(), bytes.size());
  *end += bytes.size();
  return absl::OkStatus();
}

absl::Status MessageReader::Add(std::span<const std::byte> bytes, BufferPool& pool) {
  if (bytes.empty()) return absl::OkStatus();
  if (front_bytes_ > 0 || later_end_ > 0)
    return Append(bytes, (later_end_ + bytes.size()) * 2, pool, &later_, &later_end_);
  // The first piece of a message has its length, so memory for the message is taken at once.
  if (end_ == 0 && bytes.size() >= kMessagePrefixBytes && memory_.empty()) {
    return Append(bytes, RoomFor(bytes.data(), bytes.size()), pool, &memory_, &end_);
  }
  return Append(bytes, Wanted(end_ + bytes.size()), pool, &memory_, &end_);
}

// Moves the first message to the begin of memory_, and later bytes behind it.
absl::Status MessageReader::MakeFront(BufferPool& pool) {
  if (begin_ > 0) {
    end_ -= begin_;
    if (end_ > 0) std::memmove(memory_.bytes().data(), memory_.bytes().data() + begin_, end_);
    begin_ = 0;
  }
  if (later_end_ == 0) return absl::OkStatus();
  if (end_ == 0) {
    memory_ = std::exchange(later_, BufferPool::Lease());
    end_ = std::exchange(later_end_, 0);
    return absl::OkStatus();
  }
  const std::span<const std::byte> later = later_.bytes().first(later_end_);
  HPS_RETURN_IF_ERROR(Append(later, Wanted(end_ + later.size()), pool, &memory_, &end_));
  later_.Release();
  later_end_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<MessageReader::Step> MessageReader::Front(uint64_t bytes_max, BufferPool& pool,
                                                         Message* message) {
  for (;;) {
    const size_t have = end_ - begin_;
    size_t whole = kMessagePrefixBytes;
    if (have >= kMessagePrefixBytes) {
      const std::byte* const prefix = memory_.bytes().data() + begin_;
      const size_t length = LengthAt(prefix);
      if (*prefix > std::byte{1})
        return absl::InvalidArgumentError(
            "invalid gRPC message prefix: the compressed flag must be 0 or 1");
      if (length > bytes_max) {
        return absl::OutOfRangeError(absl::StrCat("the message is longer than allowed: ", length,
                                                  " of at most ", bytes_max, " bytes"));
      }
      whole += length;
      if (have >= whole) {
        front_bytes_ = whole;
        *message = {.is_compressed = *prefix == std::byte{1},
                    .bytes = {prefix + kMessagePrefixBytes, length}};
        return Step::kMessage;
      }
    }
    if (begin_ == 0 && later_end_ == 0) return Step::kNeedsMore;
    HPS_RETURN_IF_ERROR(MakeFront(pool));
  }
}

void MessageReader::Pop() {
  begin_ += std::exchange(front_bytes_, 0);
  if (begin_ < end_) return;
  // The memory is released now, because the next message may arrive much later.
  memory_ = std::exchange(later_, BufferPool::Lease());
  begin_ = 0;
  end_ = std::exchange(later_end_, 0);
}

void MessageReader::Clear() {
  memory_.Release();
  later_.Release();
  begin_ = end_ = front_bytes_ = later_end_ = 0;
}

}  // namespace hps::server
