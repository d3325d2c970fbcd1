#include "base/no_memory.h"

namespace hps {

const absl::Status& NoMemory() {
  static const absl::Status status =
      absl::ResourceExhaustedError("there is no memory for the request; try again later");
  return status;
}

}  // namespace hps
