buffer_pool.o: src/server/net/buffer_pool.cc \
  /work/ci3/src/server/net/buffer_pool.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h
