serve_http_echo.o: bench/serve_http_echo.cc \
  /work/ci3/bench/serve_client.h /work/ci3/include/hps/types.h
