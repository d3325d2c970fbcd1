#include "server/grpc/output_queue.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace hps::server {
namespace {

constexpr size_t kPiecesPerWrite = 128;
// Limit for the memory that an empty queue keeps, and for sent bytes that stay before unsent ones.
constexpr size_t kKeptBytesMax = 4096;

}  // namespace

void OutputQueue::AddCopy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const uint64_t offset = copies_begin_ + copies_.size();
  // Adjacent copies become one piece.
  const bool joins = !pieces_.empty() && pieces_.size() > first_ &&
                     pieces_.back().data == nullptr &&
                     pieces_.back().offset + pieces_.back().size == offset;
  if (!joins) pieces_.push_back({.data = nullptr, .offset = offset, .size = 0});
  copies_.append(AsChars(bytes.data()), bytes.size());
  pieces_.back().size += bytes.size();
  bytes_ += bytes.size();
}

void OutputQueue::AddView(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  pieces_.push_back({.data = bytes.data(), .offset = 0, .size = bytes.size()});
  bytes_ += bytes.size();
}

IoState OutputQueue::WriteTo(Transport& transport) {
  while (bytes_ > 0) {
    std::array<iovec, kPiecesPerWrite> batch;
    const size_t count = std::min(pieces_.size() - first_, batch.size());
    for (size_t i = 0; i < count; ++i) {
      const Piece& piece = pieces_[first_ + i];
      const std::byte* const data =
          piece.data != nullptr ? piece.data
                                : AsBytePointer(copies_.data()) + (piece.offset - copies_begin_);
      batch[i] = {.iov_base = const_cast<std::byte*>(data), .iov_len = piece.size};
    }
    const IoResult result = transport.Write({batch.data(), count});
    if (result.state == IoState::kBlocked) DropSent();
    if (result.state != IoState::kDone)
      return result.state == IoState::kBlocked ? IoState::kBlocked : IoState::kFailed;
    Advance(result.bytes);
  }
  Clear();
  return IoState::kDone;
}

void OutputQueue::Advance(size_t sent) {
  bytes_ -= sent;
  sent_ += sent;
  while (sent > 0) {
    Piece& piece = pieces_[first_];
    const size_t step = std::min(sent, piece.size);
    if (piece.data != nullptr) piece.data += step;
    piece.offset += step;
    piece.size -= step;
    sent -= step;
    if (piece.size == 0) ++first_;
  }
}

// Drops sent bytes, because the queue of a slow client may never become empty. It drops only if at
// least as much is dropped as moved, so that a byte is moved about once.
void OutputQueue::DropSent() {
  if (first_ * sizeof(Piece) >= kKeptBytesMax && first_ >= pieces_.size() - first_) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<ptrdiff_t>(first_));
    first_ = 0;
  }
  const auto copy = std::find_if(pieces_.begin() + static_cast<ptrdiff_t>(first_), pieces_.end(),
                                 [](const Piece& piece) { return piece.data == nullptr; });
  const uint64_t begin = copy == pieces_.end() ? copies_begin_ + copies_.size() : copy->offset;
  const size_t sent = begin - copies_begin_;
  if (sent < kKeptBytesMax || sent < copies_.size() - sent) return;
  copies_.erase(0, sent);
  copies_begin_ = begin;
}

void OutputQueue::Clear() {
  pieces_.clear();
  copies_.clear();
  if (copies_.capacity() > kKeptBytesMax) copies_ = std::string();
  if (pieces_.capacity() * sizeof(Piece) > kKeptBytesMax) pieces_ = std::vector<Piece>();
  sent_ += bytes_;
  copies_begin_ = 0;
  first_ = bytes_ = 0;
}

}  // namespace hps::server
