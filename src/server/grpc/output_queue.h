// What a connection has to send: small pieces that it copies, and large ones that stay where they
// are until they are sent.
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
  // Keeps a view of `bytes`, which live until sent() has come to what end() is then.
  void AddView(std::span<const std::byte> bytes);

  bool empty() const { return bytes_ == 0; }
  size_t bytes() const { return bytes_; }
  // Positions in all that was ever added: where what is not sent begins, and where it ends.
  uint64_t sent() const { return sent_; }
  uint64_t end() const { return sent_ + bytes_; }
  // Of its own memory.
  size_t kept_bytes() const { return copies_.capacity() + pieces_.capacity() * sizeof(Piece); }

  // Writes all of it or what the transport takes: kDone (all), kBlocked or kFailed.
  IoState WriteTo(Transport& transport);

  void Clear();

 private:
  struct Piece {
    const std::byte* data = nullptr;  // null: a copy
    uint64_t offset = 0;              // of a copy: in all that were ever copied
    size_t size = 0;
  };

  void Advance(size_t sent);
  void DropSent();

  std::string copies_;
  uint64_t copies_begin_ = 0;  // the offset of their first byte
  std::vector<Piece> pieces_;
  size_t first_ = 0;  // in pieces_: what is before has been sent
  size_t bytes_ = 0;  // that are not sent
  uint64_t sent_ = 0;
};

}  // namespace hps::server
