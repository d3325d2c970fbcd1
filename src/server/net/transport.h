// The bytes of one connection: a non-blocking socket, with or without TLS.
//
// Not thread-safe; belongs to the thread that drives the connection.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/net/tls.h"

namespace hps::server {

enum class IoState : uint8_t {
  kDone,     // `bytes` were moved, at least one
  kDrained,  // read only: `bytes` were moved, and more will be announced by the event loop
  kBlocked,  // nothing was moved: the event loop will announce when to try again
  kEnd,      // read only: the client sends no more
  kFailed,   // the connection is broken
};

struct IoResult {
  IoState state = IoState::kFailed;
  size_t bytes = 0;
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  ~Transport() { Close(); }

  // Takes over `fd`, a non-blocking socket. `tls` may be null.
  void Open(int fd, TlsConnection tls);
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool is_secured() const { return tls_ != nullptr; }

  IoResult Read(std::span<std::byte> into);
  // REQUIRES: at least one byte, at most IOV_MAX pieces.
  IoResult Write(std::span<const iovec> pieces);
  // How many of the written bytes the client's system has acknowledged. With TLS a little less,
  // because what is not acknowledged yet is counted with the overhead of its records.
  uint64_t taken_bytes() const;

  void EndSending();  // the client sees the end of the answers; it may still send
  void Close();

 private:
  IoResult WritePlain(std::span<const iovec> pieces);
  IoResult WriteTls(std::span<const iovec> pieces);
  IoResult TlsResult(int result);

  int fd_ = -1;
  uint64_t written_bytes_ = 0;
  TlsConnection tls_;
};

}  // namespace hps::server
