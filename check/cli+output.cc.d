output.o: cli/output.cc /work/ci3/cli/output.h \
  /work/ci3/cli/json_writer.h
