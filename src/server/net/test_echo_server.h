// A protocol of one line: the server sends back what comes. For what all protocols have in common.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "server/core/server_counters.h"
#include "server/net/connection_server.h"

namespace hps::server {

class NoInference final : public Inference {
 public:
  absl::Status Prepare(InferenceCall&) override { return absl::NotFoundError("no model"); }
  void Run(InferenceCall& call) override { call.OnDone(absl::OkStatus()); }
  bool HasRoom() const override { return true; }
  Duration TimeFor(Duration timeout) const override { return timeout; }
  absl::Status ReserveBytes(uint64_t, Admission::Reservation*) override { return absl::OkStatus(); }
  void Cancel(InferenceCall&) override {}
};

class EchoConnection final : public ServedConnection {
 public:
  explicit EchoConnection(ConnectionServer& server) : ServedConnection(server), server_(server) {}

  // What the base class has for a protocol.
  using ServedConnection::ForgetArrival;
  using ServedConnection::NoteDeadline;
  using ServedConnection::OpenTransport;
  using ServedConnection::SetDeadline;
  using ServedConnection::TakeArrival;
  using ServedConnection::UseTurn;

  std::function<void(uint32_t events)> on_handle;
  std::atomic<uint32_t> driven_elsewhere = 0;  // the events

 private:
  void BeginTurn() override {}
  void Handle(uint32_t events, bool /*may_start*/) override {
    if (on_handle) return on_handle(events);
    if ((events & kOpened) != 0) {
      OpenTransport();
      if (!Watch()) return Close();
    }
    if (!transport_.is_open()) return;
    if ((events & kCut) != 0 || ((events & kTick) != 0 && server_.draining())) return Close();
    std::array<std::byte, 4096> room;
    for (;;) {
      const IoResult got = transport_.Read(room);
      if (got.state == IoState::kBlocked) return;
      if (got.state == IoState::kEnd || got.state == IoState::kFailed) return Close();
      iovec piece{.iov_base = room.data(), .iov_len = got.bytes};
      if (transport_.Write({&piece, 1}).state != IoState::kDone) return Close();
    }
  }
  void Close() {
    transport_.Close();
    EndConnection();
  }
  void OnNoMemory() override {}
  InferenceCall* TakeCall(bool /*may_start*/) override { return nullptr; }
  void PutBack(InferenceCall& /*call*/) override {}
  bool has_calls() const override { return false; }
  bool IsIdle() const override { return transport_.is_open(); }
  void OnDrivenElsewhere(uint32_t events) override { driven_elsewhere |= events; }

  ConnectionServer& server_;
};

class EchoServer final : public ConnectionServer {
 public:
  EchoServer(const ProtocolParts& parts, size_t thread_count,
             Duration tick_period = std::chrono::milliseconds(20))
      : ConnectionServer(
            parts, {.name = "echo", .thread_count = thread_count, .tick_period = tick_period}) {}
  ~EchoServer() override { Stop(); }

  using ConnectionServer::Listen;
  std::atomic<size_t> refused = 0;

 private:
  std::unique_ptr<ServedConnection> NewConnection() override {
    return std::make_unique<EchoConnection>(*this);
  }
  void OnRefusedConnection(int /*fd*/) override { ++refused; }
};

// The server's parts.
struct EchoWorld {
  ProtocolParts Parts() {
    return {.config = &config,
            .inference = &inference,
            .repository = nullptr,
            .pages = nullptr,
            .statistics = nullptr,
            .counters = &counters};
  }

  ServerConfig config;
  NoInference inference;
  ServerCounters counters;
};

}  // namespace hps::server
