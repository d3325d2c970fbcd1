#include "server/grpc/output_queue.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace hps::server {
namespace {

constexpr size_t kPiecesPerWrite = 128;
// Of memory that an empty queue keeps.
constexpr size_t kKeptBytesMax = 4096;

}  // namespace

void OutputQueue::AddCopy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const size_t offset = copies_.size();
  // A copy behind another one is one piece with it.
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
          piece.data != nullptr ? piece.data : AsBytePointer(copies_.data()) + piece.offset;
      batch[i] = {.iov_base = const_cast<std::byte*>(data), .iov_len = piece.size};
    }
    const IoResult result = transport.Write({batch.data(), count});
    if (result.state != IoState::kDone)
      return result.state == IoState::kBlocked ? IoState::kBlocked : IoState::kFailed;
    Advance(result.bytes);
  }
  Clear();
  return IoState::kDone;
}

void OutputQueue::Advance(size_t sent) {
  bytes_ -= sent;
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

void OutputQueue::Clear() {
  pieces_.clear();
  copies_.clear();
  if (copies_.capacity() > kKeptBytesMax) copies_ = std::string();
  if (pieces_.capacity() * sizeof(Piece) > kKeptBytesMax) pieces_ = std::vector<Piece>();
  first_ = bytes_ = 0;
}

}  // namespace hps::server
