#include "server/core/admission.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace hps::server {
namespace {

absl::Status Full(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the server is at its capacity (", what, "); try again later"));
}

}  // namespace

bool Admission::Take(Counter& counter, uint64_t amount, uint64_t max) {
  uint64_t taken = counter.load(std::memory_order_relaxed);
  do {
    if (taken > max || amount > max - taken) return false;
  } while (!counter.compare_exchange_weak(taken, taken + amount, std::memory_order_relaxed));
  return true;
}

absl::Status Admission::Reserve(uint64_t key_count, uint64_t byte_count, Reservation* reservation) {
  reservation->reset();
  if (key_count > limits_.keys_max) {
    return absl::OutOfRangeError(absl::StrCat("the request asks for ", key_count,
                                              " keys; [server] keys_in_flight_max is ",
                                              limits_.keys_max));
  }
  if (byte_count > limits_.bytes_max || limits_.bytes_max - byte_count < limits_.connection_bytes) {
    const std::string beside =
        limits_.connection_bytes == 0
            ? ""
            : absl::StrCat(", of which its connection has ", limits_.connection_bytes);
    return absl::OutOfRangeError(absl::StrCat("the request and its answer take ", byte_count,
                                              " bytes; [server] bytes_in_flight_max is ",
                                              limits_.bytes_max, beside));
  }
  if (!Take(calls_, 1, limits_.calls_max)) return Full("calls in flight");
  if (!Take(keys_, key_count, limits_.keys_max)) {
    calls_.fetch_sub(1, std::memory_order_relaxed);
    return Full("keys in flight");
  }
  if (!Take(bytes_, byte_count, limits_.bytes_max)) {
    calls_.fetch_sub(1, std::memory_order_relaxed);
    keys_.fetch_sub(key_count, std::memory_order_relaxed);
    return Full("bytes in flight");
  }
  *reservation =
      Reservation(this, {.call_count = 1, .key_count = key_count, .byte_count = byte_count});
  return absl::OkStatus();
}

absl::Status Admission::ReserveBytes(uint64_t byte_count, Reservation* reservation) {
  reservation->reset();
  if (!Take(bytes_, byte_count, limits_.bytes_max)) return Full("bytes in flight");
  *reservation = Reservation(this, {.byte_count = byte_count});
  return absl::OkStatus();
}

void Admission::GiveBack::operator()(Admission* admission) const {
  admission->keys_.fetch_sub(key_count, std::memory_order_relaxed);
  admission->bytes_.fetch_sub(byte_count, std::memory_order_relaxed);
  admission->calls_.fetch_sub(call_count, std::memory_order_relaxed);
}

}  // namespace hps::server
