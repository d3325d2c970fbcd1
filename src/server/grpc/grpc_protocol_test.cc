// The gRPC server, tested frame by frame: valid calls, and what clients must not do.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "server/grpc/grpc_connection.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/grpc_session.h"
#include "server/grpc/grpc_stream.h"
#include "server/grpc/test_grpc_protocol.h"
#include "server/grpc_codec/wire_format.h"
#include "testing/trials.h"

namespace hps::server {
namespace {

using std::chrono::milliseconds;

TEST_F(GrpcProtocolTest, AnswersACallHoweverItIsCut) {
  const auto client = Connect();
  uint32_t id = 1;
  for (const size_t n : {0, 1, 33, 1000}) {
    client->Call(id, kInfer, InferRequest(n));
    const Http2Client::Answer& answer = client->Await(id);
    EXPECT_EQ(answer.code(), 0) << answer.message();
    EXPECT_EQ(answer.fields.at(":status"), "200");
    EXPECT_EQ(answer.fields.at("content-type"), "application/grpc");
    EXPECT_EQ(answer.reset, -1);
    ExpectRows(answer.data, n);
    id += 2;
  }
  const std::string call =
      Http2Frame{NGHTTP2_HEADERS, kEndFields, id, PackFields(CallFields(kInfer))}.bytes() +
      Http2Frame{NGHTTP2_DATA, 0, id, Framed(InferRequest(40)).substr(0, 7)}.bytes() +
      Http2Frame{NGHTTP2_DATA, 0, id, ""}.bytes() +
      Http2Frame{NGHTTP2_DATA, kEndStream, id, Framed(InferRequest(40)).substr(7)}.bytes();
  for (const char byte : call) ASSERT_TRUE(client->Send(std::string_view(&byte, 1)));
  ExpectRows(client->Await(id).data, 40);
  ExpectWell();
}

TEST_F(GrpcProtocolTest, ManyCallsOfOneConnectionGetTheirOwnRows) {
  const auto client = Connect();
  for (uint32_t id = 1; id < 400; id += 2) client->Call(id, kInfer, InferRequest(id));
  for (uint32_t id = 1; id < 400; id += 2) {
    EXPECT_EQ(client->Await(id).code(), 0);
    ExpectRows(client->answer(id).data, id);
  }
  ExpectWell();
}

TEST_F(GrpcProtocolTest, CallsThatAreNoneAreToldSo) {
  const auto client = Connect();
  const auto fields = [](const std::string& name, const std::string& value) {
    auto all = CallFields(kLive);
    for (auto& [have, text] : all) {
      if (have == name) text = value;
    }
    return all;
  };
  client->SendFields(1, fields(":method", "GET"), kEndFields | kEndStream);
  EXPECT_EQ(client->Await(1).fields.at(":status"), "405");
  client->SendFields(3, fields("content-type", "application/json"), kEndFields | kEndStream);
  EXPECT_EQ(client->Await(3).fields.at(":status"), "415");
  client->SendFields(5, fields("content-type", "application/grpcx"), kEndFields | kEndStream);
  EXPECT_EQ(client->Await(5).fields.at(":status"), "415");
  client->SendFields(7, fields(":path", "/no%one"), kEndFields);
  EXPECT_EQ(client->Await(7).code(), 12);
  EXPECT_EQ(client->answer(7).message(), "there is no method '/no%25one'");
  client->SendFields(9, fields("content-type", "application/grpc+proto"), kEndFields);
  client->SendData(9, Framed(""));
  EXPECT_EQ(client->Await(9).code(), 0);
  auto timed = CallFields(kLive);
  timed.emplace_back("grpc-timeout", "soon");
  client->SendFields(11, timed);
  EXPECT_EQ(client->Await(11).code(), 3);
  ExpectWell();
}

// The codes are those of gRPC's libraries.
TEST_F(GrpcProtocolTest, ACallHasOneMessage) {
  const auto client = Connect();
  struct Wrong {
    int code;
    std::string message;
    std::string bytes;
  };
  constexpr int kUnimplemented = 12;
  constexpr int kInternal = 13;
  const std::vector<Wrong> wrong = {
      {kUnimplemented, "the call has no request message", ""},
      {kInternal, "the call ended within a message", std::string(3, '\0')},
      {kInternal, "the call ended within a message", Framed("abc").substr(0, 7)},
      {kUnimplemented, "the call has more than one request message", Framed("") + Framed("")},
      {kUnimplemented, "the call has more than one request message", Framed("") + "x"},
      {kInternal, "invalid gRPC message prefix: the compressed flag must be 0 or 1", Framed("", 2)},
      {kInternal, "the message's compressed flag is set, but the call has no grpc-encoding",
       Framed("", 1)},
  };
  uint32_t id = 1;
  for (const std::string path : {kLive, kInfer, "/grpc.health.v1.Health/Watch"}) {
    for (const Wrong& call : wrong) {
      client->SendFields(id, CallFields(path));
      client->SendData(id, call.bytes);
      EXPECT_EQ(client->Await(id).code(), call.code) << path;
      EXPECT_EQ(client->answer(id).message(), call.message) << path;
      id += 2;
    }
  }
  client->SendFields(id, CallFields(kLive), kEndFields | kEndStream);
  EXPECT_EQ(client->Await(id).code(), kUnimplemented);
  EXPECT_EQ(bad_requests(BadRequestReason::kProtocol), 3 * wrong.size() + 1);
  ExpectWell();
}

TEST_F(GrpcProtocolTest, MessagesThatDoNotInflateEndTheirCall) {
  const auto client = Connect();
  uint32_t id = 1;
  for (const std::string path : {kLive, kInfer, kStream}) {
    for (const auto& [coding, code] : {std::pair("gzip", 13), std::pair("deflate", 13),
                                       std::pair("identity", 13), std::pair("snappy", 12)}) {
      SCOPED_TRACE(path + " " + coding);
      auto fields = CallFields(path);
      fields.emplace_back("grpc-encoding", coding);
      client->SendFields(id, fields);
      client->SendData(id, Framed("abc", 1), /*end=*/path != kStream);
      const Http2Client::Answer& answer = client->Await(id);
      EXPECT_EQ(answer.code(), code) << answer.message();
      EXPECT_EQ(answer.data, "");
      if (code == 12) {
        EXPECT_EQ(answer.fields.at("grpc-accept-encoding"), "identity,deflate,gzip");
      }
      id += 2;
    }
  }
  ExpectWell();
}

// Both versions have the same messages.
TEST_F(GrpcProtocolTest, AReflectionStreamHasAnAnswerToEachRequest) {
  const auto client = Connect();
  uint32_t id = 1;
  for (const std::string version : {"v1", "v1alpha"}) {
    client->SendFields(
        id, CallFields("/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo"));
    client->SendData(id, Framed(Field(4, "nobody")), /*end=*/false);
    client->SendData(id, Framed(Field(7, "")));
    const Http2Client::Answer& answer = client->Await(id);
    EXPECT_EQ(answer.code(), 0) << answer.message();
    const size_t refusal = answer.data.find("the server has no such file or symbol");
    const size_t service = answer.data.find("inference.GRPCInferenceService");
    EXPECT_NE(service, std::string::npos);
    EXPECT_LT(refusal, service);
    client->SendFields(id + 2, CallFields("/grpc.reflection." + version +
                                          ".ServerReflection/ServerReflectionInfo"));
    client->SendData(id + 2, Framed("\xff"), /*end=*/false);
    EXPECT_EQ(client->Await(id + 2).code(), 3);
    EXPECT_EQ(client->answer(id + 2).message(), "invalid ServerReflectionRequest message");
    id += 4;
  }
  ExpectWell();
}

TEST_F(GrpcProtocolTest, MessagesThatAreTooLongAreRefusedBeforeTheyCome) {
  config().body_bytes_max = 1 << 20;
  const auto client = Connect();
  client->SendFields(1, CallFields(kInfer));
  client->SendData(1, BigEndian(0, 1) + BigEndian((1 << 20) + 1, 4), /*end=*/false);
  EXPECT_EQ(client->Await(1).code(), 8);
  Http2Frame frame;
  while (client->answer(1).reset < 0 && client->Receive(&frame)) continue;
  EXPECT_EQ(client->answer(1).reset, NGHTTP2_NO_ERROR) << "the rest need not be sent";
  ExpectWell();
}

TEST_F(GrpcProtocolTest, MetadataAreBounded) {
  const auto client = Connect();
  auto fields = CallFields(kLive);
  fields.emplace_back("x-large", std::string(9000, 'x'));
  const std::string packed = PackFields(fields);
  client->Send(Http2Frame{NGHTTP2_HEADERS, kEndFields, 1, packed});
  client->SendData(1, Framed(""));
  EXPECT_EQ(client->Await(1).code(), 0);
  fields.emplace_back("x-more", std::string(8000, 'x'));
  const std::string more = PackFields(fields);
  client->Send(Http2Frame{NGHTTP2_HEADERS, 0, 3, more.substr(0, 10'000)});
  client->Send(Http2Frame{NGHTTP2_CONTINUATION, kEndFields, 3, more.substr(10'000)});
  EXPECT_EQ(client->Await(3).code(), 8);
  // Up to 256 KiB in all, and 64 KiB for each field, in large and in small frames.
  uint32_t id = 5;
  for (const size_t value_bytes : {10'000, 65'000}) {
    for (const size_t frame_bytes : {16'384, 3000}) {
      fields = CallFields(kLive);
      for (size_t bytes = 0; bytes < 190'000; bytes += value_bytes)
        fields.emplace_back("x", std::string(value_bytes, 'x'));
      const std::string packed_all = PackFields(fields);
      for (size_t at = 0; at < packed_all.size(); at += frame_bytes) {
        const uint8_t type = at == 0 ? uint8_t{NGHTTP2_HEADERS} : uint8_t{NGHTTP2_CONTINUATION};
        const uint8_t flags = at + frame_bytes < packed_all.size() ? 0 : kEndFields;
        client->Send(Http2Frame{type, flags, id, packed_all.substr(at, frame_bytes)});
      }
      EXPECT_EQ(client->Await(id).code(), 8);
      EXPECT_EQ(client->answer(id).message(), "the call's metadata is larger than 16384 bytes");
      id += 2;
    }
  }
  client->Call(id, kLive, "");
  EXPECT_EQ(client->Await(id).code(), 0) << "the connection goes on";
  ExpectWell();
}

TEST_F(GrpcProtocolTest, FieldsWithoutEndAreCutOff) {
  const auto endless = Connect();
  endless->Send(Http2Frame{NGHTTP2_HEADERS, 0, 1, PackFields(CallFields(kLive))});
  const std::string more = PackFields({{"x", std::string(8000, 'x')}});
  for (int i = 0; i < 1000; ++i) {
    if (!endless->Send(Http2Frame{NGHTTP2_CONTINUATION, 0, 1, more})) break;
  }
  endless->AwaitEnd();
  // One field of the table, repeated: each repetition costs the client one byte.
  const auto bomb = Connect();
  std::string packed = PackFields(CallFields(kLive));
  packed += std::string("\x40\x01x\x7f\xa1\x1e", 6) + std::string(4000, 'x');
  packed += std::string(12'000, '\xbe');
  bomb->Send(Http2Frame{NGHTTP2_HEADERS, kEndFields, 1, packed.substr(0, 16'384)});
  EXPECT_EQ(bomb->AwaitEnd(), NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_EQ(bomb->answer(1).reset, NGHTTP2_ENHANCE_YOUR_CALM);
  ExpectWell();
}

// Each of these frames costs the client little and has no use.
TEST_F(GrpcProtocolTest, FloodsEndTheirConnection) {
  const std::string ping = Http2Frame{NGHTTP2_PING, 0, 0, std::string(8, 'p')}.bytes();
  const std::string settings =
      Http2Frame{NGHTTP2_SETTINGS, 0, 0, BigEndian(4, 2) + BigEndian(65'535, 4)}.bytes();
  const std::string priority = Http2Frame{NGHTTP2_PRIORITY, 0, 1, BigEndian(0, 4) + "\x10"}.bytes();
  const std::string nothing = Http2Frame{NGHTTP2_DATA, 0, 1, ""}.bytes();
  const std::string unknown = Http2Frame{0x77, 0, 1, "x"}.bytes();
  for (const std::string& frame : {ping, settings, priority, nothing, unknown}) {
    SCOPED_TRACE(static_cast<int>(frame[3]));  // its type
    const auto client = Connect();
    client->SendFields(1, CallFields(kStream));
    std::string many;
    for (int i = 0; i < 2000; ++i) many += frame;
    for (int i = 0; i < 100 && client->Send(many); ++i) continue;
    client->AwaitEnd();
  }
  EXPECT_GE(bad_requests(BadRequestReason::kProtocol), 1u);
  ExpectWell();
}

TEST_F(GrpcProtocolTest, PingsAreAnsweredNowAndThen) {
  const auto client = Connect();
  const Http2Frame ping{NGHTTP2_PING, 0, 0, std::string(8, 'p')};
  for (uint32_t id = 1; id < 20; id += 2) {  // pings between answers are allowed
    client->Send(ping);
    client->Call(id, kLive, "");
    EXPECT_EQ(client->Await(id).code(), 0);
  }
  EXPECT_EQ(client->acknowledged_pings(), 10u);
  client->Send(ping.bytes() + ping.bytes() + ping.bytes() + ping.bytes());
  EXPECT_EQ(client->AwaitEnd(), NGHTTP2_ENHANCE_YOUR_CALM);
  ExpectWell();
}

TEST_F(GrpcProtocolTest, RapidResetsEndTheirConnection) {
  const auto client = Connect();
  const std::string fields = PackFields(CallFields(kInfer));
  const std::string message = Framed(InferRequest(1));
  for (uint32_t id = 1; id < 60'000; id += 2) {
    const bool sent = client->Send(Http2Frame{NGHTTP2_HEADERS, kEndFields, id, fields}.bytes() +
                                   Http2Frame{NGHTTP2_DATA, kEndStream, id, message}.bytes() +
                                   Http2Frame{NGHTTP2_RST_STREAM, 0, id, BigEndian(8, 4)}.bytes());
    if (!sent) break;
  }
  client->AwaitEnd();
  ExpectWell();
}

TEST_F(GrpcProtocolTest, ACancelledCallGivesItsShareBackAtOnce) {
  const auto client = Connect();
  gate_->Close();
  client->Call(1, kInfer, InferRequest(5));
  ASSERT_TRUE(gate_->AwaitWaiting(1));
  client->Send(Http2Frame{NGHTTP2_RST_STREAM, 0, 1, BigEndian(8, 4)});
  EXPECT_TRUE(gate_->AwaitCancelled(1));
  client->Call(3, kLive, "");
  EXPECT_EQ(client->Await(3).code(), 0);
  client->Call(5, kInfer, InferRequest(5));
  ASSERT_TRUE(gate_->AwaitWaiting(2));
  shutdown(client->fd(), SHUT_RDWR);  // the client has gone
  EXPECT_TRUE(gate_->AwaitCancelled(2));
  gate_->Open();
  ExpectWell();
}

TEST_F(GrpcProtocolTest, AnAnswerThatTheWindowHoldsBackIsGivenUp) {
  config().write_timeout = milliseconds(200);
  const auto client = Connect({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 100}});
  client->gives_windows = false;
  client->Call(1, kInfer, InferRequest(1000));
  EXPECT_EQ(client->Await(1).reset, NGHTTP2_CANCEL);
  EXPECT_EQ(client->answer(1).data.size(), 100u);
  EXPECT_EQ(bad_requests(BadRequestReason::kTimeout), 1u);
  client->Call(3, kLive, "");
  EXPECT_EQ(client->Await(3).code(), 0) << "the others are answered";
  ExpectWell();
}

TEST_F(GrpcProtocolTest, AClientThatNeverReadsIsCutOff) {
  config().write_timeout = milliseconds(200);
  const auto client = Connect({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff}});
  client->Send(Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, 0, BigEndian(0x7fff0000, 4)});
  const std::string request = InferRequest(2000);
  for (uint32_t id = 1; id < 2000 && client->Call(id, kInfer, request); id += 2) continue;
  ASSERT_TRUE(AwaitCondition([&] { return bad_requests(BadRequestReason::kTimeout) > 0; }));
  ExpectWell();
}

TEST_F(GrpcProtocolTest, ARequestThatDoesNotEndIsEnded) {
  config().body_timeout = milliseconds(500);
  const auto client = Connect();
  client->SendFields(1, CallFields(kInfer));
  client->SendData(1, Framed(InferRequest(5)).substr(0, 20), /*end=*/false);
  EXPECT_EQ(client->Await(1).code(), 1);
  EXPECT_EQ(client->answer(1).message(), "the request did not come in time");
  ExpectWell(kTries);
}

TEST_F(GrpcProtocolTest, FieldsThatDoNotEndAreEnded) {
  config().header_timeout = milliseconds(500);
  int64_t reset = -1;
  for (int i = 0; i < kTries && reset < 0; ++i) {
    const auto client = Connect();
    client->Settle();
    client->Send(Http2Frame{NGHTTP2_HEADERS, 0, 1, PackFields(CallFields(kInfer))});
    reset = client->Await(1).reset;
  }
  EXPECT_EQ(reset, NGHTTP2_CANCEL);
  Http2Client silent(server_->address());  // sends nothing
  silent.AwaitEnd();
  ExpectWell(kTries);
}

TEST_F(GrpcProtocolTest, ADeadlineOfTheCallEndsItsWaiting) {
  const auto client = Connect();
  auto fields = CallFields(kStream);
  fields.emplace_back("grpc-timeout", "50m");
  client->SendFields(1, fields);
  EXPECT_EQ(client->Await(1).code(), 4);
  fields = CallFields(kInfer);
  fields.emplace_back("grpc-timeout", "1n");
  client->SendFields(3, fields);
  client->SendData(3, Framed(InferRequest(1)));
  EXPECT_EQ(client->Await(3).code(), 4);
  client->Call(5, kInfer, InferRequest(1));
  EXPECT_EQ(client->Await(5).code(), 0) << "the connection goes on";
  ExpectWell();
}

TEST_F(GrpcProtocolTest, WhatAStreamSendsBeforeItsTurnIsBounded) {
  const auto client = Connect();
  client->Settle();
  gate_->Close();
  client->SendFields(1, CallFields(kStream));
  const std::string message = Framed(InferRequest(10));
  client->SendData(1, message, /*end=*/false);
  ASSERT_TRUE(gate_->AwaitWaiting(1));
  std::string early;
  while (early.size() + 2 * message.size() < kStreamWindowBytes) early += message;
  client->SendData(1, early, /*end=*/false);
  client->Call(3, kLive, "");
  EXPECT_EQ(client->Await(3).code(), 0);
  EXPECT_EQ(client->window_bytes(1), 0u) << "it may not send more before its turn";
  gate_->Open();
  client->SendData(1, "");
  const Http2Client::Answer& answer = client->Await(1);
  EXPECT_EQ(answer.code(), 0) << answer.message();
  EXPECT_GT(client->window_bytes(1), 0u);
  const size_t count = early.size() / message.size() + 1;
  EXPECT_EQ(world_.core().Snapshot().models[0].requests, count);
  ExpectWell();
}

TEST_F(GrpcProtocolTest, AWindowThatIsOverrunEndsTheStream) {
  const auto client = Connect();
  client->Settle();
  gate_->Close();
  client->SendFields(1, CallFields(kStream));
  client->SendData(1, Framed(InferRequest(10)), /*end=*/false);
  ASSERT_TRUE(gate_->AwaitWaiting(1));
  for (int i = 0; i < 20; ++i) client->SendData(1, std::string(16'384, '\0'), /*end=*/false);
  EXPECT_EQ(client->Await(1).reset, NGHTTP2_FLOW_CONTROL_ERROR);
  gate_->Open();
  ExpectWell();
}

TEST_F(GrpcProtocolTest, WhatIsNotHttp2EndsTheConnection) {
  Start();
  for (const std::string bytes :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x01\x01\xfc\x03\x03 hello to TLS",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\tgarbage that follows",
        "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n"}) {
    Http2Client client(server_->address());
    client.Send(bytes);
    client.AwaitEnd();
  }
  EXPECT_EQ(bad_requests(BadRequestReason::kProtocol), 4u);
  ExpectWell();
}

TEST_F(GrpcProtocolTest, FramesThatAreWrongEndTheConnection) {
  Start();
  const std::string fields = PackFields(CallFields(kLive));
  const std::vector<Http2Frame> wrong = {
      {NGHTTP2_SETTINGS, 0, 0, "12345"},
      {NGHTTP2_SETTINGS, 0, 1, ""},
      {NGHTTP2_PING, 0, 0, "1234567"},
      {NGHTTP2_PING, 0, 1, "12345678"},
      {NGHTTP2_PRIORITY, 0, 0, BigEndian(0, 4) + "\x10"},
      {NGHTTP2_WINDOW_UPDATE, 0, 0, std::string(4, '\0')},
      {NGHTTP2_WINDOW_UPDATE, 0, 0, "123"},
      {NGHTTP2_RST_STREAM, 0, 0, std::string(4, '\0')},
      {NGHTTP2_RST_STREAM, 0, 7, std::string(4, '\0')},
      {NGHTTP2_DATA, 0, 0, "x"},
      {NGHTTP2_DATA, 0, 9, "x"},
      {NGHTTP2_DATA, 8, 1, "\xff"},
      {NGHTTP2_HEADERS, kEndFields, 0, fields},
      {NGHTTP2_HEADERS, kEndFields, 2, fields},
      {NGHTTP2_HEADERS, kEndFields, 3, "\xff\xff\xff\xff\xff"},
      {NGHTTP2_CONTINUATION, kEndFields, 3, fields},
      {NGHTTP2_PUSH_PROMISE, kEndFields, 1, BigEndian(2, 4) + fields},
      {NGHTTP2_DATA, 0, 1, std::string(16'385, 'x')},
      {NGHTTP2_HEADERS, kEndFields, 3, std::string(16'385, 'x')},
      {NGHTTP2_GOAWAY, 0, 0, "x"},
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    SCOPED_TRACE(i);
    const auto client = Connect();
    client->SendFields(1, CallFields(kStream));
    client->Send(wrong[i]);
    EXPECT_GT(client->AwaitEnd(), 0);
  }
  EXPECT_EQ(bad_requests(BadRequestReason::kProtocol), wrong.size());
  ExpectWell();
}

TEST_F(GrpcProtocolTest, DataAfterTheEndOfACallEndNoOther) {
  const auto client = Connect();
  gate_->Close();
  client->Call(1, kInfer, InferRequest(3));
  ASSERT_TRUE(gate_->AwaitWaiting(1));
  client->Call(3, kInfer, InferRequest(3));
  ASSERT_TRUE(gate_->AwaitWaiting(2));
  client->SendData(1, "more");
  client->AwaitEnd();  // a connection error in HTTP/2
  gate_->Open();
  ExpectWell();
}

TEST_F(GrpcProtocolTest, AConnectionHasSoManyCallsAtATime) {
  const auto client = Connect();
  gate_->Close();
  const std::string message = InferRequest(1);
  uint32_t id = 1;
  client->Settle();
  for (size_t i = 0; i < kConnectionCallsMax; ++i, id += 2) client->Call(id, kInfer, message);
  ASSERT_TRUE(gate_->AwaitWaiting(kConnectionCallsMax));
  client->Call(id, kInfer, message);
  EXPECT_EQ(client->AwaitEnd(), NGHTTP2_PROTOCOL_ERROR);
  EXPECT_TRUE(gate_->AwaitCancelled(kConnectionCallsMax));
  gate_->Open();
  ExpectWell();
}

TEST_F(GrpcProtocolTest, ConnectionsAreBounded) {
  config().connections_max = 2;
  const auto first = Connect();
  const auto second = Connect();
  for (const auto& client : {&first, &second}) {
    (*client)->Call(1, kLive, "");
    EXPECT_EQ((*client)->Await(1).code(), 0);
  }
  Http2Client third(server_->address());
  third.AwaitEnd();
  EXPECT_EQ(
      world_.core().Snapshot().refused[static_cast<size_t>(RefusedReason::kConnections)].second,
      1u);
}

// Catches crashes, hangs and leaks: random bytes, as a fuzzer sends them.
TEST_F(GrpcProtocolTest, MutantsOfAConversationHurtNobody) {
  std::mt19937 random(TestSeed());
  Start();
  std::string good =
      std::string(NGHTTP2_CLIENT_MAGIC) + Http2Frame{NGHTTP2_SETTINGS, 0, 0, ""}.bytes();
  const size_t preface = good.size();
  uint32_t id = 1;
  for (const std::string path : {kInfer, kStream, kLive, "/x"}) {
    const std::string message = path == kLive ? "" : InferRequest(2);
    good += Http2Frame{NGHTTP2_HEADERS, kEndFields, id, PackFields(CallFields(path))}.bytes() +
            Http2Frame{NGHTTP2_WINDOW_UPDATE, 0, id, BigEndian(100, 4)}.bytes() +
            Http2Frame{NGHTTP2_DATA, kEndStream, id, Framed(message)}.bytes() +
            Http2Frame{NGHTTP2_RST_STREAM, 0, id, BigEndian(8, 4)}.bytes();
    id += 2;
  }
  for (int i = 0; i < 1500; ++i) {
    std::string mutant = good;
    for (size_t k = 1 + random() % 4; k > 0; --k) {
      const size_t at = preface + random() % (mutant.size() - preface);
      if (random() % 3 == 0) {
        mutant.erase(at, 1 + random() % 9);
        mutant += "12345678901234567890";
      } else {
        mutant[at] = static_cast<char>(random());
      }
    }
    Http2Client client(server_->address());
    client.Send(mutant);
    shutdown(client.fd(), SHUT_WR);
    Http2Frame frame;
    while (client.Receive(&frame)) continue;
  }
  ExpectWell();
}

}  // namespace
}  // namespace hps::server
