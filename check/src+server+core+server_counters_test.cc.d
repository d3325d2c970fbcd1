server_counters_test.o: src/server/core/server_counters_test.cc \
  /work/ci3/src/server/core/server_counters.h /work/ci3/src/base/clock.h \
  /work/ci3/src/server/core/inference_call.h \
  /work/ci3/src/server/core/tensor.h \
  /work/ci3/src/server/core/server_statistics.h \
  /work/ci3/src/server/core/model_counters.h
