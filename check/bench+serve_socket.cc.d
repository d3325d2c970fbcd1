serve_socket.o: bench/serve_socket.cc /work/ci3/bench/serve_socket.h \
  /work/ci3/src/base/macros.h
