// Asks a server for rows of one table over gRPC: what the demo and the command's tests check with.
//
//   hps_grpc_client HOST:PORT MODEL TABLE KEYS ROWS
//
// KEYS is a file of int64; the rows go to the file ROWS as float32. Says nothing when it is done.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <string>

#include "server/grpc/proto/inference.grpc.pb.h"

namespace {

int Ask(char** argv) {
  std::ifstream keys_file(argv[4], std::ios::binary);
  const std::string keys{std::istreambuf_iterator<char>(keys_file), {}};
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
  const auto stub = inference::GRPCInferenceService::NewStub(
      grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments));
  inference::ModelInferRequest request;
  request.set_model_name(argv[2]);
  auto& input = *request.add_inputs();
  input.set_name(argv[3]);
  input.set_datatype("INT64");
  input.add_shape(static_cast<int64_t>(keys.size() / sizeof(int64_t)));
  request.add_raw_input_contents(keys);
  inference::ModelInferResponse response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const grpc::Status status = stub->ModelInfer(&context, request, &response);
  if (!status.ok() || response.raw_output_contents_size() != 1) {
    std::cerr << "gRPC " << status.error_code() << ": " << status.error_message() << "\n";
    return 1;
  }
  std::ofstream rows(argv[5], std::ios::binary);
  rows << response.raw_output_contents(0);
  return rows.flush() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: hps_grpc_client HOST:PORT MODEL TABLE KEYS ROWS\n";
    return 2;
  }
  return Ask(argv);
}
