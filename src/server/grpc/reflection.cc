#include "server/grpc/reflection.h"

#include <array>
#include <memory>

#include "absl/status/status.h"
#include "base/macros.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "server/grpc/proto/grpc/health/v1/health.pb.h"
#include "server/grpc/proto/grpc/reflection/v1alpha/reflection.pb.h"
#include "server/grpc/proto/inference.pb.h"

namespace hps::server {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using Request = grpc::reflection::v1::ServerReflectionRequest;
using Response = grpc::reflection::v1::ServerReflectionResponse;

// The files of all services. None imports another.
std::array<const FileDescriptor*, 4> ServedFiles() {
  return {inference::ServerLiveRequest::descriptor()->file(),
          grpc::health::v1::HealthCheckRequest::descriptor()->file(),
          grpc::reflection::v1::ServerReflectionRequest::descriptor()->file(),
          grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file()};
}

// A pool of the served files only. protobuf's generated pool remembers each unknown name that it
// was asked for, so that clients could use up the memory.
const DescriptorPool& ServedPool() {
  static const std::unique_ptr<const DescriptorPool> pool = [] {
    auto made = std::make_unique<DescriptorPool>();
    for (const FileDescriptor* const file : ServedFiles()) {
      FileDescriptorProto proto;
      file->CopyTo(&proto);
      HPS_CHECK(made->BuildFile(proto) != nullptr);
    }
    return made;
  }();
  return *pool;
}

void SetError(absl::StatusCode code, const char* message, Response* response) {
  response->mutable_error_response()->set_error_code(static_cast<int>(code));
  response->mutable_error_response()->set_error_message(message);
}

void SetFile(const FileDescriptor* file, Response* response) {
  if (file == nullptr) {
    return SetError(absl::StatusCode::kNotFound, "the server has no such file or symbol", response);
  }
  FileDescriptorProto proto;
  file->CopyTo(&proto);
  response->mutable_file_descriptor_response()->add_file_descriptor_proto(
      proto.SerializeAsString());
}

void ListServices(Response* response) {
  for (const FileDescriptor* const file : ServedFiles()) {
    for (int i = 0; i < file->service_count(); ++i) {
      response->mutable_list_services_response()->add_service()->set_name(
          file->service(i)->full_name());
    }
  }
}

}  // namespace

Response Reflect(const Request& request) {
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      SetFile(ServedPool().FindFileByName(request.file_by_filename()), &response);
      break;
    case Request::kFileContainingSymbol:
      SetFile(ServedPool().FindFileContainingSymbol(request.file_containing_symbol()), &response);
      break;
    case Request::kListServices:
      ListServices(&response);
      break;
    case Request::kFileContainingExtension:
    case Request::kAllExtensionNumbersOfType:
      SetError(absl::StatusCode::kNotFound, "the services have no extensions", &response);
      break;
    case Request::MESSAGE_REQUEST_NOT_SET:
      SetError(absl::StatusCode::kInvalidArgument, "the reflection request asks for nothing",
               &response);
      break;
  }
  return response;
}

}  // namespace hps::server
