#include "server/http/http_connection.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "server/http/test_http_world.h"
#include "server/net/compression.h"
#include "testing/await.h"

namespace hps::server {
namespace {

class ConnectionTest : public HttpWorld {
 protected:
  testing::AssertionResult AwaitConnections(uint64_t count) const {
    return AwaitCondition([&] { return Counted().http.connections == count; });
  }
  // Whether a client that takes an answer of 32 MiB little by little gets all of it.
  bool IsAnsweredWhenReadSlowly() {
    const auto client = Connect();
    client->Send(BinaryInfer(std::vector<int64_t>(2000, 1)));
    constexpr size_t kAnswerBytes = 2000 * 4096 * sizeof(float);
    std::vector<char> piece(128 << 10);
    size_t received = 0;
    while (received < kAnswerBytes) {
      const ssize_t bytes = recv(client->fd(), piece.data(), piece.size(), 0);
      if (bytes <= 0) return false;
      received += static_cast<size_t>(bytes);
      pollfd pace{.fd = client->fd(), .events = 0, .revents = 0};
      poll(&pace, 1, 10);  // so that all takes more than 2.5 s
    }
    return true;
  }
};

TEST_F(ConnectionTest, AnswersPipelinedRequestsInOrder) {
  const auto client = Connect();
  std::string requests;
  for (int64_t i = 0; i < 300; ++i) {
    requests += i % 3 == 0   ? BinaryInfer({i})
                : i % 3 == 1 ? Get("/metrics")
                             : JsonInfer(absl::StrCat("[", i, "]"), "1");
  }
  std::thread sender([&] { client->Send(requests); });
  for (int64_t i = 0; i < 300; ++i) {
    const HttpReply reply = client->Read();
    ASSERT_EQ(reply.code, 200) << i;
    if (i % 3 == 0) {
      ASSERT_EQ(RowElement(reply.body.substr(reply.body.size() - 16), 0), FakeElement(i, 0));
    } else if (i % 3 == 2) {
      ASSERT_NE(reply.body.find(absl::StrCat("[", i * 8, ",")), std::string::npos) << reply.body;
    }
  }
  sender.join();
}

TEST_F(ConnectionTest, AnswersThatComeFromOtherThreadsStayInOrder) {
  Mutex mutex;
  std::vector<std::thread> threads;
  inference_.on_run = [&](InferenceCall& call) {
    MutexLock lock(mutex);
    threads.emplace_back([this, &call] { inference_.Finish(call); });
  };
  const auto client = Connect();
  std::string requests;
  for (int64_t i = 0; i < 100; ++i) requests += BinaryInfer({i, i});
  client->Send(requests);
  for (int64_t i = 0; i < 100; ++i) {
    const HttpReply reply = client->Read();
    ASSERT_EQ(reply.code, 200);
    ASSERT_EQ(RowElement(reply.body.substr(reply.body.size() - 32), 4), FakeElement(i, 0));
  }
  client->Close();
  EXPECT_TRUE(AwaitConnections(0));
  MutexLock lock(mutex);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ConnectionTest, RequestsMayComeByteByByte) {
  const auto client = Connect();
  const std::string chunked =
      "POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\n{\"r\r\nb\r\neady\":true}\r\n0\r\n\r\n";
  for (const std::string& request : {BinaryInfer({5}), chunked, Get("/v2")}) {
    for (const char c : request) ASSERT_TRUE(client->Send(std::string_view(&c, 1)));
    EXPECT_EQ(client->Read().code, 200) << request;
  }
}

TEST_F(ConnectionTest, TakesLargeBodiesInEveryFraming) {
  const auto client = Connect();
  std::vector<int64_t> keys(200'000, 9);
  const std::string plain = BinaryInfer(keys);
  EXPECT_EQ(client->Ask(plain).code, 200);
  const size_t head = plain.find("\r\n\r\n") + 4;
  const size_t json = std::stoull(plain.substr(plain.find("Header-Content-Length: ") + 23));
  std::string chunked = absl::StrCat(
      "POST /v2/models/emb/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
      "Inference-Header-Content-Length: ",
      json, "\r\n\r\n");
  for (size_t at = head; at < plain.size(); at += 7001) {
    const std::string piece = plain.substr(at, 7001);
    absl::StrAppend(&chunked, absl::Hex(piece.size()), "\r\n", piece, "\r\n");
  }
  chunked += "0\r\n\r\n";
  const HttpReply reply = client->Ask(chunked + Get("/v2"));
  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(RowElement(reply.body.substr(reply.body.size() - 16), 3), FakeElement(9, 3));
  EXPECT_EQ(client->Read().code, 200);
}

TEST_F(ConnectionTest, UnpacksAndPacks) {
  BufferPool pool({.lent_bytes_max = 1 << 24});
  const auto client = Connect();
  const std::vector<int64_t> keys(5000, 3);
  const std::string plain = BinaryInfer(keys);
  const size_t head = plain.find("\r\n\r\n") + 4;
  const std::string json_bytes =
      plain.substr(plain.find("Inference-Header"), head - 2 - plain.find("Inference-Header"));
  for (const Coding coding : {Coding::kGzip, Coding::kDeflate}) {
    const std::string name = coding == Coding::kGzip ? "gzip" : "deflate";
    const std::array<std::span<const std::byte>, 1> piece = {
        AsBytes(std::string_view(plain).substr(head))};
    const CodedBytes packed = *Deflate(coding, piece, SIZE_MAX, pool);
    const HttpReply reply =
        client->Ask(Post(kInferPath, AsText(packed.memory.bytes().first(packed.size)),
                         absl::StrCat(json_bytes, "Content-Encoding: ", name,
                                      "\r\nAccept-Encoding: ", name, "\r\n")));
    ASSERT_EQ(reply.code, 200) << reply.body;
    EXPECT_EQ(reply.fields.at("content-encoding"), name);
    EXPECT_LT(reply.body.size(), 20'000u);
    const CodedBytes answer =
        *Inflate(coding, AsBytes(reply.body), 1 << 20, GzipMembers::kOne, pool);
    const size_t json = std::stoull(reply.fields.at("inference-header-content-length"));
    EXPECT_EQ(answer.size, json + 5000 * 16);
    EXPECT_EQ(LoadLittleEndian<float>(answer.memory.bytes().data() + json), FakeElement(3, 0));
  }
}

// Catches: packed answers in memory that nobody has counted.
TEST_F(ConnectionTest, PacksOnlyWhereThereIsRoomForThat) {
  std::string request = BinaryInfer(std::vector<int64_t>(5000, 3));
  request.insert(request.find("Inference-Header"), "Accept-Encoding: gzip\r\n");
  const auto packs = [&](const std::string& asked) {
    const HttpReply reply = Ask(asked);
    EXPECT_EQ(reply.code, 200);
    return reply.fields.contains("content-encoding");
  };
  const std::string page = Get("/", "Accept-Encoding: gzip\r\n");
  Admission::Reservation taken;
  ASSERT_TRUE(inference_.admission.ReserveBytes(uint64_t{1} << 20, &taken).ok());
  EXPECT_FALSE(packs(request));
  EXPECT_FALSE(packs(page));
  taken.reset();
  EXPECT_TRUE(packs(request));
  EXPECT_TRUE(packs(page));
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(inference_.admission.bytes_in_flight(), 0u);
}

TEST_F(ConnectionTest, AnswersAHalfClosedClient) {
  const auto client = Connect();
  client->Send(BinaryInfer({1}) + BinaryInfer({2}));
  client->EndSending();
  EXPECT_EQ(client->Read().code, 200);
  EXPECT_EQ(client->Read().code, 200);
  EXPECT_TRUE(client->AtEnd());
  EXPECT_TRUE(AwaitConnections(0));
}

// Catches: the end of a client that came together with what it still said, and was waited for.
TEST_F(ConnectionTest, AClientThatHasEndedIsNotLingeredFor) {
  parts_.linger_timeout = std::chrono::hours(1);
  const auto client = Connect();
  EXPECT_EQ(client->Ask("no request\r\n\r\n").code, 400);
  EXPECT_TRUE(client->AtEnd());
  EXPECT_EQ(send(client->fd(), "late", 4, MSG_MORE | MSG_NOSIGNAL), 4);
  client->EndSending();
  EXPECT_TRUE(AwaitConnections(0));
}

TEST_F(ConnectionTest, ClosesAfterAnAnswerWhenAsked) {
  for (const std::string& request :
       {Get("/v2", "Connection: close\r\n"), std::string("GET /v2 HTTP/1.0\r\n\r\n")}) {
    const auto client = Connect();
    const HttpReply reply = client->Ask(request);
    EXPECT_EQ(reply.code, 200);
    EXPECT_EQ(reply.fields.at("connection"), "close");
    EXPECT_TRUE(client->AtEnd());
  }
  const auto client = Connect();
  const HttpReply reply = client->Ask("GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(reply.fields.at("connection"), "keep-alive");
  EXPECT_EQ(client->Ask(Get("/v2")).code, 200);
}

TEST_F(ConnectionTest, ContinuesWhenAskedTo) {
  const auto client = Connect();
  const std::string request = BinaryInfer({1});
  const size_t body = request.find("\r\n\r\n") + 2;
  client->Send(request.substr(0, body) + "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client->Read().code, 100);
  EXPECT_EQ(client->Ask(request.substr(body + 2)).code, 200);
  // Refused by its head alone: no "continue", and nothing of the body is waited for.
  EXPECT_EQ(client
                ->Ask("POST /x/y HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
                      "Expect: 100-continue\r\n\r\n")
                .code,
            404);
  EXPECT_TRUE(client->AtEnd());
}

TEST_F(ConnectionTest, ClientsVanishInTheMiddleOfAnything) {
  inference_.dim = 4096;  // 16 KiB a row
  const std::string large = BinaryInfer(std::vector<int64_t>(2000, 1));
  Start();
  for (int i = 0; i < 10; ++i) {
    const auto writing = Connect();
    writing->Send(std::string_view(large).substr(0, 300 + static_cast<size_t>(i) * 1000));
    const auto reading = Connect();
    reading->Send(large);
    ASSERT_TRUE(reading->Receive()) << i << " " << strerror(errno);  // of 32 MiB, some
    linger reset{.l_onoff = 1, .l_linger = 0};
    if (i % 2 == 0) setsockopt(reading->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(Ask(Get("/v2")).code, 200);
}

// Each of the next four shortens one time-out alone: a test that is slow itself meets no other.
TEST_F(ConnectionTest, AHeadThatDoesNotEndIsCutOff) {
  config_.header_timeout = std::chrono::milliseconds(80);
  const auto client = Connect();
  client->Send("GET /v2 HTTP/1.1\r\nHo");
  EXPECT_EQ(client->Read().code, 408);
  EXPECT_TRUE(client->AtEnd());
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(BadRequests("timeout"), 1u);
}

TEST_F(ConnectionTest, ABodyThatDoesNotEndIsCutOff) {
  config_.body_timeout = std::chrono::milliseconds(80);
  const auto client = Connect();
  client->Send(std::string_view(BinaryInfer(std::vector<int64_t>(2000, 1))).substr(0, 2000));
  EXPECT_EQ(client->Read().code, 408);
  EXPECT_TRUE(client->AtEnd());
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(BadRequests("timeout"), 1u);
}

TEST_F(ConnectionTest, AClientThatDoesNotReadIsCutOff) {
  config_.write_timeout = std::chrono::milliseconds(80);
  inference_.dim = 4096;
  const auto client = Connect();
  client->Send(BinaryInfer(std::vector<int64_t>(2000, 1)));  // the answer has 32 MiB
  pollfd wait{.fd = client->fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&wait, 1, 60'000), 1);
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(BadRequests("timeout"), 1u);
}

// Catches: a client that took all of a large answer, slowly, and lost it after write_timeout.
TEST_F(ConnectionTest, AClientThatReadsSlowlyButSteadilyGetsItsAnswer) {
  config_.write_timeout = std::chrono::seconds(1);
  inference_.dim = 4096;
  constexpr int kTries = 20;  // a client whose thread does not run for a second is cut off
  bool is_answered = false;
  for (int i = 0; i < kTries && !is_answered; ++i) is_answered = IsAnsweredWhenReadSlowly();
  EXPECT_TRUE(is_answered);
}

TEST_F(ConnectionTest, AnIdleClientIsCutOff) {
  config_.idle_timeout = std::chrono::milliseconds(80);
  const auto client = Connect();
  EXPECT_TRUE(client->AtEnd());
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(BadRequests("timeout"), 0u);
}

TEST_F(ConnectionTest, ByteByByteDoesNotBuyTime) {
  config_.header_timeout = std::chrono::milliseconds(100);
  const auto client = Connect();
  const TimePoint end = RealClock().Now() + std::chrono::minutes(1);
  client->Send("GET /v2 HTTP/1.1\r\n");
  while (client->Send("a") && RealClock().Now() < end) {
    pollfd wait{.fd = client->fd(), .events = POLLIN, .revents = 0};
    if (poll(&wait, 1, 10) == 1) break;
  }
  EXPECT_EQ(client->Read().code, 408);
}

TEST_F(ConnectionTest, TwoThousandIdleConnectionsHoldNothing) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  ASSERT_GE(files.rlim_max, 4200u) << "this test needs 4,200 descriptors";
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 2000; ++i) clients.push_back(Connect());
  ASSERT_TRUE(AwaitConnections(2000));
  EXPECT_EQ(clients[1000]->Ask(BinaryInfer({4})).code, 200);
  EXPECT_EQ(Ask(Get("/v2")).code, 200);
  for (size_t i = 0; i < clients.size(); i += 97) {
    EXPECT_EQ(clients[i]->Ask(Get("/v2/health/live")).code, 200);
  }
  clients.clear();
  EXPECT_TRUE(AwaitConnections(0));
}

TEST_F(ConnectionTest, RefusesConnectionsBeyondTheLimit) {
  config_.connections_max = 2;
  const auto first = Connect();
  const auto second = Connect();
  EXPECT_EQ(first->Ask(Get("/v2")).code, 200);
  EXPECT_EQ(second->Ask(Get("/v2")).code, 200);
  const auto third = Connect();
  EXPECT_EQ(third->Read().code, 503);
  EXPECT_TRUE(third->AtEnd());
  first->Close();
  EXPECT_TRUE(AwaitConnections(1));
  EXPECT_EQ(Ask(Get("/v2")).code, 200);
}

TEST_F(ConnectionTest, ErrorsOfTheCoreKeepTheConnection) {
  const auto client = Connect();
  using enum absl::StatusCode;
  for (const auto& [core_code, http] :
       std::initializer_list<std::pair<absl::StatusCode, int>>{{kInvalidArgument, 400},
                                                               {kOutOfRange, 400},
                                                               {kNotFound, 404},
                                                               {kResourceExhausted, 429},
                                                               {kUnavailable, 503},
                                                               {kDeadlineExceeded, 504},
                                                               {kInternal, 500},
                                                               {kDataLoss, 500}}) {
    const absl::StatusCode code = core_code;  // clang captures no structured binding
    inference_.prepare_error = absl::Status(code, "because");
    EXPECT_EQ(client->Ask(BinaryInfer({1})).code, http);
    inference_.prepare_error = absl::OkStatus();
    inference_.on_run = [code](InferenceCall& call) { call.OnDone(absl::Status(code, "because")); };
    const HttpReply reply = client->Ask(BinaryInfer({1}));
    EXPECT_EQ(reply.code, http);
    // What failed inside is for the log, not for the client.
    EXPECT_EQ(reply.body.find("because") == std::string::npos, http == 500) << reply.body;
    EXPECT_EQ(reply.fields.contains("retry-after"), http == 429);
    inference_.on_run = nullptr;
  }
  EXPECT_EQ(client->Ask(BinaryInfer({1})).code, 200);
}

TEST_F(ConnectionTest, DrainEndsIdleConnectionsAtOnceAndBusyOnesAfterTheirAnswer) {
  std::atomic<InferenceCall*> running = nullptr;
  inference_.on_run = [&](InferenceCall& call) { running = &call; };
  const auto idle = Connect();
  EXPECT_EQ(idle->Ask(Get("/v2")).code, 200);
  const auto fresh = Connect();
  const auto busy = Connect();
  busy->Send(BinaryInfer({6}) + Get("/v2"));
  ASSERT_TRUE(AwaitCondition([&] { return running != nullptr; }));
  std::thread drain(
      [&] { EXPECT_TRUE(server_->Drain(RealClock().Now() + std::chrono::minutes(1)).ok()); });
  EXPECT_TRUE(idle->AtEnd());
  EXPECT_TRUE(fresh->AtEnd());
  EXPECT_TRUE(AwaitConnections(1));
  inference_.Finish(*running);
  const HttpReply reply = busy->Read();
  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.fields.at("connection"), "close");
  EXPECT_TRUE(busy->AtEnd());
  drain.join();
  EXPECT_FALSE(HttpClient(server_->address()).connected());
}

TEST_F(ConnectionTest, DrainClosesAConnectionWhoseAnswerWasStillBeingRead) {
  inference_.dim = 4096;
  const auto slow = Connect();
  slow->Send(BinaryInfer(std::vector<int64_t>(2000, 1)));  // 31 MiB, more than any socket buffers
  pollfd wait{.fd = slow->fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&wait, 1, 60'000), 1);
  const auto idle = Connect();  // closed after the slow one has heard of the drain
  EXPECT_EQ(idle->Ask(Get("/v2")).code, 200);
  std::thread drain(
      [&] { EXPECT_TRUE(server_->Drain(RealClock().Now() + std::chrono::minutes(1)).ok()); });
  EXPECT_TRUE(idle->AtEnd());
  EXPECT_EQ(slow->Read().code, 200);
  EXPECT_TRUE(slow->AtEnd());
  drain.join();
}

TEST_F(ConnectionTest, PipelinedRequestsLeaveOthersTheirTurn) {
  config_.threads = 1;
  std::vector<int64_t> order;
  std::atomic<bool> other_sent = false;
  inference_.on_run = [&](InferenceCall& call) {
    const int64_t key = LoadLittleEndian<int64_t>(call.request.inputs[0].bytes.data());
    if (key == 0) {
      while (!other_sent) std::this_thread::yield();
    }
    order.push_back(key);
    inference_.Finish(call);
  };
  const auto greedy = Connect();
  const auto other = Connect();
  EXPECT_EQ(other->Ask(Get("/v2")).code, 200);
  std::string requests;
  for (int64_t i = 0; i < 100; ++i) requests += BinaryInfer({i});
  ASSERT_LT(requests.size(), 32u << 10);  // one read takes them all
  greedy->Send(requests);
  other->Send(BinaryInfer({1000}));
  other_sent = true;
  EXPECT_EQ(other->Read().code, 200);
  for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(greedy->Read().code, 200) << i;
  ASSERT_EQ(order.size(), 101u);
  EXPECT_LT(std::find(order.begin(), order.end(), 1000) - order.begin(), 50);
}

TEST_F(ConnectionTest, DrainCutsOffWhatDoesNotEnd) {
  std::atomic<InferenceCall*> running = nullptr;
  inference_.on_run = [&](InferenceCall& call) { running = &call; };
  const auto slow = Connect();
  slow->Send("GET /v2 HTTP/1.1\r\n");
  const auto busy = Connect();
  busy->Send(BinaryInfer({6}));
  ASSERT_TRUE(AwaitCondition([&] { return running != nullptr; }));
  EXPECT_EQ(server_->Drain(RealClock().Now() + std::chrono::milliseconds(50)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(slow->AtEnd());
  EXPECT_TRUE(AwaitConnections(1));
  inference_.Finish(*running);
  EXPECT_TRUE(busy->AtEnd());
  EXPECT_TRUE(AwaitConnections(0));
}

// A thread that has ended a call may look up calls of other connections next, for as long as that
// takes.
TEST_F(ConnectionTest, AnAnswerDoesNotWaitForWhatItsThreadDoesNext) {
  Latch answered(1);
  std::atomic<bool> was_answered = false;
  inference_.on_run = [&](InferenceCall& call) {
    inference_.Finish(call);
    was_answered = answered.WaitUntil(DeadlineAfter(RealClock(), std::chrono::minutes(1)));
  };
  const auto client = Connect();
  EXPECT_EQ(client->Ask(BinaryInfer({1})).code, 200);
  answered.CountDown();
  EXPECT_TRUE(AwaitConnections(1));
  server_.reset();
  EXPECT_TRUE(was_answered);
}

// The lookup of a client that has gone is given up, so that its share of the capacity is free.
TEST_F(ConnectionTest, ClientsThatHaveGoneGiveTheirCallsUp) {
  std::atomic<InferenceCall*> running = nullptr;
  inference_.on_run = [&](InferenceCall& call) { running = &call; };
  inference_.on_cancel = [](InferenceCall& call) { call.OnDone(absl::CancelledError("gone")); };
  const auto await_running = [&] {
    return AwaitCondition([&] { return running.exchange(nullptr) != nullptr; });
  };
  const auto reset = Connect();
  reset->Send(BinaryInfer({1}));
  ASSERT_TRUE(await_running());
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(reset->fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  reset->Close();
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(inference_.cancelled, 1u);
  // It may still read, and so it is left some time.
  const auto closed = Connect();
  closed->Send(BinaryInfer({2}));
  ASSERT_TRUE(await_running());
  closed->Close();
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(inference_.cancelled, 2u);
  const auto closed_before = Connect();
  closed_before->Send(BinaryInfer({2}));
  closed_before->EndSending();
  ASSERT_TRUE(await_running());
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_EQ(inference_.cancelled, 3u);
}

TEST_F(ConnectionTest, DrainGivesCallsUpThatDoNotEnd) {
  std::atomic<bool> running = false;
  inference_.on_run = [&](InferenceCall&) { running = true; };
  inference_.on_cancel = [](InferenceCall& call) { call.OnDone(absl::CancelledError("cut")); };
  const auto client = Connect();
  client->Send(BinaryInfer({6}));
  ASSERT_TRUE(AwaitCondition([&] { return running.load(); }));
  EXPECT_EQ(server_->Drain(RealClock().Now()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(client->AtEnd());
  EXPECT_TRUE(AwaitConnections(0));
}

// Catches: a body of keys alone was for models with one input, and each model has more.
TEST_F(ConnectionTest, TakesTheKeysOfOneTableWithoutJson) {
  std::string keys;
  for (const int64_t key : {7, -1}) {
    std::array<char, 8> text;
    StoreLittleEndian(text.data(), key);
    keys.append(text.data(), text.size());
  }
  const std::string raw = "Inference-Header-Content-Length: 0\r\n";
  const auto client = Connect();
  const HttpReply reply = client->Ask(Post(kInferPath, keys, raw));
  ASSERT_EQ(reply.code, 200) << reply.body;
  const size_t json = std::stoull(reply.fields.at("inference-header-content-length"));
  EXPECT_NE(reply.body.find(R"("shape":[2,4])"), std::string::npos) << reply.body;
  ASSERT_EQ(reply.body.size(), json + 2 * 16);
  EXPECT_EQ(RowElement(reply.body.substr(json), 1), FakeElement(7, 1));
  EXPECT_EQ(RowElement(reply.body.substr(json), 4), FakeElement(-1, 0));
  EXPECT_EQ(client->Ask(Post(kInferPath, "1234567", raw)).code, 400) << "no whole key";
  EXPECT_EQ(client->Ask(Post("/v2/models/none/infer", keys, raw)).code, 404);
  EXPECT_EQ(BadRequests("unknown"), 1u);
}

TEST_F(ConnectionTest, ManyClientsGetTheirOwnRows) {
  Mutex mutex;
  std::vector<InferenceCall*> waiting;
  // Every other call is ended by the thread of the next one, as a batch does it.
  inference_.on_run = [&](InferenceCall& call) {
    InferenceCall* other = nullptr;
    {
      MutexLock lock(mutex);
      if (waiting.empty() && call.request.inputs[0].bytes.size() > 8) {
        waiting.push_back(&call);
        return;
      }
      if (!waiting.empty()) {
        other = waiting.back();
        waiting.pop_back();
      }
    }
    if (other != nullptr) inference_.Finish(*other);
    inference_.Finish(call);
  };
  Start();
  std::atomic<bool> stop = false;
  std::vector<std::thread> clients;
  for (int64_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      const auto client = Connect();
      for (int64_t i = 0; i < 300; ++i) {
        const int64_t key = c * 1000 + i;
        const HttpReply reply =
            client->Ask(BinaryInfer(std::vector<int64_t>(c < 4 ? 1 : 700, key)));
        ASSERT_EQ(reply.code, 200);
        const size_t bytes = (c < 4 ? 1 : 700) * 16;
        const std::string rows = reply.body.substr(reply.body.size() - bytes);
        for (size_t e = 0; e < bytes / 4; ++e)
          ASSERT_EQ(RowElement(rows, e), FakeElement(key, e % 4));
      }
    });
  }
  // Ends what waits when no other call comes any more.
  std::thread flusher([&] {
    while (!stop) {
      const auto client = Connect();
      client->Ask(BinaryInfer({1}));
    }
  });
  for (std::thread& client : clients) client.join();
  stop = true;
  flusher.join();
}

}  // namespace
}  // namespace hps::server
