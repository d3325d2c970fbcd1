// The work of one HTTP request that is not done in place: an inference, a load, unload or refresh
// of a model, a snapshot, or a change of rows.
//
// The connection starts it; it ends with one call of HttpConnection::OnCallEnded, on any thread.
// Between the two the call belongs to the server, and only Cancel and WhileRunning may be called.
//
// Thread-safe: Cancel and WhileRunning. Everything else belongs to the thread that drives the
// connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "server/core/admission.h"
#include "server/core/inference_call.h"
#include "server/core/server_counters.h"
#include "server/http/api.h"
#include "server/http/http_response_writer.h"
#include "server/http/json_infer_request.h"
#include "server/http/request_head.h"
#include "server/http/route.h"
#include "server/net/buffer_pool.h"
#include "server/net/compression.h"

namespace hps::server {

class HttpConnection;
class HttpServer;

class HttpCall final : public InferenceCall, private Task {
 public:
  HttpCall(HttpServer& server, HttpConnection& connection);

  // Replaces `body` by what it unpacks to, which lives until ReleaseRequest.
  // Errors: those of Inflate.
  absl::Status Unpack(Coding coding, uint64_t bytes_max, std::span<char>* body);

  // Decodes, validates and admits an inference; the server may look it up then.
  struct InferStart {
    const Route& route;
    const RequestHead& head;
    std::span<char> body;  // unpacked
    size_t lent_bytes;     // of the buffers that hold the request
    TimePoint arrival;
    Duration socket_wait;
  };
  // Why an inference was not started.
  struct Refusal {
    enum class Kind : uint8_t {
      kBadRequest,
      kNoRoom,   // a buffer of the pool is missing
      kRefused,  // by the server: load, drain, unknown model, ...
    };
    Kind kind = Kind::kBadRequest;
    absl::Status status{};
    std::optional<BadRequestReason> reason{};
  };
  std::optional<Refusal> StartInfer(const InferStart& start);

  // Loads, unloads or refreshes the route's model, or makes a snapshot as `body` says, on a thread
  // for slow tasks. Errors: those of Executor::Post; INVALID_ARGUMENT (the body).
  absl::Status StartControl(const Route& route, std::span<char> body);

  // Decodes and applies a change of rows on a thread that serves no lookups. The body stays as it
  // is until then. Errors: RESOURCE_EXHAUSTED (too many changes wait, or no share of the server's
  // bytes is left), UNIMPLEMENTED.
  absl::Status StartUpdate(const InferStart& start);

  // The client does not wait for the result any more: asks the server to end the inference soon.
  void Cancel();
  // Calls `act` if an inference is with the server, which can't end it meanwhile.
  template <typename Act>
  void WhileRunning(const Act& act) {
    MutexLock lock(mutex_);
    if (state_ != State::kIdle) act();
  }

  // ---- After its end.

  // Returns the result and makes the call the connection's again.
  absl::Status TakeResult();
  // Not an inference.
  bool is_control() const { return kind_ >= Kind::kLoad; }
  // Of a call that is_control and was successful: JSON.
  std::string TakeAnswer() { return answer_.empty() ? "{}" : std::exchange(answer_, {}); }
  // Adds the outputs to the response: JSON, then the binary ones. Errors: those of EncodeAnswer.
  // `json_bytes`: of the JSON; 0 = there are no binary outputs.
  absl::Status Encode(HttpResponseWriter* response, uint64_t* json_bytes);

  // Releases what the request brought.
  void ReleaseRequest();
  // Releases everything; the share of the server's capacity last, so that a request that is
  // admitted in its place finds the memory.
  void End();

  void OnDone(const absl::Status& status) override;
  uint64_t AnswerBytes() const override;

 private:
  enum class Kind : uint8_t {
    kInfer,
    kLongInfer,  // its response takes longer to encode than to look up
    kLoad,
    kUnload,
    kRefresh,
    kSnapshot,
    kUpdate,
  };
  enum class State : uint8_t {
    kIdle,       // the connection's
    kRunning,    // the server's
    kCancelled,  // the server's, which is being asked to end it
    kEnded,      // ended while the server was being asked: not told to the connection yet
  };

  absl::Status Decode(const InferStart& start);
  uint64_t row_bytes() const;  // of the buffer for the outputs
  bool TakesLong(Coding accepted_coding) const;
  absl::Status RunControl();
  absl::Status ApplyUpdate();
  absl::Status MakeSnapshot();
  void Run() override;  // what is_control, or the end of a kLongInfer

  HttpServer& server_;
  HttpConnection& connection_;
  Mutex mutex_;
  State state_ HPS_GUARDED_BY(mutex_) = State::kIdle;
  Kind kind_ = Kind::kInfer;
  std::string_view model_;  // of what is not an inference; of a kSnapshot its name
  std::string_view table_;  // of a kUpdate, without the model's name
  std::span<char> body_;    // of a kUpdate
  uint64_t json_bytes_ = 0;
  Admission::Reservation share_;  // of the server's bytes; of a kUpdate
  std::string answer_;            // empty: {}
  absl::Status result_;
  InferDecoder decoder_;
  CodedBytes unpacked_;
  BufferPool::Lease rows_;
};

}  // namespace hps::server
