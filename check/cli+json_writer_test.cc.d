json_writer_test.o: cli/json_writer_test.cc /work/ci3/cli/json_writer.h
