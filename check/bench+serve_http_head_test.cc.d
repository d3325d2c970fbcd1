serve_http_head_test.o: bench/serve_http_head_test.cc \
  /work/ci3/bench/serve_http_head.h
