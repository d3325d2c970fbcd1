// Compressed messages and the limit of their inflated size.

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

// Peak memory of this process, from the kernel.
size_t PeakBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    size_t kibibytes = 0;
    if (word == "VmHWM:" && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

// Zeros, which compress to a thousandth.
TEST_F(GrpcInflateTest, CompressedMessagesAreBoundedWhenInflated) {
  const std::vector<std::byte> zeros(size_t{1} << 20);
  const grpc::Slice part(zeros.data(), zeros.size());
  const std::vector<grpc::Slice> parts(320, part);
  // gRPC's client compresses on the thread that also sends the first frames of a new connection,
  // for which the server does not wait long.
  inference::ModelInferResponse response;
  ASSERT_TRUE(Infer(Request({1}), &response).ok());
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
  EXPECT_TRUE(Infer(Request({1}), &response).ok());
}

}  // namespace
}  // namespace hps::server
