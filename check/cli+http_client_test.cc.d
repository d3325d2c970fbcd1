http_client_test.o: cli/http_client_test.cc /work/ci3/cli/http_client.h
