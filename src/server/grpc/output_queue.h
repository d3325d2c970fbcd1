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
  // Keeps a view of `bytes`, which live until the queue is empty.
  void AddView(std::span<const std::byte> bytes);

  bool empty() const { return bytes_ == 0; }
  size_t bytes() const { return bytes_; }

  // Writes all of it or what the transport takes: kDone (all), kBlocked or kFailed.
  IoState WriteTo(Transport& transport);

  void Clear();

 private:
  struct Piece {
    const std::byte* data = nullptr;  // null: in copies_, at `offset`
    size_t offset = 0;
    size_t size = 0;
  };

  void Advance(size_t sent);

  std::string copies_;
  std::vector<Piece> pieces_;
  size_t first_ = 0;  // in pieces_: what is before has been sent
  size_t bytes_ = 0;  // that are not sent
};

}  // namespace hps::server
