// One response of an HTTP connection: its status line, fields and body, until the last byte is with
// the system.
//
// In this order: AddPiece or AddPage gives the body, Begin the status line and fields, Write
// sends until it returns kDone, Clear prepares for the next response. Begin packs the body if the
// client accepts that.
//
// The body is not copied: its pieces have to stay where they are until Clear.
//
// Not thread-safe.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/admission.h"
#include "server/core/inference.h"
#include "server/core/page_source.h"
#include "server/http/request_head.h"
#include "server/net/buffer_pool.h"
#include "server/net/compression.h"
#include "server/net/transport.h"

namespace hps::server {

struct HttpResponseHead {
  int code = 200;
  std::string_view content_type;
  std::string_view policy_fields;  // whole lines
  std::string_view extra_fields;   // whole lines
  Coding accepted_coding = Coding::kIdentity;
  bool refuses_identity = false;
  bool has_body = true;  // false: the request was HEAD
  bool is_1_0 = false;
  bool close = false;
};

class HttpResponseWriter {
 public:
  // Packed bodies take their buffers from `pool` and their share of the capacity from `inference`.
  HttpResponseWriter(BufferPool& pool, Inference& inference) : pool_(pool), inference_(inference) {}

  // For the body's text. Add it as a piece when it is complete.
  std::string& text() { return text_; }
  void AddPiece(std::span<const std::byte> piece) { pieces_.push_back(piece); }
  // Keeps the page, whose body is the next piece.
  void AddPage(Page page);

  // Sends the body unpacked if there is no room to pack it. A client that takes it so gets it
  // unpacked also if it is short, or packing makes it no smaller.
  void Begin(const HttpResponseHead& head);

  // kDone (all of it), kBlocked or kFailed.
  IoState Write(Transport& transport);

  // Releases everything, but keeps the capacity that most responses need.
  void Clear();

 private:
  bool Pack(Coding coding, uint64_t bytes_max);
  void WriteFields(const HttpResponseHead& head, Coding coding, uint64_t bytes);

  BufferPool& pool_;
  Inference& inference_;
  std::string text_;
  Page page_;
  std::string fields_;                              // status line and fields
  std::vector<std::span<const std::byte>> pieces_;  // of the body
  CodedBytes packed_;
  Admission::Reservation packed_share_;  // of the capacity, for packed_
  std::vector<iovec> unsent_;
  size_t unsent_begin_ = 0;
};

}  // namespace hps::server
