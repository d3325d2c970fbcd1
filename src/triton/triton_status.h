// Between absl::Status and the errors and types of Triton.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/tensor.h"
#include "triton/triton_api.h"

namespace hps::triton {

// An error for Triton; null for OK.
TRITONSERVER_Error* ToTriton(const absl::Status& status);

// Takes the error. INTERNAL with its message, or OK for null.
absl::Status FromTriton(TRITONSERVER_Error* error);

// The JSON text of a message, which is deleted.
absl::StatusOr<std::string> TakeJson(TRITONSERVER_Message* message);

// The number by which Triton knows an element type.
int ToTriton(Datatype datatype);
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Datatype> DatatypeFromTriton(int datatype);

}  // namespace hps::triton
