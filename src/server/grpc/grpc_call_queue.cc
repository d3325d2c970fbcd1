#include "server/grpc/grpc_call_queue.h"

#include <utility>

namespace hps::server {

bool GrpcCallQueue::MayBegin() {
  if (!may_start_ || has_runnable() || !(has_turn_ || server_.MayBegin())) return false;
  may_start_ = has_turn_ = false;
  return true;
}

void GrpcCallQueue::AwaitTurn(GrpcCall& call) {
  call.execution = GrpcCall::Execution::kQueued;
  server_.Leave(call.waiting(), Backlog::Kind::kLater, call.arrival());
}

bool GrpcCallQueue::ForgetTurn(GrpcCall& call) {
  if (call.execution != GrpcCall::Execution::kQueued || !server_.Forget(call.waiting()))
    return false;
  call.execution = GrpcCall::Execution::kNone;
  return true;
}

void GrpcCallQueue::HoldTurn(GrpcCall& call) {
  call.holds_turn = true;
  server_.HoldTurn();
}

void GrpcCallQueue::ReleaseTurn(GrpcCall& call) {
  if (std::exchange(call.holds_turn, false)) server_.ReleaseTurn();
}

void GrpcCallQueue::AddRunnable(GrpcCall& call) {
  call.execution = GrpcCall::Execution::kRunnable;
  runnable_.PushBack(call);
}

GrpcCall* GrpcCallQueue::TakeRunnable() {
  GrpcCall* const call = runnable_.PopFront();
  if (call == nullptr) return nullptr;
  call->execution = GrpcCall::Execution::kRunning;
  ReleaseTurn(*call);
  return call;
}

void GrpcCallQueue::PutBack(GrpcCall& call) {
  HoldTurn(call);
  call.execution = GrpcCall::Execution::kRunnable;
  runnable_.PushFront(call);
}

GrpcCallList GrpcCallQueue::TakeEnded() {
  MutexLock lock(mutex_);
  return std::exchange(ended_, GrpcCallList());
}

}  // namespace hps::server
