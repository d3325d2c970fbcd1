stream_places.o: src/server/grpc/stream_places.cc \
  /work/ci3/src/server/grpc/stream_places.h /work/ci3/src/base/macros.h
