http_client.o: cli/http_client.cc /work/ci3/cli/http_client.h
