// The unsent bytes of a connection: copies of small pieces, and views of large ones, which stay
// where they are until they are sent.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/net/transport.h"

namespace hps::server {

class OutputQueue {
 public:
  // Copies `bytes`.
  void AddCopy(std::span<const std::byte> bytes);
  // Keeps a view of `bytes`, which must live until sent() reaches the end() of now.
  void AddView(std::span<const std::byte> bytes);

  bool empty() const { return bytes_ == 0; }
  size_t bytes() const { return bytes_; }
  // Where the unsent bytes begin and end, as positions in the sequence of all bytes ever added.
  uint64_t sent() const { return sent_; }
  uint64_t end() const { return sent_ + bytes_; }
  // Own memory in use, in bytes.
  size_t kept_bytes() const { return copies_.capacity() + pieces_.capacity() * sizeof(Piece); }

  // Writes all of it or what the transport takes: kDone (all), kBlocked or kFailed.
  IoState WriteTo(Transport& transport);

  void Clear();

 private:
  struct Piece {
    const std::byte* data = nullptr;  // null: a copy
    uint64_t offset = 0;              // of a copy: in the sequence of all bytes ever copied
    size_t size = 0;
  };

  void Advance(size_t sent);
  void DropSent();

  std::string copies_;
  uint64_t copies_begin_ = 0;  // offset of the first byte of copies_
  std::vector<Piece> pieces_;
  size_t first_ = 0;  // in pieces_: the first unsent one
  size_t bytes_ = 0;  // unsent
  uint64_t sent_ = 0;
};

}  // namespace hps::server
