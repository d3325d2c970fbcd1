stream_places_test.o: src/server/grpc/stream_places_test.cc \
  /work/ci3/src/server/grpc/stream_places.h
