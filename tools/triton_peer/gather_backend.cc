// A backend for Triton that is as fast as a lookup can be: rows of one array, by number.
//
// hps is measured against it (triton_peer.py).
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "triton/triton_api.h"

namespace {

constexpr uint64_t kRows = 100'000;
constexpr uint64_t kDim = 32;
constexpr uint64_t kRowBytes = kDim * sizeof(float);
constexpr int kFloat32 = 11;

const std::vector<float>& Rows() {
  static const std::vector<float> kTable(kRows * kDim, 1.5f);
  return kTable;
}

uint64_t Now() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

// Writes the rows straight into the buffer that the server sends. Null, or why there are none.
TRITONSERVER_Error* Gather(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  TRITONBACKEND_Input* input = nullptr;
  const char* name = nullptr;
  int datatype = 0;
  const int64_t* shape = nullptr;
  uint32_t dimensions = 0;
  uint64_t byte_size = 0;
  uint32_t buffer_count = 0;
  if (auto* error = TRITONBACKEND_RequestInputByIndex(request, 0, &input)) return error;
  if (auto* error = TRITONBACKEND_InputProperties(input, &name, &datatype, &shape, &dimensions,
                                                  &byte_size, &buffer_count)) {
    return error;
  }
  const uint64_t key_count = byte_size / sizeof(uint64_t);
  const int64_t output_shape[] = {static_cast<int64_t>(key_count), static_cast<int64_t>(kDim)};
  TRITONBACKEND_Output* output = nullptr;
  void* rows = nullptr;
  int memory_type = 0;
  int64_t memory_type_id = 0;
  if (auto* error =
          TRITONBACKEND_ResponseOutput(response, &output, "t0", kFloat32, output_shape, 2)) {
    return error;
  }
  if (auto* error = TRITONBACKEND_OutputBuffer(output, &rows, key_count * kRowBytes, &memory_type,
                                               &memory_type_id)) {
    return error;
  }
  auto* to = static_cast<char*>(rows);
  for (uint32_t i = 0; i < buffer_count; ++i) {
    const void* keys = nullptr;
    uint64_t part_bytes = 0;
    if (auto* error = TRITONBACKEND_InputBuffer(input, i, &keys, &part_bytes, &memory_type,
                                                &memory_type_id)) {
      return error;
    }
    if (part_bytes % sizeof(uint64_t) != 0) {
      return TRITONSERVER_ErrorNew(hps::triton::kErrorInvalidArgument,
                                   "a key is split over two buffers");
    }
    for (uint64_t at = 0; at < part_bytes; at += sizeof(uint64_t), to += kRowBytes) {
      uint64_t key = 0;
      std::memcpy(&key, static_cast<const char*>(keys) + at, sizeof(key));
      std::memcpy(to, Rows().data() + key % kRows * kDim, kRowBytes);
    }
  }
  return nullptr;
}

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t request_count) {
  const uint64_t batch_begin = Now();
  for (uint32_t i = 0; i < request_count; ++i) {
    const uint64_t begin = Now();
    TRITONBACKEND_Response* response = nullptr;
    TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, requests[i]);
    if (error == nullptr) error = Gather(requests[i], response);
    const bool ok = error == nullptr;
    const uint64_t end = Now();
    if (response != nullptr)
      TRITONBACKEND_ResponseSend(response, hps::triton::kResponseFinal, error);
    TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], ok, begin, begin, end,
                                                Now());
    TRITONBACKEND_RequestRelease(requests[i], hps::triton::kReleaseAll);
  }
  const uint64_t batch_end = Now();
  TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, 1, batch_begin, batch_begin, batch_end,
                                                   batch_end);
  return nullptr;
}
