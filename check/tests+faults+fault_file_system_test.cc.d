fault_file_system_test.o: tests/faults/fault_file_system_test.cc \
  /work/ci3/tests/faults/fault_file_system.h /work/ci3/src/base/mutex.h \
  /work/ci3/src/base/macros.h \
  /work/ci3/tests/faults/temporary_directory.h
