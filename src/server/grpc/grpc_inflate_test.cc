// Compressed messages: what they may inflate to, and what does not inflate.

#include "server/grpc/message_inflater.h"

#include <zlib.h>

#include <fstream>

#include "server/grpc/test_grpc_world.h"

namespace hps::server {
namespace {

using grpc::StatusCode;

class GrpcInflateTest : public GrpcWorld {
 protected:
  void SetUp() override {
    const absl::Status started = Start();
    ASSERT_TRUE(started.ok()) << started;
  }
};

// The most memory that this process has had, from the kernel.
size_t PeakBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    size_t kibibytes = 0;
    if (word == "VmHWM:" && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

// Zeros that compress a thousandfold.
TEST_F(GrpcInflateTest, CompressedMessagesAreBoundedWhenInflated) {
  const std::vector<std::byte> zeros(size_t{1} << 20);
  const grpc::Slice part(zeros.data(), zeros.size());
  const std::vector<grpc::Slice> parts(320, part);
  const size_t peak_before = PeakBytes();
  ASSERT_GT(peak_before, 0U);
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer bytes(parts.data(), parts.size());
  const auto call =
      stub.PrepareUnaryCall(&context, "/inference.GRPCInferenceService/ModelInfer", bytes, &queue);
  call->StartCall();
  grpc::Status status;
  grpc::ByteBuffer answer;
  call->Finish(&answer, &status, this);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_LT(PeakBytes() - peak_before, size_t{256} << 20);
  inference::ModelInferResponse response;
  EXPECT_TRUE(Infer(Request({1}), &response).ok());
}

// A packed message, cut into pieces of `piece_bytes`.
std::vector<grpc::Slice> Cut(const std::string& packed, size_t piece_bytes) {
  std::vector<grpc::Slice> pieces;
  for (size_t at = 0; at < packed.size(); at += piece_bytes)
    pieces.emplace_back(packed.substr(at, piece_bytes));
  return pieces;
}

std::string Packed(const std::string& plain, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::vector<Bytef> in(plain.begin(), plain.end());
  std::vector<Bytef> out(deflateBound(&stream, plain.size()));
  stream.next_in = in.data();
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return {out.begin(), out.end()};
}

TEST(MessageInflaterTest, InflatesUpToTheBoundHoweverTheMessageIsCut) {
  constexpr size_t kBytesMax = size_t{100} << 10;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{64} << 10, kBytesMax - 1, kBytesMax}) {
    std::string plain(n, 'x');
    for (size_t i = 0; i < n; i += 7) plain[i] = static_cast<char>(i * 31 >> 3);
    const std::string packed = Packed(plain, 31);
    for (const size_t piece_bytes : {size_t{1}, size_t{33}, size_t{1} << 20}) {
      std::string message = "what the last one has left";
      const absl::Status status =
          InflateMessage(GRPC_COMPRESS_GZIP, Cut(packed, piece_bytes), kBytesMax, &message);
      ASSERT_TRUE(status.ok()) << status << " " << n;
      EXPECT_TRUE(message == plain) << n;
    }
    std::string message;
    EXPECT_TRUE(
        InflateMessage(GRPC_COMPRESS_DEFLATE, Cut(Packed(plain, 15), 100), kBytesMax, &message)
            .ok());
    EXPECT_TRUE(message == plain);
    if (n == 0) continue;
    EXPECT_EQ(InflateMessage(GRPC_COMPRESS_GZIP, Cut(packed, 100), n - 1, &message).code(),
              absl::StatusCode::kResourceExhausted);
  }
}

TEST(MessageInflaterTest, RefusesWhatDoesNotInflate) {
  const std::string packed = Packed(std::string(1000, 'x'), 31);
  const auto inflate = [](const std::string& bytes, grpc_compression_algorithm algorithm) {
    std::string message;
    return InflateMessage(algorithm, Cut(bytes, 7), 4096, &message).code();
  };
  for (size_t n = 0; n < packed.size(); ++n) {
    EXPECT_EQ(inflate(packed.substr(0, n), GRPC_COMPRESS_GZIP), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(inflate(packed + "x", GRPC_COMPRESS_GZIP), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(inflate(packed + packed, GRPC_COMPRESS_GZIP), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(inflate("garbage", GRPC_COMPRESS_DEFLATE), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(inflate(packed, GRPC_COMPRESS_NONE), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace hps::server
