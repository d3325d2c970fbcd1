grpc_client.o: tests/server/grpc_client.cc
