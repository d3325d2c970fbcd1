#include "server/http/http_response_writer.h"

#include <algorithm>
#include <array>
#include <climits>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "server/http/http_error.h"

namespace hps::server {
namespace {

// Smaller bodies are sent as they are, whatever the client accepts.
constexpr size_t kPackedBytesMin = 1024;
// Of text_, kept between two responses.
constexpr size_t kTextBytesKept = 16 << 10;
// What packing adds to a body that gets no smaller.
constexpr uint64_t kPackingBytesMax = 64;

absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

std::string_view CodingName(Coding coding) { return coding == Coding::kGzip ? "gzip" : "deflate"; }

// The time in HTTP's form (RFC 9110 5.6.7). Each thread formats it once a second.
absl::string_view Date() {
  thread_local time_t written_at = 0;
  thread_local std::array<char, sizeof("Sun, 06 Nov 1994 08:49:37 GMT")> text;
  const time_t now = std::time(nullptr);
  if (now != written_at) {
    tm parts{};
    gmtime_r(&now, &parts);
    std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    written_at = now;
  }
  return {text.data(), text.size() - 1};
}

}  // namespace

void HttpResponseWriter::AddPage(Page page) {
  page_ = std::move(page);
  AddPiece(AsBytes(page_.body()));
}

void HttpResponseWriter::Begin(const HttpResponseHead& head) {
  uint64_t bytes = 0;
  for (const std::span<const std::byte> piece : pieces_) bytes += piece.size();
  Coding coding = Coding::kIdentity;
  const bool may_pack = head.accepted_coding != Coding::kIdentity && head.has_body &&
                        (bytes >= kPackedBytesMin || head.refuses_identity);
  const uint64_t packed_max =
      head.refuses_identity ? bytes + bytes / kPackedBytesMin + kPackingBytesMax : bytes;
  if (may_pack && Pack(head.accepted_coding, packed_max)) {
    coding = head.accepted_coding;
    bytes = packed_.size;
  }
  WriteFields(head, coding, bytes);
  unsent_.clear();
  unsent_begin_ = 0;
  unsent_.push_back({.iov_base = fields_.data(), .iov_len = fields_.size()});
  if (!head.has_body) return;
  for (const std::span<const std::byte> piece : pieces_) {
    if (piece.empty()) continue;
    unsent_.push_back({.iov_base = const_cast<std::byte*>(piece.data()), .iov_len = piece.size()});
  }
}

void HttpResponseWriter::WriteFields(const HttpResponseHead& head, Coding coding, uint64_t bytes) {
  fields_.clear();
  absl::StrAppend(&fields_, "HTTP/1.1 ", head.code, " ", AbslView(ReasonPhrase(head.code)),
                  "\r\nDate: ", Date(), "\r\nContent-Type: ", AbslView(head.content_type),
                  "\r\nContent-Length: ", bytes, "\r\nVary: Accept-Encoding\r\n");
  fields_.append(head.policy_fields).append(head.extra_fields);
  if (coding != Coding::kIdentity) {
    absl::StrAppend(&fields_, "Content-Encoding: ", AbslView(CodingName(coding)), "\r\n");
  }
  if (head.close) {
    fields_.append("Connection: close\r\n");
  } else if (head.is_1_0) {
    fields_.append("Connection: keep-alive\r\n");
  }
  fields_.append("\r\n");
}

bool HttpResponseWriter::Pack(Coding coding, uint64_t bytes_max) {
  if (!inference_.ReserveBytes(BufferPool::LentFor(bytes_max), &packed_share_).ok()) return false;
  absl::StatusOr<CodedBytes> packed = Deflate(coding, pieces_, bytes_max, pool_);
  if (!packed.ok()) {
    packed_share_.reset();
    return false;
  }
  packed_ = *std::move(packed);
  pieces_.assign(1, packed_.bytes());
  return true;
}

IoState HttpResponseWriter::Write(Transport& transport) {
  while (unsent_begin_ < unsent_.size()) {
    const size_t count = std::min<size_t>(unsent_.size() - unsent_begin_, IOV_MAX);
    const IoResult result = transport.Write({unsent_.data() + unsent_begin_, count});
    if (result.state != IoState::kDone) return result.state;
    size_t sent = result.bytes;
    while (sent > 0) {
      iovec& piece = unsent_[unsent_begin_];
      const size_t step = std::min(sent, piece.iov_len);
      piece.iov_base = static_cast<char*>(piece.iov_base) + step;
      piece.iov_len -= step;
      sent -= step;
      if (piece.iov_len == 0) ++unsent_begin_;
    }
  }
  return IoState::kDone;
}

void HttpResponseWriter::Clear() {
  packed_ = CodedBytes();
  packed_share_.reset();
  page_ = Page();
  ClearTensorList(&pieces_);
  ClearTensorList(&unsent_);
  unsent_begin_ = 0;
  text_.clear();
  if (text_.capacity() > kTextBytesKept) text_ = std::string();
}

}  // namespace hps::server
