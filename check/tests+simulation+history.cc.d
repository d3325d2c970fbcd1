history.o: tests/simulation/history.cc \
  /work/ci3/tests/simulation/history.h /work/ci3/include/hps/types.h \
  /work/ci3/src/tier/stamped_row.h
