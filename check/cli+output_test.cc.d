output_test.o: cli/output_test.cc /work/ci3/cli/output.h \
  /work/ci3/cli/json_writer.h
