// A device as scenarios see it: memory that lies there, a stream, and the bound of every copy.
//
// The build chooses the implementation: device_cuda.cc, or device_none.cc in a build without GPUs.
// Memory lives as long as the device object. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/span.h"

namespace hps::bench {

class Device {
 public:
  virtual ~Device() = default;

  virtual absl::StatusOr<std::byte*> Allocate(size_t bytes) = 0;
  virtual absl::Status CopyIn(std::byte* to, std::span<const std::byte> from) = 0;
  virtual absl::Status CopyOut(std::span<std::byte> to, const std::byte* from) = 0;

  virtual Stream stream() const = 0;
  // Waits until the stream is idle.
  virtual absl::Status Synchronize() = 0;

  // Microseconds of one copy of `bytes` from pinned memory to the device, as the host sees it:
  // the median of `runs`.
  virtual absl::StatusOr<double> CopyUs(size_t bytes, size_t runs) = 0;

  // Microseconds of a gather of rows whose places among `row_count` rows are known, waited for: the
  // best shape's median of `runs`. REQUIRES: row_bytes is 128, 256 or 512.
  virtual absl::StatusOr<double> GatherUs(std::span<const uint64_t> places, uint64_t row_count,
                                          size_t row_bytes, size_t runs) = 0;
};

// Errors: UNIMPLEMENTED (a build without GPUs), UNAVAILABLE (no such device); the message is a
// sentence.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(int device);

}  // namespace hps::bench
