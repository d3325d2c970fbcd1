#include "server/grpc/reflection.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.pb.h"

namespace hps::server {
namespace {

using google::protobuf::FileDescriptorProto;
using Request = grpc::reflection::v1::ServerReflectionRequest;
using Response = grpc::reflection::v1::ServerReflectionResponse;

const std::vector<std::string> kServices = {
    "inference.GRPCInferenceService", "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"};

Response FileOfSymbol(const std::string& symbol) {
  Request request;
  request.set_file_containing_symbol(symbol);
  return Reflect(request);
}

// The name of the only file of an answer; otherwise empty.
std::string FileName(const Response& response) {
  FileDescriptorProto file;
  const auto& files = response.file_descriptor_response();
  const bool has_one = files.file_descriptor_proto_size() == 1;
  return has_one && file.ParseFromString(files.file_descriptor_proto(0)) ? file.name() : "";
}

int ErrorCode(const Response& response) { return response.error_response().error_code(); }

TEST(ReflectionTest, ListsTheServicesAndEchoesTheRequest) {
  Request request;
  request.set_host("here");
  request.set_list_services("*");
  const Response response = Reflect(request);
  EXPECT_EQ(response.valid_host(), "here");
  EXPECT_EQ(response.original_request().list_services(), "*");
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service())
    names.push_back(service.name());
  EXPECT_EQ(names, kServices);
}

TEST(ReflectionTest, EveryServiceHasAFileThatImportsNoOther) {
  for (const std::string& service : kServices) {
    const Response response = FileOfSymbol(service);
    ASSERT_NE(FileName(response), "") << service;
    FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(response.file_descriptor_response().file_descriptor_proto(0)));
    EXPECT_EQ(file.package() + "." + file.service(0).name(), service);
    EXPECT_EQ(file.dependency_size(), 0);
    Request request;
    request.set_file_by_filename(file.name());
    EXPECT_EQ(FileName(Reflect(request)), file.name());
  }
}

TEST(ReflectionTest, FindsTheFilesOfMethodsAndMessages) {
  for (const char* const symbol :
       {"inference.GRPCInferenceService.ModelInfer", "inference.ModelInferRequest",
        "inference.ModelInferRequest.InferInputTensor"}) {
    EXPECT_EQ(FileName(FileOfSymbol(symbol)), "inference.proto") << symbol;
  }
}

// google.protobuf.* is in the process, but no service uses it.
TEST(ReflectionTest, AnErrorIsPartOfTheAnswer) {
  const int not_found = static_cast<int>(absl::StatusCode::kNotFound);
  for (const char* const symbol :
       {"", "inference.Nothing", "google.protobuf.FileDescriptorProto"}) {
    EXPECT_EQ(ErrorCode(FileOfSymbol(symbol)), not_found) << symbol;
  }
  Request request;
  request.set_file_by_filename("google/protobuf/descriptor.proto");
  EXPECT_EQ(ErrorCode(Reflect(request)), not_found);
  request.mutable_file_containing_extension()->set_containing_type("inference.ModelInferRequest");
  EXPECT_EQ(ErrorCode(Reflect(request)), not_found);
  request.set_all_extension_numbers_of_type("inference.ModelInferRequest");
  EXPECT_EQ(ErrorCode(Reflect(request)), not_found);
  EXPECT_EQ(ErrorCode(Reflect(Request())), static_cast<int>(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace hps::server
