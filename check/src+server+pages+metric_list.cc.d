metric_list.o: src/server/pages/metric_list.cc \
  /work/ci3/src/server/pages/metric_list.h \
  /work/ci3/src/server/core/server_statistics.h
