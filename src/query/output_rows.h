// Writes rows to their places in the caller's buffer, converted to float32 if the session was made
// with output_dtype = float32.
//
// A value type; borrows the buffer and the table. Thread-safe for different positions.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "serving/live_table.h"
#include "types/row_convert.h"

namespace hps {

class OutputRows {
 public:
  OutputRows() = default;
  // Rows go to `data + position * stride_bytes`.
  OutputRows(const LiveTable& table, bool as_float32, std::byte* data, size_t stride_bytes)
      : data_(data),
        stride_bytes_(stride_bytes),
        row_bytes_(table.row_bytes()),
        dim_(table.spec().dim),
        dtype_(table.spec().dtype),
        converts_(as_float32 && table.spec().dtype != Dtype::kFloat32),
        default_row_(converts_ ? table.default_row_float32() : table.default_row()) {}

  // Whether rows have to be converted, so that a level can't write them into the caller's buffer.
  bool converts() const { return converts_; }
  std::byte* row(size_t position) const { return data_ + position * stride_bytes_; }
  size_t stride_bytes() const { return stride_bytes_; }

  // `native` is a row in the table's dtype.
  void Write(size_t position, const std::byte* native) const {
    if (converts_) {
      ConvertToFloat32(dtype_, native, dim_, row(position));
    } else {
      std::memcpy(row(position), native, row_bytes_);
    }
  }

  void WriteDefault(size_t position) const {
    std::memcpy(row(position), default_row_.data(), default_row_.size());
  }

 private:
  std::byte* data_ = nullptr;
  size_t stride_bytes_ = 0;
  size_t row_bytes_ = 0;
  size_t dim_ = 0;
  Dtype dtype_ = Dtype::kFloat32;
  bool converts_ = false;
  std::span<const std::byte> default_row_;
};

}  // namespace hps
