// Tokens, certificates, limits and addresses of the gRPC server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/test_certificates.h"
#include "server/grpc/test_grpc_world.h"
#include "server/net/tls.h"

namespace hps::server {
namespace {

using grpc::StatusCode;
using testing::HasSubstr;

class GrpcSecurityTest : public GrpcWorld {
 protected:
  GrpcSecurityTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hps_grpc_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  ~GrpcSecurityTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  void UseTls(const TestCertificate& certificate) {
    config().tls_certificate = Write("server.crt", certificate.certificate_pem);
    config().tls_key = Write("server.key", certificate.key_pem);
  }
  static std::shared_ptr<grpc::ChannelCredentials> Trusting(const TestCertificate& server) {
    return grpc::SslCredentials({.pem_root_certs = server.certificate_pem});
  }
  static std::shared_ptr<grpc::ChannelCredentials> TrustingAs(const TestCertificate& server,
                                                              const TestCertificate& client) {
    return grpc::SslCredentials({.pem_root_certs = server.certificate_pem,
                                 .pem_private_key = client.key_pem,
                                 .pem_cert_chain = client.certificate_pem});
  }
  grpc::Status InferWith(const char* authorization) {
    grpc::ClientContext context;
    if (authorization != nullptr) context.AddMetadata("authorization", authorization);
    inference::ModelInferResponse response;
    return stub_->ModelInfer(&context, Request({1}), &response);
  }
  StatusCode Unload(const char* model, const char* authorization) {
    grpc::ClientContext context;
    if (authorization != nullptr) context.AddMetadata("authorization", authorization);
    inference::RepositoryModelUnloadRequest request;
    request.set_model_name(model);
    inference::RepositoryModelUnloadResponse response;
    return stub_->RepositoryModelUnload(&context, request, &response).error_code();
  }

  std::string directory_;
  const TestCertificate first_ = MakeTestCertificate();
  const TestCertificate second_ = MakeTestCertificate();
  const TestCertificate client_ = MakeTestCertificate();
};

TEST_F(GrpcSecurityTest, TokenIsAskedForButByHealth) {
  config().token_file = Write("token", "se-cret\n");
  ASSERT_TRUE(Start().ok());
  EXPECT_TRUE(InferWith("Bearer se-cret").ok());
  EXPECT_TRUE(InferWith("bearer se-cret").ok());
  for (const char* wrong : {"Bearer se-creT", "Bearer se-cre", "Bearer se-crets", "Bearer ",
                            "Basic se-cret", "se-cret"}) {
    EXPECT_EQ(InferWith(wrong).error_code(), StatusCode::UNAUTHENTICATED) << wrong;
  }
  const grpc::Status refused = InferWith(nullptr);
  EXPECT_EQ(refused.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(refused.error_message(), testing::Not(HasSubstr("se-cret")));
  EXPECT_EQ(world_.core().Snapshot().auth_failures, 7U);
  EXPECT_TRUE(CallBytes("/inference.GRPCInferenceService/ServerLive", "").ok());
  EXPECT_TRUE(CallBytes("/inference.GRPCInferenceService/ServerReady", "").ok());
  EXPECT_TRUE(CallBytes("/inference.GRPCInferenceService/ModelReady", "").ok());
  EXPECT_TRUE(CallBytes("/grpc.health.v1.Health/Check", "").ok());
  EXPECT_EQ(CallBytes("/inference.GRPCInferenceService/ServerMetadata", "").error_code(),
            StatusCode::UNAUTHENTICATED);
  // The token changes here.
  Write("token", "other");
  ASSERT_TRUE(server_->Reopen().ok());
  EXPECT_FALSE(InferWith("Bearer se-cret").ok());
  EXPECT_TRUE(InferWith("Bearer other").ok());
  Write("token", "");
  EXPECT_EQ(server_->Reopen().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(InferWith("Bearer other").ok());
}

TEST_F(GrpcSecurityTest, ModelsAreLoadedAndUnloadedOnlyWithAToken) {
  config().token_file = Write("token", "se-cret");
  config().repository_control = true;
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Unload("m", nullptr), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Unload("nobody", "Bearer se-cret"), StatusCode::NOT_FOUND);
  EXPECT_EQ(Unload("m", "Bearer se-cret"), StatusCode::OK);
  EXPECT_EQ(InferWith("Bearer se-cret").error_code(), StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer se-cret");
  inference::RepositoryModelLoadRequest request;
  request.set_model_name("m");
  inference::RepositoryModelLoadResponse response;
  EXPECT_TRUE(stub_->RepositoryModelLoad(&context, request, &response).ok());
  EXPECT_TRUE(InferWith("Bearer se-cret").ok());
}

TEST_F(GrpcSecurityTest, ControlWithoutATokenIsOff) {
  config().repository_control = true;
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Unload("m", nullptr), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(world_.core().Snapshot().auth_failures, 1U) << "as over HTTP";
}

TEST_F(GrpcSecurityTest, TlsAnswersThoseWhoTrustItAndRotates) {
  UseTls(first_);
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(InferWith(nullptr).error_code(), StatusCode::UNAVAILABLE);  // a client without TLS
  Connect(Trusting(first_));
  EXPECT_TRUE(InferWith(nullptr).ok());
  Connect(Trusting(second_));
  EXPECT_EQ(InferWith(nullptr).error_code(), StatusCode::UNAVAILABLE);
  // A pair that does not match changes nothing; a pair that matches is used for new connections.
  Write("server.crt", second_.certificate_pem);
  EXPECT_EQ(server_->Reopen().code(), absl::StatusCode::kInvalidArgument);
  Connect(Trusting(first_));
  EXPECT_TRUE(InferWith(nullptr).ok());
  Write("server.key", second_.key_pem);
  ASSERT_TRUE(server_->Reopen().ok());
  EXPECT_TRUE(InferWith(nullptr).ok());  // the old connection stays
  Connect(Trusting(second_));
  EXPECT_TRUE(InferWith(nullptr).ok());
}

TEST_F(GrpcSecurityTest, ClientsNeedACertificateWhereACaIsGiven) {
  UseTls(first_);
  config().tls_client_ca = Write("ca.crt", client_.certificate_pem);
  ASSERT_TRUE(Start().ok());
  Connect(Trusting(first_));
  EXPECT_EQ(InferWith(nullptr).error_code(), StatusCode::UNAVAILABLE);
  Connect(TrustingAs(first_, second_));
  EXPECT_EQ(InferWith(nullptr).error_code(), StatusCode::UNAVAILABLE);
  Connect(TrustingAs(first_, client_));
  EXPECT_TRUE(InferWith(nullptr).ok());
}

TEST_F(GrpcSecurityTest, FilesThatAreMissingOrWrong) {
  config().tls_certificate = directory_ + "/none";
  config().tls_key = directory_ + "/none";
  EXPECT_EQ(Start().code(), absl::StatusCode::kNotFound);
  UseTls({.certificate_pem = "garbage", .key_pem = first_.key_pem});
  EXPECT_EQ(TlsContext::Create(config(), "h2").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(GrpcSecurityTest, ATokenFileThatIsMissing) {
  config().token_file = directory_ + "/none";
  EXPECT_EQ(Start().code(), absl::StatusCode::kNotFound);
}

TEST_F(GrpcSecurityTest, AddressesThatAreWrongOrTaken) {
  ASSERT_TRUE(Start().ok());
  const ProtocolParts parts = world_.Parts(gate_.get());
  for (const char* address :
       {"", "nowhere", ":8001", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:x"}) {
    EXPECT_EQ(StartGrpcServer(parts, address).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_EQ(StartGrpcServer(parts, server_->address()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(GrpcSecurityTest, OversizedMessagesAreRefusedAndTheServerGoesOn) {
  config().body_bytes_max = 1 << 20;
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(CallBytes("/inference.GRPCInferenceService/ModelInfer", std::string(2 << 20, 'x'))
                .error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext context;
  context.AddMetadata("x", std::string(64 << 10, 'x'));
  inference::ModelInferResponse response;
  EXPECT_EQ(stub_->ModelInfer(&context, Request({1}), &response).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  // gRPC may close the connection that sent such metadata; the server accepts another one.
  Connect(grpc::InsecureChannelCredentials());
  const grpc::Status after = InferWith(nullptr);
  EXPECT_TRUE(after.ok()) << after.error_message();
}

// Catches: messages that expand to a multiple of their size, in methods that need no token.
TEST_F(GrpcSecurityTest, OnlyInferencesAreLarge) {
  ASSERT_TRUE(Start().ok());
  const auto live_with = [this](size_t groups) {  // empty groups of an unknown field
    std::string message;
    for (size_t i = 0; i < groups; ++i) message += "\x7b\x7c";
    return CallBytes("/inference.GRPCInferenceService/ServerLive", message).error_code();
  };
  EXPECT_EQ(live_with(1000), StatusCode::OK);
  EXPECT_EQ(live_with(40'000), StatusCode::RESOURCE_EXHAUSTED);
  inference::RepositoryIndexRequest request;
  request.set_repository_name(std::string(100'000, 'x'));
  for (const auto packing : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(packing);
    inference::RepositoryIndexResponse index;
    EXPECT_EQ(stub_->RepositoryIndex(&context, request, &index).error_code(),
              StatusCode::RESOURCE_EXHAUSTED);
  }
}

// A decompression bomb: 16 MiB of zeros in a few KiB. The limit is for the inflated size.
TEST_F(GrpcSecurityTest, CompressedMessagesAreBoundedWhenUnpacked) {
  config().body_bytes_max = 1 << 20;
  ASSERT_TRUE(Start().ok());
  inference::ModelInferRequest request = Request({1});
  request.set_raw_input_contents(0, std::string(16 << 20, '\0'));
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  inference::ModelInferResponse response;
  EXPECT_EQ(stub_->ModelInfer(&context, request, &response).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(InferWith(nullptr).ok());
}

}  // namespace
}  // namespace hps::server
