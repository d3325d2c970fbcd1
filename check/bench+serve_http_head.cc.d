serve_http_head.o: bench/serve_http_head.cc \
  /work/ci3/bench/serve_http_head.h
