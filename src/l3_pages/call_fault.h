// System calls on page files that a test makes fail. Each has a fault point (base/fault_point.h);
// the code of the planned status says what happens to the call:
//
//   DATA_LOSS           it succeeds, but one bit of what was read is another
//   OUT_OF_RANGE        it transfers half of the bytes
//   RESOURCE_EXHAUSTED  ENOSPC
//   PERMISSION_DENIED   EACCES
//   INVALID_ARGUMENT    EINVAL
//   any other           EIO
//
// In the product no call fails in this way: its fault points are empty.
#pragma once

#include <cstddef>
#include <span>

namespace hps {

struct CallFault {
  int error_number = 0;  // the call fails with it; 0: it does not
  bool is_short = false;
  bool flips_bit = false;
};

// What is planned for this arrival at the fault point. Thread-safe.
CallFault ReachCall(const char* point);

// The result of a read, bytes or a negative error number, after what is planned for it.
int AfterReadFault(const char* point, int result, std::span<std::byte> into);

}  // namespace hps
