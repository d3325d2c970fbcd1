// One inference request on its way through the server, whatever protocol it came by.
//
// A connection (HTTP) or a call object (gRPC) owns one and uses it again for its next request, so
// that nothing is allocated after warm-up. Its life: the codec fills in `request`;
// Inference::Prepare validates it, admits it and fills in `outputs`; the codec gives each output
// its memory; Inference::Run answers, and ends with exactly one call of OnDone; the codec sends
// the answer, and Reset gives back what the call held of the server's capacity.
//
// Not thread-safe: at each moment it belongs either to the codec or (from Run to OnDone) to the
// server.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "inference/tensor.h"

namespace hps::server {

struct CallState;  // the server's own part of a call

enum class Protocol : uint8_t { kHttp, kGrpc };

// The client's words. Views point into memory of the codec that lives until Reset.
struct InferenceRequest : TensorRequest {
  Protocol protocol = Protocol::kHttp;
  TimePoint arrival{};     // when the request's first byte was there
  Duration socket_wait{};  // what it waited from then on because the server was busy
  std::string_view model;
  std::string_view version;  // empty = the newest
  std::string_view id;       // echoed
  Duration timeout{};        // from arrival; zero = the configured one
  uint64_t body_bytes = 0;   // that the codec holds for it, where that is more than the inputs
};

class InferenceCall {
 public:
  InferenceCall();
  InferenceCall(const InferenceCall&) = delete;
  InferenceCall& operator=(const InferenceCall&) = delete;
  virtual ~InferenceCall();

  InferenceRequest request;
  // Set by Prepare. Names live as long as the call does, until Reset.
  std::string_view model_version;
  std::vector<OutputTensor> outputs;

  // The call has ended and belongs to the codec again. `status`: OK if the answer is complete in
  // outputs[i].data, else why there is none. Called once per Run, on Run's thread before Run
  // returns or on any other thread; must not block.
  virtual void OnDone(const absl::Status& status) = 0;

  // What the answer to `outputs` will take of the codec's memory, for Prepare to reserve.
  virtual uint64_t AnswerBytes() const = 0;
  // Of the tensors alone.
  uint64_t TensorBytes() const;

  // Makes the call ready for the next request: clears it (capacity is kept) and gives back its
  // share of the server's capacity. To be called when the answer has been sent or given up.
  void Reset();

 private:
  friend struct CallState;
  std::unique_ptr<CallState> prepared_;
};

}  // namespace hps::server
