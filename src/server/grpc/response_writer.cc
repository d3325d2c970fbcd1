#include "server/grpc/response_writer.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "server/grpc/kept_text.h"

namespace hps::server {

void ResponseWriter::BeginMessage() {
  pieces_.clear();
  pieces_.emplace_back(prefix_);
}

void ResponseWriter::EndMessage(After after) {
  size_t bytes = 0;
  for (const std::span<const std::byte> piece : pieces_) bytes += piece.size();
  unsent_bytes_ = bytes;
  first_piece_ = 0;
  prefix_[0] = std::byte{0};
  StoreLittleEndian(prefix_.data() + 1,
                    __builtin_bswap32(static_cast<uint32_t>(bytes - prefix_.size())));
  after_ = after;
}

void ResponseWriter::SetMessage(std::span<const std::span<std::byte>> pieces, After after) {
  BeginMessage();
  for (const std::span<std::byte> piece : pieces) pieces_.emplace_back(piece);
  EndMessage(after);
}

void ResponseWriter::SetText(std::string text, After after) {
  text_ = std::move(text);
  BeginMessage();
  pieces_.emplace_back(AsBytes(std::string_view(text_)));
  EndMessage(after);
}

void ResponseWriter::SetStatus(absl::StatusCode code, std::string_view message) {
  unsent_bytes_ = 0;
  end_code_ = code;
  end_message_.assign(message);
  after_ = After::kStatus;
}

void ResponseWriter::TakeUnsent(size_t bytes, OutputQueue* out) {
  unsent_bytes_ -= bytes;
  while (bytes > 0) {
    std::span<const std::byte>& piece = pieces_[first_piece_];
    const size_t step = std::min(bytes, piece.size());
    out->AddView(piece.first(step));
    piece = piece.subspan(step);
    bytes -= step;
    if (piece.empty()) ++first_piece_;
  }
}

void ResponseWriter::Release() {
  rows_.Release();
  pieces_.clear();
  first_piece_ = unsent_bytes_ = 0;
}

void ResponseWriter::Clear() {
  Release();
  ClearText(&text_);
  ClearText(&end_message_);
  after_ = After::kMore;
  end_code_ = absl::StatusCode::kOk;
}

}  // namespace hps::server
