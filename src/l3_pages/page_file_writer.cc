#include "l3_pages/page_file_writer.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/fault_point.h"
#include "base/macros.h"
#include "base/out_of_memory.h"

namespace hps {
namespace {

void CopyRows(const HostRows& rows, size_t begin, size_t count, std::byte* to) {
  if (rows.stride_bytes == rows.row_bytes) {
    std::memcpy(to, rows.row(begin), count * rows.row_bytes);
    return;
  }
  for (size_t i = 0; i < count; ++i)
    std::memcpy(to + i * rows.row_bytes, rows.row(begin + i), rows.row_bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageFileWriter>> PageFileWriter::Create(const std::string& path,
                                                                       Incarnation incarnation,
                                                                       size_t row_bytes) {
  AlignedBytes buffer = AllocateAligned(2 * kPageWriteBytes);
  if (buffer == nullptr) return OutOfMemory("page file: out of memory for a write buffer");
  HPS_ASSIGN_OR_RETURN(PageFileHandle file, PageFileHandle::CreateNew(path, true));
  std::unique_ptr<PageFileWriter> writer(
      new PageFileWriter(std::move(file), incarnation, row_bytes, std::move(buffer)));
  HPS_FAULT_POINT("l3_pages.create.after");
  return writer;
}

PageFileWriter::PageFileWriter(PageFileHandle file, Incarnation incarnation, size_t row_bytes,
                               AlignedBytes buffer)
    : file_(std::move(file)), memory_(std::move(buffer)), buffer_(memory_.get()), behind_(file_) {
  description_.incarnation = incarnation;
  description_.shape = PageShape::Of(row_bytes);
}

PageFileWriter::~PageFileWriter() {
  std::error_code ignored;
  if (!finished_) std::filesystem::remove(file_.path(), ignored);
}

absl::Status PageFileWriter::Reserve(uint64_t row_count) {
  try {
    first_keys_.reserve(row_count / description_.shape.rows_per_page + 1);
  } catch (const std::exception&) {  // also std::length_error
    return OutOfMemory("page file: out of memory for the index");
  }
  return absl::OkStatus();
}

absl::Status PageFileWriter::Add(std::span<const Key> keys, HostRows rows,
                                 std::span<const Version> versions) {
  HPS_CHECK(!finished_);
  const PageShape& shape = description_.shape;
  HPS_CHECK(keys.empty() || (rows.row_bytes == shape.row_bytes && rows.row_count >= keys.size()));
  HPS_CHECK(versions.empty() || versions.size() == keys.size());
  HPS_RETURN_IF_ERROR(CheckOrder(keys));
  for (size_t begin = 0; begin < keys.size();) {
    const size_t count = std::min(keys.size() - begin, shape.rows_per_page - page_rows_);
    if (page_rows_ == 0) first_keys_.push_back(keys[begin]);
    std::byte* const to = page();
    std::memcpy(to + shape.keys_offset() + page_rows_ * sizeof(Key), keys.data() + begin,
                count * sizeof(Key));
    std::byte* const to_versions = to + shape.versions_offset() + page_rows_ * sizeof(Version);
    if (versions.empty()) {
      std::memset(to_versions, 0, count * sizeof(Version));
    } else {
      std::memcpy(to_versions, versions.data() + begin, count * sizeof(Version));
    }
    CopyRows(rows, begin, count, to + shape.rows_offset() + page_rows_ * shape.row_bytes);
    begin += count;
    page_rows_ += count;
    if (page_rows_ == shape.rows_per_page) HPS_RETURN_IF_ERROR(CompletePage());
  }
  return absl::OkStatus();
}

// Checks that the keys continue the file, and counts them.
absl::Status PageFileWriter::CheckOrder(std::span<const Key> keys) {
  if (keys.empty()) return absl::OkStatus();
  const Key* before = description_.row_count == 0 ? nullptr : &description_.last_key;
  for (const Key& key : keys) {
    if (before != nullptr && key <= *before) {
      return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": key ", key, " follows key ",
                                                     *before, "; keys must ascend"));
    }
    before = &key;
  }
  if (description_.row_count == 0) description_.first_key = keys.front();
  description_.last_key = keys.back();
  description_.row_count += keys.size();
  return absl::OkStatus();
}

// Zeros what has no row, and sets the checksum.
absl::Status PageFileWriter::CompletePage() {
  const PageShape& shape = description_.shape;
  std::byte* const to = page();
  const size_t rows_missing = shape.rows_per_page - page_rows_;
  std::memset(to + shape.keys_offset() + page_rows_ * sizeof(Key), 0, rows_missing * sizeof(Key));
  std::memset(to + shape.versions_offset() + page_rows_ * sizeof(Version), 0,
              rows_missing * sizeof(Version));
  const size_t rows_end = shape.rows_offset() + page_rows_ * shape.row_bytes;
  std::memset(to + rows_end, 0, shape.page_bytes - rows_end);
  SetPageChecksum(description_.incarnation, first_keys_.size() - 1, {to, shape.page_bytes});
  page_rows_ = 0;
  buffer_used_ += shape.page_bytes;
  if (buffer_used_ + shape.page_bytes <= kPageWriteBytes) return absl::OkStatus();
  return FlushBuffer();
}

// Begins to write the buffer, and goes on with the other one.
absl::Status PageFileWriter::FlushBuffer() {
  HPS_FAULT_POINT("l3_pages.write.before_piece");
  HPS_RETURN_IF_ERROR(AwaitPiece());
  piece_page_ = (file_used_ - kPageBlockBytes) / description_.shape.page_bytes;
  behind_.Begin(file_used_, {buffer_, buffer_used_});
  file_used_ += buffer_used_;
  buffer_used_ = 0;
  buffer_ = buffer_ == memory_.get() ? memory_.get() + kPageWriteBytes : memory_.get();
  return absl::OkStatus();
}

absl::Status PageFileWriter::AwaitPiece() {
  const absl::Status written = behind_.Wait();
  if (written.ok()) return written;
  return absl::Status(written.code(),
                      absl::StrCat(written.message(), " (from page ", piece_page_, " on)"));
}

absl::Status PageFileWriter::WriteIndex() {
  for (uint64_t block = 0; block < description_.index_block_count(); ++block) {
    const size_t first = block * kPageKeysPerIndexBlock;
    const size_t count = std::min(kPageKeysPerIndexBlock, first_keys_.size() - first);
    const std::span<std::byte> to(buffer_ + buffer_used_, kPageBlockBytes);
    std::fill(to.begin(), to.end(), std::byte{0});
    std::memcpy(to.data() + kPageChecksumBytes, first_keys_.data() + first, count * sizeof(Key));
    SetPageChecksum(description_.incarnation, description_.index_block_number(block), to);
    buffer_used_ += kPageBlockBytes;
    if (buffer_used_ + kPageBlockBytes > kPageWriteBytes) HPS_RETURN_IF_ERROR(FlushBuffer());
  }
  HPS_RETURN_IF_ERROR(FlushBuffer());
  return AwaitPiece();
}

absl::Status PageFileWriter::WriteHeaders() {
  const std::span<std::byte> block(buffer_, kPageBlockBytes);
  EncodePageHeader(description_, block);
  HPS_CHECK(file_used_ == description_.footer_offset());
  HPS_RETURN_IF_ERROR(file_.WriteAt(file_used_, block));
  HPS_FAULT_POINT("l3_pages.finish.before_header");
  return file_.WriteAt(0, block);
}

absl::StatusOr<PageFileDescription> PageFileWriter::Finish() {
  HPS_CHECK(!finished_);
  if (page_rows_ > 0) HPS_RETURN_IF_ERROR(CompletePage());
  HPS_RETURN_IF_ERROR(FlushBuffer());
  HPS_FAULT_POINT("l3_pages.finish.before_index");
  HPS_RETURN_IF_ERROR(WriteIndex());
  HPS_RETURN_IF_ERROR(WriteHeaders());
  HPS_FAULT_POINT("l3_pages.finish.before_sync");
  HPS_RETURN_IF_ERROR(file_.Sync());
  HPS_FAULT_POINT("l3_pages.finish.after_sync");
  finished_ = true;
  return description_;
}

}  // namespace hps
