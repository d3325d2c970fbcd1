#include "l3_pages/call_fault.h"

#include <algorithm>
#include <cerrno>

#include "base/fault_point.h"

namespace hps {

CallFault ReachCall(const char* point) {
  const absl::Status planned = ReachFaultPoint(point);
  switch (planned.code()) {
    case absl::StatusCode::kOk:
      return {};
    case absl::StatusCode::kDataLoss:
      return {.flips_bit = true};
    case absl::StatusCode::kOutOfRange:
      return {.is_short = true};
    case absl::StatusCode::kResourceExhausted:
      return {.error_number = ENOSPC};
    case absl::StatusCode::kPermissionDenied:
      return {.error_number = EACCES};
    case absl::StatusCode::kInvalidArgument:
      return {.error_number = EINVAL};
    default:
      return {.error_number = EIO};
  }
}

int AfterReadFault(const char* point, int result, std::span<std::byte> into) {
  const CallFault fault = ReachCall(point);
  if (fault.error_number != 0) return -fault.error_number;
  if (result <= 0) return result;
  if (fault.flips_bit) into[static_cast<size_t>(result) / 2] ^= std::byte{4};
  return fault.is_short ? (result + 1) / 2 : result;
}

}  // namespace hps
