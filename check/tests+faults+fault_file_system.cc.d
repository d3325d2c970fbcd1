fault_file_system.o: tests/faults/fault_file_system.cc \
  /work/ci3/tests/faults/fault_file_system.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h
