json_writer.o: cli/json_writer.cc /work/ci3/cli/json_writer.h
