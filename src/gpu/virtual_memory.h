// Device memory that grows in place: addresses are reserved once, and memory is mapped behind what
// is there. So growth copies nothing, and pointers stay valid.
//
// Memory comes in pieces of its own, from 2 to 64 MiB, that another process or device could map,
// too (NVIDIA, "Virtual Memory Management", CUDA Driver API).
//
// Not thread-safe. The owner makes the device current (DeviceScope).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

class VirtualMemory {
 public:
  VirtualMemory() = default;
  // Reserves addresses for `bytes_max`. Errors: RESOURCE_EXHAUSTED, UNAVAILABLE, INTERNAL.
  static absl::StatusOr<VirtualMemory> Reserve(int device, uint64_t bytes_max);
  VirtualMemory(VirtualMemory&& other) noexcept;
  VirtualMemory& operator=(VirtualMemory&& other) noexcept;
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;
  // REQUIRES: no work of the device uses it any more.
  ~VirtualMemory() { Free(); }

  // Maps more memory until at least `bytes` are mapped. Its content is undefined. `what` names it
  // in errors: RESOURCE_EXHAUSTED (says how many bytes), then everything is as before.
  absl::Status GrowTo(uint64_t bytes, const char* what);

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }  // mapped
  template <typename T>
  T* as() const {
    return static_cast<T*>(static_cast<void*>(data_));
  }

 private:
  struct Piece {
    uint64_t begin = 0;
    uint64_t bytes = 0;
    unsigned long long handle = 0;
  };

  absl::Status AddPiece(uint64_t bytes, const char* what);
  void RemovePieces(size_t kept);
  void Free();

  int device_ = 0;
  std::byte* data_ = nullptr;
  uint64_t bytes_max_ = 0;
  uint64_t bytes_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace hps
