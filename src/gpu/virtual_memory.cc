#include "gpu/virtual_memory.h"

#include <cuda.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "gpu/driver_function.h"

namespace hps {
namespace {

constexpr uint64_t kPieceMin = uint64_t{2} << 20;  // the devices' granularity, a power of two
constexpr uint64_t kPieceMax = uint64_t{64} << 20;

struct MemoryDriver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
};

const MemoryDriver& TheMemoryDriver() {
  static const MemoryDriver driver = {
      .reserve = DriverFunction<decltype(MemoryDriver::reserve)>("cuMemAddressReserve"),
      .free = DriverFunction<decltype(MemoryDriver::free)>("cuMemAddressFree"),
      .create = DriverFunction<decltype(MemoryDriver::create)>("cuMemCreate"),
      .release = DriverFunction<decltype(MemoryDriver::release)>("cuMemRelease"),
      .map = DriverFunction<decltype(MemoryDriver::map)>("cuMemMap"),
      .unmap = DriverFunction<decltype(MemoryDriver::unmap)>("cuMemUnmap"),
      .set_access = DriverFunction<decltype(MemoryDriver::set_access)>("cuMemSetAccess"),
      .attribute = DriverFunction<decltype(MemoryDriver::attribute)>("cuDeviceGetAttribute")};
  return driver;
}

// The driver's errors have the runtime's numbers.
absl::Status DriverStatus(CUresult result, const char* what, uint64_t bytes) {
  return CudaMemoryStatus(static_cast<cudaError_t>(result), what, bytes);
}

CUmemLocation LocationOf(int device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CUdeviceptr AddressOf(const std::byte* data) { return std::bit_cast<CUdeviceptr>(data); }

}  // namespace

absl::StatusOr<VirtualMemory> VirtualMemory::Reserve(int device, uint64_t bytes_max) {
  const MemoryDriver& driver = TheMemoryDriver();
  if (driver.reserve == nullptr || driver.free == nullptr || driver.create == nullptr ||
      driver.release == nullptr || driver.map == nullptr || driver.unmap == nullptr ||
      driver.set_access == nullptr || driver.attribute == nullptr)
    return absl::UnavailableError("gpu: the driver can't map memory; it is too old");
  VirtualMemory memory;
  memory.device_ = device;
  memory.bytes_max_ = RoundUp(bytes_max, kPieceMax);
  CUdeviceptr address = 0;
  HPS_RETURN_IF_ERROR(DriverStatus(driver.reserve(&address, memory.bytes_max_, 0, 0, 0),
                                   "addresses", memory.bytes_max_));
  memory.data_ = std::bit_cast<std::byte*>(address);
  return memory;
}

VirtualMemory::VirtualMemory(VirtualMemory&& other) noexcept { *this = std::move(other); }

VirtualMemory& VirtualMemory::operator=(VirtualMemory&& other) noexcept {
  if (this == &other) return *this;
  Free();
  device_ = other.device_;
  data_ = std::exchange(other.data_, nullptr);
  bytes_max_ = std::exchange(other.bytes_max_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  pieces_ = std::move(other.pieces_);
  other.pieces_.clear();
  return *this;
}

absl::Status VirtualMemory::GrowTo(uint64_t bytes, const char* what) {
  const size_t kept = pieces_.size();
  while (bytes_ < bytes) {
    // Each piece doubles the memory: a small table then wastes little, and a large one has few
    // pieces.
    const uint64_t wanted = std::max(std::bit_ceil(bytes - bytes_), std::bit_floor(bytes_ | 1));
    const absl::Status status = AddPiece(std::clamp(wanted, kPieceMin, kPieceMax), what);
    if (status.ok()) continue;
    RemovePieces(kept);
    return absl::IsResourceExhausted(status) && bytes <= bytes_max_
               ? CudaMemoryStatus(cudaErrorMemoryAllocation, what, bytes)
               : status;
  }
  return absl::OkStatus();
}

absl::Status VirtualMemory::AddPiece(uint64_t bytes, const char* what) {
  bytes = std::min(bytes, bytes_max_ - bytes_);
  if (bytes == 0) return absl::ResourceExhaustedError("gpu: no addresses are left");
  const MemoryDriver& driver = TheMemoryDriver();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = LocationOf(device_);
  int can_be_exported = 0;
  (void)driver.attribute(&can_be_exported,
                         CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device_);
  if (can_be_exported != 0)
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  HPS_RETURN_IF_ERROR(DriverStatus(driver.create(&handle, bytes, &properties, 0), what, bytes));
  CUresult result = driver.map(AddressOf(data_) + bytes_, bytes, 0, handle, 0);
  if (result == CUDA_SUCCESS) {
    CUmemAccessDesc access{};
    access.location = LocationOf(device_);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = driver.set_access(AddressOf(data_) + bytes_, bytes, &access, 1);
    if (result != CUDA_SUCCESS) (void)driver.unmap(AddressOf(data_) + bytes_, bytes);
  }
  if (result != CUDA_SUCCESS) {
    (void)driver.release(handle);
    return DriverStatus(result, what, bytes);
  }
  pieces_.push_back({bytes_, bytes, handle});
  bytes_ += bytes;
  return absl::OkStatus();
}

void VirtualMemory::RemovePieces(size_t kept) {
  for (; pieces_.size() > kept; pieces_.pop_back()) {
    const Piece& piece = pieces_.back();
    (void)TheMemoryDriver().unmap(AddressOf(data_) + piece.begin, piece.bytes);
    (void)TheMemoryDriver().release(piece.handle);
    bytes_ = piece.begin;
  }
}

void VirtualMemory::Free() {
  RemovePieces(0);
  if (data_ != nullptr) (void)TheMemoryDriver().free(AddressOf(data_), bytes_max_);
  data_ = nullptr;
}

}  // namespace hps
