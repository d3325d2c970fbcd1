#include "server/net/transport.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "openssl/err.h"
#include "openssl/ssl.h"

namespace hps::server {
namespace {

constexpr size_t kTlsRecordBytes = 16 << 10;  // the largest that TLS has

}  // namespace

void Transport::Open(int fd, TlsConnection tls) {
  Close();
  fd_ = fd;
  written_bytes_ = 0;
  tls_ = std::move(tls);
  if (tls_ != nullptr) SetTlsSocket(tls_.get(), &fd_);
}

void Transport::Close() {
  if (fd_ < 0) return;
  tls_.reset();
  close(std::exchange(fd_, -1));
}

void Transport::EndSending() {
  if (tls_ != nullptr) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());
  }
  shutdown(fd_, SHUT_WR);
}

IoResult Transport::Read(std::span<std::byte> into) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int size = static_cast<int>(std::min<size_t>(into.size(), INT_MAX));
    return TlsResult(SSL_read(tls_.get(), into.data(), size));
  }
  ssize_t received = 0;
  do {
    received = recv(fd_, into.data(), into.size(), 0);
  } while (received < 0 && errno == EINTR);
  if (received == 0) return {.state = IoState::kEnd};
  if (received < 0) return {.state = errno == EAGAIN ? IoState::kBlocked : IoState::kFailed};
  const size_t bytes = static_cast<size_t>(received);
  return {.state = bytes < into.size() ? IoState::kDrained : IoState::kDone, .bytes = bytes};
}

uint64_t Transport::taken_bytes() const {
  int queued = 0;
  if (ioctl(fd_, SIOCOUTQ, &queued) != 0 || queued < 0) return written_bytes_;
  return written_bytes_ - std::min(written_bytes_, static_cast<uint64_t>(queued));
}

IoResult Transport::Write(std::span<const iovec> pieces) {
  const IoResult result = tls_ != nullptr ? WriteTls(pieces) : WritePlain(pieces);
  written_bytes_ += result.bytes;
  return result;
}

IoResult Transport::WritePlain(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());  // sendmsg does not write to it
  message.msg_iovlen = pieces.size();
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return {.state = errno == EAGAIN ? IoState::kBlocked : IoState::kFailed};
  return {.state = IoState::kDone, .bytes = static_cast<size_t>(sent)};
}

// A record for each piece would be many small records, so the first few pieces are copied into one
// record. If the write has to be repeated, the caller passes the same pieces, as OpenSSL demands.
IoResult Transport::WriteTls(std::span<const iovec> pieces) {
  const auto piece = std::find_if(pieces.begin(), pieces.end(),
                                  [](const iovec& candidate) { return candidate.iov_len > 0; });
  ERR_clear_error();
  std::array<std::byte, kTlsRecordBytes> record;
  if (piece->iov_len >= record.size() || piece + 1 == pieces.end()) {
    const int size = static_cast<int>(std::min<size_t>(piece->iov_len, INT_MAX));
    return TlsResult(SSL_write(tls_.get(), piece->iov_base, size));
  }
  size_t size = 0;
  for (auto next = piece; next != pieces.end() && size < record.size(); ++next) {
    const size_t taken = std::min(next->iov_len, record.size() - size);
    if (taken > 0) std::memcpy(record.data() + size, next->iov_base, taken);
    size += taken;
  }
  return TlsResult(SSL_write(tls_.get(), record.data(), static_cast<int>(size)));
}

IoResult Transport::TlsResult(int result) {
  if (result > 0) return {.state = IoState::kDone, .bytes = static_cast<size_t>(result)};
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return {.state = IoState::kBlocked};
    case SSL_ERROR_ZERO_RETURN:
      return {.state = IoState::kEnd};
    default:
      return {.state = IoState::kFailed};
  }
}

}  // namespace hps::server
