// Inference without a protocol: validates requests, admits them, runs lookups in batches, keeps
// the statistics. HTTP and gRPC are thin codecs over it.
//
// Batching: a call that finds one of the lookup slots of the server free runs at once on the
// thread that brought it; otherwise it waits in its model's queue. The thread that frees a slot
// takes the oldest waiting calls of one model together, up to [server.batching] keys_max, as one
// lookup that writes each call's rows straight into that call's outputs. So an idle server adds no
// wait and no hand-over, and a busy one batches as much as the load asks for.
//
// There are fewer slots than protocol threads, so that one always answers probes and refuses.
//
// Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "server/core/admission.h"
#include "server/core/inference_call.h"

namespace hps::server {

class Inference {
 public:
  virtual ~Inference() = default;

  // Checks everything that can be checked before a row is read, reserves the call's share of the
  // server's capacity (keys and bytes in flight), and fills in `outputs` and `model_version`.
  // Errors (the call holds nothing then): NOT_FOUND (model, version, input or output that does not
  // exist; names the nearest), UNAVAILABLE (the model is not ready, or the server ends),
  // INVALID_ARGUMENT (missing input, datatype, shape, sizes), RESOURCE_EXHAUSTED (over capacity, or
  // most of the call's time has gone by, or would while others are looked up, or no memory: try
  // later), DEADLINE_EXCEEDED (all of its time went by before it was read), OUT_OF_RANGE (over a
  // limit: never try again). Counts them (ServerCounters), so that the codec does not.
  virtual absl::Status Prepare(InferenceCall& call) = 0;

  // REQUIRES: Prepare returned OK and every outputs[i].data is set. Ends with OnDone: OK,
  // DEADLINE_EXCEEDED (it was not started in time, or [server] late_answers = "error" and rows were
  // missing at the deadline), UNAVAILABLE (the model was unloaded), RESOURCE_EXHAUSTED (no memory),
  // CANCELLED. No exception leaves it.
  virtual void Run(InferenceCall& call) = 0;

  // Whether a call that comes now is looked up at once or in the next lookups. If there is no room,
  // a protocol leaves requests unread as long as it can: they wait in their sockets and take none
  // of the server's memory.
  virtual bool HasRoom() const = 0;

  // How long, from its arrival, a call may take that names this time-out; zero: it names none. A
  // protocol that lets one wait before Prepare ends that wait by then.
  virtual Duration TimeFor(Duration timeout) const = 0;

  // A share of the server's capacity for memory that belongs to no call: a connection's. Errors:
  // RESOURCE_EXHAUSTED, at once.
  virtual absl::Status ReserveBytes(uint64_t byte_count, Admission::Reservation* reservation) = 0;

  // The client has gone or cancelled: ends the call as soon as possible, mostly before this
  // returns, with CANCELLED or with the status that it was about to end with. After the call's
  // OnDone nothing writes to its outputs, even if a level hangs. Any thread may call this, from the
  // beginning of Run until the call's Reset; the codec must not reset the call meanwhile. Does not
  // block.
  virtual void Cancel(InferenceCall& call) = 0;
};

}  // namespace hps::server
