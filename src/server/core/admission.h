// The server's capacity: how many keys, bytes and calls it may hold at a time, over all protocols.
//
// What is beyond it is refused at once and never waits: so memory is bounded whatever is offered.
//
// Thread-safe, without locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"

namespace hps::server {

// What OpenSSL takes for a connection, most of it during the handshake: its buffers for a record
// each way, the keys, the certificates and what it has of the client's.
inline constexpr uint64_t kTlsConnectionBytes = uint64_t{64} << 10;

class Admission {
 public:
  struct Limits {
    uint64_t keys_max = 0;
    uint64_t bytes_max = 0;
    uint64_t calls_max = 0;
    uint64_t connection_bytes = 0;  // of bytes_max, that each call's own connection holds
  };
  struct GiveBack {
    uint64_t call_count = 0;
    uint64_t key_count = 0;
    uint64_t byte_count = 0;
    void operator()(Admission* admission) const;
  };
  using Reservation = std::unique_ptr<Admission, GiveBack>;  // one call's share

  explicit Admission(const Limits& limits) : limits_(limits) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // Takes a share for one call. Errors: OUT_OF_RANGE where the call alone is over a limit,
  // RESOURCE_EXHAUSTED when the capacity is taken; `reservation` is empty then.
  absl::Status Reserve(uint64_t key_count, uint64_t byte_count, Reservation* reservation);

  // The same for memory that is no call's.
  absl::Status ReserveBytes(uint64_t byte_count, Reservation* reservation);

  uint64_t keys_in_flight() const { return keys_.load(std::memory_order_relaxed); }
  uint64_t bytes_in_flight() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t calls_in_flight() const { return calls_.load(std::memory_order_relaxed); }

 private:
  using Counter = std::atomic<uint64_t>;

  // False, and nothing is taken, where `amount` does not fit below `max` any more.
  static bool Take(Counter& counter, uint64_t amount, uint64_t max);

  const Limits limits_;
  Counter keys_ = 0;
  Counter bytes_ = 0;
  Counter calls_ = 0;
};

}  // namespace hps::server
