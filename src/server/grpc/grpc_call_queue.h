// The calls of one connection that wait: for their turn in the server's backlog, for a thread that
// looks them up, or to be handed back to the connection.
//
// Thread-safe: AddEnded and HoldTurn. Only the thread that drives the connection may call the rest.
#pragma once

#include "base/mutex.h"
#include "server/grpc/grpc_call.h"
#include "server/net/connection_server.h"

namespace hps::server {

// First in, first out. A call is in one list at most.
class GrpcCallList {
 public:
  bool empty() const { return head_ == nullptr; }
  void PushBack(GrpcCall& call) {
    call.next = nullptr;
    (empty() ? head_ : tail_->next) = &call;
    tail_ = &call;
  }
  void PushFront(GrpcCall& call) {
    if (empty()) tail_ = &call;
    call.next = head_;
    head_ = &call;
  }
  GrpcCall* PopFront() {  // null: it is empty
    GrpcCall* const call = head_;
    if (call != nullptr) head_ = call->next;
    return call;
  }

 private:
  GrpcCall* head_ = nullptr;
  GrpcCall* tail_ = nullptr;  // if not empty
};

class GrpcCallQueue {
 public:
  explicit GrpcCallQueue(ConnectionServer& server) : server_(server) {}

  // ---- Requests that begin.

  // `may_start`: the driving thread may begin a request now.
  void BeginEvents(bool may_start) { may_start_ = may_start; }
  // The connection has a turn of its own: its next request need not wait.
  void GiveTurn() { has_turn_ = true; }
  void DropTurn() { has_turn_ = false; }
  // Whether a request that is complete now may begin. If so, no other may.
  bool MayBegin();

  // Queues the request in the backlog, by its arrival.
  void AwaitTurn(GrpcCall& call);
  // Removes it from the backlog. False: it was not queued, or its turn is under way.
  bool ForgetTurn(GrpcCall& call);
  // The call has its turn until its lookup begins, or ReleaseTurn. Any thread.
  void HoldTurn(GrpcCall& call);
  void ReleaseTurn(GrpcCall& call);

  // ---- Calls that are ready to be looked up.

  bool has_runnable() const { return !runnable_.empty(); }
  void AddRunnable(GrpcCall& call);
  // The next one, as running; null: none.
  GrpcCall* TakeRunnable();
  // Puts back what TakeRunnable returned. The call keeps a turn, so that the connection gets no
  // other one before the lookup begins.
  void PutBack(GrpcCall& call);

  // ---- Calls that have ended, or whose turn has come.

  // Adds one and calls `note`, which tells the connection. Any thread.
  template <typename Note>
  bool AddEnded(GrpcCall& call, const Note& note) {
    // Under the lock: a thread that finds the call may end the connection, and `note` uses it.
    MutexLock lock(mutex_);
    ended_.PushBack(call);
    return note();
  }
  // All of them, the oldest one first.
  GrpcCallList TakeEnded();

 private:
  ConnectionServer& server_;
  bool may_start_ = false;
  bool has_turn_ = false;
  GrpcCallList runnable_;
  Mutex mutex_;
  GrpcCallList ended_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps::server
