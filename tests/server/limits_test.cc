// A body that the configuration allows is taken where nobody else asks for anything: the largest
// one, with the least memory that goes with it, however it comes.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/core/call_state.h"
#include "server/core/test_server_world.h"
#include "server/grpc/grpc_session.h"
#include "server/grpc/message_reader.h"
#include "server/grpc/test_gated_inference.h"
#include "server/grpc/test_http2_client.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "server/http/test_http_world.h"
#include "server/net/connection_server.h"
#include "server/net/test_packed.h"
#include "testing/await.h"

namespace hps::server {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr size_t kRows = 2000;

// Text that packing makes little smaller, and JSON has no need to escape.
std::string Padding(size_t bytes) {
  std::mt19937_64 random(7);
  std::string text(bytes, ' ');
  for (char& c : text) {
    do c = static_cast<char>(' ' + random() % 95);
    while (c == '"' || c == '\\');
  }
  return text;
}

// `make` of padding that is as long as it takes for `bytes` in all.
template <typename Make>
std::string PaddedTo(size_t bytes, const Make& make) {
  // The length of the padding is in the message, too, in some bytes.
  size_t padding = bytes - make(std::string()).size();
  while (make(std::string(padding, ' ')).size() > bytes) --padding;
  std::string message = make(Padding(padding));
  EXPECT_EQ(message.size(), bytes);
  return message;
}

std::string Chunked(std::string_view body, std::string_view fields) {
  constexpr size_t kChunkBytes = 100'000;
  std::string text = absl::StrCat(
      "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
      "Transfer-Encoding: chunked\r\n",
      std::string(fields), "\r\n");
  for (; !body.empty(); body.remove_prefix(std::min(kChunkBytes, body.size()))) {
    const std::string_view chunk = body.substr(0, kChunkBytes);
    absl::StrAppend(&text, absl::Hex(chunk.size()), "\r\n", std::string(chunk), "\r\n");
  }
  return text + "0\r\n\r\n";
}

class CapacityWorld : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.ImportAll({{"m/t", kRows, 1}});
    ServerConfig& server = world_.config().server;
    server.body_timeout = server.write_timeout = std::chrono::minutes(2);
    world_.Start();
    gate_ = std::make_unique<GatedInference>(world_.inference());
  }
  void TearDown() override {
    server_.reset();
    world_.Stop();
  }

  void StartHttp() {
    auto server = StartHttpServer(world_.Parts(gate_.get()), "127.0.0.1:0", HttpRole::kEverything);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void StartGrpc() {
    auto server = StartGrpcServer(world_.Parts(gate_.get()), "127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  const BufferPool& pool() const { return dynamic_cast<ConnectionServer&>(*server_).pool(); }
  // What the last request held is given back after its answer has gone.
  testing::AssertionResult AwaitIdle() { return AwaitLent(0, /*in_flight=*/false); }
  // `in_flight`: a call is admitted. For a moment there may be more: a connection that throws away
  // what its client still sends takes a buffer again for each piece.
  testing::AssertionResult AwaitLent(uint64_t lent_bytes, bool in_flight) {
    const Admission& admission = world_.core().engine().admission();
    return AwaitCondition([&] {
             return pool().lent_bytes() == lent_bytes &&
                    (admission.bytes_in_flight() > 0) == in_flight;
           })
           << pool().lent_bytes() << " bytes lent, " << admission.bytes_in_flight() << " in flight";
  }

  static constexpr std::string_view kPath = "/v2/models/m/infer";
  ServerWorld world_;
  std::unique_ptr<GatedInference> gate_;
  std::unique_ptr<ProtocolServer> server_;
};

// The largest body.
class LimitsTest : public CapacityWorld, public ::testing::WithParamInterface<uint64_t> {
 protected:
  void SetUp() override {
    ServerConfig& server = world_.config().server;
    server.body_bytes_max = GetParam();
    server.bytes_in_flight_max = 4 * server.body_bytes_max;  // what the configuration asks for
    CapacityWorld::SetUp();
  }

  // In every way that HTTP has. `json_bytes`: of the body, unpacked.
  void ExpectHttp(const std::string& body, size_t json_bytes, int code) {
    const std::string packed = Packed(body);
    EXPECT_LE(packed.size(), GetParam());
    const std::string fields =
        absl::StrCat("Inference-Header-Content-Length: ", json_bytes, "\r\n");
    const std::string packed_fields = fields + "Content-Encoding: gzip\r\n";
    for (const std::string& request :
         {Post(kPath, body, fields), Chunked(body, fields), Post(kPath, packed, packed_fields),
          Chunked(packed, packed_fields)}) {
      SCOPED_TRACE(request.substr(0, request.find("\r\n\r\n")));
      ASSERT_TRUE(AwaitIdle());
      HttpClient client(server_->address());
      client.Send(request);
      const HttpReply reply = client.Read();
      EXPECT_EQ(reply.code, code) << reply.body.substr(0, 300);
      if (reply.code == 200) {
        ExpectRow(reply.body);
      } else {
        ASSERT_TRUE(AwaitIdle());  // while the client stays: the next request could need it
      }
    }
  }
  // Its last row is the last one of the table.
  static void ExpectRow(const std::string& answer) {
    ASSERT_GT(answer.size(), sizeof(float));
    const std::string row = answer.substr(answer.size() - sizeof(float));
    EXPECT_TRUE(ServerWorld::IsRow("m/t", kRows - 1, 1, AsBytes(std::string_view(row))));
  }

  void ExpectGrpc(const std::string& message, int code) {
    ExpectCall(Framed(message), /*is_packed=*/false, code);
    ExpectCall(Framed(Packed(message), 1), /*is_packed=*/true, code);
  }
  void ExpectCall(std::string_view framed, bool is_packed, int code) {
    SCOPED_TRACE(testing::Message() << framed.size() << " bytes, packed: " << is_packed);
    ASSERT_TRUE(AwaitIdle());
    Http2Client client(server_->address());
    client.Begin();
    client.Settle();
    client.Send(Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, 0, BigEndian(1 << 30, 4)});
    auto fields = CallFields("/inference.GRPCInferenceService/ModelInfer");
    if (is_packed) fields.emplace_back("grpc-encoding", "gzip");
    client.SendFields(1, fields);
    Http2Frame frame;
    for (size_t sent = 0; sent < framed.size() && !client.answer(1).ended;) {
      const size_t window = kStreamWindowBytes + client.window_bytes(1) - sent;
      const std::string_view piece = framed.substr(sent, window);
      sent += piece.size();
      if (!piece.empty()) {
        client.SendData(1, piece, sent == framed.size());
      } else if (!client.Receive(&frame)) {
        break;
      }
    }
    const Http2Client::Answer& answer = client.Await(1);
    EXPECT_EQ(answer.code(), code) << answer.message();
    if (answer.code() == 0) ExpectRow(answer.data);
  }
};

TEST_P(LimitsTest, TheLargestBodyIsTakenOverHttp) {
  StartHttp();
  const std::string begin = R"({"parameters":{"binary_data_output":true},"padding":")";
  const auto inputs = [](size_t count, const std::string& data) {
    return absl::StrCat(R"(","inputs":[{"name":"t","datatype":"INT64","shape":[)", count, "],",
                        data, "}]}");
  };
  for (const size_t more : {0, 1}) {
    const size_t bytes = GetParam() + more;
    const int code = more == 0 ? 200 : 413;
    // The key as bytes behind the JSON.
    std::string body = PaddedTo(bytes - 8, [&](const std::string& padding) {
      return begin + padding + inputs(1, R"("parameters":{"binary_data_size":8})");
    });
    const int64_t key = kRows - 1;
    body += AsText(std::as_bytes(std::span(&key, 1)));
    ExpectHttp(body, body.size() - 8, code);
    // Keys in it, which are as large again as bytes.
    const size_t count = GetParam() / 8 - 100;
    std::string keys;
    for (size_t i = 0; i < count; ++i) keys += "   1999,";
    keys.pop_back();
    body = PaddedTo(bytes, [&](const std::string& padding) {
      return begin + padding + inputs(count, "\"data\":[" + keys + "]");
    });
    ExpectHttp(body, body.size(), code);
  }
}

TEST_P(LimitsTest, TheLargestMessageIsTakenOverGrpc) {
  StartGrpc();
  constexpr uint32_t kNoField = 1000;
  const int64_t key = kRows - 1;
  const std::string raw(AsText(std::as_bytes(std::span(&key, 1))));
  for (const size_t more : {0, 1}) {
    const int code = more == 0 ? 0 : 8;
    ExpectGrpc(PaddedTo(GetParam() + more,
                        [&](const std::string& padding) {
                          return Field(1, "m") + Input("t", "INT64", {1}) + Field(7, raw) +
                                 Field(kNoField, padding);
                        }),
               code);
    // Numbers of one byte, which are eight as a key: the largest that they may become.
    const size_t count = GetParam() / 8;
    std::string keys(count - 1, '\1');
    AppendVarint(kRows - 1, &keys);
    ExpectGrpc(PaddedTo(GetParam() + more,
                        [&](const std::string& padding) {
                          return Field(1, "m") +
                                 Input("t", "INT64", {static_cast<int64_t>(count)},
                                       Field(5, Field(3, keys))) +
                                 Field(kNoField, padding);
                        }),
               code);
  }
}

class CountTest : public CapacityWorld {
 protected:
  static constexpr uint64_t kPoolBytes = 64 << 10;

  void ExpectCounts(uint64_t over_limit, uint64_t over_capacity) {
    const ServerStatistics counted = world_.core().Snapshot();
    EXPECT_EQ(CountOf("limit", counted.bad_requests), over_limit);
    EXPECT_EQ(CountOf("protocol", counted.bad_requests), 0u);
    EXPECT_EQ(CountOf("capacity", counted.refused), over_capacity);
  }
  // The second message of a stream, of which some comes with the first one, and some while that is
  // looked up.
  void SendSecond(uint32_t stream, size_t bytes) {
    constexpr size_t kPieceBytes = 10'000;
    const int64_t key = 7;
    const std::string first = Framed(Field(1, "m") + Input("t", "INT64", {1}) +
                                     Field(7, AsText(std::as_bytes(std::span(&key, 1)))));
    const std::string second = Framed(std::string(bytes, 'x'));
    ASSERT_TRUE(AwaitIdle());
    gate_->Close();
    client_->SendFields(stream, CallFields("/inference.GRPCInferenceService/ModelStreamInfer"));
    client_->SendData(stream, first + second.substr(0, kPieceBytes), /*end=*/false);
    ASSERT_TRUE(gate_->AwaitWaiting(1));
    client_->SendData(stream, second.substr(kPieceBytes, kPieceBytes), /*end=*/false);
    client_->Send(Http2Frame{NGHTTP2_PING, 0, 0, "all read"});
    Http2Frame frame;
    const size_t pings = client_->acknowledged_pings();
    while (client_->acknowledged_pings() == pings && client_->Receive(&frame)) continue;
    gate_->Open();
    EXPECT_EQ(client_->Await(stream).code(), 8) << client_->answer(stream).message();
  }

  std::unique_ptr<Http2Client> client_;
};

// Catches: what can never be taken, counted as what the server had no room for, and the other way
// round: an operator would add replicas for the one, and none for the other.
TEST_F(CountTest, WhatIsTooLongIsOverALimitAndWhatHasNoRoomOverTheCapacity) {
  constexpr size_t kBodyBytes = 200'000;
  world_.config().server.bytes_in_flight_max = kPoolBytes;
  world_.config().server.body_bytes_max = kBodyBytes;
  StartGrpc();
  client_ = std::make_unique<Http2Client>(server_->address());
  client_->Begin();
  client_->Settle();
  const std::string path = "/inference.GRPCInferenceService/ModelInfer";
  client_->Call(1, path, std::string(2 * kPoolBytes, 'x'));
  EXPECT_EQ(client_->Await(1).code(), 8);
  ExpectCounts(1, 0);
  client_->Call(3, path, std::string(kBodyBytes + 1, 'x'));
  EXPECT_EQ(client_->Await(3).code(), 8);
  ExpectCounts(2, 0);
  SendSecond(5, 50'000);  // beside its first two pieces
  ExpectCounts(2, 1);
  SendSecond(7, 100'000);
  ExpectCounts(3, 1);
}

class LargestAnswerTest : public CapacityWorld {
 protected:
  void SetUp() override {
    ServerConfig& server = world_.config().server;
    server.body_bytes_max = kMebibyte;
    server.bytes_in_flight_max = 4 * kMebibyte;
    server.response_bytes_max = 2048 * kMebibyte;  // the most that it may be
    CapacityWorld::SetUp();
  }
};

// Catches: an answer for which there can never be room, refused as if there were some later. So
// response_bytes_max needs no bound by bytes_in_flight_max.
TEST_F(LargestAnswerTest, WhatCanNeverBeAnsweredIsOverALimit) {
  StartHttp();
  size_t answered = 0;
  size_t over_limit = 0;
  for (const int64_t count : {1'000, 60'000, 80'000, 90'000, 100'000, 110'000, 120'000, 130'000}) {
    SCOPED_TRACE(count);
    const std::string json =
        absl::StrCat(R"({"inputs":[{"name":"t","datatype":"INT64","shape":[)", count,
                     R"(],"parameters":{"binary_data_size":)", count * 8,
                     R"(}}],"outputs":[{"name":"t"},{"name":"t.status"}]})");
    const std::vector<int64_t> keys(static_cast<size_t>(count), 7);
    ASSERT_TRUE(AwaitIdle());
    const HttpReply reply =
        HttpClient(server_->address())
            .Ask(Post(kPath, json + std::string(AsText(std::as_bytes(std::span(keys)))),
                      absl::StrCat("Inference-Header-Content-Length: ", json.size(), "\r\n")));
    EXPECT_TRUE(reply.code == 200 || reply.code == 400) << reply.code << " " << reply.body;
    answered += reply.code == 200;
    over_limit += reply.code == 400;
  }
  EXPECT_GT(answered, 0u);
  EXPECT_GT(over_limit, 0u);
  EXPECT_EQ(CountOf("capacity", world_.core().Snapshot().refused), 0u);
}

// A call asks what time it is when its rows are there, and when its share of the capacity is about
// to be given back.
class ReleaseClock final : public Clock {
 public:
  explicit ReleaseClock(const BufferPool& pool) : pool_(pool) {}

  TimePoint Now() const override {
    (asked_ % 2 == 0 ? with_answer_ : at_release_) = pool_.lent_bytes();
    ++asked_;
    return RealClock().Now();
  }
  // Of the pool, at the last call.
  uint64_t with_answer() const { return with_answer_; }
  uint64_t at_release() const { return at_release_; }
  uint64_t asked() const { return asked_; }

 private:
  const BufferPool& pool_;
  mutable std::atomic<uint64_t> asked_ = 0;
  mutable std::atomic<uint64_t> with_answer_ = 0;
  mutable std::atomic<uint64_t> at_release_ = 0;
};

class ReleaseTest : public CapacityWorld {
 protected:
  void Watch() {
    clock_ = std::make_unique<ReleaseClock>(pool());
    gate_->on_run = [this](InferenceCall& call) { CallState::Of(call).clock = clock_.get(); };
  }
  // Catches: another request that is admitted while this one's memory is still taken, and then has
  // none for its answer.
  void ExpectReleased(uint64_t calls) {
    ASSERT_TRUE(AwaitIdle());
    EXPECT_EQ(clock_->asked(), 2 * calls);
    EXPECT_GT(clock_->with_answer(), 0u);
    EXPECT_EQ(clock_->at_release(), 0u) << "bytes were lent when the share was given back";
  }

  std::unique_ptr<ReleaseClock> clock_;
};

TEST_F(ReleaseTest, MemoryIsGivenBackBeforeTheShareOfTheCapacityOverHttp) {
  StartHttp();
  Watch();
  const std::string json =
      R"({"inputs":[{"name":"t","datatype":"INT64","shape":[2],"data":[1,2]}]})";
  HttpClient client(server_->address());
  EXPECT_EQ(client.Ask(Post(kPath, json)).code, 200);
  ExpectReleased(1);
  EXPECT_EQ(client.Ask(Post(kPath, json, "Connection: close\r\n")).code, 200);
  ExpectReleased(2);
}

TEST_F(ReleaseTest, MemoryIsGivenBackBeforeTheShareOfTheCapacityOverGrpc) {
  StartGrpc();
  Watch();
  const int64_t key = 7;
  const std::string message = Framed(Packed(Field(1, "m") + Input("t", "INT64", {1}) +
                                            Field(7, AsText(std::as_bytes(std::span(&key, 1))))),
                                     1);
  Http2Client client(server_->address());
  client.Begin();
  uint32_t stream = 1;
  uint64_t calls = 0;
  for (const std::string method : {"ModelInfer", "ModelStreamInfer"}) {
    auto fields = CallFields("/inference.GRPCInferenceService/" + method);
    fields.emplace_back("grpc-encoding", "gzip");
    client.SendFields(stream, fields);
    if (method == "ModelStreamInfer") {
      client.SendData(stream, message, /*end=*/false);
      Http2Frame frame;
      while (client.answer(stream).data.empty() && client.Receive(&frame)) continue;
      ExpectReleased(++calls);
    }
    client.SendData(stream, message);
    EXPECT_EQ(client.Await(stream).code(), 0);
    ExpectReleased(++calls);
    stream += 2;
  }
}

// Catches: a client that does not take its answer, and so holds the memory of its request.
TEST_F(ReleaseTest, AnAnswerThatIsNotTakenHoldsNothingOfItsRequestOverGrpc) {
  StartGrpc();
  Latch prepared;
  gate_->on_prepare = [&prepared](const InferenceCall&) {
    prepared.CountDown();
    return absl::OkStatus();
  };
  Http2Client client(server_->address());
  client.Begin({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0}});
  client.Settle();
  const std::vector<int64_t> keys(10'000, 7);
  uint32_t stream = 1;
  for (const std::string method : {"ModelInfer", "ModelStreamInfer"}) {
    for (const std::string model : {"m", "unknown"}) {
      SCOPED_TRACE(method + " of " + model);
      auto fields = CallFields("/inference.GRPCInferenceService/" + method);
      fields.emplace_back("grpc-encoding", "gzip");
      const std::string message = Field(1, model) + Input("t", "INT64", {std::ssize(keys)}) +
                                  Field(7, AsText(std::as_bytes(std::span(keys))));
      prepared.Reset(1);
      client.SendFields(stream, fields);
      client.SendData(stream, Framed(Packed(message), 1));
      EXPECT_TRUE(AwaitLatch(prepared));
      const bool has_rows = model == "m";
      constexpr size_t kBesideBytes = 256;
      const uint64_t lent = BufferPool::LentFor(keys.size() * sizeof(float) + kBesideBytes);
      ASSERT_TRUE(AwaitLent(has_rows ? lent : 0, /*in_flight=*/has_rows));
      client.Send(Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, stream, BigEndian(1 << 20, 4)});
      EXPECT_EQ(client.Await(stream).code(), method == "ModelInfer" && !has_rows ? 5 : 0);
      stream += 2;
    }
  }
  ASSERT_TRUE(AwaitIdle());
}

// Catches: packed messages of a stream that are mixed up, or leave memory behind, where they come
// while another one is looked up.
TEST_F(ReleaseTest, PackedMessagesOfAStreamThatComeAtOnceAreAnsweredInOrder) {
  constexpr int64_t kMessages = 20;
  StartGrpc();
  std::string messages;
  for (int64_t key = 0; key < kMessages; ++key) {
    messages += Framed(Packed(Field(1, "m") + Input("t", "INT64", {1}) +
                              Field(7, AsText(std::as_bytes(std::span(&key, 1))))),
                       1);
  }
  auto fields = CallFields("/inference.GRPCInferenceService/ModelStreamInfer");
  fields.emplace_back("grpc-encoding", "gzip");
  Http2Client client(server_->address());
  client.Begin();
  client.SendFields(1, fields);
  Http2Frame frame;
  size_t at = 0;  // in the answers
  for (const size_t with_first : {size_t{0}, size_t{1}, messages.size() / 2, messages.size()}) {
    SCOPED_TRACE(with_first);
    gate_->Close();
    const size_t first_bytes = messages.size() / kMessages + 10 + with_first;
    client.SendData(1, std::string_view(messages).substr(0, first_bytes), /*end=*/false);
    ASSERT_TRUE(gate_->AwaitWaiting(1));
    if (first_bytes < messages.size())
      client.SendData(1, messages.substr(first_bytes), /*end=*/false);
    gate_->Open();
    for (int64_t key = 0; key < kMessages; ++key) {
      const std::string& got = client.answer(1).data;
      const auto has = [&](size_t bytes) {
        while (got.size() < at + bytes && client.Receive(&frame)) continue;
        return got.size() >= at + bytes;
      };
      ASSERT_TRUE(has(kMessagePrefixBytes));
      const size_t bytes = __builtin_bswap32(LoadLittleEndian<uint32_t>(got.data() + at + 1));
      ASSERT_TRUE(has(kMessagePrefixBytes + bytes));
      at += kMessagePrefixBytes + bytes;
      const std::string row = got.substr(at - sizeof(float), sizeof(float));
      EXPECT_TRUE(ServerWorld::IsRow("m/t", key, 1, AsBytes(std::string_view(row)))) << key;
    }
    ASSERT_TRUE(AwaitIdle());  // the stream is open
  }
  client.SendData(1, "", /*end=*/true);
  EXPECT_EQ(client.Await(1).code(), 0);
}

INSTANTIATE_TEST_SUITE_P(Bytes, LimitsTest,
                         ::testing::Values(kMebibyte, kMebibyte + 1, 3 * kMebibyte));

}  // namespace
}  // namespace hps::server
