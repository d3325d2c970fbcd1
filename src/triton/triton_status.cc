#include "triton/triton_status.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::triton {
namespace {

// Triton's numbers, by Datatype: the order of kDatatypeNames.
constexpr std::array<int, kDatatypeNames.size()> kNumbers = {1, 2, 3,  4,  5,  6,  7,
                                                             8, 9, 10, 14, 11, 12, 13};

int CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return kErrorInvalidArgument;
    case absl::StatusCode::kNotFound:
      return kErrorNotFound;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return kErrorUnavailable;
    case absl::StatusCode::kUnimplemented:
      return kErrorUnsupported;
    case absl::StatusCode::kAlreadyExists:
      return kErrorAlreadyExists;
    case absl::StatusCode::kCancelled:
      return kErrorCancelled;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
      return kErrorInternal;
    default:
      return kErrorUnknown;
  }
}

}  // namespace

TRITONSERVER_Error* ToTriton(const absl::Status& status) {
  if (status.ok()) return nullptr;
  const std::string message(status.message());
  return TRITONSERVER_ErrorNew(CodeOf(status.code()), message.c_str());
}

absl::Status FromTriton(TRITONSERVER_Error* error) {
  if (error == nullptr) return absl::OkStatus();
  absl::Status status =
      absl::InternalError(absl::StrCat("Triton: ", TRITONSERVER_ErrorMessage(error)));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

absl::StatusOr<std::string> TakeJson(TRITONSERVER_Message* message) {
  const char* base = nullptr;
  size_t byte_size = 0;
  const absl::Status written =
      FromTriton(TRITONSERVER_MessageSerializeToJson(message, &base, &byte_size));
  std::string text = written.ok() ? std::string(base, byte_size) : std::string();
  HPS_RETURN_IF_ERROR(FromTriton(TRITONSERVER_MessageDelete(message)));
  HPS_RETURN_IF_ERROR(written);
  return text;
}

int ToTriton(Datatype datatype) { return kNumbers[static_cast<size_t>(datatype)]; }

absl::StatusOr<Datatype> DatatypeFromTriton(int datatype) {
  for (size_t i = 0; i < kNumbers.size(); ++i) {
    if (kNumbers[i] == datatype) return static_cast<Datatype>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("Triton's element type ", datatype));
}

}  // namespace hps::triton
